"""``consilience inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.app import Aliases, Classes, Json, app, kind, open_teachers, tell_unused_aliases


@app.command()
def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Teachers: .onnx, .npy, .npz or .parquet.")
    ],
    classes: Classes = None,
    aliases: Aliases = None,
    as_json: Json = False,
) -> None:
    """Show the label space of some teachers: their classes, overlaps and components.

    \b
    Example:
        consilience inspect birds.onnx pets.npz
        consilience inspect birds.onnx pets.npy --classes pets=cat,dog,wren
    """
    from consilience.cli import console
    from consilience.files import readers
    from consilience.labels import LabelSpace

    teachers = open_teachers(files, classes)
    # the view shows what a warning would say
    space = LabelSpace(
        [teacher.classes for teacher in teachers],
        readers.read_aliases(aliases),
        names=[teacher.name for teacher in teachers],
        disconnected="ignore",
    )
    tell_unused_aliases(space)
    view = console.space_view(space, [kind(file) for file in files])
    (console.show_json if as_json else console.show_space)(view)

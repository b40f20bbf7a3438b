"""``consilience inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.app import Aliases, Cache, Classes, Json, Quiet, app, kind, open_teachers, text
from consilience.exceptions import InvalidInputError


@app.command()
def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="Teachers: .onnx, .npy, .npz or .parquet.")
    ],
    classes: Classes = None,
    aliases: Aliases = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Unlabelled rows for --suggest: .npy, .npz, .csv or .parquet."),
    ] = None,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Suggest which names are one class, and which are two, from rows of --data."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the suggested aliases here, for unify --aliases."),
    ] = None,
    cache: Cache = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the label space of some teachers: their classes, overlaps and components.

    \b
    Example:
        consilience inspect birds.onnx pets.npz
        consilience inspect birds.onnx pets.npy --classes pets=cat,dog,wren
        consilience inspect birds.onnx pets.npz --data X.npy --suggest --out aliases.json
    """
    from consilience.cli import console
    from consilience.files import readers
    from consilience.labels import LabelSpace
    from consilience.unify.alias_warnings import warn_of_unused
    from consilience.unify.aliases import suggest_aliases

    if suggest != (data is not None):
        raise InvalidInputError("--suggest and --data go together: give both, or neither.")
    if not suggest and (out is not None or cache is not None):
        raise InvalidInputError("--out and --cache are for --suggest. Give --suggest and --data, too.")
    readers.check_target(out, (".json",), "--out")
    given = readers.read_aliases(aliases)
    teachers = open_teachers(files, classes)
    # the view shows what a warning would say
    space = LabelSpace(
        [teacher.classes for teacher in teachers],
        given,
        names=[teacher.name for teacher in teachers],
        disconnected="ignore",
    )
    view = console.space_view(space, [kind(file) for file in files])
    if data is None:
        warn_of_unused(space)
    else:
        X = readers.read_rows(data, "--data")
        with console.progress_bars(quiet=quiet) as progress:
            found = suggest_aliases(teachers, X, aliases=given, cache=cache, progress=progress)
        view |= {"suggestions": found.to_dict(), "out": text(out)}
        if out is not None:
            readers.write_aliases(out, found.aliases)
    (console.show_json if as_json else console.show_space)(view)

"""``consilience inspect``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli.app import (
    Aliases,
    Cache,
    CacheLimit,
    Classes,
    Json,
    Quiet,
    app,
    kind,
    open_teachers,
    read_data,
    text,
)
from consilience.exceptions import InvalidInputError

if TYPE_CHECKING:
    from consilience.teachers import Teacher


@app.command()
def inspect(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...",
            help="Teachers: .onnx, .skops, .npy, .npz, .parquet, model folders, addresses or .toml files.",
        ),
    ],
    classes: Classes = None,
    aliases: Aliases = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Unlabelled rows for --suggest: .npy, .npz, .csv, .parquet or .txt (a text a line); or a "
            "folder of such files.",
        ),
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
    cache_limit: CacheLimit = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the classes of some teachers, their overlaps and components, and what each takes and gives.

    \b
    Example:
        consilience inspect birds.onnx pets.npz
        consilience inspect birds.onnx pets.npy --classes pets=cat,dog,wren
        consilience inspect birds.onnx pets.npz --data X.npy --suggest --out aliases.json
    """
    from consilience.cli import console
    from consilience.files import readers
    from consilience.inspect.aliases import suggest_aliases
    from consilience.inspect.matching import warn_of_unused
    from consilience.labels import LabelSpace
    from consilience.run import Run
    from consilience.scoring.store import as_store

    if suggest != (data is not None):
        raise InvalidInputError("--suggest and --data go together: give both, or neither.")
    if not suggest and (out is not None or cache is not None):
        raise InvalidInputError("--out and --cache are for --suggest. Give --suggest and --data, too.")
    store = as_store(cache, cache_limit)
    readers.check_target(out, (".json",), "--out", [data, aliases], files)
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
    for about, teacher in zip(view["teachers"], teachers, strict=True):
        about |= interface_view(teacher)
    if data is None:
        warn_of_unused(space)
    else:
        X = read_data(data, teachers)
        with console.progress_bars(quiet=quiet) as progress:
            run = Run(cache=store, progress=progress)
            found = suggest_aliases(teachers, X, aliases=given, run=run)
        view |= {"suggestions": found.to_dict(), "out": text(out)}
        if out is not None:
            readers.write_aliases(out, found.aliases)
    if as_json:
        console.show_json(view)
        return
    console.show_space(view)
    if suggest:
        console.console().print(console.escape(f"\n{found!r}"), soft_wrap=True)
    if suggest and out is not None:
        words = f"\nThe aliases are in {text(out)}. Look at the rows before you use them."
        console.console().print(console.escape(words), soft_wrap=True)
    show_interfaces(view["teachers"])


def interface_view(teacher: Teacher) -> dict[str, Any]:
    """Return what a teacher takes and gives, as far as its file says, ready for JSON."""
    inputs = teacher.inputs
    return {
        "inputs": None if inputs is None else [asdict(item) | {"shape": list(item.shape)} for item in inputs],
        "output": teacher.output,
    }


def show_interfaces(teachers: Sequence[Mapping[str, Any]], most: int = 20) -> None:
    """Draw the inputs of models, and what they give; outputs in files have none."""
    from consilience.cli import console

    models = [teacher for teacher in teachers if teacher["inputs"] is not None]
    if not models:
        return
    out = console.console()
    out.print("\n[bold]What the models take and give[/]")
    table = console.plain_table("teacher", "input", "type", "shape", "gives")
    for teacher in models:
        gives = f"{teacher['output'] or 'scores'} (n x {teacher['n_classes']})"
        for i, item in enumerate(teacher["inputs"][:most]):
            shape = " x ".join("n" if length is None else str(length) for length in item["shape"])
            first = (teacher["name"], gives) if i == 0 else ("", "")
            table.add_row(*map(console.escape, (first[0], item["name"], item["dtype"], shape, first[1])))
        if len(teacher["inputs"]) > most:
            table.add_row("", f"and {len(teacher['inputs']) - most} more", "", "", "")
    out.print(table)

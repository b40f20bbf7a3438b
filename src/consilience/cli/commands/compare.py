"""``consilience compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.app import (
    STUDENTS,
    Aliases,
    BatchSize,
    Cache,
    CacheLimit,
    Classes,
    Drop,
    Json,
    Quiet,
    Seed,
    Teachers,
    app,
    check_cache,
    first_rows,
    open_teachers,
    read_data,
)


@app.command()
def compare(
    teacher: Teachers,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Rows: .npy, .npz (key X), .csv, .parquet or .txt (a text a line)."
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels to measure with, where known; no student learns them."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A method to compare. Repeat.  [default: auto, ranks, mf-lf, ce and sd]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Vary only the method and balancing.")] = False,
    student: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(STUDENTS)}. [default: logistic, the cheapest; for texts, ngrams]"
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="Use at most this many rows, evenly spaced.")] = 2000,
    classes: Classes = None,
    aliases: Aliases = None,
    drop: Drop = None,
    cache: Cache = None,
    cache_limit: CacheLimit = None,
    batch_size: BatchSize = 4096,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare ways to unify on your own rows, with labels or without.

    \b
    Example:
        consilience compare --teacher birds.onnx --teacher pets.npz --data X.npy
        consilience compare -t birds.onnx -t pets.npz --data X.npy --labels y.npy --quick
    """
    from consilience._validation import check_choice, check_count
    from consilience.cli import console
    from consilience.files import readers
    from consilience.inspect.comparison import METHODS
    from consilience.methods import METHODS as KNOWN
    from consilience.run import Run
    from consilience.students.make import holds_texts
    from consilience.unify.unifier import Unifier

    if student is not None:
        check_choice("student", student, STUDENTS)
    for name in method or ():
        check_choice("method", name, KNOWN)
    check_count("rows", rows, at_least=4)
    check_count("seed", seed, at_least=0)
    check_cache(cache, cache_limit)
    teachers = open_teachers(teacher, classes)
    X = read_data(data, teachers, drop=drop)
    y = None if labels is None else readers.read_labels(labels, len(X), "--labels")
    default = "ngrams" if holds_texts(first_rows(X)) else "logistic"
    with console.progress_bars(quiet=quiet) as progress:
        unifier = Unifier(
            teachers,
            aliases=readers.read_aliases(aliases),
            disconnected="ignore",  # the table says what this means
            random_state=seed,
            run=Run(cache=cache, cache_limit=cache_limit, rows_per_call=batch_size, progress=progress),
        )
        found = unifier.compare(
            X,
            y,
            methods=method or METHODS,
            teacher_temperatures=(None,) if quick else (None, "agreement"),
            self_label=(False,) if quick else (False, True),
            student=None if student == "auto" else student or default,
            max_rows=rows,
        )
    view = found.to_dict() | {"seed": seed}
    if as_json:
        console.show_json(view)
    else:
        console.console().print(console.escape(repr(found)), soft_wrap=True)

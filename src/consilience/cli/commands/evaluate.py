"""``consilience evaluate``."""

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
    Memory,
    Quiet,
    Report,
    Seed,
    app,
    check_report,
    open_teachers,
    read_data,
)


@app.command()
def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A model or its outputs: .onnx, .skops, .npz, .npy, .parquet, a model folder or an address.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Rows to measure on: .npy, .npz (key X), .csv, .parquet, .txt (a text a line) or a folder.",
        ),
    ],
    labels: Annotated[
        Path, typer.Option(metavar="FILE", help="The class of each row. Rows without one are left out.")
    ],
    teacher: Annotated[
        list[Path] | None,
        typer.Option("--teacher", "-t", metavar="FILE", help="A teacher to compare the model with. Repeat."),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="Also train a student on these labels alone, cross-validated: "
            f"one of {', '.join(STUDENTS)}. By default none is trained."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of that cross-validation.")] = 5,
    bins: Annotated[int, typer.Option(help="Bins of the calibration error.")] = 15,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    classes: Classes = None,
    aliases: Aliases = None,
    drop: Drop = None,
    memory: Memory = None,
    cache: Cache = None,
    cache_limit: CacheLimit = None,
    batch_size: BatchSize = 4096,
    seed: Seed = 0,
    report: Report = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a model on labelled rows, beside its teachers and their vote.

    \b
    Example:
        consilience evaluate unified.onnx --data X_test.npy --labels y_test.npy
        consilience evaluate unified.onnx --data X.csv --labels y.csv -t birds.onnx -t pets.onnx \\
            --student logistic
    """
    from consilience._validation import check_choice, check_count
    from consilience.cli import console
    from consilience.files import readers
    from consilience.inspect.evaluate import evaluate_teacher
    from consilience.rows import as_rows
    from consilience.run import Run
    from consilience.scoring.store import as_store

    if student is not None:
        check_choice("student", student, STUDENTS)
    check_count("seed", seed, at_least=0)
    check_report(report)
    store = as_store(cache, cache_limit)
    opened = open_teachers([model, *(teacher or [])], classes)
    X = as_rows(read_data(data, opened, memory, drop), "--data").all(Run(memory=memory))
    y = readers.read_labels(labels, len(X), "--labels")
    with console.progress_bars(quiet=quiet) as progress:
        found = evaluate_teacher(
            opened[0],
            X,
            y,
            teachers=opened[1:],
            aliases=readers.read_aliases(aliases),
            labels_only=student is not None,
            student=None if student == "auto" else student,
            n_folds=folds,
            confidence=confidence,
            n_bins=bins,
            run=Run(rows_per_call=batch_size, cache=store, progress=progress),
            random_state=seed,
            where="--labels",
        )
    if report is not None:
        found.report(report)
    view = {"model": str(model), **found.to_dict(), "seed": seed}
    if as_json:
        console.show_json(view)
    else:
        console.console().print(console.escape(f"model: {model}\n{found!r}"), soft_wrap=True)

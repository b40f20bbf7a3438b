"""``consilience evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    from consilience.inspect.evaluate import evaluate_model
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
        found = evaluate_model(
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
            batch_size=batch_size,
            cache=store,
            progress=progress,
            random_state=seed,
            where="--labels",
        )
    if report is not None:
        found.report(report)
    view = {"model": str(model), **found.to_dict(), "seed": seed}
    (console.show_json if as_json else show_evaluation)(view)


def show_evaluation(view: Mapping[str, Any]) -> None:
    """Draw the result of `Evaluation.to_dict`."""
    from consilience._words import counted, percent, shorten
    from consilience.cli import console
    from consilience.inspect.evaluation import MOST_CLASSES, MOST_CONFUSED, figures, worst_first

    out = console.console()
    low, high = map(percent, view["interval"])
    level, unlabelled = f"{100 * view['confidence']:g}%", view["n_unlabelled"]
    rows = f"{counted(view['n_rows'], 'row')} of {counted(view['n_classes'], 'class')}"
    facts: dict[str, str | None] = {
        "model": view["model"],
        "rows": rows + (f", and {unlabelled} without a label, left out" if unlabelled else ""),
        "accuracy": f"{percent(view['accuracy'])} ({level} interval: {low} to {high})",
        "balanced accuracy": percent(view["balanced_accuracy"]),
        "log-loss": f"{view['log_loss']:.3f}",
        "calibration error": f"{percent(view['calibration_error'])} ({counted(view['n_bins'], 'bin')})",
    }
    out.print(console.facts_table(facts))
    if view["compared"]:
        names = ("accuracy", "balanced", "log-loss", "calibration")
        heads = [head for name in names for head in (f">{name}", ">model")]
        table = console.plain_table("beside", ">rows", ">classes", *heads)
        for row in view["compared"]:
            cells = (str(row["other"]["n_rows"]), str(row["n_classes"]), *figures(row))
            table.add_row(console.escape(row["name"]), *cells)
        out.print(table)
    table = console.plain_table("class", ">rows", ">predicted", ">precision", ">recall", "best teacher")
    for row in worst_first(view["by_class"])[:MOST_CLASSES]:
        best = "" if row["teacher"] is None else f"{row['teacher']} {percent(row['teacher_recall'])}"
        shares = (percent(row["precision"]), percent(row["recall"]))
        cells = (str(row["name"]), str(row["n_rows"]), str(row["n_predicted"]), *shares, best)
        table.add_row(*map(console.escape, cells), style="bold" if row["lost"] else None)
    out.print(table)
    if view["n_classes"] > MOST_CLASSES:
        out.print(f"The {MOST_CLASSES} classes with the lowest recall; --json has all.")
    for pair in view["confused"][:MOST_CONFUSED]:
        words = f"{shorten([pair['truth']])} taken for {shorten([pair['predicted']])}"
        out.print(f"{console.escape(words)}: {counted(pair['n_rows'], 'row')} ({percent(pair['share'])})")
    for remark in view["remarks"]:
        out.print(console.escape(remark), soft_wrap=True)

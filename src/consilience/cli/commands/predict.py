"""``consilience predict``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.app import Json, Quiet, app


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What unify or distil wrote: .onnx or .npz.")
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Rows: .csv, .parquet, .npy, .npz (key X) or .txt (a text a line); a folder of such files "
            "or of images, or a pattern.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Write predictions here: .csv or .parquet (label and probabilities), .npz, .npy "
            "(probabilities) or .txt (a label per line).",
        ),
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Copy this column of --data to --out, such as a key; for images: file. Repeat.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Rows that are in memory at a time.")] = 4096,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the rows of a file of any length.

    \b
    Example:
        consilience predict unified.onnx --data rows.csv --out predictions.csv --keep patient
        consilience predict languages.npz --data texts.txt --out labels.txt
    """
    from consilience._validation import check_count
    from consilience.cli import console
    from consilience.files import readers
    from consilience.files.readers import ENDINGS
    from consilience.students.loaded import load, predict_file

    check_count("batch_size", batch_size)
    readers.check_target(out, ENDINGS, "--out", [data], [model])
    loaded = load(model)
    with console.progress_bars(quiet=quiet) as progress:
        found = predict_file(
            loaded, data, out, keep=keep or (), batch_size=batch_size, progress=progress, option="--data"
        )
    view = {
        "model": str(model),
        "data": str(data),
        "out": str(out),
        "n_rows": found.n_rows,
        "n_classes": len(found.classes),
        "classes": found.classes.tolist(),
        "counts": found.counts.tolist(),
        "confidence": found.confidence,
    }
    (console.show_json if as_json else show_predicted)(view)


def show_predicted(view: Mapping[str, Any], most: int = 30) -> None:
    """Draw how many rows were given each class, the most frequent first."""
    from consilience._words import percent
    from consilience.cli import console

    out, rows = console.console(), view["n_rows"]
    table = console.plain_table("class", ">rows", ">share")
    pairs = sorted(zip(view["classes"], view["counts"], strict=True), key=lambda pair: -pair[1])
    for name, count in pairs[:most]:
        table.add_row(console.escape(str(name)), str(count), percent(count / rows))
    if len(pairs) > most:
        table.add_row("...", f"{sum(count for _, count in pairs[most:])}", "")
    out.print(table)
    facts = {
        "rows": str(rows),
        "mean confidence": percent(view["confidence"]),
        "predictions": view["out"],
    }
    out.print(console.facts_table(facts))

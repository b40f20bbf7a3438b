"""``consilience score``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from consilience.cli.app import (
    BatchSize,
    Cache,
    CacheLimit,
    Classes,
    Json,
    Memory,
    Quiet,
    app,
    check_memory,
    open_teachers,
    read_data,
    shown,
)


@app.command()
def score(
    teacher: Annotated[
        Path,
        typer.Option(
            "--teacher",
            "-t",
            metavar="FILE",
            help="The teacher: .onnx, .skops, .npz of texts, a model folder, an address or .toml.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Rows: .npy, .npz (key X), .csv, .parquet or .txt (a text a line); a folder of such files "
            "or of images, or a pattern.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Write its outputs here: .npz, .npy or .parquet; and a card."),
    ],
    classes: Classes = None,
    memory: Memory = None,
    cache: Cache = None,
    cache_limit: CacheLimit = None,
    batch_size: BatchSize = 4096,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write what a teacher says about some rows, for others to unify: the model itself stays where it is.

    \b
    Example:
        consilience score --teacher birds.onnx --data X.csv --out birds_scores.npz
        consilience unify --teacher birds_scores.npz --teacher pets.onnx --data X.csv --out unified.onnx
    """
    from consilience._validation import check_count
    from consilience.cli import console
    from consilience.files import readers
    from consilience.scoring.files import SCORES, write_scores
    from consilience.scoring.store import as_store

    check_count("batch_size", batch_size)
    store = as_store(cache, cache_limit)
    check_memory(memory)
    readers.check_target(out, SCORES, "--out", [data], [teacher])
    (opened,) = open_teachers([teacher], classes)
    X = read_data(data, [opened], memory)
    with console.progress_bars(quiet=quiet) as progress:
        found = write_scores(out, opened, X, batch_size=batch_size, store=store, progress=progress)
    view = {
        "teacher": shown(teacher),
        "data": str(data),
        "out": str(out),
        "n_rows": found.n_rows,
        "n_classes": len(opened.classes),
        "classes": opened.classes.tolist(),
        "abstentions": found.n_abstentions,
        "rows_sha256": found.rows_sha256,
    }
    (console.show_json if as_json else show_scored)(view)


def show_scored(view: Mapping[str, Any]) -> None:
    """Draw what was written."""
    from consilience._words import shorten
    from consilience.cli import console

    facts = {
        "teacher": view["teacher"],
        "classes": f"{view['n_classes']}: {shorten(view['classes'])}",
        "rows": f"{view['n_rows']}, abstains on {view['abstentions']}",
        "scores": view["out"],
    }
    console.console().print(console.facts_table(facts))

"""How fast scores come from disk: hash the rows, look them up and read them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.speed.measures import Options, Result
from benchmarks.speed.problem import best_of
from consilience import as_teacher
from consilience.teachers.scoring.engine import observe
from consilience.teachers.scoring.store import ScoreStore

COLUMNS, CLASSES = 64, 10


def store(options: Options) -> Iterator[Result]:
    """Read known rows and write new ones: rows of 64 numbers, 10 logits, 64 features."""
    rows = 20_000 if options.quick else 200_000
    X = np.random.default_rng(options.seed).normal(size=(rows, COLUMNS))
    sizes = {"rows": rows, "columns": COLUMNS, "classes": CLASSES}

    def logits(part: Any) -> Any:
        return part[:, :CLASSES]

    teacher = as_teacher(
        logits, range(CLASSES), output="logits", embed=lambda part: part, fingerprint="speed"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = ScoreStore(f"{folder}/kept")
        observe(teacher, X, store=kept)
        read = best_of(options.repeats, lambda: observe(teacher, X, store=kept))

        def write() -> None:
            kept.clear()
            observe(teacher, X, store=kept)

        written = best_of(options.repeats, write)
    plain = best_of(options.repeats, lambda: observe(teacher, X))
    note = f"without a store, by a teacher that takes no time, {plain:.2g} s"
    yield Result("scores from disk", rows / read, "rows/s", 200_000, ours=read, note=note, sizes=sizes)
    yield Result("scores to disk", rows / written, "rows/s", ours=written, sizes=sizes)


MEASURES: dict[str, Callable[[Options], Iterator[Result]]] = {"store": store}

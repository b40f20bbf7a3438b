"""How fast scores come from disk: hash the rows, look them up and read them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.speed.measures import Options, Result
from benchmarks.speed.problem import best_of
from consilience.rows.rows import BLOCK_ROWS
from consilience.run import Run
from consilience.scoring import observe
from consilience.scoring.store import ScoreStore
from consilience.teachers import Function, Observed

COLUMNS, CLASSES = 64, 10
STREAMED = 150  # classes of a stream
SHIFT = 100  # rows by which blocks are moved


def store(options: Options) -> Iterator[Result]:
    """Read known rows and write new ones: rows of 64 numbers, 10 logits, 64 features."""
    rows = 20_000 if options.quick else 200_000
    X = np.random.default_rng(options.seed).normal(size=(rows, COLUMNS))
    sizes = {"rows": rows, "columns": COLUMNS, "classes": CLASSES}

    def logits(part: Any) -> Any:
        return part[:, :CLASSES]

    teacher = Function(logits, range(CLASSES), output="logits", embed=lambda part: part, fingerprint="speed")
    with tempfile.TemporaryDirectory() as folder:
        kept = ScoreStore(f"{folder}/kept")
        observe(teacher, X, Run(cache=kept))
        read = best_of(options.repeats, lambda: observe(teacher, X, Run(cache=kept)))

        def write() -> None:
            kept.clear()
            observe(teacher, X, Run(cache=kept))

        written = best_of(options.repeats, write)
    plain = best_of(options.repeats, lambda: observe(teacher, X, Run()))
    note = f"without a store, by a teacher that takes no time, {plain:.2g} s"
    yield Result("scores from disk", rows / read, "rows/s", 200_000, ours=read, note=note, sizes=sizes)
    yield Result("scores to disk", rows / written, "rows/s", ours=written, sizes=sizes)


def blocks(options: Options) -> Iterator[Result]:
    """Write a stream of blocks and read it again: in order, and in other blocks. Row hashes are given."""
    rows = 500_000 if options.quick else 5_000_000
    random = np.random.default_rng(options.seed)
    digests = random.integers(0, 2**64, size=(rows, 2), dtype=np.uint64)
    logits = random.normal(size=(BLOCK_ROWS, STREAMED)).astype(np.float32)
    sizes = {"rows": rows, "classes": STREAMED, "block": BLOCK_ROWS}

    def write() -> None:
        kept = ScoreStore(folder)
        kept.clear()
        shelf = kept.shelf("speed", STREAMED)
        for part in _blocks(digests):
            shelf.add(part, Observed(logits[: len(part)], None), embeddings=False)

    def read(start: int = 0) -> None:
        shelf = ScoreStore(folder).shelf("speed", STREAMED)
        for part in _blocks(digests[start:]):
            assert shelf.find(part, embeddings=False)[0].all()

    with tempfile.TemporaryDirectory() as above:
        folder = f"{above}/kept"
        written = best_of(min(options.repeats, 2), write)
        ordered = best_of(options.repeats, read)
        shifted = best_of(1, lambda: read(SHIFT))
    note = "float32, checksums verified, from the page cache"
    yield Result(
        "blocks of a stream from disk", rows / ordered, "rows/s", 1_000_000, ours=ordered, note=note,
        sizes=sizes,
    )  # fmt: skip
    note = "not synced: a kill loses nothing, and damage by a power cut is found out"
    yield Result(
        "blocks of a stream to disk", rows / written, "rows/s", 500_000, ours=written, note=note, sizes=sizes
    )
    note = f"blocks that begin {SHIFT} rows later than the stored ones"
    yield Result("other blocks from disk", rows / shifted, "rows/s", ours=shifted, note=note, sizes=sizes)


def _blocks(digests: Any) -> Iterator[Any]:
    for start in range(0, len(digests), BLOCK_ROWS):
        yield digests[start : start + BLOCK_ROWS]


MEASURES: dict[str, Callable[[Options], Iterator[Result]]] = {"store": store, "blocks": blocks}

"""A teacher's outputs as a file that is a teacher again, for sites that may not give their model away."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience._version import __version__
from consilience.files.card import KEY, Card, carded, date_now, rows_sha256
from consilience.files.disk import replacing
from consilience.labels import LabelSpace
from consilience.rows import Rows, new_array
from consilience.run import Progress, Run, silent
from consilience.scoring.engine import observe
from consilience.scoring.store import ScoreStore, as_store
from consilience.scoring.stream import score_blocks
from consilience.teachers import Teacher

SCORES = (".npz", ".npy", ".parquet")


@dataclass(frozen=True)
class WrittenScores:
    """What was written.

    Attributes
    ----------
    n_rows : int
    n_abstentions : int
        Rows about which the teacher says nothing.
    rows_sha256 : str or None
        The checksum of the rows, which is on the card.
    """

    n_rows: int
    n_abstentions: int
    rows_sha256: str | None


def write_scores(
    path: str | os.PathLike[str],
    teacher: Teacher,
    X: Any,
    *,
    batch_size: int = 4096,
    store: ScoreStore | str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> WrittenScores:
    """Write a teacher's logits for the rows of X, and a card that says for which rows they are.

    ``as_teacher(path)`` then says about X what the teacher says.

    Parameters
    ----------
    path : path
        .npz (`logits` and `classes`), .npy or .parquet (a column per class); the card has the classes.
    teacher : Teacher
    X : array, sparse matrix, data frame, list or Rows
        n rows. Those of a source are scored block by block, in single precision, and have no checksum.
    batch_size, store, progress
        As in `observe`.
    """
    target = Path(path)
    logits: NDArray[Any]
    if isinstance(X, Rows):
        logits = _by_blocks(teacher, X, batch_size, as_store(store), progress)
    else:
        logits = observe(
            teacher, X, batch_size=batch_size, store=store, embeddings=False, progress=progress
        ).logits
    digest = rows_sha256(X)
    made = {
        "version": __version__,
        "date": date_now(),
        "data": {"rows": n_rows(X), "sha256": digest},
        "teachers": [{"name": teacher.name}],
    }
    card = Card(
        target.stem,
        tuple(teacher.classes.tolist()),
        "logits",
        description=f"What {teacher.name!r} says about {n_rows(X)} rows.",
        details={KEY: made},
    )
    with carded(target, card), replacing(target) as file:
        if target.suffix.lower() == ".npy":
            np.save(file, logits, allow_pickle=False)
        elif target.suffix.lower() == ".npz":
            np.savez_compressed(file, logits=logits, classes=teacher.classes)
        else:
            pyarrow = require("pyarrow", extra="tables", purpose="Writing parquet")
            parquet = require("pyarrow.parquet", extra="tables", purpose="Writing parquet")
            names = [str(name) for name in teacher.classes.tolist()]
            columns = np.ascontiguousarray(logits.T)
            parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=True))), file)
    return WrittenScores(n_rows(X), int(np.isnan(logits[:, 0]).sum()), digest)


def _by_blocks(
    teacher: Teacher, source: Rows, batch_size: int, store: ScoreStore | None, progress: Progress
) -> NDArray[np.float32]:
    """Return the logits (n, k) of rows that are read block by block."""
    space = LabelSpace([teacher.classes])
    found = new_array((len(source), space.n_columns), Run())
    for number, packed in score_blocks(
        [teacher], space, source, batch_size=batch_size, store=store, progress=progress
    ):
        found[source.rows_of(number)] = packed
    return found

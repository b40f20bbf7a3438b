"""How a `CrossTaskDistiller` trains its student: ask the teachers it follows about all rows, and learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._progress import part_of
from consilience.distil.targets import Follower, Targets
from consilience.exceptions import CoverageWarning, warn
from consilience.rows import Rows, new_array
from consilience.rows.targets import ROW_VISITS, TargetRows
from consilience.run import Run
from consilience.scoring.blocks import Asked, digests_of, placed
from consilience.scoring.store import as_store
from consilience.teachers import Observed, Teacher

# A network gets at least this many steps of the optimiser, however few the rows.
MIN_STEPS = 800


class AllRows(NamedTuple):
    """All rows to learn from.

    Attributes
    ----------
    rows : Rows
    codes : (n,) array of int
        Positions of the labels; -1 for rows without one.
    as_seen : callable
        From rows to what the student sees of them.
    observed : bool
        Whether the signals of teachers have the answers to all rows, so that none is asked again.
    """

    rows: Rows
    codes: NDArray[np.intp]
    as_seen: Callable[[Any], Any]
    observed: bool


def train(
    student: Any, targets: Targets, everything: AllRows, teachers: Sequence[Teacher], run: Run, *, own: bool
) -> None:
    """Fit the student to all rows by passes over them.

    Parameters
    ----------
    student : unfitted student
    targets : Targets
    everything : AllRows
    teachers : sequence of Teacher
        All of them, also those that are not followed.
    run : Run
    own : bool
        Whether the student has options of training of its own.
    """
    rows, codes, as_seen, _ = everything
    goals = new_array((len(rows), targets.n_columns), run)
    used, digest = codes >= 0, blake2b(digest_size=16)
    for part, said in _answers(targets.followers, everything, teachers, run):
        for follower, seen in zip(targets.followers, said, strict=True):
            used[part] |= follower.rows(codes[part], seen)
        goals[part] = targets.columns(codes[part], said)
        digest.update(np.ascontiguousarray(goals[part], dtype=np.float32).data)
    if not used.all() and teachers:
        warn(
            CoverageWarning(
                f"{np.count_nonzero(~used)} rows without a label are not used: no teacher that is used "
                "answered them."
            )
        )
    if student.scores == "probabilities":
        mass = goals.sum(axis=1)
        for i in range(rows.n_blocks):
            part = rows.rows_of(i)
            goals[part] /= np.maximum(mass[part, None], np.finfo(np.float32).tiny)
        learnt = TargetRows(rows, goals, mass / mass.max(), used, as_seen)
        student.learn(learnt, np.ones(targets.n_classes), run=run)
        return
    learnt = TargetRows(rows, goals, None, used, as_seen)
    if not own:
        student.set_params(**training_options(learnt.n_rows))
    student.learn(
        learnt,
        run=run,
        key=digest.hexdigest(),
        n_classes=targets.n_classes,
        criterion=targets.criterion(float((codes >= 0).sum() / learnt.n_rows)),
    )


def training_options(rows: int) -> dict[str, Any]:
    """Return how a network is trained on so many rows.

    Few rows in large batches would give too few steps; of very many, it sees `ROW_VISITS`. Nothing is held
    out: every label is needed.
    """
    batch = min(128, max(16, rows // 10))
    epochs = max(30, math.ceil(MIN_STEPS / math.ceil(rows / batch)))
    passes = epochs if rows * epochs <= ROW_VISITS else None
    return {"batch_size": batch, "max_iter": passes, "patience": None, "validation_fraction": 0.0}


def _answers(
    followers: Sequence[Follower], everything: AllRows, teachers: Sequence[Teacher], run: Run
) -> Iterator[tuple[slice, list[Observed]]]:
    """Yield the positions of some rows, and what the teacher of each follower says of them."""
    rows = everything.rows
    if everything.observed or not followers:
        for number in range(rows.n_blocks):
            part = rows.rows_of(number)
            yield part, [follower.signal.observed.take(part) for follower in followers]
        return
    store, places = as_store(run.cache, run.cache_limit), sorted({one.place for one in followers})
    asked = {}
    for place in places:
        with placed(place, len(teachers)):
            asked[place] = Asked(teachers[place], rows, run, store, embeddings=True)
    for block in rows.blocks():
        seen, digests = {}, digests_of(block, [*asked.values()])
        report = part_of(run.report, block.number, rows.n_blocks)
        for i, place in enumerate(places):
            with placed(place, len(teachers)):
                seen[place] = asked[place].observe(block, digests, part_of(report, i, len(places)))
        yield block.rows, [seen[follower.place] for follower in followers]

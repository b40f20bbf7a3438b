"""How a `CrossTaskDistiller` learns from rows that do not fit in memory.

Costs, checks and weights of teachers need labelled rows and a few others: these are in memory. Then the
teachers that are used are asked about all rows, block by block, and the student learns by passes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, part_of
from consilience.distil.losses import MixedLabels, StackedTargets, find_loss
from consilience.distil.teacher_signal import Task
from consilience.distil.training import Follower, training_options, warn_of_unused
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError
from consilience.files.spool import Spool, check_space
from consilience.rows import Rows, memory_budget, rows_that_fit
from consilience.rows.source_targets import SourceTargets
from consilience.rows.targets import ROW_VISITS
from consilience.run import Run
from consilience.scoring.engine import observe
from consilience.scoring.store import ScoreStore
from consilience.scoring.stream import check_takes_blocks
from consilience.students.base import StudentRows, as_student_sees
from consilience.students.checkpoints import checkpoint_folder
from consilience.students.passes import fit_in_memory, how_it_streams
from consilience.teachers import Observed, Teacher

if TYPE_CHECKING:
    from consilience.distil.distiller import CrossTaskDistiller

UNLABELLED = 2**14
"""Most unlabelled rows that are in memory for checks and encoders, if not all rows fit."""


def sample_of(X: Any, labelled: NDArray[np.bool_], memory: Any) -> tuple[Any, NDArray[np.intp] | None]:
    """Return rows in memory, and their positions if these are not all: labelled ones, and a few others.

    Warn if not even all labelled rows fit.
    """
    few, places = rows_that_fit(X, labelled, Run(memory=memory), seed=0, most_others=UNLABELLED)
    n_labelled = int(labelled.sum())
    if places is not None and (kept := int(labelled[places].sum())) < n_labelled:
        warnings.warn(
            f"Costs and checks of teachers come from {kept:,} random rows of the {n_labelled:,} that have a "
            "label: all of them would take more memory. The student learns from all. Raise memory= for more.",
            ConsilienceWarning,
            stacklevel=3,
        )
    return few, places


@dataclass(frozen=True)
class TaskBlocks:
    """All rows of a task, and whom the student follows on them.

    Attributes
    ----------
    source : Rows
    codes : (n,) array of int
        Positions of the labels; -1 for rows without one.
    followed : sequence of Follower
    teachers : sequence of Teacher
        All of them, also those that are not followed.
    embeddings : bool
        Whether embeddings are wanted of teachers.
    batch_size : int
    store : ScoreStore or None
    progress : callable
    """

    source: Rows
    codes: NDArray[np.intp]
    followed: Sequence[Follower]
    teachers: Sequence[Teacher]
    embeddings: bool
    batch_size: int
    store: ScoreStore | None
    progress: Progress

    def said(self) -> Iterator[tuple[slice, list[Observed]]]:
        """Yield the positions of each block, and what the teacher of each follower says of it."""
        asked = sorted({place for place, _ in self.followed})
        for place in asked:
            check_takes_blocks(self.teachers[place])
        for number in range(self.source.n_blocks):
            rows = self.source.rows_of(number)
            X = self.source.read(number) if asked else None
            report, seen = part_of(self.progress, number, self.source.n_blocks), {}
            for i, place in enumerate(asked):
                try:
                    seen[place] = self._observe(place, X, rows, part_of(report, i, len(asked)))
                except TeacherError as error:
                    raise error.at(place, len(self.teachers)) from error.__cause__
            yield rows, [seen[place] for place, _ in self.followed]

    def _observe(self, place: int, X: Any, rows: slice, progress: Progress) -> Observed:
        """Return what a teacher says of a block; one that holds the outputs of all rows says its part."""
        teacher = self.teachers[place]
        try:
            return observe(
                teacher.part(rows) or teacher,
                X,
                batch_size=self.batch_size,
                store=self.store,
                embeddings=self.embeddings,
                progress=progress,
            )
        except InvalidInputError as error:
            raise error.moved(rows.start) from error.__cause__


class Spooled(NamedTuple):
    """What the student learns about every row, on disk."""

    targets: Spool  # (n, columns)
    weights: Spool  # (n, 1), of rows; empty for networks
    used: NDArray[np.bool_]
    digest: str


def train_by_blocks(
    distiller: CrossTaskDistiller, student: Any, read: StudentRows, task: Task, blocks: TaskBlocks
) -> None:
    """Fit the student to all rows of a source.

    Parameters
    ----------
    distiller : CrossTaskDistiller
    student : unfitted student
    read : StudentRows
        How the student sees rows.
    task : Task
        The rows that are in memory.
    blocks : TaskBlocks
        All rows.
    """
    loss, signals = find_loss(distiller.loss), [signal for _, signal in blocks.followed]
    K, budget = len(task.classes), memory_budget(Run(memory=distiller.memory))
    as_seen = partial(as_student_sees, student, names=read.names, encoder=read.encoder)
    if student.scores == "probabilities":
        targets, weights, used, _ = _spool(blocks, MixedLabels.of(task, signals, loss))
        largest = max(float(weights[rows].max(initial=0.0)) for rows in _slices(blocks.source))

        def row_weights(rows: slice) -> NDArray[np.float32]:
            return np.asarray(weights[rows][:, 0] / np.float32(largest))

        learnt = SourceTargets(blocks.source, used, targets.__getitem__, as_seen, K, row_weights)
        learn = how_it_streams(student) or fit_in_memory
        learn(student, learnt, np.ones(K), progress=blocks.progress, memory=budget)
        return
    stacked = StackedTargets.of(task, signals, loss, distiller.regularizer)
    targets, _, used, digest = _spool(blocks, stacked)
    learnt = SourceTargets(blocks.source, used, targets.__getitem__, as_seen, stacked.n_columns)
    if not hasattr(distiller.student, "max_iter"):
        student.set_params(**_options(learnt.n_rows))
    with checkpoint_folder(blocks.store, digest) as folder:
        student.fit_by_passes(
            learnt,
            n_classes=K,
            criterion=stacked.criterion(float((blocks.codes >= 0).sum() / learnt.n_rows)),
            progress=blocks.progress,
            memory=budget,
            checkpoint=folder,
            key=digest,
        )


def _options(rows: int) -> dict[str, Any]:
    """Return how a network is trained: of very many rows, it sees `ROW_VISITS` and not 30 times each."""
    options = training_options(rows)
    return options if rows * options["max_iter"] <= ROW_VISITS else {**options, "max_iter": None}


def _spool(blocks: TaskBlocks, goal: MixedLabels | StackedTargets) -> Spooled:
    """Ask the teachers that are followed about all rows, and write what the student learns to disk."""
    check_space(4 * len(blocks.source) * (goal.n_columns + 1))
    targets, weights = Spool((goal.n_columns,), np.float32), Spool((1,), np.float32)
    used, digest = blocks.codes >= 0, blake2b(digest_size=16)
    for rows, seen in blocks.said():
        codes = blocks.codes[rows]
        for (_, signal), observed in zip(blocks.followed, seen, strict=True):
            used[rows] |= signal.rows(codes, observed)
        if isinstance(goal, MixedLabels):
            columns, mass = goal.mix(codes, seen)
            weights.append(mass[:, None])
        else:
            columns = goal.stack(codes, seen)
        targets.append(columns)
        digest.update(np.ascontiguousarray(columns, dtype=np.float32).data)
    if blocks.followed:
        warn_of_unused(used, stacklevel=5)
    return Spooled(targets, weights, used, digest.hexdigest())


def _slices(source: Rows) -> Iterator[slice]:
    return map(source.rows_of, range(source.n_blocks))

"""Unify rows that do not fit in memory: what teachers say, soft labels and training, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_packed_logits, n_rows
from consilience.exceptions import InvalidInputError
from consilience.files.spool import Spool, check_space
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.packed import floor_blocks
from consilience.labels import LabelSpace
from consilience.rows import HeldRows, Rows, memory_budget
from consilience.rows.ray import RaySource
from consilience.run import Run
from consilience.scoring.stream import BlockScores
from consilience.soft_labels.estimate import Method, OwnMethod, method_name, own_soft_labels
from consilience.soft_labels.methods import Lateness, Options
from consilience.soft_labels.solver import SoftLabelSolver, check_size, rows_to_compare
from consilience.soft_labels.teacher_temperatures import divide_by_temperatures
from consilience.teachers import Teacher
from consilience.unify.scored import with_labels_as_teacher

COPIES = 3
"""How often packed logits and soft labels are in memory, at most, where all rows are solved at once."""
ENCODED_FROM = 2**15
"""Rows from which an encoder of mixed columns learns, if not all rows fit in memory."""
ENCODED_BYTES = 2**26
"""About the most memory of these rows: images are large, and a few show of what kind they are."""


def needs_stream(X: Any, space: LabelSpace, memory: Any) -> bool:
    """Tell whether the work on rows X would take more than `memory`, so that it goes block by block.

    Rows that Ray holds always go block by block: they are scored there.
    """
    if isinstance(X, RaySource):
        return True
    rows = len(X) if isinstance(X, Rows) else n_rows(X)
    needed = 8 * COPIES * rows * (space.n_columns + space.n_classes)
    if isinstance(X, Rows):
        needed += 2 * X.n_bytes  # the rows, and what a student makes of them
    return needed > memory_budget(Run(memory=memory))


@dataclass(frozen=True)
class Streamed:
    """What the teachers say about rows that are read block by block.

    Attributes
    ----------
    teachers, space
        Who says it.
    source : Rows
    raw : (n, m) array-like
        Packed logits as the teachers gave them, by slices.
    labels : (n,) array or None
        The position of each known label, -1 without one.
    covered : (n,) array of bool
        Whether a teacher answers or a label is known.
    n_abstentions : (N,) array
    temperatures : (N,) array
    smoothing : float
    """

    teachers: list[Teacher]
    space: LabelSpace
    source: Rows
    raw: Any
    labels: NDArray[np.intp] | None
    covered: NDArray[np.bool_]
    n_abstentions: NDArray[np.intp]
    temperatures: Floats
    smoothing: float

    def logits(self, rows: Any) -> Floats:
        """Return the packed logits (k, m) of some rows, after calibration and smoothing."""
        packed = np.asarray(self.raw[rows], dtype=np.float64)
        if (self.temperatures != 1).any():
            packed = divide_by_temperatures(packed, self.temperatures, self.space)
        return floor_blocks(packed, self.space.offsets, self.smoothing) if self.smoothing else packed

    def heated(self, temperatures: Floats, smoothing: float) -> Streamed:
        """Return the same with logits divided by temperatures (N,) and smoothed."""
        return replace(self, temperatures=temperatures, smoothing=smoothing)

    def known(self, rows: Any) -> NDArray[np.intp]:
        """Return the positions of the known labels of some rows, -1 without one."""
        if self.labels is None:
            return np.full(len(self.covered[rows]), -1)
        return np.asarray(self.labels[rows])

    def compared(self) -> Floats:
        """Return the logits of the rows that others are compared with: a random sample, if there are many."""
        return self.logits(_all_or(rows_to_compare(len(self.source), self.space.n_columns)))


def keep_scores(scores: Iterator[BlockScores], source: Rows, space: LabelSpace) -> Spool:
    """Write packed logits to a temporary file, wherever their block comes in turn."""
    check_space(4 * len(source) * (space.n_columns + space.n_classes))
    spool = Spool((space.n_columns,), np.float32)
    for number, packed in scores:
        spool.write(source.rows_of(number).start, packed)
    return spool


def find_coverage(
    raw: Any, source: Rows, space: LabelSpace, labels: NDArray[np.intp] | None
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return on which rows something is known, and how often each teacher abstains; check the logits."""
    covered = np.zeros(len(source), dtype=bool) if labels is None else labels >= 0
    n_abstentions = np.zeros(space.n_teachers, dtype=np.intp)
    for number in range(source.n_blocks):
        rows = source.rows_of(number)
        try:
            packed = check_packed_logits(raw[rows], space, rows.stop - rows.start)
        except InvalidInputError as error:
            raise error.moved(rows.start) from None
        answered = ~np.isnan(packed[:, space.offsets[:-1]])
        covered[rows] |= answered.any(axis=1)
        n_abstentions += (~answered).sum(axis=0)
    return covered, n_abstentions


@dataclass(frozen=True)
class StreamedLabels:
    """Soft labels on disk.

    Attributes
    ----------
    soft_labels : Spool
        (n, L), in single precision.
    mean : (L,) array
        Over the rows on which something is known.
    weights : dict or None
        The share of each estimate in the pool.
    digest : str
        Of the soft labels: a training that was stopped goes on only with the same.
    """

    soft_labels: Spool
    mean: Floats
    weights: dict[str, float] | None
    digest: str


def solve_stream(
    streamed: Streamed,
    method: Method | OwnMethod,
    options: Options,
    progress: Progress = silent,
    stacklevel: int = 3,
) -> StreamedLabels:
    """Make soft labels block by block, as `solve_soft_labels` would of all rows.

    Your own method is called with a block at a time.
    """
    space, source = streamed.space, streamed.source
    solve, weights = _solver(streamed, method, options)
    found, total, late = Spool((space.n_classes,), np.float32), np.zeros(space.n_classes), Lateness()
    digest = blake2b(digest_size=16)
    for number in range(source.n_blocks):
        rows = source.rows_of(number)
        Q, reached = solve(streamed.logits(rows))
        if streamed.labels is not None:
            known = streamed.labels[rows] >= 0
            Q[known] = np.eye(space.n_classes)[streamed.labels[rows][known]]
        late.count(reached, options.tol, len(Q))
        total += Q[streamed.covered[rows]].sum(axis=0)
        found.append(Q)
        digest.update(np.ascontiguousarray(Q, dtype=np.float32).data)
        progress("soft labels", rows.stop, len(source))
    if isinstance(method, str):
        late.warn("ce" if method == "auto" else method, options, stacklevel)
    mean = total / max(1, int(streamed.covered.sum()))
    return StreamedLabels(found, mean, weights, digest.hexdigest())


def _solver(
    streamed: Streamed, method: Method | OwnMethod, options: Options
) -> tuple[Callable[[Floats], tuple[Floats, Floats | None]], dict[str, float] | None]:
    """Return the function from packed logits to soft labels and what was reached, and the pool's weights."""
    space = streamed.space
    if not isinstance(method, str):
        return lambda packed: (own_soft_labels(method, packed, space, options.temperature), None), None
    solver = SoftLabelSolver(streamed.compared(), space, method, options)

    def solve(packed: Floats) -> tuple[Floats, Floats | None]:
        check_size("logits", packed, method_name(method), options)
        return solver.solve(packed)

    return solve, solver.weights


def packed_targets(streamed: Streamed) -> tuple[LabelSpace, Callable[[slice], Floats]]:
    """Return the label space and the packed logits of rows for ``train="backprop"``.

    Known labels are one more teacher, as in `with_labels_as_teacher`.
    """
    labels = streamed.labels
    if labels is None or not (labels >= 0).any():
        return streamed.space, streamed.logits
    space = with_labels_as_teacher(streamed.space, streamed.logits(slice(0, 0)), labels[:0], always=True)[0]

    def targets(rows: slice) -> Floats:
        return with_labels_as_teacher(streamed.space, streamed.logits(rows), labels[rows], always=True)[1]

    return space, targets


def read_source(X: Any) -> Any:
    """Return the rows of a source in memory, and other rows as they are."""
    return X.all(None) if isinstance(X, Rows) else X


def as_stream(X: Any) -> Rows:
    """Return rows as a source: rows in memory are read by slices."""
    return X if isinstance(X, Rows) else HeldRows(X)


def check_streams(n_neighbors: int | None) -> None:
    """Raise if neighbours are wanted: finding them needs all rows in memory."""
    if n_neighbors:
        raise InvalidInputError(
            "{argument} needs all rows in memory, and X is read block by block. Use {remedy}, or raise "
            "memory=.",
            argument="n_neighbors",
            value=n_neighbors,
            remedy=("n_neighbors", 0),
        )


def _all_or(rows: NDArray[np.intp] | None) -> Any:
    return slice(None) if rows is None else rows

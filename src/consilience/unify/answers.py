"""What the teachers say about the rows, and what else is known about these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_packed_logits
from consilience.exceptions import CoverageWarning, InvalidInputError, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.packed import floor_blocks
from consilience.labels import LabelSpace
from consilience.rows import Rows
from consilience.soft_labels.teacher_temperatures import divide_by_temperatures
from consilience.teachers import Teacher

# The logit of a known label, in units of teacher logits at temperature 1: log-odds of about 1e6 : 1.
LABEL_LOGIT = 14.0


class Opened(NamedTuple):
    """The teachers, and their label space."""

    teachers: list[Teacher]
    space: LabelSpace


@dataclass(frozen=True)
class Answers:
    """What the teachers say about the rows, and what else is known about them.

    Attributes
    ----------
    teachers, space
        Who says it.
    rows : Rows
    raw : (n, m) array
        Packed logits as the teachers gave them.
    labels : (n,) array of int
        The position of each known label, -1 without one.
    covered : (n,) array of bool
        Whether a teacher answers or a label is known.
    n_abstentions, temperatures, smoothing : (N,) array
    """

    teachers: list[Teacher]
    space: LabelSpace
    rows: Rows
    raw: NDArray[Any]
    labels: NDArray[np.intp]
    covered: NDArray[np.bool_]
    n_abstentions: NDArray[np.intp]
    temperatures: Floats
    smoothing: Floats

    def logits(self, rows: Any) -> Floats:
        """Return the packed logits (k, m) of some rows, after calibration and smoothing."""
        return self.prepared(self.raw[rows])

    def prepared(self, packed: Any) -> Floats:
        """Return packed logits (k, m) as methods take them."""
        return prepared(packed, self.space, self.temperatures, self.smoothing)

    def pin_labels(self, Q: NDArray[Any]) -> None:
        """Set soft labels (n, L) to the known labels, where there are any."""
        known = np.flatnonzero(self.labels >= 0)
        Q[known] = 0.0
        Q[known, self.labels[known]] = 1.0


def prepared(packed: Any, space: LabelSpace, temperatures: Floats, smoothing: Floats) -> Floats:
    """Return packed logits (k, m) as methods take them: calibrated, smoothed, in double precision."""
    logits = np.ascontiguousarray(packed, dtype=np.float64)
    if (temperatures != 1).any():
        logits = divide_by_temperatures(logits, temperatures, space)
    return floor_blocks(logits, space.offsets, smoothing)


def given_logits(logits: Any, n_rows: int, space: LabelSpace) -> NDArray[Any]:
    """Return given logits (n, m) as an array, mapped if they are; their content is checked by blocks."""
    if hasattr(logits, "toarray") or getattr(logits, "shape", None) != (n_rows, space.n_columns):
        return check_packed_logits(logits, space, n_rows)
    return np.asanyarray(logits)


def find_coverage(
    raw: NDArray[Any], rows: Rows, space: LabelSpace, labels: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return on which rows something is known, and how often each teacher abstains; check the logits."""
    covered = labels >= 0
    n_abstentions = np.zeros(space.n_teachers, dtype=np.intp)
    for number in range(rows.n_blocks):
        where = rows.rows_of(number)
        try:
            packed = check_packed_logits(raw[where], space)
        except InvalidInputError as error:
            raise error.moved(where.start) from None
        answered = ~np.isnan(packed[:, space.offsets[:-1]])
        covered[where] |= answered.any(axis=1)
        n_abstentions += (~answered).sum(axis=0)
    if not covered.any():
        raise InvalidInputError("Every teacher abstains on every row of X; there is nothing to learn from.")
    if not covered.all():
        warn(
            CoverageWarning(
                f"Every teacher abstains on {int((~covered).sum())} of {len(covered)} rows; "
                "the student does not see these."
            )
        )
    return covered, n_abstentions


def with_labels_as_teacher(
    space: LabelSpace, logits: Floats, labels: NDArray[np.intp]
) -> tuple[LabelSpace, Floats]:
    """Return the label space and logits (k, m) with the known labels (k,) as one more teacher.

    It knows every class and answers only on labelled rows. The other teachers abstain there. So no loss needs
    to know about labels.
    """
    known = labels >= 0
    lists, names = [*space.class_lists, space.classes], [*space.names, "known labels"]
    with_labels = LabelSpace(lists, names=names, disconnected="ignore")
    block = np.full((len(logits), space.n_classes), np.nan)
    block[known] = LABEL_LOGIT * np.eye(space.n_classes)[labels[known]]
    return with_labels, np.hstack([np.where(known[:, None], np.nan, logits), block])

"""What is known about the rows before a student learns from them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.soft_labels.methods import spread_out
from consilience.teachers import Teacher

# The logit of a known label, in units of teacher logits at temperature 1: log-odds of about 1e6 : 1.
LABEL_LOGIT = 14.0
# Rows among which a new row is ranked: more change its soft label little.
REFERENCE_ROWS = 2000


class Opened(NamedTuple):
    """The teachers, and their label space."""

    teachers: list[Teacher]
    space: LabelSpace


@dataclass(frozen=True)
class Scored:
    """What the teachers say about the rows, and what else is known about them."""

    teachers: list[Teacher]
    space: LabelSpace
    logits: Floats  # (n, m) after calibration and smoothing
    labels: NDArray[np.intp]  # (n,) position of the known label, -1 without one
    covered: NDArray[np.bool_]  # (n,) whether a teacher answers or a label is known
    n_abstentions: NDArray[np.intp]  # (N,)
    temperatures: Floats  # (N,)

    def pin_labels(self, Q: Floats) -> None:
        """Set soft labels (n, L) to the known labels, where there are any."""
        known = self.labels >= 0
        Q[known] = np.eye(self.space.n_classes)[self.labels[known]]


@dataclass(frozen=True)
class Estimate:
    """Soft labels, and how they were made."""

    soft_labels: Floats | None
    label_space: LabelSpace
    n_abstentions: NDArray[np.intp]
    temperatures: Floats
    pool_weights: dict[str, float] | None
    neighbor_weight: float
    seconds: dict[str, float]


def with_labels_as_teacher(
    space: LabelSpace, logits: Floats, labels: NDArray[np.intp], *, always: bool = False
) -> tuple[LabelSpace, Floats]:
    """Return the label space and logits with the known labels as one more teacher, if there are any.

    It knows every class and answers only on labelled rows. The other teachers abstain there. So no loss needs
    to know about labels.

    Parameters
    ----------
    space : LabelSpace
    logits : (n, m) array
    labels : (n,) array of int
        The position of each known label, -1 without one.
    always : bool
        Whether it is added even if no label is known.
    """
    known = labels >= 0
    if not known.any() and not always:
        return space, logits
    lists, names = [*space.class_lists, space.classes], [*space.names, "known labels"]
    with_labels = LabelSpace(lists, names=names, disconnected="ignore")
    block = np.full((len(logits), space.n_classes), np.nan)
    block[known] = LABEL_LOGIT * np.eye(space.n_classes)[labels[known]]
    return with_labels, np.hstack([np.where(known[:, None], np.nan, logits), block])


def check_coverage(covered: NDArray[np.bool_]) -> None:
    """Raise if nothing is known about any row; warn if nothing is known about some."""
    if not covered.any():
        raise InvalidInputError("Every teacher abstains on every row of X; there is nothing to learn from.")
    if not covered.all():
        warnings.warn(
            f"Every teacher abstains on {int((~covered).sum())} of {len(covered)} rows; "
            "the student does not see these.",
            CoverageWarning,
            stacklevel=4,
        )


def reference_rows(logits: Floats) -> Floats:
    """Return the packed logits of rows, evenly spaced, among which `Unifier.explain` ranks a new one."""
    return logits[spread_out(np.arange(len(logits)), REFERENCE_ROWS)]

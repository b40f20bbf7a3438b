"""What is known about the rows before a student learns from them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score

from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace, read_labels
from consilience.teachers import Teacher
from consilience.unify.methods import spread_out

# The logit of a known label, in units of teacher logits at temperature 1: log-odds of about 1e6 : 1.
LABEL_LOGIT = 14.0
# Rows among which a new row is ranked: more change its soft label little.
REFERENCE_ROWS = 2000


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

    def with_labels_as_teacher(self) -> tuple[LabelSpace, Floats]:
        """Return the label space and logits with the known labels as one more teacher, if there are any.

        It knows every class and answers only on labelled rows. The other teachers abstain there. So no loss
        needs to know about labels.
        """
        known = self.labels >= 0
        if not known.any():
            return self.space, self.logits
        lists = [*self.space.class_lists, self.space.classes]
        names = [*self.space.names, "known labels"]
        space = LabelSpace(lists, names=names, disconnected="ignore")
        block = np.full((len(self.logits), len(space.classes)), np.nan)
        block[known] = LABEL_LOGIT * np.eye(len(space.classes))[self.labels[known]]
        return space, np.hstack([np.where(known[:, None], np.nan, self.logits), block])


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


@dataclass(frozen=True)
class Truth:
    """The true classes of some rows."""

    codes: NDArray[np.intp]  # (k,) position in the label space, -1 for a class that no teacher knows
    known: NDArray[np.bool_]  # (n,) which rows have a label: k of them

    def accuracy(self, guesses: NDArray[np.intp], sample_weight: ArrayLike | None = None) -> float:
        """Return the weighted share of labelled rows that are guessed (n,) rightly."""
        weights = None if sample_weight is None else np.asarray(sample_weight)[self.known]
        return float(accuracy_score(self.codes, guesses[self.known], sample_weight=weights))


def read_truth(y: Any, rows: int, space: LabelSpace) -> Truth:
    """Read labels to compare with. They may be aliases, or classes that no teacher knows."""
    place = {name: i for i, name in enumerate(space.classes.tolist())}
    # -1 is a class only where classes are listed
    found = read_labels(y, rows, classes=space.classes if -1 in place else None)
    codes = np.array([place.get(space.renamed(name), -1) for name in found.classes.tolist()], dtype=np.intp)
    return Truth(codes[found.codes[found.known]], found.known)


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

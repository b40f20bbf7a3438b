"""True classes to compare predictions with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score

from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError, shown
from consilience.labels import LabelSpace


@dataclass(frozen=True)
class Truth:
    """The true classes of some rows. A class that nobody knows has a position, too, which no guess has.

    Attributes
    ----------
    labels : (n,) array of int
        The position of each label in `names`; -1 without one.
    names : tuple
        The classes of the label space, and then those that nobody knows.
    n_classes : int
        The classes of the label space, L.
    """

    labels: NDArray[np.intp]
    names: tuple[Any, ...]
    n_classes: int

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which rows (n,) have a label."""
        return self.labels >= 0

    @property
    def codes(self) -> NDArray[np.intp]:
        """The labels (k,) of the rows that have one."""
        return self.labels[self.known]

    @property
    def remark(self) -> str | None:
        """A sentence about the classes that nobody knows, if there are any; those with most rows first."""
        counts = np.bincount(self.labels[self.labels >= self.n_classes], minlength=len(self.names))
        if not counts.any():
            return None
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
        listed = shorten([f"{shown(self.names[i])} ({counted(int(counts[i]), 'row')})" for i in order], 5)
        return f"{counted(len(order), 'class')} that nobody knows, whose rows count as errors: {listed}."

    def of(self, rows: NDArray[np.intp]) -> Truth:
        """Return the labels of some rows."""
        return replace(self, labels=self.labels[rows])

    def accuracy(self, guesses: NDArray[np.intp], sample_weight: ArrayLike | None = None) -> float:
        """Return the weighted share of labelled rows that are guessed (n,) rightly."""
        weights = None if sample_weight is None else _read_weights(sample_weight, len(self.known))[self.known]
        if weights is not None and not weights.any():
            raise InvalidInputError("sample_weight is 0 for every row with a label; give some rows a weight.")
        return float(accuracy_score(self.codes, guesses[self.known], sample_weight=weights))


def _read_weights(sample_weight: ArrayLike, rows: int) -> NDArray[np.float64]:
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except Exception as error:  # what is no array can raise anything
        raise InvalidInputError("sample_weight must be numbers, one for each row of X.") from error
    if weights.shape != (rows,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidInputError(
            f"sample_weight has shape {weights.shape}; expected ({rows},): a finite number of at least 0 for "
            "each row of X."
        )
    return weights


def read_truth(
    y: Any, rows: int, space: LabelSpace, *, where: str = "y", at_least: int = 1, some_known: bool = False
) -> Truth:
    """Read labels to compare with. They may be aliases, or classes that nobody knows.

    Parameters
    ----------
    y : (n,) sequence
        None, NaN or -1 for rows without a label.
    rows : int
        n, the rows of X.
    space : LabelSpace
    where : str
        What to call y in an error.
    at_least : int
        How many different classes y must have.
    some_known : bool
        Whether to refuse labels if the space knows none of them: they are meant for something else.
    """
    found = space.read(y, rows, where=where, at_least=at_least)
    if some_known and found.known.any() and found.codes[found.known].min() >= space.n_classes:
        # raises, and says what was expected; not of y itself, which may be an iterator
        space.encode([found.classes[code] if code >= 0 else None for code in found.codes], where)
    return Truth(found.codes, tuple(found.classes.tolist()), space.n_classes)

"""True classes to compare predictions with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score

from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace, read_labels


@dataclass(frozen=True)
class Truth:
    """The true classes of some rows."""

    codes: NDArray[np.intp]  # (k,) position in the label space, -1 for a class that no teacher knows
    known: NDArray[np.bool_]  # (n,) which rows have a label: k of them

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


def read_truth(y: Any, rows: int, space: LabelSpace) -> Truth:
    """Read labels to compare with. They may be aliases, or classes that no teacher knows."""
    place = {name: i for i, name in enumerate(space.classes.tolist())}
    # -1 is a class only where classes are listed
    found = read_labels(y, rows, classes=space.classes if -1 in place else None)
    codes = np.array([place.get(space.renamed(name), -1) for name in found.classes.tolist()], dtype=np.intp)
    return Truth(codes[found.codes[found.known]], found.known)

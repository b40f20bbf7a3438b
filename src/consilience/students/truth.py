"""True classes to compare predictions with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score

from consilience.labels import LabelSpace, read_labels


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

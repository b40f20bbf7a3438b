"""Labels of some rows that a clustering is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Ints
from consilience.labels import read_labels


def fixed_clusters(y: Any, n: int, n_clusters: int) -> Ints:
    """Return the cluster (n,) that each label fixes, -1 for rows without a label."""
    if y is None:
        return np.full(n, -1, dtype=np.intp)
    classes, codes = read_labels(y, n, at_least=0)
    if classes.dtype.kind == "f" and len(classes):
        raise InvalidInputError(
            f"Unknown label type: continuous. y has the label {classes[classes != np.floor(classes)][0]}; "
            "give numbers of clusters or names, and None or -1 for rows without a label."
        )
    numbers = classes if classes.dtype.kind in "iu" else np.arange(len(classes))  # names: in sorted order
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < n_clusters:
        hint = (
            f" They name {len(classes)} classes: ask for as many clusters." if numbers is not classes else ""
        )
        raise InvalidInputError(
            f"y has labels from {classes[0]} to {classes[-1]}; expected 0 to {n_clusters - 1}, or at most "
            f"{n_clusters} names ({{argument}}), and None or -1 for rows without one.{hint}",
            argument="n_clusters",
            value=n_clusters,
        )
    return np.where(codes >= 0, np.append(numbers, -1)[codes], -1).astype(np.intp)

"""Which classes teachers connect: the components of the graph of teachers and classes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def connected_classes(
    columns: NDArray[np.intp], offsets: NDArray[np.intp], n_classes: int
) -> NDArray[np.intp]:
    """Label each class with its connected component, numbered by first appearance.

    Parameters
    ----------
    columns : (m,) array of int
        Class of each packed column.
    offsets : (N + 1,) array of int
        Block borders.
    n_classes : int
        Number of classes, L. A class in no block is a component of its own.
    """
    everyone = np.ones((1, len(offsets) - 1), dtype=bool)
    component: NDArray[np.intp] = connected_by_pattern(columns, offsets, n_classes, everyone)[0]
    return component


def connected_by_pattern(
    columns: NDArray[np.integer[Any]],
    offsets: NDArray[np.intp],
    n_classes: int,
    patterns: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Do what `connected_classes` does for each pattern of blocks.

    Parameters
    ----------
    columns, offsets, n_classes
        As for `connected_classes`.
    patterns : (k, N) array of bool
        Which blocks to use.

    Returns
    -------
    (k, L) array of int
    """
    sets = [np.unique(columns[a:b]) for a, b in pairwise(offsets.tolist())]
    # each class points to a smaller one of its component, in the end to the smallest
    smallest = np.tile(np.arange(n_classes), (len(patterns), 1))
    before: NDArray[Any] = np.empty(0)
    while not np.array_equal(before, smallest):
        before = smallest.copy()
        for used, known in zip(patterns.T, sets, strict=True):
            rows = np.ix_(used, known)
            smallest[rows] = smallest[rows].min(axis=1, keepdims=True, initial=n_classes)
        smallest = np.take_along_axis(smallest, smallest, axis=1)
    numbers = np.cumsum(smallest == np.arange(n_classes), axis=1) - 1
    return np.take_along_axis(numbers, smallest, axis=1).astype(np.intp)

"""Folds: which rows are held out together, with the rows of each class spread evenly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.intp]


def stratified_folds(
    codes: Codes, n_folds: int, rng: np.random.RandomState, *, shuffle: str = "rows"
) -> NDArray[np.intp]:
    """Return the fold (n,) of each row; the shuffled rows of each class are dealt out in turn.

    Parameters
    ----------
    codes : (n,) array of int
        The class of each row, from 0.
    n_folds : int
    rng : RandomState
    shuffle : {"rows", "classes"}
        "rows" shuffles all rows at once, and a class goes on at the fold where the class before it ended.
        "classes" shuffles class by class, and class c starts at fold c. Both spread rows equally well; they
        use different random numbers. Recorded figures of rank depend on the first, of distil on the second.

    Examples
    --------
    >>> codes = np.array([0, 0, 0, 0, 1, 1])
    >>> folds = stratified_folds(codes, 2, np.random.RandomState(0))
    >>> np.bincount(folds[codes == 0]).tolist(), np.bincount(folds[codes == 1]).tolist()
    ([2, 2], [1, 1])
    """
    folds = np.empty(len(codes), dtype=np.intp)
    if shuffle == "rows":
        shuffled = rng.permutation(len(codes))
        order = shuffled[np.argsort(codes[shuffled], kind="stable")]
        folds[order] = np.arange(len(codes)) % n_folds
        return folds
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        folds[rows] = (np.arange(len(rows)) + code) % n_folds
    return folds


def held_out_folds(
    codes: Codes,
    n_folds: int,
    rng: np.random.RandomState,
    *,
    shuffle: str = "rows",
    max_rows: int | None = None,
) -> NDArray[np.intp]:
    """Return the fold (n,) in which each row is held out; -1 for rows that never are.

    The only row of a class is never held out: nothing else would tell about that class.

    Parameters
    ----------
    codes, n_folds, rng, shuffle
        As in `stratified_folds`.
    max_rows : int, optional
        Hold out at most this many rows, a random choice.
    """
    folds = np.full(len(codes), -1, dtype=np.intp)
    several = np.bincount(codes)[codes] > 1
    folds[several] = stratified_folds(codes[several], n_folds, rng, shuffle=shuffle)
    if max_rows is not None:
        folds[rng.permutation(np.flatnonzero(several))[max_rows:]] = -1
    return folds

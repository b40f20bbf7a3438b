"""Rows as numbers, so that they can be compared: arrays, tables of numbers, images and texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience._tables import as_values
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats

__all__ = ["comparable_rows", "plain_rows"]

TEXT_COLUMNS = 1024  # of hashed n-grams
MOST_COLUMNS = 200_000


def comparable_rows(reference: Any, X: Any) -> tuple[Floats, Floats]:
    """Return reference rows (r, d) and rows of a task (n, d) as numbers on one scale.

    Texts become hashed character n-grams. A missing number becomes the mean of its column. All columns share
    one scale, so that principal components and embeddings keep their shape.

    Parameters
    ----------
    reference, X : array, sparse matrix, data frame or list of texts
        With the same columns.
    """
    R, T = _numbers(reference, "The reference"), _numbers(X, "X")
    if R.shape[1] != T.shape[1]:
        raise InvalidInputError(
            f"X has {T.shape[1]} columns and the reference has {R.shape[1]}. Search with rows like those "
            "that the repository keeps, or set another reference."
        )
    if not np.isfinite(R).any():
        raise InvalidInputError("The reference has no finite number; set another one.")
    known = np.where(np.isfinite(R), R, np.nan)
    largest = float(np.nanmax(np.abs(known))) or 1.0  # squares of large numbers would overflow
    empty = np.isnan(known).all(axis=0)
    known[:, empty] = 0.0
    mean = np.nanmean(known / largest, axis=0)
    rows = [np.where(np.isfinite(part), part / largest - mean, 0.0) for part in (known, T)]
    spread = float(np.sqrt(np.mean(rows[0] ** 2))) or 1.0
    return rows[0] / spread, rows[1] / spread


def plain_rows(X: Any) -> Any:
    """Return rows as `as_values` gives them, and a tensor as an array."""
    rows = as_values(X)
    if not hasattr(rows, "detach"):
        return rows
    rows = rows.detach().cpu()
    return (rows.float() if "bfloat16" in str(rows.dtype) else rows).numpy()  # numpy has no bfloat16


def _numbers(X: Any, what: str) -> Floats:
    """Return rows as an array (n, d) of floats, or raise."""
    X = plain_rows(X)
    count = n_rows(X)
    if count == 0:
        raise InvalidInputError(f"{what} has no rows; give some.")
    if isinstance(X, list | tuple) and all(isinstance(text, str) for text in X):
        return _hashed(list(X))
    if hasattr(X, "toarray"):
        X = X.toarray() if X.shape[1] <= MOST_COLUMNS else X
    try:
        array = np.asarray(X)
        if array.dtype.kind in "US" or (array.dtype.kind == "O" and array.ndim == 1):
            return _hashed([str(text) for text in array.ravel()])
        flat = array.reshape(count, -1).astype(np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(
            f"{what} cannot be read as numbers ({error}); a search compares arrays, images, tables of "
            "numbers or texts. Encode columns of words first."
        ) from None
    if not 1 <= flat.shape[1] <= MOST_COLUMNS:
        raise InvalidInputError(f"{what} has {flat.shape[1]:,} columns; expected 1 to {MOST_COLUMNS:,}.")
    return np.asarray(flat)


def _hashed(texts: list[str]) -> Floats:
    """Return hashed character n-grams (n, TEXT_COLUMNS) of texts."""
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(n_features=TEXT_COLUMNS, analyzer="char_wb", ngram_range=(2, 4))
    return np.asarray(hashing.transform(texts).toarray(), dtype=np.float64)

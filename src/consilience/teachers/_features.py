"""Embeddings: check them and bring them to one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_block
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers._outputs import as_floats


@dataclass(frozen=True)
class Observed:
    """What one pass over a teacher gives.

    Attributes
    ----------
    logits : (n, k) float64 array
        A row of NaN where the teacher abstains.
    embeddings : (n, d) float32 or float64 array, or None
        None where the teacher has no features. A row may be NaN where the teacher abstains.

    Examples
    --------
    >>> from consilience import as_teacher
    >>> teacher = as_teacher(lambda X: X[:, :2], ["a", "b"], output="logits", embed=lambda X: X)
    >>> seen = teacher.observe(np.eye(3))
    >>> seen.logits.shape, seen.embeddings.shape
    ((3, 2), (3, 3))
    """

    logits: NDArray[Any]
    embeddings: NDArray[Any] | None

    def take(self, rows: slice | NDArray[Any]) -> Observed:
        """Return what it gives for some of the rows."""
        return Observed(self.logits[rows], None if self.embeddings is None else self.embeddings[rows])

    @classmethod
    def joined(cls, parts: Sequence[Observed]) -> Observed:
        """Return what it gives for the rows of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        features = [part.embeddings for part in parts if part.embeddings is not None]
        joined = np.concatenate(features) if len(features) == len(parts) else None
        return cls(np.concatenate([part.logits for part in parts]), joined)


def read_features(raw: Any, rows: int, name: str) -> NDArray[Any]:
    """Return features as a float array (n, d), or raise in the teacher's name.

    Maps (n, c, h, w) are averaged over the places of each channel, and sequences (n, t, d) over their steps.
    """
    values: NDArray[Any] = pool(as_floats(raw, name))
    if values.ndim != 2 or len(values) != rows or (rows and values.shape[1] == 0):
        raise TeacherError(
            name,
            f"has embeddings of shape {values.shape} for {rows} rows of X; expected ({rows}, d). "
            "Give {remedy} a layer, or a function of X, with a row of features per row.",
            remedy="embed",
        )
    try:
        check_block(values, "embeddings")
    except InvalidInputError as error:
        raise TeacherError(name, f"cannot be used: its {error.message}").changed(**error.data) from None
    return values


def pool(features: Any, *, channels_last: bool | None = None) -> Any:
    """Return features (n, d) of an array or tensor: averages over the places of maps, or steps of sequences.

    Parameters
    ----------
    features : array or tensor
        (n, d) stays; (n, t, d) is averaged over t; (n, c, h, w) and more axes over all but the first two.
    channels_last : bool, optional
        Whether the last axis holds the features whatever the number of axes, as it does for a linear layer;
        or the second, as for a convolution. By default the number of axes decides.

    Examples
    --------
    >>> pool(np.arange(8.0).reshape(1, 2, 2, 2)).tolist()
    [[1.5, 5.5]]
    """
    if features.ndim <= 2:
        return features
    last = features.ndim == 3 if channels_last is None else channels_last
    return features.mean(tuple(range(1, features.ndim - 1)) if last else tuple(range(2, features.ndim)))

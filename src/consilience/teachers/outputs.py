"""Turn whatever a model returns into checked logits and features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_block
from consilience._words import counted
from consilience.exceptions import InvalidInputError, TeacherError

Output = Literal["auto", "logits", "probabilities", "costs", "labels"]

FLOOR = 1e-6
SUM_TOLERANCE = 1e-3
# Of models that surely give probabilities: float32 makes sums of GaussianNB miss one by up to some percent.
PROBA_TOLERANCE = 0.1
# float32 arithmetic such as 1 - p leaves probabilities this far below zero
NEGATIVE_SLACK = 1e-6
_SCORE_NAMES = (
    "logits",
    "scores",
    "probabilities",
    "output_probability",
    "probability",
    "proba",
    "predict_proba",
)


class ScoreReader:
    """Check a model's scores and return them as logits.

    A row of NaN is an abstention and stays NaN. Probabilities become ``log(max(p, floor))``; rows that sum
    to one within `tolerance` are scaled to one.

    Parameters
    ----------
    name : str
        The teacher's name, for messages.
    n_classes : int
        The number of columns, k.
    output : {"auto", "logits", "probabilities", "costs"}
        What the scores are; costs are lower where a class is more probable, and their negatives are logits.
        "auto" decides on the first rows that are no abstentions, and then stays with it: probabilities when
        all entries lie in [0, 1] and every row sums to one, logits when some entry
        lies outside [0, 1]. Entries in [0, 1] that do not sum to one could be either, which is an error.
    floor : float
        Smaller probabilities are raised to this.
    tolerance : float
        How far from one the sum of a row's probabilities may be.
    """

    def __init__(
        self,
        name: str,
        n_classes: int,
        output: Output = "auto",
        floor: float = FLOOR,
        tolerance: float = SUM_TOLERANCE,
    ) -> None:
        self.name, self.n_classes, self.output, self.floor = name, n_classes, output, floor
        self.tolerance = tolerance
        self.detected = False

    def read(self, raw: Any, n_rows: int) -> NDArray[np.float64]:
        """Return logits (n, k), float64; each row finite or all NaN."""
        scores = as_numbers(raw, self.name)
        self._check_shape(scores, n_rows)
        answered = np.flatnonzero(~np.isnan(scores).all(axis=1))
        present = scores if len(answered) == len(scores) else scores[answered]
        odd = ~np.isfinite(present)
        self._refuse(
            odd.any(axis=1),
            answered,
            lambda row: f"gave {present[row][odd[row]][0]}",
            "Give finite numbers, or NaN in the whole row to abstain.",
        )
        if len(answered):
            present = self._logits(present, answered)
        if len(answered) == len(scores):
            return present
        logits = np.full(scores.shape, np.nan)
        logits[answered] = present
        return logits

    def _check_shape(self, scores: NDArray[np.float64], n_rows: int) -> None:
        k = self.n_classes
        if scores.shape == (n_rows, k):
            return
        if scores.shape == (n_rows,) and k == 2:
            problem = (
                "returned one number per row for 2 classes. Return both columns: np.column_stack([1 - p, p]) "
                "for the probability p of the second class, np.column_stack([0 * d, d]) for its logit d."
            )
        elif scores.ndim != 2:
            problem = (
                f"returned an array of shape {scores.shape}; expected ({n_rows}, {k}): a row per sample and "
                "a column per class."
            )
        elif len(scores) != n_rows:
            problem = (
                f"returned {len(scores)} rows for {n_rows} rows of X. It is asked about some at a time; "
                "outputs of all rows are given as an array."
            )
        else:
            problem = (
                f"returned {counted(scores.shape[1], 'column')} for {k} class{'es' if k > 1 else ''}. Give "
                "{remedy} one name per column."
            )
        raise TeacherError(self.name, problem, remedy="classes")

    def _refuse(
        self,
        wrong: Any,
        rows: NDArray[np.intp],
        what: Callable[[int], str],
        advice: str,
        remedy: tuple[str, object] | None = None,
    ) -> None:
        """Raise if some rows are wrong; `what` says it of the first."""
        if wrong.any():
            first = int(np.argmax(wrong))
            such = counted(int(np.count_nonzero(wrong)), "such row")
            raise TeacherError(
                self.name, f"{what(first)} in row {{row}} ({such}). {advice}", row=rows[first], remedy=remedy
            )

    def decide(self, low: float, high: float) -> None:
        """Decide what the scores are by their least and their largest, for scores that are read in parts."""
        if self.output == "auto":
            self.output = "probabilities" if self._bounded(low, high) else "logits"

    def _bounded(self, low: float, high: float) -> bool:
        return low >= -NEGATIVE_SLACK and high <= 1 + self.tolerance

    def _logits(self, scores: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return finite scores as logits; `rows` are their places in the batch."""
        if self.output == "costs":
            return -scores
        found, bounded = self.output, self._bounded(float(scores.min()), float(scores.max()))
        if found == "auto":
            found = "probabilities" if bounded else "logits"
        logits = scores
        if found == "probabilities":
            logits = self._from_probabilities(scores, rows)
        elif self.detected and bounded and bool((np.abs(scores.sum(axis=1) - 1) <= self.tolerance).all()):
            raise TeacherError(
                self.name,
                "gave logits before and now rows that look like probabilities. "
                "Pass output='logits' or output='probabilities'.",
            )
        if self.output == "auto":
            self.output, self.detected = found, True
        return logits

    def _from_probabilities(self, proba: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        before = "The rows before looked like probabilities. " if self.detected else ""
        advice = before + "Pass {remedy} if these are logits.", ("output", "logits")
        outside = (proba < -NEGATIVE_SLACK) | (proba > 1 + self.tolerance)
        self._refuse(
            outside.any(axis=1),
            rows,
            lambda row: f"gave the probability {proba[row][outside[row]][0]:.4g}",
            *advice,
        )
        sums = proba.sum(axis=1)
        self._refuse(
            np.abs(sums - 1) > self.tolerance,
            rows,
            lambda row: f"gave probabilities that sum to {sums[row]:.4g}",
            *advice,
        )
        logits: NDArray[np.float64] = np.maximum(proba / sums[:, None], self.floor)
        return np.log(logits, out=logits)


def choose_output(names: Sequence[str], dims: Sequence[int | None], wanted: str = "auto") -> int:
    """Return which of several outputs of a model holds the scores: by its name, or else the first matrix.

    Parameters
    ----------
    names : sequence of str
    dims : sequence of int or None
        The number of dimensions of each.
    wanted : str
        "probabilities" prefers these to logits where there are both.

    Examples
    --------
    >>> choose_output(["hidden", "logits"], [2, 2]), choose_output(["a", "b"], [3, 2])
    (1, 1)
    """
    order = (*_SCORE_NAMES[2:], *_SCORE_NAMES[:2]) if wanted == "probabilities" else _SCORE_NAMES
    lower = [name.lower() for name in names]
    named = next((lower.index(name) for name in order if name in lower), None)
    matrix = next((place for place, count in enumerate(dims) if count == 2), 0)
    return matrix if named is None else named


def as_numbers(raw: Any, name: str) -> NDArray[np.float64]:
    """Return an array, tensor, data frame, sparse matrix or list as float64, without a needless copy."""
    return _plain_numbers(raw, name, "a column per class").astype(np.float64, copy=False)


def _plain_numbers(raw: Any, name: str, columns: str) -> NDArray[Any]:
    try:
        if hasattr(raw, "detach"):
            values = tensor_values(raw)
        elif isinstance(raw, np.ma.MaskedArray):
            values = np.asarray(np.ma.filled(raw.astype(np.float64), np.nan))  # a masked row is an abstention
        else:
            values = np.asarray(raw.toarray() if hasattr(raw, "toarray") else raw)
        if raw is None or values.dtype.kind not in "fiubO":
            raise TypeError
        return values.astype(np.float64) if values.dtype.kind == "O" else values
    except Exception:  # numpy and torch raise various errors for what is not an array of numbers
        what = f"{raw.dtype} entries" if isinstance(raw, np.ndarray) else f"a {type(raw).__name__}"
        raise TeacherError(
            name,
            f"returned {what} instead of an array of numbers with a row per sample and {columns}.",
        ) from None


def tensor_values(tensor: Any) -> NDArray[Any]:
    """Return a torch tensor as an array, wherever it is and in whatever layout."""
    tensor = tensor.detach().cpu()
    if tensor.is_sparse or tensor.is_quantized:
        tensor = tensor.to_dense() if tensor.is_sparse else tensor.dequantize()
    # numpy has no bfloat16, and every half fits into a float32
    small = tensor.is_floating_point() and tensor.itemsize < 4
    return np.asarray((tensor.float() if small else tensor).resolve_conj().resolve_neg().numpy())


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
    values: NDArray[Any] = pool(_plain_numbers(raw, name, "a column per feature"))
    small = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    values = values.astype(np.float32 if small else np.float64, copy=False)
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

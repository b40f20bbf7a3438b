"""Turn whatever a model returns into checked logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_number
from consilience._words import counted
from consilience.exceptions import TeacherError

Output = Literal["auto", "logits", "probabilities", "costs", "labels"]

FLOOR = 1e-6
LABEL_SMOOTHING = 0.01
SUM_TOLERANCE = 1e-3
# Of models that surely give probabilities: float32 makes sums of GaussianNB miss one by up to some percent.
PROBA_TOLERANCE = 0.1
# float32 arithmetic such as 1 - p leaves probabilities this far below zero
NEGATIVE_SLACK = 1e-6
_SCORE_NAMES: dict[str, tuple[str, ...]] = {
    "logits": ("logits", "scores"),
    "probabilities": ("probabilities", "output_probability", "probability", "proba", "predict_proba"),
}


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
        if scores.size == 0:
            return scores
        with np.errstate(invalid="ignore"):
            low, high = scores.min(), scores.max()
        # min and max propagate NaN and infinity: if both are finite, so are all entries
        if np.isfinite(low) and np.isfinite(high):
            return self._finite(scores, float(low), float(high), None)
        return self._with_abstentions(scores)

    def _check_shape(self, scores: NDArray[np.float64], n_rows: int) -> None:
        if scores.ndim == 1 and self.n_classes == 2 and len(scores) == n_rows:
            raise TeacherError(
                self.name,
                "returned one number per row for 2 classes. Return both columns: "
                "np.column_stack([1 - p, p]) for the probability p of the second class, "
                "np.column_stack([0 * d, d]) for its logit d.",
            )
        if scores.ndim != 2:
            raise TeacherError(
                self.name,
                f"returned an array of shape {scores.shape}; expected ({n_rows}, {self.n_classes}): "
                "a row per sample and a column per class.",
            )
        if scores.shape[0] != n_rows:
            raise TeacherError(
                self.name,
                f"returned {scores.shape[0]} rows for {n_rows} rows of X. It is asked about some at a time; "
                "outputs of all rows are given as an array.",
            )
        if scores.shape[1] != self.n_classes:
            columns = "1 column" if scores.shape[1] == 1 else f"{scores.shape[1]} columns"
            classes = "1 class" if self.n_classes == 1 else f"{self.n_classes} classes"
            raise TeacherError(
                self.name,
                f"returned {columns} for {classes}. Give {{remedy}} one name per column.",
                remedy="classes",
            )

    def _with_abstentions(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        abstains = np.isnan(scores).all(axis=1)
        rows = np.flatnonzero(~abstains)
        present = scores[rows]
        wrong = ~np.isfinite(present).all(axis=1)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            value = present[first][~np.isfinite(present[first])][0]
            raise TeacherError(
                self.name,
                f"gave {value} in row {{row}} ({counted(int(np.count_nonzero(wrong)), 'such row')}). "
                "Give finite numbers, or NaN in the whole row to abstain.",
                row=rows[first],
            )
        logits = np.full(scores.shape, np.nan)
        if len(rows):
            logits[rows] = self._finite(present, float(present.min()), float(present.max()), rows)
        return logits

    def decide(self, low: float, high: float) -> None:
        """Decide what the scores are by their least and their largest, for scores that are read in parts."""
        if self.output == "auto":
            self.output = _kind(self._bounded(low, high))

    def _bounded(self, low: float, high: float) -> bool:
        return low >= -NEGATIVE_SLACK and high <= 1 + self.tolerance

    def _finite(
        self, scores: NDArray[np.float64], low: float, high: float, rows: NDArray[np.intp] | None
    ) -> NDArray[np.float64]:
        """Return finite scores as logits; `rows` are their places in the batch, None for all in order."""
        bounded = self._bounded(low, high)
        if self.output == "costs":
            return -scores
        kind = self.output if self.output != "auto" else _kind(bounded)
        if kind == "probabilities":
            logits = self._from_probabilities(scores, bounded, rows)
        elif self.detected and bounded and bool(np.all(np.abs(scores.sum(axis=1) - 1) <= self.tolerance)):
            raise TeacherError(
                self.name,
                "gave logits before and now rows that look like probabilities. "
                "Pass output='logits' or output='probabilities'.",
            )
        else:
            logits = scores
        if self.output == "auto":
            self.output, self.detected = kind, True
        return logits

    def _from_probabilities(
        self, proba: NDArray[np.float64], bounded: bool, rows: NDArray[np.intp] | None
    ) -> NDArray[np.float64]:
        if not bounded:
            outside = (proba < -NEGATIVE_SLACK) | (proba > 1 + self.tolerance)
            bad = outside.any(axis=1)
            first = int(np.argmax(bad))
            what = f"gave the probability {proba[first][outside[first]][0]:.4g}"
            raise self._no_probabilities(what, bad, rows)
        sums = proba.sum(axis=1)
        bad = np.abs(sums - 1) > self.tolerance
        if bad.any():
            what = f"gave probabilities that sum to {sums[np.argmax(bad)]:.4g}"
            raise self._no_probabilities(what, bad, rows)
        logits: NDArray[np.float64] = proba / sums[:, None]
        np.maximum(logits, self.floor, out=logits)
        np.log(logits, out=logits)
        return logits

    def _no_probabilities(self, what: str, bad: Any, rows: NDArray[np.intp] | None) -> TeacherError:
        """Return the error for bad rows (n,), of which `what` describes the first."""
        before = " The rows before looked like probabilities." if self.detected else ""
        return TeacherError(
            self.name,
            f"{what} in row {{row}} ({counted(int(np.count_nonzero(bad)), 'such row')}).{before} "
            "Pass {remedy} if these are logits.",
            remedy=("output", "logits"),
            row=_place(int(np.argmax(bad)), rows),
        )


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
    order = ("probabilities", "logits") if wanted == "probabilities" else ("logits", "probabilities")
    places = {name.lower(): place for place, name in enumerate(names)}
    for kind in order:
        for name in _SCORE_NAMES[kind]:
            if name in places:
                return places[name]
    return next((place for place, count in enumerate(dims) if count == 2), 0)


def as_numbers(raw: Any, name: str) -> NDArray[np.float64]:
    """Return an array, tensor, data frame, sparse matrix or list as float64, without a needless copy."""
    values = _plain_numbers(raw, name, "a column per class")
    return values.astype(np.float64, copy=False)


def as_floats(raw: Any, name: str) -> NDArray[Any]:
    """Return features as float32, or as float64 if they need it, without a needless copy."""
    values = _plain_numbers(raw, name, "a column per feature")
    small = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    return values.astype(np.float32 if small else np.float64, copy=False)


def _plain_numbers(raw: Any, name: str, columns: str) -> NDArray[Any]:
    try:
        if hasattr(raw, "detach"):
            values = tensor_values(raw)
        elif hasattr(raw, "toarray"):
            values = np.asarray(raw.toarray())
        elif isinstance(raw, np.ma.MaskedArray):
            values = np.asarray(np.ma.filled(raw.astype(np.float64), np.nan))  # a masked row is an abstention
        else:
            values = np.asarray(raw)
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


def check_floor(floor: object) -> float:
    """Return the floor of probabilities, or raise unless it is between 0 and 0.5."""
    return check_number("floor", floor, above=0, below=0.5)


def check_label_smoothing(label_smoothing: object) -> float:
    """Return `label_smoothing`, or raise unless it is between 0 and 1."""
    return check_number("label_smoothing", label_smoothing, above=0, below=1)


def _kind(bounded: bool) -> Output:
    return "probabilities" if bounded else "logits"


def _place(row: int, rows: NDArray[np.intp] | None) -> int:
    return row if rows is None else int(rows[row])

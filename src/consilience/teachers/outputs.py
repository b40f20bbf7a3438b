"""The boundary to foreign models: what they raise becomes a `TeacherError`, what they return is checked."""

from __future__ import annotations

import difflib
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._words import counted
from consilience.exceptions import (
    ConsilienceError,
    InvalidInputError,
    TeacherError,
    UnsafeFileError,
    safe_text,
)
from consilience.labels import check_block

Output = Literal["auto", "logits", "probabilities", "costs", "labels"]

SUM_TOLERANCE = 1e-3
# Of models that surely give probabilities: float32 makes sums of GaussianNB miss one by up to some percent.
PROBA_TOLERANCE = 0.1
# float32 arithmetic such as 1 - p leaves probabilities this far below zero
NEGATIVE_SLACK = 1e-6
_PROBABILITY_NAMES = ["probabilities", "output_probability", "probability", "proba", "predict_proba"]


@contextmanager
def foreign(name: str, problem: str) -> Iterator[None]:
    """Turn whatever foreign code raises, panics included, into an error of the teacher: '`problem`: what'."""
    try:
        yield
    except (ConsilienceError, KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise TeacherError(name, f"{problem}: {summary(error)}") from error


@contextmanager
def in_the_name_of(name: str, problem: str = "cannot be used: ", hint: str = "") -> Iterator[None]:
    """Tell whose input it is that another part of consilience refuses: 'Teacher x `problem`what`hint`'."""
    try:
        yield
    except (TeacherError, UnsafeFileError):
        raise
    except InvalidInputError as error:
        raise TeacherError(name, f"{problem}{error.message}{hint}").changed(**error.data) from error


def ensure(right: object, name: str, problem: str, **data: Any) -> None:
    """Raise a `TeacherError` unless something is right."""
    if not right:
        raise TeacherError(name, problem, **data)


def check_known(name: str, wanted: str, known: Sequence[str], what: str, advice: str) -> None:
    """Raise unless a name that was given as embed= is known; say which are near."""
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.3) or known[-3:]
    found = ", ".join(map(repr, near)) or "none"
    ensure(
        wanted in known,
        name,
        f"has no {what} {wanted!r}; it has, for example, {found}. {advice}",
        remedy="embed",
    )


def summary(error: BaseException, most: int = 300) -> str:
    """Return the type and the first line of a foreign error."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {safe_text(lines[0], most)}"


def describe(X: Any) -> str:
    """Say what X is, for a message."""
    shape, kind = getattr(X, "shape", None), type(X).__name__
    if shape is None:
        return f"X, a {kind} of {len(X)}" if hasattr(X, "__len__") else f"a {kind}"
    return f"X of shape {tuple(shape)} ({getattr(X, 'dtype', None) or kind})"


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
        "auto" decides on the first rows that are no abstentions, and then stays with it: logits when some
        entry lies outside [0, 1], or else probabilities, whose rows must sum to one.
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
        floor: float = 1e-6,
        tolerance: float = SUM_TOLERANCE,
    ) -> None:
        self.name, self.n_classes, self.output, self.floor = name, n_classes, output, floor
        self.tolerance = tolerance

    def read(self, raw: Any, n_rows: int) -> NDArray[np.float64]:
        """Return logits (n, k), float64; each row finite or all NaN."""
        scores = as_numbers(raw, self.name)
        self.check_shape(scores.shape, n_rows)
        with in_the_name_of(self.name):
            check_block(scores, "its scores")
        output = self._kind(scores) if self.output == "auto" else self.output
        logits = -scores if output == "costs" else scores
        if output == "probabilities":
            logits = self._from_probabilities(scores)
        self.output = output  # not before: scores that are refused decide nothing
        return logits

    def settle(self, parts: Iterable[NDArray[Any]]) -> None:
        """Decide what scores are that are read in parts, by all of them."""
        kinds = {self._kind(part) for part in parts}
        self.output = "logits" if "logits" in kinds else max(kinds, default="auto")

    def _kind(self, scores: NDArray[Any]) -> Output:
        low = np.fmin.reduce(scores, axis=None, initial=np.inf)
        high = np.fmax.reduce(scores, axis=None, initial=-np.inf)
        if low > high:  # nothing but abstentions
            return "auto"
        return "probabilities" if low >= -NEGATIVE_SLACK and high <= 1 + self.tolerance else "logits"

    def check_shape(self, shape: tuple[int, ...], n_rows: int) -> None:
        """Raise unless scores have a row per row and a column per class."""
        k = self.n_classes
        if shape == (n_rows, k):
            return
        if shape == (n_rows,) and k == 2:
            problem = (
                "returned one number per row for 2 classes. Return both columns: np.column_stack([1 - p, p]) "
                "for the probability p of the second class, np.column_stack([0 * d, d]) for its logit d."
            )
        elif len(shape) != 2:
            expected = f"expected ({n_rows}, {k}): a row per sample and a column per class."
            problem = f"returned an array of shape {shape}; {expected}"
        elif shape[0] != n_rows:
            problem = (
                f"returned {shape[0]} rows for {n_rows} rows of X. It is asked about some at a time; "
                "outputs of all rows are given as an array."
            )
        else:
            columns = f"{counted(shape[1], 'column')} for {counted(k, 'class')}"
            problem = f"returned {columns}. Give {{remedy}} one name per column."
        raise TeacherError(self.name, problem, remedy="classes")

    def _from_probabilities(self, proba: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = proba.sum(axis=1, keepdims=True)
        outside = (proba < -NEGATIVE_SLACK) | (proba > 1 + self.tolerance)
        unequal = np.abs(sums - 1) > self.tolerance
        for values, wrong, what in (
            (proba, outside, "gave the probability"),
            (sums, unequal, "gave probabilities that sum to"),
        ):
            rows = np.flatnonzero(wrong.any(axis=1))
            if len(rows):
                raise TeacherError(
                    self.name,
                    f"{what} {values[wrong][0]:.4g} in row {{row}} ({counted(len(rows), 'such row')}). "
                    "Pass {remedy} if these are logits.",
                    row=rows[0],
                    remedy=("output", "logits"),
                )
        logits: NDArray[np.float64] = np.maximum(proba / sums, self.floor)
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
    order, lower = ["logits", "scores"], [name.lower() for name in names]
    order = _PROBABILITY_NAMES + order if wanted == "probabilities" else order + _PROBABILITY_NAMES
    known = [lower.index(name) for name in order if name in lower]
    matrices = [place for place, count in enumerate(dims) if count == 2]
    return [*known, *matrices, 0][0]


def as_numbers(
    raw: Any, name: str, columns: str = "a column per class", *, single: bool = False
) -> NDArray[Any]:
    """Return an array, tensor, data frame, sparse matrix or list as float64, without a needless copy.

    Parameters
    ----------
    raw : object
    name : str
        The teacher's, for messages.
    columns : str
        What it has a column for.
    single : bool
        Whether single precision is kept.
    """
    try:
        values = plain_array(raw)
        if raw is None or values.dtype.kind not in "fiubO":
            raise TypeError
        small = single and values.dtype.kind == "f" and values.dtype.itemsize <= 4
        return values.astype(np.float32 if small else np.float64, copy=False)
    except Exception:  # numpy and torch raise various errors for what is not an array of numbers
        what = f"{raw.dtype} entries" if isinstance(raw, np.ndarray) else f"a {type(raw).__name__}"
        raise TeacherError(
            name, f"returned {what} instead of an array of numbers with a row per sample and {columns}."
        ) from None


def plain_array(obj: Any) -> NDArray[Any]:
    """Return an array, tensor, frame, sparse matrix or list as an array; None where an entry is masked."""
    if hasattr(obj, "detach"):
        return tensor_values(obj)
    if isinstance(obj, np.ma.MaskedArray):
        return np.asarray(obj.tolist(), dtype=object).reshape(obj.shape)
    dense = getattr(obj, "toarray", getattr(obj, "to_numpy", None))
    return np.asarray(obj if dense is None else dense())


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
    values: NDArray[Any] = pool(as_numbers(raw, name, "a column per feature", single=True))
    if values.ndim != 2 or len(values) != rows or (rows and values.shape[1] == 0):
        raise TeacherError(
            name,
            f"has embeddings of shape {values.shape} for {rows} rows of X; expected ({rows}, d). "
            "Give {remedy} a layer, or a function of X, with a row of features per row.",
            remedy="embed",
        )
    with in_the_name_of(name, "cannot be used: its "):
        check_block(values, "embeddings")
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

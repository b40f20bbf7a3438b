"""Checks at the public boundary: each gives one sentence that says what to do."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience import exceptions
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace
from consilience.options import check_choice as check_choice
from consilience.options import check_count as check_count
from consilience.options import check_number as check_number
from consilience.options import check_temperature as check_temperature
from consilience.rows.rows import n_rows as n_rows
from consilience.rows.rows import take_rows as take_rows
from consilience.rows.tables import as_values, in_order, number_advice

_WIDEST, _SHARPEST = 1e300, 1e12  # ranges of a cost, and of a cost over epsilon
_SOFTEST = 1e300  # of epsilon
_MOST = 2**32 - 1  # the largest seed of numpy; no count comes near it


def as_numbers(name: str, values: ArrayLike, expected: str) -> NDArray[Any]:
    """Return an array of numbers of any shape, or raise with the clause that says what is expected.

    Examples
    --------
    >>> as_numbers("init", [[1.0], [1.0, 2.0]], "expected (2, 2)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: init cannot be read as an array (...); expected (2, 2).
    """
    if np.ma.is_masked(values):
        raise InvalidInputError(f"{name} has masked entries, which have no numbers; {expected}. Fill them.")
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:  # ragged rows; a tensor's gradient
        raise InvalidInputError(f"{name} cannot be read as an array ({error}); {expected}.") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    return array


def as_random_state(random_state: object) -> np.random.RandomState:
    """Return numpy's generator for a seed, a generator or None, or raise."""
    from sklearn.utils import check_random_state

    try:
        return cast(np.random.RandomState, check_random_state(random_state))
    except (ValueError, TypeError):  # sklearn: not a seed; numpy: a seed out of range
        raise InvalidInputError(
            f"{{argument}} must be a whole number from 0 to {_MOST}, a RandomState or None.",
            argument="random_state",
            value=random_state,
        ) from None


def check_fitted(estimator: object, attribute: str) -> None:
    """Raise unless an estimator has the attribute that `fit` gives it."""
    if not hasattr(estimator, attribute):
        raise exceptions.NotFittedError(f"This {type(estimator).__name__} is not fitted yet; call fit first.")


def check_distributions(name: str, values: ArrayLike, *, tol: float = 1e-3) -> NDArray[np.float64]:
    """Return `values` (..., K) as floats, or raise unless the last axis holds distributions.

    Examples
    --------
    >>> check_distributions("proba", [[0.5, 0.5], [0.5, 0.6]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: proba sums to 1.1 in row 1 (1 such row); expected ...
    """
    expected = "expected numbers (n, K), a column per class"
    array = as_numbers(name, values, expected)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    array = np.asarray(array, dtype=np.float64)
    wrong = ~((array >= 0) & (array <= 1e100))  # the negation catches NaN too; larger ones have no sum
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInputError(f"{name} has {array[where]} at {where}; expected probabilities, from 0 to 1.")
    sums = np.atleast_1d(array.sum(axis=-1)).ravel()
    off = np.flatnonzero(np.abs(sums - 1) > tol)
    if len(off):
        raise InvalidInputError(
            f"{name} sums to {sums[off[0]]:g} in row {{row}} ({counted(len(off), 'such row')}); "
            "expected probabilities, which sum to 1.",
            row=off[0],
        )
    return array


def check_transition(transition: ArrayLike, n_classes: int | None = None) -> NDArray[np.float64]:
    """Return Q (K, K) with Q[l, k] the probability to observe label l where class k is true, or raise."""
    Q = np.asarray(as_numbers("transition", transition, "expected numbers (K, K)"), dtype=np.float64)
    if Q.ndim != 2 or Q.shape[0] != Q.shape[1] or (n_classes is not None and len(Q) != n_classes):
        size = "K" if n_classes is None else n_classes
        raise InvalidInputError(f"transition has shape {Q.shape}; expected ({size}, {size}).")
    if not ((Q >= 0) & np.isfinite(Q)).all():
        raise InvalidInputError("transition has entries that are negative or not finite; give probabilities.")
    if np.abs(Q.sum(axis=0) - 1).max() > 1e-3:
        hint = " Its rows do: give its transpose." if np.abs(Q.sum(axis=1) - 1).max() <= 1e-3 else ""
        raise InvalidInputError(
            "The columns of transition do not sum to 1; transition[l, k] is the probability to observe "
            f"label l where class k is true.{hint}"
        )
    return Q


def check_cost(
    cost: ArrayLike, n_source: int | None = None, n_target: int | None = None
) -> NDArray[np.float64]:
    """Return a cost matrix M (m, k) as contiguous floats, or raise unless it has that shape and is finite.

    Examples
    --------
    >>> check_cost([[0.0, 1.0]], 2, 2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: cost has shape (1, 2); expected (2, 2): ...
    """
    rows, columns = "m" if n_source is None else n_source, "k" if n_target is None else n_target
    expected = (
        f"expected ({rows}, {columns}): a row per class of the teacher and a column per class of the student"
    )
    M = as_numbers("cost", cost, f"{expected}, all numbers")
    if M.ndim != 2 or M.size == 0:
        raise InvalidInputError(f"cost has shape {M.shape} and type {M.dtype}; {expected}, all numbers.")
    if n_source not in (None, len(M)) or n_target not in (None, M.shape[1]):
        hint = " Its transpose has that shape." if M.T.shape == (n_source, n_target) else ""
        raise InvalidInputError(f"cost has shape {M.shape}; {expected}.{hint}")
    M = np.ascontiguousarray(M, dtype=np.float64)
    wrong = ~np.isfinite(M)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInputError(
            f"cost has {M[where]} at {where} ({int(wrong.sum())} such entries); give finite numbers."
        )
    return M


def check_sharpness(epsilon: float, cost: NDArray[np.float64]) -> float:
    """Return epsilon, or raise where M / epsilon is beyond what double precision resolves.

    Examples
    --------
    >>> check_sharpness(1e-310, np.eye(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: The cost has a range of 1, with epsilon=1e-310; ...
    """
    span = float(cost.max()) - float(cost.min())
    if not (span <= _WIDEST and span / epsilon <= _SHARPEST):
        raise InvalidInputError(
            f"The cost has a range of {span:g}, with {{argument}}; expected at most {_WIDEST:g}, "
            f"and at most {_SHARPEST:g} times epsilon. Raise epsilon, or divide the cost.",
            argument="epsilon",
            value=epsilon,
        )
    if epsilon > _SOFTEST:
        raise InvalidInputError(
            f"{{argument}} must be at most {_SOFTEST:g}.", argument="epsilon", value=epsilon
        )
    return epsilon


def check_packed_logits(
    logits: ArrayLike, space: LabelSpace, rows: int | None = None, *, what: str = "logits"
) -> NDArray[np.float64]:
    """Return packed logits as a contiguous float64 array (n, m), or say what is wrong with them.

    A teacher's block of a row is either finite or all NaN (the teacher abstains on that row). If X has
    `rows`, so must they. Messages call them `what`.
    """
    if not isinstance(space, LabelSpace):
        raise InvalidInputError(f"space is a {type(space).__name__}; give the LabelSpace of the teachers.")
    expected = (
        f"expected (n, {space.n_columns}): "
        f"a column per class of each of the {space.n_teachers} teachers, teacher after teacher"
    )
    if hasattr(logits, "toarray"):
        raise InvalidInputError(f"{what} are a sparse matrix; {expected}. Give logits.toarray().")
    try:
        array = np.asarray(logits)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"they have type {array.dtype}")
        packed = np.ascontiguousarray(array, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(f"{what} cannot be read as numbers ({error}); {expected}.") from None
    if packed.ndim != 2 or packed.shape[1] != space.n_columns:
        raise InvalidInputError(f"{what} have shape {packed.shape}; {expected}.")
    if rows is not None and len(packed) != rows:
        raise InvalidInputError(f"{what} have {len(packed)} rows and X has {rows}.")
    finite = np.isfinite(packed)
    if finite.all():
        return packed
    for i in range(space.n_teachers):
        check_block(packed[:, space.block(i)], f"{what} of {space.names[i]!r}")
    return packed


def check_block(block: NDArray[np.floating[Any]], what: str) -> None:
    """Raise unless each row of one teacher's logits is finite or all NaN."""
    bad = ~np.isfinite(block)
    if not bad.any():
        return
    wrong = bad.any(axis=1) & ~np.isnan(block).all(axis=1)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        value = block[row][bad[row]][0]
        raise InvalidInputError(
            f"{what} have {value} in row {{row}} ({counted(int(wrong.sum()), 'such row')}). "
            "Give finite numbers, or NaN in the whole row where the teacher abstains.",
            row=row,
        )


def validated_rows(estimator: Any, X: Any, **options: Any) -> NDArray[Any]:
    """Check X as scikit-learn does, which also sets `n_features_in_` and `feature_names_in_`.

    Columns that come in another order than in `fit` are put in order. What scikit-learn raises becomes ours.
    """
    from sklearn.utils.validation import validate_data

    X = as_values(X)
    if not options.get("reset", True):
        X = in_order(X, getattr(estimator, "feature_names_in_", None))
    try:
        return np.asarray(validate_data(estimator, X, **options))
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        kind = exceptions.InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(" ".join(str(error).split()) + number_advice(X)) from error

"""Checks at the public boundary: each gives one sentence that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.options import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    check_number,
    check_temperature,
)
from consilience.rows.rows import n_rows, take_rows

__all__ = [
    "as_numbers",
    "as_random_state",
    "check_choice",
    "check_cost",
    "check_count",
    "check_distributions",
    "check_epsilon",
    "check_fitted",
    "check_number",
    "check_order",
    "check_temperature",
    "check_transition",
    "check_weights",
    "n_rows",
    "take_rows",
]

_WIDEST, _SHARPEST = 1e300, 1e12  # ranges of a cost, and of a cost over epsilon


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


def check_weights(name: str, values: ArrayLike | None, count: int) -> NDArray[np.float64]:
    """Return the weights (count,) of rows, ones if none are given; raise if they are wrong."""
    if values is None:
        return np.ones(count)
    expected = f"expected ({count},), numbers of at least 0"
    weights = as_numbers(name, values, expected).astype(np.float64)
    if weights.shape != (count,):
        raise InvalidInputError(f"{name} has shape {weights.shape}; {expected}.")
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        place = int(wrong.argmax())
        raise InvalidInputError(f"{name} has {weights[place]} at position {place}; {expected}.")
    return weights


def check_distributions(name: str, values: ArrayLike, *, tol: float = 1e-3) -> NDArray[np.float64]:
    """Return `values` (..., K) as floats, or raise unless the last axis holds distributions.

    Examples
    --------
    >>> check_distributions("proba", [[0.5, 0.5], [0.5, 0.6]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: proba sums to 1.1 in row 1 (1 such row); expected ...
    """
    expected = "expected numbers (n, K), a column per class"
    array = np.asarray(as_numbers(name, values, expected), dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InvalidInputError(f"{name} has shape {array.shape}; {expected}.")
    # larger numbers have no sum
    _check_entries(name, array, (array >= 0) & (array <= 1e100), "expected probabilities, from 0 to 1")
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
    size = len(Q) if n_classes is None and Q.ndim else n_classes
    if Q.shape != (size, size):
        raise InvalidInputError(f"transition has shape {Q.shape}; expected {(size or 'K',) * 2}.")
    _check_entries("transition", Q, (Q >= 0) & np.isfinite(Q), "give probabilities")
    sums = [Q.sum(axis=axis) for axis in (0, 1)]
    columns, rows = (np.abs(one - 1).max() <= 1e-3 for one in sums)
    if not columns:
        raise InvalidInputError(
            "The columns of transition do not sum to 1; transition[l, k] is the probability to observe "
            f"label l where class k is true.{' Its rows do: give its transpose.' if rows else ''}"
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
    expected = (
        f"expected ({n_source or 'm'}, {n_target or 'k'}): a row per class of the teacher and a column per "
        "class of the student, all numbers"
    )
    M = np.ascontiguousarray(as_numbers("cost", cost, expected), dtype=np.float64)
    wanted = (n_source or len(M), n_target or M.shape[-1])
    if np.ndim(cost) != 2 or M.size == 0 or M.shape != wanted:
        hint = " Its transpose has that shape." if M.T.shape == wanted else ""
        raise InvalidInputError(f"cost has shape {np.shape(cost)}; {expected}.{hint}")
    _check_entries("cost", M, np.isfinite(M), "give finite numbers")
    return M


def check_epsilon(epsilon: float | str, cost: NDArray[np.float64]) -> float:
    """Return epsilon, that of the cost for "auto"; or raise where doubles do not resolve cost / epsilon.

    Examples
    --------
    >>> check_epsilon(1e-310, np.eye(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: The cost has a range of 1, with epsilon=1e-310; ...
    """
    if isinstance(epsilon, str):
        from consilience.kernels.transport.centres import automatic_epsilon  # scipy.spatial takes a while

        check_choice("epsilon", epsilon, ("auto",))
        epsilon = automatic_epsilon(cost)
    epsilon = check_number("epsilon", epsilon, above=0)
    span = float(cost.max()) - float(cost.min())
    if not (span <= _WIDEST and span / epsilon <= _SHARPEST):
        raise InvalidInputError(
            f"The cost has a range of {span:g}, with {{argument}}; expected at most {_WIDEST:g}, "
            f"and at most {_SHARPEST:g} times epsilon. Raise epsilon, or divide the cost.",
            argument="epsilon",
            value=epsilon,
        )
    return check_number("epsilon", epsilon, at_most=_WIDEST)


def check_order(alpha: object, nearest: float) -> float:
    """Return the order of a Renyi entropy, or raise if it is so near 1 that only rounding is left."""
    order = check_number("alpha", alpha, above=0)
    if order != 1.0 and round(abs(order - 1.0), 15) < nearest:
        raise InvalidInputError(
            f"{{argument}} must be 1, or differ from it by at least {nearest:g}.",
            argument="alpha",
            value=alpha,
        )
    return order


def _check_entries(name: str, values: NDArray[Any], right: NDArray[np.bool_], expected: str) -> None:
    """Raise unless all entries are right: name the first that is not."""
    wrong = np.argwhere(~right)
    if len(wrong):
        where = tuple(wrong[0].tolist())
        raise InvalidInputError(f"{name} has {values[where]} at {where} ({len(wrong)} such); {expected}.")

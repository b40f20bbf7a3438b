"""Checks at the public boundary: each gives one sentence that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace, class_list, shorten

_WIDEST, _SHARPEST = 1e300, 1e12  # ranges of a cost, and of a cost over epsilon


def as_numbers(name: str, values: ArrayLike, expected: str) -> NDArray[Any]:
    """Return an array of numbers of any shape, or raise with the clause that says what is expected.

    Examples
    --------
    >>> as_numbers("init", [[1.0], [1.0, 2.0]], "expected (2, 2)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: init cannot be read as an array (...); expected (2, 2).
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged rows; a tensor that needs its gradient
        raise InvalidInputError(f"{name} cannot be read as an array ({error}); {expected}.") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    return array


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise unless `value` is one of `choices`, suggesting the nearest.

    Examples
    --------
    >>> check_choice("method", "mfp", ["ce", "mf-p"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: method='mfp' is unknown; use 'ce' or 'mf-p'. Did you mean ...?
    """
    allowed = list(choices)
    # identity for True and False: 1 == True, and balance=1 is a slip
    if any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed):
        return
    shown = [repr(choice) for choice in allowed]
    listing = " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
    words = [choice for choice in allowed if isinstance(choice, str)]
    near = difflib.get_close_matches(str(value).lower(), words, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{name}={value!r} is unknown; use {listing}.{hint}")


def check_number(
    name: str, value: object, *, above: float | None = None, at_least: float | None = None
) -> float:
    """Return `value` as a float, or raise unless it is a finite number in range."""
    bound = (
        f" above {above:g}"
        if above is not None
        else f" of at least {at_least:g}"
        if at_least is not None
        else ""
    )
    ok = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    number = float(cast(Any, value)) if ok else np.nan
    if above is not None:
        ok = ok and number > above
    if at_least is not None:
        ok = ok and number >= at_least
    if not ok or not np.isfinite(number):
        raise InvalidInputError(f"{name}={value!r} must be a finite number{bound}.")
    return number


def check_temperature(value: object, name: str = "temperature") -> float:
    """Return a temperature as a float, or raise unless it is from 1e-6 to 1e6.

    Beyond that, logits over it overflow in single precision.
    """
    temperature = check_number(name, value, above=0)
    if not 1e-6 <= temperature <= 1e6:
        raise InvalidInputError(f"{name}={value!r} must be from 1e-6 to 1e6.")
    return temperature


def check_count(name: str, value: object, *, at_least: int = 1) -> int:
    """Return `value` as an int, or raise unless it is a whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise InvalidInputError(f"{name}={value!r} must be a whole number of at least {at_least}.")
    return int(value)


def check_distributions(name: str, values: ArrayLike, *, tol: float = 1e-3) -> NDArray[np.float64]:
    """Return `values` (..., K) as floats, or raise unless the last axis holds distributions.

    Examples
    --------
    >>> check_distributions("proba", [[0.5, 0.5], [0.5, 0.6]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: proba sums to 1.1 in row 1 (1 such rows); expected ...
    """
    expected = "expected numbers (n, K), a column per class"
    array = as_numbers(name, values, expected)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    array = np.asarray(array, dtype=np.float64)
    wrong = ~(array >= 0) | np.isinf(array)  # the negation catches NaN too
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInputError(f"{name} has {array[where]} at {where}; expected probabilities, from 0 to 1.")
    sums = np.atleast_1d(array.sum(axis=-1)).ravel()
    off = np.flatnonzero(np.abs(sums - 1) > tol)
    if len(off):
        raise InvalidInputError(
            f"{name} sums to {sums[off[0]]:g} in row {off[0]} ({len(off)} such rows); "
            "expected probabilities, which sum to 1."
        )
    return array


def check_transition(transition: ArrayLike, n_classes: int | None = None) -> NDArray[np.float64]:
    """Return Q (K, K) with Q[l, k] the probability to observe label l where class k is true, or raise."""
    Q = np.asarray(transition, dtype=np.float64)
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
            f"The cost has a range of {span:g}, with epsilon={epsilon:g}; expected at most {_WIDEST:g}, "
            f"and at most {_SHARPEST:g} times epsilon. Raise epsilon, or divide the cost."
        )
    return epsilon


def check_labels(
    y: Any, rows: int, classes: ArrayLike | None = None, *, where: str = "y"
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the classes (C,) and the position (n,) of each label among them, or say what is wrong.

    Parameters
    ----------
    y : (n,) sequence of str, int or float
        A label for every row.
    rows : int
        n, the rows of X.
    classes : (C,) sequence, optional
        The classes in the order wanted; by default those that occur, in numpy.unique's order.

    Examples
    --------
    >>> names, codes = check_labels(["b", "a", "b"], 3)
    >>> names.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    values = _label_array(y, where)
    if len(values) != rows:
        raise InvalidInputError(f"{where} has {len(values)} labels and X has {rows} rows.")
    if classes is None:
        if rows == 0:
            raise InvalidInputError(f"{where} is empty; give a label for every row.")
        names, codes = np.unique(values, return_inverse=True)
        class_list(names, where)
        return names, codes.astype(np.intp, copy=False)
    listed = class_list(classes)
    place = {name: i for i, name in enumerate(listed)}
    found, inverse = np.unique(values, return_inverse=True)
    unknown = [value for value in found.tolist() if value not in place]
    if unknown:
        raise InvalidInputError(
            f"{where} has the labels {shorten(unknown, 5)}, which are none of the classes "
            f"{shorten(listed, 5)}."
        )
    table = np.array([place[value] for value in found.tolist()], dtype=np.intp)
    return np.asarray(listed), table[inverse]


def _label_array(y: Any, where: str) -> NDArray[Any]:
    """Return labels as a 1-D array of one kind without missing entries."""
    if y is None or isinstance(y, str | bytes) or np.ndim(y) != 1:
        shape = "" if y is None or isinstance(y, str | bytes) else f" of shape {np.shape(y)}"
        raise InvalidInputError(f"{where} is a {type(y).__name__}{shape}; expected one label per row, (n,).")
    # numpy would turn numbers among texts into texts without a word
    plain = list(y) if isinstance(y, list | tuple) else None
    values = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    plain = values.tolist() if plain is None else plain
    for row, value in enumerate(plain if values.dtype.kind in "fO" else ()):
        if value is None or value != value:
            raise InvalidInputError(f"{where} has no label in row {row}; give one for every row.")
        if not isinstance(value, str | int | float | np.generic):
            raise InvalidInputError(f"{where} has {value!r} in row {row}; labels are text or numbers.")
    if len({isinstance(value, str) for value in plain}) > 1:
        raise InvalidInputError(f"{where} mixes text and numbers; make the labels one kind, such as str.")
    return np.asarray(plain) if values.dtype.kind == "O" else values


def check_packed_logits(logits: ArrayLike, space: LabelSpace) -> NDArray[np.float64]:
    """Return packed logits as a contiguous float64 array (n, m), or say what is wrong with them.

    A teacher's block of a row is either finite or all NaN (the teacher abstains on that row).
    """
    packed = np.ascontiguousarray(logits, dtype=np.float64)
    if packed.ndim != 2 or packed.shape[1] != space.n_columns:
        raise InvalidInputError(
            f"logits have shape {packed.shape}; expected (n, {space.n_columns}): "
            f"a column per class of each of the {space.n_teachers} teachers, teacher after teacher."
        )
    finite = np.isfinite(packed)
    if finite.all():
        return packed
    for i in range(space.n_teachers):
        check_block(packed[:, space.block(i)], f"logits of {space.names[i]!r}")
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
            f"{what} have {value} in row {row} ({int(wrong.sum())} such rows). "
            "Give finite numbers, or NaN in the whole row where the teacher abstains."
        )


def n_rows(X: Any) -> int:
    """Return the number of rows of an array, a sparse matrix, a data frame or a list."""
    if isinstance(X, str | bytes):
        raise InvalidInputError("X is a single text; give a list of texts.")
    shape = getattr(X, "shape", None)
    if shape is not None:
        if len(shape) == 0:
            raise InvalidInputError("X is a single number; expected one row per sample.")
        return int(shape[0])
    try:
        return len(X)
    except TypeError:
        raise InvalidInputError(
            f"X is a {type(X).__name__}; expected an array, a data frame or a list with one entry per sample."
        ) from None


def take_rows(X: Any, rows: slice | NDArray[Any]) -> Any:
    """Return some rows of an array, a sparse matrix, a data frame or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, list | tuple):
        return X[rows] if isinstance(rows, slice) else [X[i] for i in np.arange(len(X))[rows]]
    return X[rows]

"""Read labels by the rules in the package's docstring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._words import counted, shorten
from consilience.exceptions import ConsilienceWarning, InvalidInputError, LabelSpaceError, shown, warn
from consilience.labels.space import check_exact, class_list, kind_of

_EXACT = 2.0**53  # beyond, floats skip whole numbers


class LabelCodes(NamedTuple):
    """Labels as positions in a list of classes.

    Attributes
    ----------
    classes : (K,) array
        The classes.
    codes : (n,) array of int
        The position of each label in `classes`; -1 where a row has no label.
    """

    classes: NDArray[Any]
    codes: NDArray[np.intp]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which rows (n,) have a label."""
        return self.codes >= 0


def read_labels(
    y: Any,
    rows: int | None = None,
    *,
    where: str = "y",
    classes: ArrayLike | None = None,
    aliases: Mapping[Any, Any] | None = None,
    at_least: int = 1,
    others: bool = False,
) -> LabelCodes:
    """Return labels as positions in a list of classes, or say what is wrong with them.

    The rules are in the docstring of `consilience.labels`.

    Parameters
    ----------
    y : (n,) sequence, array, tensor or series
        A label for each row, or None, NaN, pandas.NA, a masked entry or -1 for no label.
    rows : int, optional
        n, the rows of X.
    where : str
        What to call y in an error.
    classes : (K,) sequence, optional
        The classes in the order wanted; by default those that occur, sorted.
    aliases : mapping, optional
        Other names of these classes.
    at_least : int
        How many different classes y must have.
    others : bool
        Whether y may have labels that `classes` does not list. They follow the listed classes, sorted.

    Examples
    --------
    >>> names, codes = read_labels(["dog", None, "cat"])
    >>> names.tolist(), codes.tolist()
    (['cat', 'dog'], [1, -1, 0])
    >>> read_labels([-1, 3, 5]).codes.tolist()
    [-1, 0, 1]
    >>> read_labels(["dog", "cow"], classes=["dog", "cat"], others=True).classes.tolist()
    ['dog', 'cat', 'cow']
    """
    values, places = _distinct(y, where)
    if rows is not None and len(places) != rows:
        raise InvalidInputError(f"{where} has {len(places)} labels and X has {rows} rows.")
    listed = None if classes is None else class_list(classes)
    place = {name: i for i, name in enumerate(listed or ())}
    for alias, name in (aliases or {}).items():
        if name in place:
            place.setdefault(alias, place[name])
    present = [i for i, value in enumerate(values) if not _is_missing(value)]
    known = [i for i in present if values[i] != -1 or -1 in place]
    minus_one = len(known) < len(present)  # -1 stands for no label
    for i in known:
        if not isinstance(values[i], str | int | float) or (
            isinstance(values[i], float) and abs(values[i]) > _EXACT
        ):
            raise _no_label(values[i], int(np.argmax(places == i)), where)
    found = [values[i] for i in known]
    kinds = {kind_of(value) for value in found}
    if len(kinds) > 1:
        raise InvalidInputError(
            f"{where} mixes {' and '.join(sorted(kinds))}; make the labels one kind, such as str."
        )
    _check_enough(found, at_least, where, minus_one)
    unknown = [i for i in known if values[i] not in place]
    names = np.asarray(listed)
    if listed is None or (others and unknown):
        n_labelled = int(np.bincount(places, minlength=len(values))[unknown].sum())
        more = _sorted_names([values[i] for i in unknown], n_labelled, where, minus_one)
        place |= {name: i for i, name in enumerate(more, len(listed or ()))}
        # as objects, since texts may follow numbers
        names = np.asarray(more) if listed is None else np.array([*listed, *more], dtype=object)
    elif unknown:
        raise _unknown_label(values, places, unknown, listed, where)
    table = np.full(len(values), -1, dtype=np.intp)
    table[known] = [place[values[i]] for i in known]
    return LabelCodes(names, table[places])


def _distinct(y: Any, where: str) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the distinct entries of y as Python values, and which of them (n,) each row has."""
    try:
        entries = _entries(y, where)
    except RuntimeError as error:  # a tensor without storage, or a sparse one
        raise InvalidInputError(f"{where} cannot be read as a list of labels: {error}") from error
    if isinstance(entries, np.ndarray):
        found, inverse = np.unique(entries, return_inverse=True)
        return found.tolist(), inverse.astype(np.intp, copy=False)
    values = [_plain(value) for value in entries]
    if bool in (types := set(map(type, values))) and types & {int, float}:  # since True == 1
        raise InvalidInputError(f"{where} mixes booleans and numbers; make the labels one kind, such as str.")
    index: dict[Any, int] = {}
    places = np.empty(len(values), dtype=np.intp)
    for row, value in enumerate(values):
        try:
            places[row] = index.setdefault(value, len(index))
        except TypeError:  # lists and other things that are no label
            raise _no_label(value, row, where) from None
    return list(index), places


def _entries(y: Any, where: str) -> NDArray[Any] | list[Any]:
    """Return labels as an array of numbers or texts, or a list. Raise unless there is one per row."""
    if hasattr(y, "detach"):  # a tensor; its own tolist knows types that numpy does not
        y = y.detach().cpu()
    if hasattr(y, "__array__") and not hasattr(y, "shape"):
        y = np.asarray(y)
    shape: tuple[int, ...] = getattr(y, "shape", (0,))
    if len(shape) == 2 and shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        problem = "A column-vector y was passed when a 1d array was expected"  # scikit-learn's words
        warn(DataConversionWarning(f"{problem}: {where} has shape {tuple(shape)}."))
        y, shape = np.asarray(y).reshape(-1), (0,)
    unordered = isinstance(y, str | bytes | Mapping | set | frozenset) or not isinstance(y, Iterable)
    if unordered or len(shape) != 1:
        what = f"is a {type(y).__name__}" if unordered else f"has shape {tuple(shape)}"
        raise InvalidInputError(f"{where} {what}; expected a list of labels, one per row: (n,).")
    if isinstance(y, np.ndarray) and y.dtype.kind in "biufU" and not np.ma.isMaskedArray(y):
        return y
    for name in ("to_list", "to_pylist", "tolist"):  # of pandas and polars, pyarrow, torch, masked arrays
        if hasattr(y, name):
            return list(getattr(y, name)())
    return list(y)


def _plain(value: Any) -> Any:
    """Return a scalar of numpy or torch as a Python value."""
    if value is np.ma.masked:
        return None
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA is neither true nor false; nor is an array
        return type(value).__name__ == "NAType"


def _no_label(value: Any, row: int, where: str) -> InvalidInputError:
    head = "Complex data not supported: " if isinstance(value, complex) else ""  # scikit-learn's words
    return InvalidInputError(
        f"{head}{where} has {shown(value)} in row {{row}}; labels are text, or finite numbers (as floats, up "
        "to 2^53). Give None for no label.",
        row=row,
    )


def _check_enough(found: list[Any], at_least: int, where: str, minus_one: bool) -> None:
    hint = " -1 means no label: where it is a class of yours, give the classes names." if minus_one else ""
    if len(found) < at_least:
        what = f"one class, {shown(found[0])}" if found else "no labels"
        raise InvalidInputError(
            f"{where} has {what}; give labels of {counted(max(at_least, 1), 'class')} or more, and None, NaN "
            f"or -1 for rows without one.{hint}"
        )
    if minus_one and found == [1]:
        warn(
            ConsilienceWarning(
                f"{where} has only the labels -1 and 1, and -1 means no label. If -1 is a class of yours, "
                "give the classes names, such as 'no' and 'yes'. If not, give None where there is no label."
            )
        )


def _sorted_names(found: list[Any], n: int, where: str, minus_one: bool) -> list[Any]:
    """Return the classes that occur, sorted. Raise if they look like measurements or misuse -1."""
    if minus_one and min(found, default=0) < 0:
        raise InvalidInputError(
            f"{where} has the label -1, which means no label, and {min(found)!r}. Give the classes names if "
            "-1 is one of them, or None for rows without a label."
        )
    whole = all(not isinstance(value, float) or value.is_integer() for value in found)
    if not whole and len(found) > max(n / 2, 2):
        raise InvalidInputError(
            f"Unknown label type: continuous. {where} has {len(found)} different numbers in {n} rows, as "
            "measurements have; give classes."
        )
    names = [int(value) if whole and isinstance(value, float) else value for value in found]
    check_exact(names, where)
    return sorted(names)


def _unknown_label(
    values: list[Any], places: NDArray[np.intp], unknown: list[int], listed: list[Any], where: str
) -> LabelSpaceError:
    bad = np.isin(places, unknown)
    row = int(np.argmax(bad))
    value = values[places[row]]
    kinds = kind_of(value), kind_of(listed[0])
    hint = "" if kinds[0] == kinds[1] else f" The labels are {kinds[0]} and the classes are {kinds[1]}."
    return LabelSpaceError(
        f"{where} has {shown(value)} in row {{row}} ({counted(int(bad.sum()), 'such row')}), which is none "
        f"of the classes {shorten(listed)}.{hint} None, NaN or -1 stands for no label.",
        row=row,
    )

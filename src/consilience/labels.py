"""Labels and label spaces.

Every verb, the command line and the readers of files read labels with `read_labels`, by these rules:

- Labels are texts or numbers, all of one kind: a list, an array, a tensor, or a series of pandas or polars.
- None, NaN, pandas.NA, NaT, masked entries, and -1 among numbers mean that a row has no label. Where a list
  of classes names -1, it is that class.
- The empty text is a class like any other. Only in a CSV file an empty cell is no label.
- Whole numbers are integers, also where they are stored as floats, as numpy and pandas do beside NaN.
- Without a list of classes, the classes are those that occur, sorted.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._components import connected_classes
from consilience._words import counted, shorten
from consilience.exceptions import (
    ConsilienceWarning,
    DisconnectedWarning,
    InvalidInputError,
    LabelSpaceError,
    shown,
)

Disconnected = Literal["warn", "error", "ignore"]

_EXACT = 2.0**53  # beyond, floats skip whole numbers
TIE_BREAK = "each group gets mass in proportion to its number of classes (equal prior mass per class)"


class LabelSpace:
    """The union of the teachers' classes and where each teacher's columns lie.

    The outputs of all teachers for n rows are one array (n, m): teacher after teacher, each with a
    column per class of its own. The space says which class a packed column speaks of.

    Parameters
    ----------
    class_lists : sequence of sequences of str or int
        One list per teacher, in the order of that teacher's columns.
    aliases : mapping, optional
        Other names of classes: ``{"automobile": "car"}`` joins both under ``"car"``.
    names : sequence of str, optional
        The teachers' names, for messages; ``teacher 1``, ``teacher 2``... by default.
    disconnected : {"warn", "error", "ignore"}
        What to do when the teachers fall into groups that share no class. The teachers then do not
        determine how the mass splits between the groups; the tie-break is that each group gets mass
        in proportion to its number of classes (equal prior mass per class).

    Attributes
    ----------
    classes : (L,) array
        The union, in the order of `numpy.unique`, so that the order of teachers does not matter.
    columns : (m,) array of int
        For each packed column, its index in `classes`.
    offsets : (N + 1,) array of int
        Teacher i owns the packed columns ``offsets[i]:offsets[i + 1]``.
    names : tuple of str
        The teachers' names.
    unused_aliases : tuple
        Aliases that no teacher's class made use of.

    Examples
    --------
    >>> space = LabelSpace([["cat", "dog"], ["dog", "bird"]])
    >>> space.classes.tolist(), space.columns.tolist(), space.offsets.tolist()
    (['bird', 'cat', 'dog'], [1, 2, 2, 0], [0, 2, 4])
    """

    classes: NDArray[Any]
    columns: NDArray[np.intp]
    offsets: NDArray[np.intp]

    def __init__(
        self,
        class_lists: Sequence[ArrayLike],
        aliases: Mapping[Any, Any] | None = None,
        *,
        names: Sequence[str] | None = None,
        disconnected: Disconnected = "warn",
    ) -> None:
        if disconnected not in ("warn", "error", "ignore"):
            raise LabelSpaceError(
                "{argument} is unknown; use 'warn', 'error' or 'ignore'.",
                argument="disconnected",
                value=disconnected,
            )
        if not _is_listing(class_lists):
            raise LabelSpaceError(
                f"class_lists is a {type(class_lists).__name__}; give one list per teacher."
            )
        lists = [class_list(values, f"class_lists[{i}]") for i, values in enumerate(class_lists)]
        if not lists:
            raise LabelSpaceError("A label space needs at least one class list; class_lists is empty.")
        if names is not None and not _is_listing(names):
            raise LabelSpaceError("{argument} must be one text per teacher.", argument="names", value=names)
        self.names = tuple(map(str, names)) if names is not None else _default_names(len(lists))
        if len(self.names) != len(lists):
            raise LabelSpaceError(f"{len(self.names)} names were given for {len(lists)} class lists.")
        _check_one_kind(lists, self.names)
        resolved = resolve_aliases({} if aliases is None else aliases)
        self._aliases = resolved
        known = {value for values in lists for value in values}
        self.unused_aliases = tuple(alias for alias in resolved if alias not in known)
        lists = [apply_aliases(v, resolved, name) for v, name in zip(lists, self.names, strict=True)]
        union = list(dict.fromkeys(value for values in lists for value in values))
        _check_exact(union, "The union of all classes")
        self.classes = np.unique(np.asarray(union))
        index = {value: i for i, value in enumerate(self.classes.tolist())}
        self.columns = np.array([index[value] for values in lists for value in values], dtype=np.intp)
        self.offsets = np.concatenate([[0], np.cumsum([len(v) for v in lists])]).astype(np.intp)
        self._report(disconnected)

    @property
    def n_teachers(self) -> int:
        """The number of teachers, N."""
        return len(self.offsets) - 1

    @property
    def n_classes(self) -> int:
        """The number of classes in the union, L."""
        return len(self.classes)

    @property
    def n_columns(self) -> int:
        """The number of packed columns, m."""
        return len(self.columns)

    @property
    def class_lists(self) -> list[NDArray[Any]]:
        """The class list of each teacher, with aliases applied."""
        return [self.classes[self.columns[self.block(i)]] for i in range(self.n_teachers)]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """The (L, N) mask M of the paper: whether teacher i knows class l."""
        mask = np.zeros((self.n_classes, self.n_teachers), dtype=bool)
        mask[self.columns, np.repeat(np.arange(self.n_teachers), np.diff(self.offsets))] = True
        return mask

    @property
    def identical(self) -> bool:
        """Whether every teacher knows every class, as in plain distillation."""
        return bool(self.n_columns == self.n_classes * self.n_teachers)

    def block(self, teacher: int) -> slice:
        """Return the packed columns of one teacher.

        Examples
        --------
        >>> LabelSpace([["a", "b"], ["b", "c"]]).block(1)
        slice(2, 4, None)
        """
        return slice(int(self.offsets[teacher]), int(self.offsets[teacher + 1]))

    def encode(self, labels: Iterable[Any], where: str = "y") -> NDArray[np.intp]:
        """Return the position of each label in `classes`, -1 where there is none.

        Labels are read as `read_labels` does; aliases are understood.

        Examples
        --------
        >>> LabelSpace([["a", "b"]]).encode(["b", None, "a"]).tolist()
        [1, -1, 0]
        """
        found = read_labels(labels, where=where, classes=self.classes, aliases=self._aliases, at_least=0)
        return found.codes

    def components(self) -> list[NDArray[Any]]:
        """Return the groups of classes that chains of shared classes connect.

        J of eq. (9) has one minimiser (up to a shift) exactly when there is one group.

        Examples
        --------
        >>> space = LabelSpace([["a", "b"], ["c", "d"]], disconnected="ignore")
        >>> [group.tolist() for group in space.components()]
        [['a', 'b'], ['c', 'd']]
        """
        ids = connected_classes(self.columns, self.offsets, self.n_classes)
        return [self.classes[ids == i] for i in range(ids.max() + 1)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSpace):
            return NotImplemented
        return (
            np.array_equal(self.classes, other.classes)
            and np.array_equal(self.columns, other.columns)
            and np.array_equal(self.offsets, other.offsets)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        groups = len(self.components())
        head = (
            f"LabelSpace: {counted(self.n_classes, 'class')}, {counted(self.n_teachers, 'teacher')}, "
            f"{counted(groups, 'component')}"
        )
        rows = [
            f"  {name}: {counted(len(classes), 'class')}: {shorten(classes)}"
            for name, classes in zip(self.names[:12], self.class_lists, strict=False)
        ]
        if self.n_teachers > 12:
            rows.append(f"  and {self.n_teachers - 12} more teachers")
        return "\n".join([head, *rows])

    def _report(self, disconnected: Disconnected) -> None:
        if disconnected == "ignore":
            return
        groups = self.components()
        if len(groups) == 1:
            return
        listing = "; ".join(f"{{{shorten(group, 6)}}}" for group in groups[:6])
        more = f"; and {len(groups) - 6} more" if len(groups) > 6 else ""
        message = (
            f"The teachers fall into {len(groups)} groups of classes that share no class: {listing}{more}. "
            "They do not determine how mass splits between the groups"
        )
        if disconnected == "error":
            raise LabelSpaceError(
                f"{message}. Add a teacher that knows classes of both, join names with {{remedy}}, "
                "or allow the tie-break with disconnected='warn'.",
                remedy="aliases",
            )
        warnings.warn(f"{message}; tie-break: {TIE_BREAK}.", DisconnectedWarning, stacklevel=3)


class LabelCodes(NamedTuple):
    """Labels as places in a list of classes.

    Attributes
    ----------
    classes : (K,) array
        The classes.
    codes : (n,) array of int
        The place of each label among them; -1 where a row has no label.
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
) -> LabelCodes:
    """Return labels as places in a list of classes, or say what is wrong with them.

    The head of this file has the rules.

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

    Examples
    --------
    >>> names, codes = read_labels(["dog", None, "cat"])
    >>> names.tolist(), codes.tolist()
    (['cat', 'dog'], [1, -1, 0])
    >>> read_labels([-1, 3, 5]).codes.tolist()
    [-1, 0, 1]
    """
    values, places = _distinct(y, where)
    if rows is not None and len(places) != rows:
        raise InvalidInputError(f"{where} has {len(places)} labels and X has {rows} rows.")
    listed = None if classes is None else class_list(classes)
    place = {name: i for i, name in enumerate(listed or ())}
    for alias, name in (aliases or {}).items():
        if name in place:
            place.setdefault(alias, place[name])
    no_class = [i for i, value in enumerate(values) if not _is_missing(value) and value == -1]
    minus_one = bool(no_class) and -1 not in place
    known = [i for i, v in enumerate(values) if not _is_missing(v) and (i not in no_class or not minus_one)]
    _check_known(values, places, known, where)
    _check_enough([values[i] for i in known], at_least, where, minus_one)
    if listed is None:
        n_labelled = int(np.bincount(places, minlength=len(values))[known].sum())
        listed = _sorted_names([values[i] for i in known], n_labelled, where, minus_one)
        place = {name: i for i, name in enumerate(listed)}
    unknown = [i for i in known if values[i] not in place]
    if unknown:
        raise _unknown_label(values, places, unknown, listed, where)
    table = np.full(len(values), -1, dtype=np.intp)
    table[known] = [place[values[i]] for i in known]
    return LabelCodes(np.asarray(listed), table[places])


def _distinct(y: Any, where: str) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the distinct entries of y as Python values, and which of them (n,) each row has."""
    entries = _entries(y, where)
    if isinstance(entries, np.ndarray) and entries.dtype.kind in "biufU":
        found, inverse = np.unique(entries, return_inverse=True)
        return found.tolist(), inverse.astype(np.intp, copy=False)
    values = [_plain(value) for value in entries]
    if bool in (types := set(map(type, values))) and types & {int, float}:  # True == 1, and would become it
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
    """Return the entries of labels in whatever form they come, or raise where these are not one per row."""
    if y is None or isinstance(y, str | bytes | Mapping | set | frozenset):
        hint = " A set has no order: give a list." if isinstance(y, set | frozenset) else ""
        raise InvalidInputError(f"{where} is a {type(y).__name__}; expected one label per row, (n,).{hint}")
    if hasattr(y, "detach"):  # a tensor; its own tolist knows types that numpy does not
        y = y.detach().cpu()
    if hasattr(y, "__array__") and not hasattr(y, "shape"):
        y = np.asarray(y)
    shape = getattr(y, "shape", None)
    if shape is not None and len(shape) == 2 and shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected: {where} has shape {tuple(shape)}.",
            DataConversionWarning,
            stacklevel=4,
        )
        y = y.reshape(-1) if hasattr(y, "reshape") else np.asarray(y).reshape(-1)
    elif shape is not None and len(shape) != 1:
        raise InvalidInputError(f"{where} has shape {tuple(shape)}; expected one label per row, (n,).")
    if isinstance(y, np.ndarray):  # of a masked array, tolist gives None where the mask is
        return y if y.dtype.kind in "biufU" and not np.ma.isMaskedArray(y) else list(y.tolist())
    for name in ("to_list", "to_pylist", "tolist"):  # of pandas and polars, pyarrow, torch
        if hasattr(y, name):
            return list(getattr(y, name)())
    try:
        return list(y)
    except TypeError:
        raise InvalidInputError(
            f"{where} is a {type(y).__name__}; expected one label per row, (n,)."
        ) from None


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


def _check_known(values: list[Any], places: NDArray[np.intp], known: list[int], where: str) -> None:
    for i in known:
        value = values[i]
        if not isinstance(value, str | int | float):
            raise _no_label(value, _first_row(places, i), where)
        if isinstance(value, float) and abs(value) > _EXACT:
            raise InvalidInputError(
                f"{where} has {value!r} in row {{row}}; labels are text, or finite numbers (as floats, up to "
                "2^53). Give None for no label.",
                row=_first_row(places, i),
            )
    kinds = {_kind(values[i]) for i in known}
    if len(kinds) > 1:
        raise InvalidInputError(
            f"{where} mixes {' and '.join(sorted(kinds))}; make the labels one kind, such as str."
        )


def _first_row(places: NDArray[np.intp], place: int) -> int:
    return int(np.argmax(places == place))


def _no_label(value: Any, row: int, where: str) -> InvalidInputError:
    head = "Complex data not supported: " if isinstance(value, complex) else ""  # scikit-learn's words
    return InvalidInputError(
        f"{head}{where} has {shown(value)} in row {{row}}; labels are text or numbers, or None for none.",
        row=row,
    )


def _check_enough(found: list[Any], at_least: int, where: str, minus_one: bool) -> None:
    hint = " -1 means no label: where it is a class of yours, give the classes names." if minus_one else ""
    if not found and at_least > 0:
        raise InvalidInputError(
            f"{where} has no labels; give some, and None, NaN or -1 for rows without one.{hint}"
        )
    if len(found) < at_least:
        raise InvalidInputError(
            f"{where} has one class, {found[0]!r}; give labels of {at_least} classes or more.{hint}"
        )
    if minus_one and found == [1]:
        warnings.warn(
            f"{where} has only the labels -1 and 1, and -1 means no label. If -1 is a class of yours, give "
            "the classes names, such as 'no' and 'yes'. If not, give None where there is no label.",
            ConsilienceWarning,
            stacklevel=3,
        )


def _sorted_names(found: list[Any], n: int, where: str, minus_one: bool) -> list[Any]:
    """Return the classes that occur, sorted, or raise where they are not meant as classes."""
    if minus_one and min(found, default=0) < 0:
        raise InvalidInputError(
            f"{where} has the label -1, which means no label, and {min(found)!r}. Give the classes names if "
            "-1 is one of them, or None for rows without a label."
        )
    fractions = [value for value in found if isinstance(value, float) and not value.is_integer()]
    if fractions and len(found) > max(n / 2, 2):
        raise InvalidInputError(
            f"Unknown label type: continuous. {where} has {len(found)} different numbers in {n} rows, as "
            "measurements have; give classes."
        )
    if not fractions:
        found = [int(value) if isinstance(value, float) else value for value in found]
    _check_exact(found, where)
    return sorted(found)


def _unknown_label(
    values: list[Any], places: NDArray[np.intp], unknown: list[int], listed: list[Any], where: str
) -> LabelSpaceError:
    bad = np.isin(places, unknown)
    row = int(np.argmax(bad))
    value = values[places[row]]
    kinds = _kind(value), _kind(listed[0])
    hint = "" if kinds[0] == kinds[1] else f" The labels are {kinds[0]} and the classes are {kinds[1]}."
    return LabelSpaceError(
        f"{where} has {shown(value)} in row {{row}} ({counted(int(bad.sum()), 'such row')}), which is none "
        f"of the classes {shorten(listed)}.{hint} None, NaN or -1 stands for no label.",
        row=row,
    )


def class_list(values: ArrayLike, where: str = "classes") -> list[Any]:
    """Return class names as a list of plain Python values, or say what is wrong with them.

    Parameters
    ----------
    values : sequence of str, int, float or bool
        The class names, all of one kind.
    where : str
        What to call them in an error.
    """
    if isinstance(values, str | bytes):
        raise LabelSpaceError(f"{where} is the text {values!r}; give a list with one name per class.")
    if isinstance(values, set | frozenset | Mapping):
        raise LabelSpaceError(
            f"{where} is a {type(values).__name__}, whose order says nothing about columns. Give a list in "
            "the order of the columns; sorted(...) if there are none yet."
        )
    try:
        raw = list(values.tolist() if isinstance(values, np.ndarray) else values)  # type: ignore[arg-type]
    except TypeError:
        raise LabelSpaceError(f"{where} is {shown(values)}; give a list with one name per class.") from None
    names = [value.item() if isinstance(value, np.generic) else value for value in raw]
    if not names:
        raise LabelSpaceError(f"{where} is empty. Give at least one class.")
    for value in names:
        if not isinstance(value, str | int | float):
            raise LabelSpaceError(
                f"{where} has the entry {shown(value)} of type {type(value).__name__}; "
                "classes are text or numbers."
            )
        if isinstance(value, float) and not np.isfinite(value):
            raise LabelSpaceError(f"{where} has the entry {value!r}; class names must be finite.")
    kinds = {_kind(value) for value in names}
    if len(kinds) > 1:
        raise LabelSpaceError(
            f"{where} mixes {' and '.join(sorted(kinds))}; make them one kind, such as str."
        )
    if len(set(names)) < len(names):
        repeated = [value for value, count in Counter(names).items() if count > 1]
        raise LabelSpaceError(f"{where} names {shorten(repeated)} more than once.")
    _check_exact(names, where)
    return names


def _check_exact(names: list[Any], where: str) -> None:
    """Raise where an array would change class names, and so could make two of them one."""
    for name in names:
        if isinstance(name, str) and "\0" in name:
            raise LabelSpaceError(
                f"{where} has the name {name!r} with a NUL character, which arrays drop at the end of a "
                "text. Remove it."
            )
    array = np.asarray(names)
    if array.dtype.kind == "O" or array.tolist() != names:
        largest = shown(max(names, key=abs))
        raise LabelSpaceError(
            f"{where} has the number {largest}, which an array cannot hold exactly beside the others. "
            "Give the classes as text."
        )


def _is_listing(values: Any) -> bool:
    """Tell whether there are values to go through; the characters of a text do not count."""
    return (
        isinstance(values, Iterable)
        and not isinstance(values, str | bytes)
        and getattr(values, "ndim", 1) > 0
    )


def _default_names(count: int) -> tuple[str, ...]:
    return tuple(f"teacher {i + 1}" for i in range(count))


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "text"
    return "booleans" if isinstance(value, bool) else "numbers"


def _check_one_kind(lists: Sequence[Sequence[Any]], names: Sequence[str]) -> None:
    first = _kind(lists[0][0])
    for values, name in zip(lists, names, strict=True):
        if _kind(values[0]) != first:
            raise LabelSpaceError(
                f"Classes of {names[0]!r} are {first} ({shorten(lists[0], 3)}) and those of {name!r} are "
                f"{_kind(values[0])} ({shorten(values, 3)}). Make them one kind, such as str."
            )


def resolve_aliases(aliases: Mapping[Any, Any]) -> dict[Any, Any]:
    """Follow chains of aliases to their last name."""
    if not isinstance(aliases, Mapping):
        raise LabelSpaceError(
            f"aliases is a {type(aliases).__name__}; give a mapping such as {{'automobile': 'car'}}."
        )
    for alias, name in aliases.items():
        if not isinstance(name, str | int | float):
            raise LabelSpaceError(f"aliases rename {alias!r} to {shown(name)}; names are text or numbers.")
    resolved = {}
    for alias in aliases:
        seen = [alias]
        while seen[-1] in aliases:
            target = aliases[seen[-1]]
            if target in seen:
                chain = " -> ".join(repr(name) for name in [*seen, target])
                raise LabelSpaceError(f"aliases go round in a circle: {chain}.")
            seen.append(target)
        resolved[alias] = seen[-1]
    return resolved


def apply_aliases(values: Sequence[Any], resolved: Mapping[Any, Any], name: str) -> list[Any]:
    """Rename the classes of one teacher, or raise where two would become one."""
    renamed = [resolved.get(value, value) for value in values]
    for old, new in zip(values, renamed, strict=True):
        if _kind(new) != _kind(old):
            raise LabelSpaceError(
                f"aliases rename {old!r} to {new!r}, which is {_kind(new)}, not {_kind(old)} "
                "like the other classes."
            )
    merged, count = Counter(renamed).most_common(1)[0]
    if count > 1:
        sources = [old for old, new in zip(values, renamed, strict=True) if new == merged]
        raise LabelSpaceError(
            f"aliases make {shorten(map(repr, sources))} of {name!r} one class, {merged!r}. "
            "Two classes of one teacher cannot be joined by aliases; drop one of these, or use "
            "consilience.teachers.join_classes."
        )
    return renamed

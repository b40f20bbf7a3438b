"""The label space: the union of the teachers' classes, which may have aliases, and what connects them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from consilience._words import counted, shorten
from consilience.exceptions import DisconnectedWarning, InvalidInputError, LabelSpaceError, shown, warn
from consilience.options import check_choice, check_count

_MOST_CHARACTERS = 2**26  # of an array of names

Disconnected = Literal["warn", "error", "ignore"]

BETWEEN_GROUPS = (
    "The methods 'auto' and 'ranks' compare the groups by ranks, if every class occurs in X. "
    "The other methods give each group mass in proportion to its number of classes."
)


class LabelSpace:
    """The union of the teachers' classes and where each teacher's columns lie.

    The outputs of all teachers for n rows are one array (n, m): teacher after teacher, each with a
    column per class of its own. The space says which class each packed column belongs to.

    Parameters
    ----------
    class_lists : sequence of sequences of str or int
        One list per teacher, in the order of that teacher's columns.
    aliases : mapping, optional
        Other names of classes: ``{"automobile": "car"}`` joins both under ``"car"``.
    names : sequence of str, optional
        The teachers' names, for messages; ``teacher 1``, ``teacher 2``... by default.
    disconnected : {"warn", "error", "ignore"}
        What to do when the teachers fall into groups that share no class. Their outputs for a row then do
        not determine how the mass splits between the groups. The methods ``"auto"`` and ``"ranks"`` compare
        the groups by ranks over all rows. The other methods give each group mass in proportion to its number
        of classes.

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
        Aliases that rename no teacher's class.

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
        check_choice("disconnected", disconnected, ("warn", "error", "ignore"))
        for what, given in (("class_lists", class_lists), ("names", () if names is None else names)):
            if not _is_list(given):
                raise LabelSpaceError(f"{what} is {shown(given)}; give one entry per teacher, in a list.")
        lists = [class_list(values, f"class_lists[{i}]") for i, values in enumerate(class_lists)]
        if not lists:
            raise LabelSpaceError("A label space needs at least one class list; class_lists is empty.")
        numbered = [f"teacher {i + 1}" for i in range(len(lists))]
        self.names = tuple(map(str, numbered if names is None else names))
        if len(self.names) != len(lists):
            raise LabelSpaceError(f"{len(self.names)} names were given for {len(lists)} class lists.")
        for values, name in zip(lists, self.names, strict=True):
            if kind_of(values[0]) != kind_of(lists[0][0]):
                raise LabelSpaceError(
                    f"Classes of {self.names[0]!r} are {kind_of(lists[0][0])} ({shorten(lists[0], 3)}) and "
                    f"those of {name!r} are {kind_of(values[0])} ({shorten(values, 3)}). Make them one kind, "
                    "such as str."
                )
        self._aliases = resolve_aliases({} if aliases is None else aliases)
        known = {value for values in lists for value in values}
        self.unused_aliases = tuple(alias for alias in self._aliases if alias not in known)
        lists = [apply_aliases(v, self._aliases, name) for v, name in zip(lists, self.names, strict=True)]
        union = list(dict.fromkeys(value for values in lists for value in values))
        check_exact(union, "The union of all classes")
        self.classes = np.unique(np.asarray(union))
        index = {value: i for i, value in enumerate(self.classes.tolist())}
        self.columns = np.array([index[value] for values in lists for value in values], dtype=np.intp)
        self.offsets = np.concatenate([[0], np.cumsum([len(v) for v in lists])]).astype(np.intp)
        if disconnected != "ignore" and len(self.components()) > 1:
            self._tell_of_groups(disconnected)

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
        check_count("teacher", teacher, at_least=0, at_most=self.n_teachers - 1)
        return slice(int(self.offsets[teacher]), int(self.offsets[teacher + 1]))

    def read(self, labels: Any, rows: int | None = None, *, others: bool = True, **options: Any) -> Any:
        """Return labels by `read_labels`. They may be aliases; classes that nobody knows follow `classes`.

        Examples
        --------
        >>> LabelSpace([["a", "b"]]).read(["b", "z", None]).codes.tolist()
        [1, 2, -1]
        """
        from consilience.labels.reader import read_labels

        check_choice("others", others, (True, False))
        known: dict[str, Any] = {"classes": self.classes, "aliases": self._aliases}
        return read_labels(labels, rows, **known, others=others, **options)

    def encode(self, labels: Iterable[Any], where: str = "y") -> NDArray[np.intp]:
        """Return the position of each label in `classes`, -1 where there is none.

        Labels are read by `read_labels`. They may be aliases.

        Examples
        --------
        >>> LabelSpace([["a", "b"]]).encode(["b", None, "a"]).tolist()
        [1, -1, 0]
        """
        codes: NDArray[np.intp] = self.read(labels, others=False, where=where, at_least=0).codes
        return codes

    def renamed(self, name: Any) -> Any:
        """Return the class that a name stands for, by the aliases; the name itself if there is none.

        Examples
        --------
        >>> LabelSpace([["car", "bus"]], {"auto": "car"}).renamed("auto")
        'car'
        """
        try:
            return self._aliases.get(name, name)
        except TypeError:  # a list has no hash
            raise InvalidInputError("{argument} is no class.", argument="name", value=name) from None

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
        parts = ("classes", "columns", "offsets")
        return isinstance(other, LabelSpace) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in parts
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        groups = counted(len(self.components()), "component")
        rows = [
            f"  {name}: {counted(len(classes), 'class')}: {shorten(classes)}"
            for name, classes in zip(self.names[:12], self.class_lists, strict=False)
        ]
        if self.n_teachers > 12:
            rows.append(f"  and {self.n_teachers - 12} more teachers")
        head = f"{counted(self.n_classes, 'class')}, {counted(self.n_teachers, 'teacher')}, {groups}"
        return "\n".join([f"LabelSpace: {head}", *rows])

    def _tell_of_groups(self, disconnected: Disconnected) -> None:
        groups = self.components()
        listing = "; ".join(f"{{{shorten(group, 6)}}}" for group in groups[:6])
        more = f"; and {len(groups) - 6} more" if len(groups) > 6 else ""
        message = (
            f"The teachers fall into {len(groups)} groups of classes that share no class: {listing}{more}. "
            "Their outputs for a row do not determine how mass splits between the groups"
        )
        if disconnected == "error":
            raise LabelSpaceError(
                f"{message}. Add a teacher that knows classes of both, join names with {{remedy}}, or set "
                "disconnected='warn' to go on.",
                argument="disconnected",
                value=disconnected,
                remedy="aliases",
            )
        warn(DisconnectedWarning(f"{message}. {BETWEEN_GROUPS}"))


def _is_list(values: Any) -> bool:
    """Tell whether there is something ordered: an array without axes has an `__iter__`, too."""
    unordered = isinstance(values, str | bytes | set | frozenset | Mapping)
    return isinstance(values, Iterable) and not unordered and getattr(values, "ndim", 1) > 0


def class_list(values: Any, where: str = "classes") -> list[Any]:
    """Return class names as a list of plain Python values, or say what is wrong with them.

    Parameters
    ----------
    values : sequence of str, int, float or bool
        The class names, all of one kind.
    where : str
        What to call them in an error.
    """
    if not _is_list(values):
        raise LabelSpaceError(
            f"{where} is {shown(values)}; give a list with one name per class, in the order of the columns."
        )
    raw = values.tolist() if isinstance(values, np.ndarray) else values
    names = [value.item() if isinstance(value, np.generic) else value for value in raw]
    if not names:
        raise LabelSpaceError(f"{where} is empty. Give at least one class.")
    for value in names:
        if not isinstance(value, str | int | float) or value in (np.inf, -np.inf) or value != value:
            kind = type(value).__name__
            raise LabelSpaceError(
                f"{where} has the entry {shown(value)} of type {kind}; classes are text or finite numbers."
            )
    kinds = {kind_of(value) for value in names}
    if len(kinds) > 1:
        raise LabelSpaceError(
            f"{where} mixes {' and '.join(sorted(kinds))}; make them one kind, such as str."
        )
    repeated = [value for value, count in Counter(names).items() if count > 1]
    if repeated:
        raise LabelSpaceError(f"{where} names {shorten(repeated)} more than once.")
    check_exact(names, where)
    return names


def check_exact(names: list[Any], where: str) -> None:
    """Raise if an array would change class names, because two of them could become one."""
    longest = max((len(name) for name in names if isinstance(name, str)), default=0)
    if longest * len(names) > _MOST_CHARACTERS:  # an array is everywhere as wide as the longest of them
        raise LabelSpaceError(f"{where} has {len(names)} names, one of {longest} characters. Shorten it.")
    array = np.asarray(names)
    if array.dtype.kind != "O" and array.tolist() == names:
        return
    cut = [name for name in names if isinstance(name, str) and "\0" in name]
    if cut:
        problem = (
            f"the name {cut[0]!r} with a NUL character, which arrays drop at the end of a text. Remove it"
        )
    else:
        largest = shown(max(names, key=abs))
        problem = f"the number {largest}, which an array cannot hold exactly beside the others. Give text"
    raise LabelSpaceError(f"{where} has {problem}.")


def kind_of(value: object) -> str:
    """Return what a class is, in a word."""
    if isinstance(value, str):
        return "text"
    return "booleans" if isinstance(value, bool) else "numbers"


def resolve_aliases(aliases: Mapping[Any, Any]) -> dict[Any, Any]:
    """Follow chains of aliases to their last name."""
    if not isinstance(aliases, Mapping):
        raise LabelSpaceError(
            f"aliases is a {type(aliases).__name__}; give a mapping such as {{'automobile': 'car'}}."
        )
    resolved = {}
    for alias in aliases:
        seen = [alias]
        while seen[-1] in aliases:
            name = aliases[seen[-1]]
            if not isinstance(name, str | int | float) or kind_of(name) != kind_of(seen[-1]):
                raise LabelSpaceError(
                    f"aliases rename {shown(seen[-1])} to {shown(name)}; give {kind_of(seen[-1])} for "
                    f"{kind_of(seen[-1])}."
                )
            if name in seen:
                raise LabelSpaceError(f"aliases form a cycle: {' -> '.join(map(repr, [*seen, name]))}.")
            seen.append(name)
        resolved[alias] = seen[-1]
    return resolved


def apply_aliases(values: Sequence[Any], resolved: Mapping[Any, Any], name: str) -> list[Any]:
    """Rename the classes of one teacher. Raise if two would become one."""
    renamed = [resolved.get(value, value) for value in values]
    merged, count = Counter(renamed).most_common(1)[0]
    if count > 1:
        sources = [old for old, new in zip(values, renamed, strict=True) if new == merged]
        raise LabelSpaceError(
            f"aliases make {shorten(map(repr, sources))} of {name!r} one class, {merged!r}. "
            "Two classes of one teacher cannot be joined by aliases; drop one of these, or use "
            "consilience.teachers.join_classes."
        )
    return renamed


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
    try:
        array = np.asarray(logits)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"they have type {array.dtype}")
        packed = np.ascontiguousarray(array, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        advice = f" They are a sparse matrix: give {what}.toarray()." if hasattr(logits, "toarray") else ""
        raise InvalidInputError(f"{what} cannot be read as numbers ({error}); {expected}.{advice}") from None
    if array.ndim != 2 or packed.shape[1] != space.n_columns:
        raise InvalidInputError(f"{what} have shape {array.shape}; {expected}.")
    if rows not in (None, len(packed)):
        raise InvalidInputError(f"{what} have {len(packed)} rows and X has {rows}.")
    for i in () if np.isfinite(packed).all() else range(space.n_teachers):
        check_block(packed[:, space.block(i)], f"{what} of {shown(space.names[i])}")
    return packed


def check_block(block: NDArray[np.floating[Any]], what: str) -> None:
    """Raise unless each row of one teacher's logits is finite or all NaN."""
    bad = ~np.isfinite(block)
    wrong = np.flatnonzero(bad.any(axis=1) & ~np.isnan(block).all(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidInputError(
            f"{what} have {block[row][bad[row]][0]} in row {{row}} ({counted(len(wrong), 'such row')}). "
            "Give finite numbers, or NaN in the whole row where the teacher abstains.",
            row=row,
        )


def connected_classes(
    columns: NDArray[np.intp], offsets: NDArray[np.intp], n_classes: int
) -> NDArray[np.intp]:
    """Label each class with its connected component, numbered by first appearance.

    Parameters
    ----------
    columns : (m,) array of int
        Class of each packed column.
    offsets : (N + 1,) array of int
        Block borders.
    n_classes : int
        Number of classes, L. A class in no block is a component of its own.
    """
    everyone = np.ones((1, len(offsets) - 1), dtype=bool)
    found: NDArray[np.intp] = connected_by_pattern(columns, offsets, n_classes, everyone)[0]
    return found


def connected_by_pattern(
    columns: NDArray[np.integer[Any]],
    offsets: NDArray[np.intp],
    n_classes: int,
    patterns: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Do what `connected_classes` does for each pattern of blocks.

    Parameters
    ----------
    columns, offsets, n_classes
        As for `connected_classes`.
    patterns : (k, N) array of bool
        Which blocks to use.

    Returns
    -------
    (k, L) array of int
    """
    block = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    size = n_classes + len(offsets) - 1  # for each pattern a node per class, and one per block
    pattern, column = np.nonzero(patterns[:, block])
    ends = size * pattern + columns[column], size * pattern + n_classes + block[column]
    n_nodes = size * len(patterns)
    graph = coo_array((np.ones(len(pattern)), ends), shape=(n_nodes, n_nodes))
    # components are numbered by their first node, and classes come first
    found = connected_components(graph, directed=False)[1].reshape(len(patterns), size)[:, :n_classes]
    return np.asarray(found - found[:, :1], dtype=np.intp)

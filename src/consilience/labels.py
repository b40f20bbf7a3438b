"""The label space: the union of class lists, and the packed layout of teacher outputs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from consilience.exceptions import DisconnectedWarning, LabelSpaceError

Disconnected = Literal["warn", "error", "ignore"]

TIE_BREAK = "each group gets mass in proportion to its number of classes (equal prior mass per class)"

# Edges of a graph whose components are sought at once.
_MOST_EDGES = 2**20


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
                f"disconnected={disconnected!r} is unknown; use 'warn', 'error' or 'ignore'."
            )
        lists = [class_list(values, f"class_lists[{i}]") for i, values in enumerate(class_lists)]
        if not lists:
            raise LabelSpaceError("A label space needs at least one class list; class_lists is empty.")
        self.names = tuple(names) if names is not None else _default_names(len(lists))
        if len(self.names) != len(lists):
            raise LabelSpaceError(f"{len(self.names)} names were given for {len(lists)} class lists.")
        _check_one_kind(lists, self.names)
        resolved = resolve_aliases(aliases or {})
        self._aliases = resolved
        known = {value for values in lists for value in values}
        self.unused_aliases = tuple(alias for alias in resolved if alias not in known)
        lists = [apply_aliases(v, resolved, name) for v, name in zip(lists, self.names, strict=True)]
        self.classes = np.unique(np.asarray([value for values in lists for value in values]))
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

        None, NaN, and -1 where that is no class, mean that there is no label. Aliases are understood.

        Examples
        --------
        >>> LabelSpace([["a", "b"]]).encode(["b", None, "a"]).tolist()
        [1, -1, 0]
        """
        position = {value: i for i, value in enumerate(self.classes.tolist())}
        for alias, name in self._aliases.items():
            if name in position:
                position.setdefault(alias, position[name])
        codes = []
        for row, label in enumerate(labels.tolist() if isinstance(labels, np.ndarray) else labels):
            value = label.item() if isinstance(label, np.generic) else label
            if value is not None and not isinstance(value, str | int | float):
                raise LabelSpaceError(
                    f"{where} has {value!r} in row {row}; give one class name per row, or None for no label."
                )
            if value in position:
                codes.append(position[value])
            elif value is None or value == -1 or value != value:
                codes.append(-1)
            else:
                raise LabelSpaceError(
                    f"{where} has {value!r} in row {row}, which no teacher knows. The classes are "
                    f"{shorten(self.classes)}; None, NaN or -1 stands for no label."
                )
        return np.array(codes, dtype=np.intp)

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
                f"{message}. Add a teacher that knows classes of both, join names with aliases=, "
                "or allow the tie-break with disconnected='warn'."
            )
        warnings.warn(f"{message}; tie-break: {TIE_BREAK}.", DisconnectedWarning, stacklevel=3)


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
    component: NDArray[np.intp] = connected_by_pattern(columns, offsets, n_classes, everyone)[0]
    return component


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
    component = np.empty((len(patterns), n_classes), dtype=np.intp)
    # each call of scipy costs as much as thousands of edges, and each edge some memory
    at_once = 1 + _MOST_EDGES // (len(columns) + n_classes)
    for start in range(0, len(patterns), at_once):
        part = slice(start, start + at_once)
        component[part] = _connected(columns, offsets, n_classes, patterns[part])
    return component


def _connected(
    columns: NDArray[np.integer[Any]],
    offsets: NDArray[np.intp],
    n_classes: int,
    patterns: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Find the components of all patterns in one graph: first a node for each block, then for each class."""
    k, n_blocks = patterns.shape
    blocks, nodes = k * n_blocks, k * (n_blocks + n_classes)
    borders = np.zeros(nodes + 1, dtype=np.int32)
    np.cumsum(np.where(patterns, np.diff(offsets), 0), out=borders[1 : blocks + 1])
    borders[blocks + 1 :] = borders[blocks]
    first_class = np.arange(blocks, nodes, n_classes, dtype=np.int32)
    used = np.repeat(patterns, np.diff(offsets), axis=1)
    edges = (columns.astype(np.int32) + first_class[:, None])[used]
    graph = csr_array((np.ones(len(edges)), edges, borders), shape=(nodes, nodes))
    n_components, ids = connected_components(graph, directed=False)
    ids = ids[blocks:]
    # number them by their first class; a block that is not used is a component without any, and comes last
    first = np.full(n_components, len(ids))
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    rank = np.empty(n_components, dtype=np.intp)
    rank[np.argsort(first)] = np.arange(n_components)
    component: NDArray[np.intp] = rank[ids].reshape(k, n_classes)
    component -= component[:, :1].copy()
    return component


def class_list(values: ArrayLike, where: str = "classes") -> list[Any]:
    """Return class names as a list of plain Python values, or say what is wrong with them.

    Parameters
    ----------
    values : sequence of str, int, float or bool
        The class names, all of one kind.
    where : str
        How to call them in an error.
    """
    if isinstance(values, str | bytes):
        raise LabelSpaceError(f"{where} is the text {values!r}; give a list with one name per class.")
    raw = values.tolist() if isinstance(values, np.ndarray) else list(values)  # type: ignore[arg-type]
    names = [value.item() if isinstance(value, np.generic) else value for value in raw]
    if not names:
        raise LabelSpaceError(f"{where} is empty. Give at least one class.")
    for value in names:
        if not isinstance(value, str | int | float):
            raise LabelSpaceError(
                f"{where} has the entry {value!r} of type {type(value).__name__}; "
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
    return names


def shorten(values: Iterable[Any], most: int = 10) -> str:
    """Join values for a message, at most `most` of them.

    Examples
    --------
    >>> shorten(range(5), 3)
    '0, 1, 2 and 2 more'
    """
    shown = [visible(str(value)) for value in values]
    text = ", ".join(shown[:most])
    return text if len(shown) <= most else f"{text} and {len(shown) - most} more"


def visible(text: str) -> str:
    """Return text with control characters written out, so that a terminal shows them and does not obey them.

    Examples
    --------
    >>> print(visible("cat\x1b[2J"))
    cat\\x1b[2J
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    Examples
    --------
    >>> counted(1, "class"), counted(3, "teacher")
    ('1 class', '3 teachers')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


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
    for alias, target in aliases.items():
        if not isinstance(target, str | int | float | np.generic):
            raise LabelSpaceError(
                f"aliases rename {alias!r} to {target!r}; give one name, a text or a number."
            )
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

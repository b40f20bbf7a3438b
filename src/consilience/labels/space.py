"""The label space: the union of the teachers' classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._components import connected_classes
from consilience._words import counted, shorten
from consilience.exceptions import DisconnectedWarning, LabelSpaceError, warn
from consilience.labels.names import apply_aliases, check_exact, class_list, kind_of, resolve_aliases
from consilience.labels.reader import LabelCodes, read_labels
from consilience.options import check_choice

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
        check_exact(union, "The union of all classes")
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

    def read(
        self, labels: Any, rows: int | None = None, *, where: str = "y", at_least: int = 1
    ) -> LabelCodes:
        """Return labels by `read_labels`. They may be aliases; classes that nobody knows follow `classes`.

        Examples
        --------
        >>> LabelSpace([["a", "b"]]).read(["b", "z", None]).codes.tolist()
        [1, 2, -1]
        """
        return read_labels(
            labels,
            rows,
            where=where,
            classes=self.classes,
            aliases=self._aliases,
            at_least=at_least,
            others=True,
        )

    def encode(self, labels: Iterable[Any], where: str = "y") -> NDArray[np.intp]:
        """Return the position of each label in `classes`, -1 where there is none.

        Labels are read by `read_labels`. They may be aliases.

        Examples
        --------
        >>> LabelSpace([["a", "b"]]).encode(["b", None, "a"]).tolist()
        [1, -1, 0]
        """
        found = read_labels(labels, where=where, classes=self.classes, aliases=self._aliases, at_least=0)
        return found.codes

    def renamed(self, name: Any) -> Any:
        """Return the class that a name stands for, by the aliases; the name itself if there is none.

        Examples
        --------
        >>> LabelSpace([["car", "bus"]], {"auto": "car"}).renamed("auto")
        'car'
        """
        return self._aliases.get(name, name)

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


def _is_listing(values: Any) -> bool:
    """Tell whether an object is a collection to iterate over. A text is not."""
    return (
        isinstance(values, Iterable)
        and not isinstance(values, str | bytes)
        and getattr(values, "ndim", 1) > 0
    )


def _default_names(count: int) -> tuple[str, ...]:
    return tuple(f"teacher {i + 1}" for i in range(count))


def _check_one_kind(lists: Sequence[Sequence[Any]], names: Sequence[str]) -> None:
    first = kind_of(lists[0][0])
    for values, name in zip(lists, names, strict=True):
        if kind_of(values[0]) != first:
            raise LabelSpaceError(
                f"Classes of {names[0]!r} are {first} ({shorten(lists[0], 3)}) and those of {name!r} are "
                f"{kind_of(values[0])} ({shorten(values, 3)}). Make them one kind, such as str."
            )

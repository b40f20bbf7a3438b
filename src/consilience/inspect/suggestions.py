"""The result of `consilience.suggest_aliases`: names that are likely one class, and names that are two."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience._optional import require
from consilience._words import counted, shorten, visible

MOST_NAMES = 3  # of teachers, when printed
LONGEST_NAME = 40  # of a class, when printed


@dataclass(frozen=True)
class SameClass:
    """Two names that are likely one class.

    Attributes
    ----------
    alias : str or number
        The name to give up.
    name : str or number
        The name to keep: the one that more teachers use, or the longer one.
    alias_teachers, name_teachers : tuple of str
        The teachers that use each.
    agreement : float
        Mean correlation, at most 1, between what the teachers say of the two; see `suggest_aliases`. If more
        than two names are one class, between the alias and all the others.
    spelling : float or None
        How alike the names are spelt, from 0 to 1; None for numbers.
    rows : tuple of int
        Up to three rows of X that speak for it most: all these teachers rank them high.
    expressible : bool
        Whether an alias can say it. If not, one of the names is likely two classes: first rename it for the
        teachers concerned with `consilience.teachers.rename_classes`.

    Examples
    --------
    >>> found = SameClass("cat", "house cat", ("a",), ("b",), agreement=0.9, spelling=0.5, rows=(3, 8))
    >>> found.name, found.agreement
    ('house cat', 0.9)
    """

    alias: Any
    name: Any
    alias_teachers: tuple[str, ...]
    name_teachers: tuple[str, ...]
    agreement: float
    spelling: float | None
    rows: tuple[int, ...]
    expressible: bool = True


@dataclass(frozen=True)
class SameName:
    """One name that likely stands for two classes.

    Attributes
    ----------
    name : str or number
    teachers, other_teachers : tuple of str
        The teachers that use it for one class, and those that use it for another.
    agreement : float
        Mean correlation between what the two groups say of it; near zero or below.
    rows : tuple of int
        Up to three rows of X that speak for it most: one group ranks them high, the other low.

    Examples
    --------
    >>> found = SameName("jaguar", ("animals",), ("cars",), agreement=-0.1, rows=(2, 5))
    >>> found.teachers, found.other_teachers
    (('animals',), ('cars',))
    """

    name: Any
    teachers: tuple[str, ...]
    other_teachers: tuple[str, ...]
    agreement: float
    rows: tuple[int, ...]


@dataclass(frozen=True)
class AliasSuggestions:
    """What `consilience.suggest_aliases` found. Nothing of it is applied: ``Unifier(aliases=found.aliases)``.

    Attributes
    ----------
    same_class : tuple of SameClass
        Different names that are likely one class, surest first.
    same_name : tuple of SameName
        Names that likely stand for two classes, surest first.
    n_rows : int
        Rows that were compared.
    given : mapping
        The aliases that were given, and had been applied before.

    Examples
    --------
    >>> same = SameClass("cat", "house cat", ("a",), ("b",), agreement=0.9, spelling=0.5, rows=(3, 8))
    >>> AliasSuggestions((same,), (), n_rows=100, given={}).aliases
    {'cat': 'house cat'}
    """

    same_class: tuple[SameClass, ...]
    same_name: tuple[SameName, ...]
    n_rows: int
    given: Mapping[Any, Any]

    @property
    def aliases(self) -> dict[Any, Any]:
        """The aliases to use: those given, and those suggested."""
        found = {pair.alias: pair.name for pair in self.same_class if pair.expressible}
        return {**self.given, **found}

    def __len__(self) -> int:
        return len(self.same_class) + len(self.same_name)

    def __iter__(self) -> Iterator[SameClass | SameName]:
        return iter((*self.same_class, *self.same_name))

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "n_rows": self.n_rows,
            "same_class": [
                {
                    "alias": pair.alias,
                    "name": pair.name,
                    "alias_teachers": list(pair.alias_teachers),
                    "name_teachers": list(pair.name_teachers),
                    "agreement": pair.agreement,
                    "spelling": pair.spelling,
                    "rows": list(pair.rows),
                    "expressible": pair.expressible,
                }
                for pair in self.same_class
            ],
            "same_name": [
                {
                    "name": pair.name,
                    "teachers": list(pair.teachers),
                    "other_teachers": list(pair.other_teachers),
                    "agreement": pair.agreement,
                    "rows": list(pair.rows),
                }
                for pair in self.same_name
            ],
        }

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per suggestion."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        same = [
            {"likely": "one class", **entry, "other_teachers": entry["name_teachers"]}
            for entry in self.to_dict()["same_class"]
        ]
        two = [
            {"likely": "two classes", **entry, "alias_teachers": entry["teachers"], "expressible": False}
            for entry in self.to_dict()["same_name"]
        ]
        columns = ["likely", "alias", "name", "agreement", "spelling", "rows", "alias_teachers"]
        return pandas.DataFrame([*same, *two], columns=[*columns, "other_teachers", "expressible"])

    def __repr__(self) -> str:
        return "\n".join(
            [
                self._title(),
                *_lines(same_class_table(self.to_dict())),
                *_lines(same_name_table(self.to_dict())),
            ]
        )

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self._title())}</p>"]
        for rows in (same_class_table(self.to_dict()), same_name_table(self.to_dict())):
            if len(rows) > 1:
                cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
                parts.append("<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>")
        return "".join(parts)

    def _title(self) -> str:
        pairs = counted(len(self.same_class), "pair")
        return (
            f"{pairs} of names likely one class, {counted(len(self.same_name), 'name')} likely two classes "
            f"({counted(self.n_rows, 'row')})"
        )


def same_class_table(view: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the pairs of names in what `to_dict` returns as a table of texts, with its headers."""
    head = ("alias", "of", "is likely", "of", "agreement", "spelling", "rows", "")
    return [head, *(_same_class_cells(entry) for entry in view["same_class"])]


def same_name_table(view: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the names that are likely two classes as a table of texts, like `same_class_table`."""
    head = ("name", "of", "is likely not that of", "agreement", "rows")
    return [head, *(_same_name_cells(entry) for entry in view["same_name"])]


def _same_class_cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        _cut(entry["alias"]),
        shorten(entry["alias_teachers"], MOST_NAMES),
        _cut(entry["name"]),
        shorten(entry["name_teachers"], MOST_NAMES),
        f"{entry['agreement']:.2f}",
        "" if entry["spelling"] is None else f"{entry['spelling']:.2f}",
        shorten(entry["rows"]),
        "" if entry["expressible"] else "rename first",
    )


def _same_name_cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        _cut(entry["name"]),
        shorten(entry["teachers"], MOST_NAMES),
        shorten(entry["other_teachers"], MOST_NAMES),
        f"{entry['agreement']:.2f}",
        shorten(entry["rows"]),
    )


def _cut(name: Any) -> str:
    text = visible(str(name))
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a table as lines; none if it has only headers."""
    if len(rows) < 2:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

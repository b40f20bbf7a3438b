"""Class names: check them, and apply aliases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from consilience._words import shorten
from consilience.exceptions import LabelSpaceError, shown


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
    kinds = {kind_of(value) for value in names}
    if len(kinds) > 1:
        raise LabelSpaceError(
            f"{where} mixes {' and '.join(sorted(kinds))}; make them one kind, such as str."
        )
    if len(set(names)) < len(names):
        repeated = [value for value, count in Counter(names).items() if count > 1]
        raise LabelSpaceError(f"{where} names {shorten(repeated)} more than once.")
    check_exact(names, where)
    return names


def check_exact(names: list[Any], where: str) -> None:
    """Raise if an array would change class names, because two of them could become one."""
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


def kind_of(value: object) -> str:
    if isinstance(value, str):
        return "text"
    return "booleans" if isinstance(value, bool) else "numbers"


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
                raise LabelSpaceError(f"aliases form a cycle: {chain}.")
            seen.append(target)
        resolved[alias] = seen[-1]
    return resolved


def apply_aliases(values: Sequence[Any], resolved: Mapping[Any, Any], name: str) -> list[Any]:
    """Rename the classes of one teacher. Raise if two would become one."""
    renamed = [resolved.get(value, value) for value in values]
    for old, new in zip(values, renamed, strict=True):
        if kind_of(new) != kind_of(old):
            raise LabelSpaceError(
                f"aliases rename {old!r} to {new!r}, which is {kind_of(new)}, not {kind_of(old)} "
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

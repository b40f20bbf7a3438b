"""Declared options as options of the command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from consilience.exceptions import InvalidInputError
from consilience.options import Check, Option


@dataclass(frozen=True)
class Target(Check):
    """What a file may be that a command writes: with one of these endings, and none that it reads."""

    endings: tuple[str, ...] = ()


def path(says: str = "FILE") -> Check:
    """Return what a path may be; `says` is its place-holder in the help."""
    return Check(_check_path, says, Path)


def target(*endings: str) -> Target:
    """Return what the path of a file may be that a command writes."""
    return Target(_check_path, "FILE", Path, endings=endings)


def _check_path(name: str, value: Any) -> Any:
    if not isinstance(value, str | Path):
        raise InvalidInputError("{argument} must be a path in quotes.", argument=name, value=value)
    return value


def flag_of(key: str, option: Option) -> str:
    """Return how an option is written: ``--off-set`` for ``method__off_set``."""
    return option.flags[0] if option.flags else f"--{key.rpartition('__')[2].replace('_', '-')}"


class Declared(click.ParamType[Any]):
    """The type of a declared option: a text is read, and the value is checked."""

    name = "declared"

    def __init__(self, key: str, check: Check) -> None:
        self.key, self.check = key, check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text on the command line, or a value in a recipe, stands for."""
        if isinstance(value, str) and self.check.read is not None:
            value = self.check.read(value)
        if "__" not in self.key:  # an object checks its own options
            self.check.run(self.key, value)
        return value


def parameter(key: str, option: Option) -> click.Parameter:
    """Return the option of the command line, or the argument, for a declared option.

    `key` is its name among the values: ``slot__name`` for an option of an object.
    """
    check, flags = option.check, [flag_of(key, option), *option.flags[1:]]
    text = plain(option.help)
    if not option.required and option.default not in (None, False, ()):
        text += f"  [default: {option.default}]"
    given: dict[str, Any] = {"required": option.required, "help": text}
    if check.values and all(value is None or isinstance(value, bool) for value in check.values):
        if option.default is not False:
            flags[0] += flags[0].replace("--", "/--no-")
        return click.Option([key, *flags], is_flag=True, default=None, **given)
    given |= {"type": Declared(key, check)}
    if flags[0].isupper():
        return click.Argument([key], nargs=-1 if check.many else 1, metavar=flags[0], **given)
    metavar = "NAME" if check.values else check.says.partition(", ")[0].partition(" ")[0].strip("{'").upper()
    return click.Option([key, *flags], metavar=metavar, multiple=check.many, **given)


def plain(text: str) -> str:
    """Return a help text without the clauses that are about Python, which name things in backticks."""
    sentences = [
        "; ".join(clause for clause in sentence.split("; ") if "`" not in clause)
        for sentence in text.removesuffix(".").split(". ")
    ]
    return ". ".join(filter(None, sentences)) + "." if any(sentences) else text.replace("`", "")


class Slot:
    """An option that chooses an object by a short name, and the options that these objects have."""

    def __init__(self, key: str, option: Option) -> None:
        self.key, self.option = key, option
        self.kinds: dict[Any, Mapping[str, Option]] = {}
        for kind in option.check.values:
            with suppress(ImportError, KeyError):  # an extra is missing, or nothing has this name
                self.kinds[kind] = option.check.make(kind).declared()  # type: ignore[misc]

    def options(self, taken: set[str]) -> dict[str, Option]:
        """Return the options of the objects by key. Where a flag is taken, it says whose option it is."""
        found: dict[str, Option] = {}
        every = {name: one for kind in self.kinds.values() for name, one in kind.items() if one.check.read}
        for name, one in every.items():
            flag = flag_of(name, one)
            flags = (flag.replace("--", f"--{self.key}-") if flag in taken else flag,)
            texts = dict.fromkeys(kind[name].help for kind in self.kinds.values() if name in kind)
            text = " ".join(f"[{self.owners(name, text)}] {plain(text)}" for text in texts)
            found[f"{self.key}__{name}"] = replace(one, flags=flags, help=text, default=None)
        return found

    def owners(self, name: str, text: str | None = None) -> str:
        """Return which objects have an option (with this help), as they are chosen: ``--method ce, mf-p``."""
        kinds = [
            str(kind)
            for kind, declared in self.kinds.items()
            if name in declared and text in (None, declared[name].help)
        ]
        return f"{flag_of(self.key, self.option)} {', '.join(kinds)}"

    def chosen(self, value: Any, given: Mapping[str, Any], stale: Collection[str] = ()) -> Any:
        """Return the objects that short names stand for, with the options given for them by key.

        An option that no object has is an error, unless it is `stale`.
        """
        kinds = value if isinstance(value, list) else [value]
        made = [self.option.check.make(kind) if kind in self.kinds else kind for kind in kinds]  # type: ignore[misc]
        for key, inner in given.items():
            name = key.removeprefix(f"{self.key}__")
            owners = [one for kind, one in zip(kinds, made, strict=True) if name in self.kinds.get(kind, ())]
            if not owners and key not in stale:
                raise InvalidInputError(
                    f"{{argument}} is an option of {self.owners(name)}. Choose one of these.", argument=name
                )
            for one in owners:
                one.set_params(**{name: inner})
                one.check_options()
        return made if isinstance(value, list) else made[0]

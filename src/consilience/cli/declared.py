"""Declared options as options of the command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from consilience.exceptions import InvalidInputError
from consilience.options import Check, Option, Options


@dataclass(frozen=True)
class options_of:  # noqa: N801  # it reads as a function
    """The options of a class that a text can give: all, or `only` some.

    The class is imported when the command is, for its help or to run: its module should be quick to import.
    """

    path: str
    only: tuple[str, ...] = ()

    def declared(self) -> dict[str, Option]:
        """Return them by name."""
        module, _, name = self.path.rpartition(".")
        kind: type[Options] = getattr(importlib.import_module(f"consilience.{module}"), name)
        return {
            name: one
            for name, one in kind.declared().items()
            if one.check.read is not None and (not self.only or name in self.only)
        }


def path(says: str = "FILE", *, many: bool = False) -> Check:
    """Return what a path may be; `says` is its place-holder in the help."""

    def run(name: str, value: Any) -> Any:
        if not isinstance(value, str | Path):
            raise InvalidInputError("{argument} must be a path in quotes.", argument=name, value=value)
        return value

    return Check(run, says, Path, many=many)


def target(*endings: str, says: str = "FILE") -> Check:
    """Return what a file may be that a command writes: it has one of these endings, and is none that it reads."""
    return Check(path().run, says, written, endings)


def written(text: str) -> Path:
    """Read the path of a file that a command writes."""
    return Path(text)


class Value(click.ParamType):
    """The value of a declared option: read from a text, and checked where it stands alone."""

    def __init__(self, key: str, option: Option) -> None:
        self.slot, _, self.of = key.rpartition("__")
        self.option = option
        word = option.check.says.partition(",")[0].partition(" ")[0]
        self.name = word if word.replace("=", "").replace(".", "").isalnum() else "name"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value that a text, or a value of a recipe, stands for."""
        read = self.option.check.read
        if isinstance(value, str) and read is not None:
            value = read(value)
        if not self.slot:  # an object checks its own
            self.option.check.run(self.of, value)
        return value


class Positional(click.Argument):
    """An argument. If none of a list is given, the recipe may have it."""

    help = ""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the value and where it comes from."""
        return super().consume_value(ctx, {name: value for name, value in opts.items() if value != ()})

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return what the help says of it."""
        return self.make_metavar(ctx), self.help


def parameter(key: str, option: Option, prefix: str = "", owners: str = "") -> click.Parameter:
    """Return the option of the command line, or the argument, for a declared option.

    Parameters
    ----------
    key : str
        Its name among the values: ``slot__name`` for an option of an object.
    option : Option
    prefix : str
        What its flag begins with: ``student-`` where the flag without it is another's.
    owners : str
        Which objects have it.
    """
    check = option.check
    text = f"{owners} {_plain(option.help)}".strip()
    if option.required or option.default not in (None, False, ()):
        text += "  [required]" if option.required else f"  [default: {option.default}]"
    given: dict[str, Any] = {"required": option.required, "type": Value(key, option)}
    flags = option.flags or (flag_of(key),)
    if flags[0].isupper():
        made = Positional([key], nargs=-1 if check.many else 1, metavar=flags[0], **given)
        made.help = text
        return made
    if prefix:
        flags = (flags[0].replace("--", f"--{prefix}"),)
    if not is_switch(check):
        return click.Option([key, *flags], help=text, multiple=check.many, **given)
    both = f"{flags[0]}/{flags[0].replace('--', '--no-')}"
    return click.Option(
        [key, both if option.default is not False or owners else flags[0]],
        help=text, is_flag=True, default=None,
    )  # fmt: skip


def flag_of(key: str) -> str:
    """Return how an option is written: ``--off-set`` for ``method__off_set``."""
    return f"--{key.rpartition('__')[2].replace('_', '-')}"


def is_switch(check: Check) -> bool:
    """Tell whether an option is turned on and off, without a value."""
    return bool(check.values) and all(value is None or isinstance(value, bool) for value in check.values)


def _plain(text: str) -> str:
    """Return a help text without the clauses that are about Python, which name things in backticks."""
    sentences = [
        "; ".join(clause for clause in sentence.split("; ") if "`" not in clause)
        for sentence in text.removesuffix(".").split(". ")
    ]
    return ". ".join(filter(None, sentences)) + "."


class Slot:
    """An option that chooses an object by a short name, and the options that these objects have."""

    def __init__(self, name: str, option: Option) -> None:
        self.option = option
        self.flag = option.flags[0] if option.flags else flag_of(name)
        self.kinds: dict[Any, Mapping[str, Option]] = {}
        for kind in option.check.values:
            try:
                self.kinds[kind] = option.check.make(kind).declared()  # type: ignore[misc]
            except (ImportError, KeyError):  # an extra is missing, or nothing has this name
                continue

    def owners(self, name: str) -> str:
        """Return which objects have an option, as they are chosen: ``--method ce, mf-p``."""
        return f"{self.flag} {', '.join(kind for kind, declared in self.kinds.items() if name in declared)}"

    def chosen(self, value: Any, given: Mapping[str, tuple[str, Any]]) -> Any:
        """Return what was chosen: short names as they are, or objects with the options given for them.

        Parameters
        ----------
        value : str, sequence of str or None
        given : mapping
            By the name of an option: how it is written, and its value.
        """
        kinds = list(value) if isinstance(value, list | tuple) else [value]
        for name, (flag, _) in given.items():
            if not any(name in self.kinds.get(kind, ()) for kind in kinds):
                words = ", ".join(str(kind) for kind in kinds if kind is not None)
                remedy = f"{self.flag} {words} does not have it." if words else f"Give {self.flag}, too."
                raise InvalidInputError(f"{flag} is an option of {self.owners(name)}. {remedy}")
        made = [self._made(kind, given) for kind in kinds]
        return made if isinstance(value, list | tuple) else made[0]

    def _made(self, kind: Any, given: Mapping[str, tuple[str, Any]]) -> Any:
        own = {name: value for name, (_, value) in given.items() if name in self.kinds.get(kind, ())}
        if not own:
            return kind
        made = self.option.check.make(kind).set_params(**own)  # type: ignore[misc]
        made.check_options()
        return made

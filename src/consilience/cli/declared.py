"""Declared options as options of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from consilience.exceptions import InvalidInputError
from consilience.options import Check, Option

NONE = "\0none"
"""What stands for None where it was asked for, since click's None is what was not given."""


def path(says: str = "FILE") -> Check:
    """Return what a path may be; `says` is its place-holder in the help."""

    def run(name: str, value: Any) -> Any:
        if not isinstance(value, str | Path):
            raise InvalidInputError("{argument} must be a path in quotes.", argument=name, value=value)
        return value

    return Check(run, says, Path)


def written(text: str) -> Path:
    """Read the path of a file that a command writes."""
    return Path(text)


def target(*endings: str) -> Check:
    """Return what a file may be that a command writes: with one of these endings, and none that it reads."""
    return replace(path(), read=written, values=endings)


def flag_of(key: str, option: Option) -> str:
    """Return how an option is written: ``--off-set`` for ``method__off_set``."""
    return option.flags[0] if option.flags else f"--{key.rpartition('__')[2].replace('_', '-')}"


class Positional(click.Argument):
    """An argument, with help."""

    help = ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return what the help says of it."""
        return self.make_metavar(ctx), self.help


def parameter(key: str, option: Option) -> click.Parameter:
    """Return the option of the command line, or the argument, for a declared option.

    `key` is its name among the values: ``slot__name`` for an option of an object.
    """
    check, flags = option.check, (flag_of(key, option), *option.flags[1:])
    text = plain(option.help)
    if option.required or option.default not in (None, False, ()):
        text += "  [required]" if option.required else f"  [default: {option.default}]"
    given: dict[str, Any] = {"type": click.UNPROCESSED, "callback": read_value}
    if flags[0].isupper():
        made = Positional([key], required=False, nargs=-1 if check.many else 1, metavar=flags[0], **given)
        made.help = text
        return made
    if check.values and all(value is None or isinstance(value, bool) for value in check.values):
        both = f"{flags[0]}/{flags[0].replace('--', '--no-')}" if option.default is not False else flags[0]
        return click.Option([key, both], help=text, is_flag=True, default=None)
    word = check.says.partition(",")[0].partition(" ")[0].lstrip("{'").removesuffix("'").upper()
    metavar = "NAME" if check.values and check.read is not written else word
    return click.Option([key, *flags], help=text, metavar=metavar, multiple=check.many, **given)


def read_value(ctx: click.Context, one: click.Parameter, value: Any) -> Any:
    """Return the value that was given, or that the recipe has; read from a text, and checked."""
    key = str(one.name)
    option: Option = ctx.command.options[key]  # type: ignore[attr-defined]
    if value in (None, ()):
        value = (ctx.default_map or {}).get(key)  # click asks for no list of arguments
    if value is None:
        if option.required and not ctx.resilient_parsing:
            raise click.MissingParameter(ctx=ctx, param=one)
        return None
    return (
        [read_text(key, option, each) for each in value]
        if option.check.many
        else read_text(key, option, value)
    )


def read_text(key: str, option: Option, value: Any) -> Any:
    """Return the value that a text stands for, checked; an object checks its own options."""
    if isinstance(value, str) and option.check.read is not None:
        value = option.check.read(value)
    if "__" not in key:
        option.check.run(key, value)
    return NONE if value is None else value


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
            text = f"[{self.owners(name)}] {plain(one.help)}"
            found[f"{self.key}__{name}"] = replace(one, flags=flags, help=text, default=None)
        return found

    def owners(self, name: str) -> str:
        """Return which objects have an option, as they are chosen: ``--method ce, mf-p``."""
        kinds = [str(kind) for kind, declared in self.kinds.items() if name in declared]
        return f"{flag_of(self.key, self.option)} {', '.join(kinds)}"

    def chosen(self, value: Any, given: Mapping[str, Any]) -> Any:
        """Return the objects that short names stand for, with the options given for them by name."""
        kinds = value if isinstance(value, list) else [value]
        for name in given:
            if not any(name in self.kinds.get(kind, ()) for kind in kinds):
                raise InvalidInputError(
                    f"{{argument}} is an option of {self.owners(name)}. Choose one of these.", argument=name
                )
        made = [self._made(kind, given) for kind in kinds]
        return made if isinstance(value, list) else made[0]

    def _made(self, kind: Any, given: Mapping[str, Any]) -> Any:
        own = {name: value for name, value in given.items() if name in self.kinds.get(kind, ())}
        made = self.option.check.make(kind).set_params(**own)  # type: ignore[misc]
        made.check_options()
        return made

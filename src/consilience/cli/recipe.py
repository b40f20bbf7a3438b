"""A recipe: the options of a command in a TOML file.

The keys are the names of the options, without the dashes. They stand in a table that is named after the
command; a file for one command may leave the table out. click takes the values as defaults, so options on
the command line win.
"""

from __future__ import annotations

import difflib
import json
import os
import textwrap
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import click

from consilience._version import __version__
from consilience._words import visible
from consilience.cli.declared import Value, written
from consilience.exceptions import InvalidInputError, shown

_NOT_IN_IT = ("config", "write_config")
_WIDTH = 100


def recipe_keys(command: click.Command) -> dict[str, click.Parameter]:
    """Return what may stand in a recipe of this command, in the order of its help."""
    return {
        max(one.opts, key=len).lstrip("-").replace("_", "-"): one
        for one in command.params
        if one.name not in _NOT_IN_IT
    }


def read_recipe(file: Path, command: click.Command, commands: Collection[str]) -> dict[str, Any]:
    """Return the values of a recipe by the names of the command's parameters.

    Relative paths become relative to the folder of the file. Each of `commands` may have a table in it.
    """
    keys = recipe_keys(command)
    values: dict[str, Any] = {}
    for key, value in _table(file, str(command.name), keys, commands).items():
        one = keys.get(key.replace("_", "-"))
        if one is None:
            hint = _nearest(key.replace("_", "-"), keys) or f" See consilience {command.name} --help."
            raise InvalidInputError(f"{file}: {command.name} has no option {key!r}.{hint}")
        if one.name in values:
            raise InvalidInputError(f"{file}: {key} is given twice, with - and with _. Keep one.")
        values[str(one.name)] = _read_value(file, one, value)
    return values


def _read_value(file: Path, one: click.Parameter, value: Any) -> Any:
    """Return a value as the option has it: checked, and a path as seen from here."""
    many = one.multiple or one.nargs == -1
    values = value if many and isinstance(value, list) else [value]
    try:
        for each in values:
            if getattr(one, "is_flag", False) and not isinstance(each, bool):
                raise InvalidInputError("{argument} must be true or false.", argument=one.name, value=each)
            if isinstance(one.type, Value):
                one.type.convert(each, one, None)
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from None
    read = [_moved(each, one, lambda path: str(file.parent / path)) for each in values]
    return read if many else read[0]


def _table(file: Path, name: str, options: Collection[str], commands: Collection[str]) -> Mapping[str, Any]:
    """Return the keys for this command: its table, or all of a file without tables."""
    content = _parse(file)
    tables = [
        key
        for key, value in content.items()
        if isinstance(value, dict) and (key in commands or key not in options)
    ]
    for key in tables:
        if key not in commands:
            hint = _nearest(key, commands) or f" The commands are {', '.join(commands)}."
            raise InvalidInputError(f"{file}: [{key}] is no command.{hint}")
    loose = [key for key in content if key not in tables]
    if not tables:
        return content
    if loose:
        raise InvalidInputError(
            f"{file}: {loose[0]} stands outside of a table. Put it below [{name}]: a file with tables has no "
            "other keys."
        )
    if name not in tables:
        listing = ", ".join(f"[{key}]" for key in tables)
        raise InvalidInputError(f"{file} has no table [{name}]; it has {listing}.")
    return dict(content[name])


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise InvalidInputError(f"--config: {file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, and of lists in lists in lists
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise InvalidInputError(f"--config: {file} is not TOML: {reason}.") from error


def _nearest(word: str, words: Collection[str]) -> str:
    near = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def _moved(value: Any, one: click.Parameter, move: Callable[[str], str]) -> Any:
    """Return a value whose path, if it holds one, is changed by `move`."""
    if isinstance(one.type, Value) and one.type.option.check.read in (Path, written):
        from consilience.teachers.address import is_address

        return str(value) if is_address(value) else move(str(value))
    name, at, path = str(value).partition("=@")
    return f"{name}=@{move(path)}" if one.name == "classes" and at and path else value


def write_recipe(file: Path, command: click.Command, path: str, values: Mapping[str, Any]) -> None:
    """Write the values of a command's parameters, by name; `path` is how it is called: ``consilience unify``.

    Every option is there with its help; those that were not given are comments.
    """
    from consilience.files.atomic import replacing
    from consilience.files.readers import check_target

    check_target(file, (".toml",), "--write-config")
    lines = [
        f"# Written by consilience {__version__}. Run it: {path} --config {visible(file.name)}",
        "# Paths are relative to the folder of this file.",
        "# Options on the command line win over this file.",
        "",
        f"[{command.name}]",
    ]
    for key, one in recipe_keys(command).items():
        help_lines = textwrap.wrap(" ".join((getattr(one, "help", None) or "").split()), _WIDTH)
        lines += [f"# {visible(line)}" for line in help_lines]
        value = values.get(str(one.name))
        empty = value is None or value == ()
        lines.append(f"# {key} =" if empty else f"{key} = {_toml(_relative(value, one, file.parent))}")
    try:
        text = "\n".join([*lines, ""]).encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"--write-config: {shown(error.object[error.start :])} is not UTF-8, and TOML is. Rename the file."
        ) from error
    with replacing(file) as opened:
        opened.write(text)


def _toml(value: Any) -> str:
    """Return a text, a number, a truth value or a list of these as TOML, which is here as JSON is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _relative(value: Any, one: click.Parameter, folder: Path) -> Any:
    """Return a value with its paths as seen from a folder; an absolute path stays as it is."""
    if isinstance(value, tuple):
        return [_relative(each, one, folder) for each in value]

    def move(path: str) -> str:
        given = Path(path)
        if given.is_absolute() or given.parent == folder == Path():
            return path
        # resolved: ".." after a link leads elsewhere. The last part is kept: a card lies next to it.
        target = given.parent.resolve() / given.name
        try:
            return os.path.relpath(target, folder.resolve())
        except ValueError:  # another drive of Windows
            return str(target)

    return _moved(value, one, move)

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from consilience._version import __version__
from consilience._words import visible
from consilience.cli import library
from consilience.cli.declared import read_text, written
from consilience.exceptions import InvalidInputError, shown
from consilience.options import Option

_NOT_IN_IT = ("config", "write_config")
_WIDTH = 100


def recipe_keys(command: Any) -> dict[str, click.Parameter]:
    """Return what may stand in a recipe of this command, in the order of its help."""
    return {
        max(one.opts, key=len).lstrip("-").replace("_", "-"): one
        for one in command.params
        if one.name not in _NOT_IN_IT
    }


def read_recipe(file: Path, command: Any) -> dict[str, Any]:
    """Return the values of a recipe by the names of the command's parameters.

    Relative paths become relative to the folder of the file.
    """
    keys = recipe_keys(command)
    values: dict[str, Any] = {}
    for written_key, value in _table(file, command.name).items():
        key = written_key.replace("_", "-")
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"See consilience {command.name} --help."
            raise InvalidInputError(f"{file}: {command.name} has no option {written_key!r}. {hint}")
        name = str(keys[key].name)
        if name in values:
            raise InvalidInputError(f"{file}: {key} is given twice, with - and with _. Keep one.")
        try:
            values[name] = _read_value(name, command.options.get(name), value, file.parent)
        except InvalidInputError as error:
            raise InvalidInputError(f"{file}: {error}") from None
    return values


def _read_value(name: str, option: Option | None, value: Any, folder: Path) -> Any:
    """Return a value as the option has it: checked, and a path as seen from here."""
    if option is None or option.check.values == (True, False):  # a switch
        if not isinstance(value, bool) and name != "log":
            raise InvalidInputError("{argument} must be true or false.", argument=name, value=value)
        return value
    values = value if option.check.many and isinstance(value, list) else [value]
    for each in values:
        read_text(name, option, each)
    read = [_moved(each, name, option, lambda path: str(folder / path)) for each in values]
    return read if option.check.many else read[0]


def _table(file: Path, name: str) -> Mapping[str, Any]:
    """Return the keys for a command: its table, or all of a file without tables."""
    content = _parse(file)
    tables = [key for key, value in content.items() if isinstance(value, dict)]
    if not tables:
        return content
    if name not in tables or len(tables) < len(content):
        listing = ", ".join(f"[{key}]" for key in tables)
        raise InvalidInputError(
            f"{file} has the tables {listing}: its keys for this command must stand below [{name}]."
        )
    return dict(content[name])


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except OSError as error:
        raise InvalidInputError(f"--config: {file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, and of lists in lists in lists
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise InvalidInputError(f"--config: {file} is not TOML: {reason}.") from error


def _moved(value: Any, name: str, option: Option, move: Callable[[str], str]) -> Any:
    """Return a value whose path, if it holds one, is changed by `move`."""
    if option.check.read in (Path, written):
        return str(value) if library.is_address(value) else move(str(value))
    teacher, at, path = str(value).partition("=@")
    return f"{teacher}=@{move(path)}" if name == "classes" and at and path else value


def write_recipe(file: Path, command: Any, path: str, values: Mapping[str, Any]) -> None:
    """Write the values of a command's parameters, by name; `path` is how it is called: ``consilience unify``.

    Every option is there with its help; those that were not given are comments.
    """

    library.check_target(file, (".toml",), "--write-config")
    lines = [
        f"# Written by consilience {__version__}. Run it: {path} --config {visible(file.name)}",
        "# Paths are relative to the folder of this file.",
        "# Options on the command line win over this file.",
        "",
        f"[{command.name}]",
    ]
    for key, one in recipe_keys(command).items():
        name = str(one.name)
        lines += [f"# {visible(line)}" for line in textwrap.wrap(getattr(one, "help", ""), _WIDTH)]
        value, option = values.get(name), command.options.get(name)
        if option is not None and value is not None:
            value = _relative(value, name, option, file.parent)
        # a text, a number, a truth value and a list of these are in TOML what they are in JSON
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        lines.append(f"# {key} =" if value is None else f"{key} = {text}")
    try:
        encoded = "\n".join([*lines, ""]).encode()
    except UnicodeEncodeError as error:
        bad = shown(error.object[error.start :])
        raise InvalidInputError(
            f"--write-config: {bad} is not UTF-8, and TOML is. Rename the file."
        ) from error
    with library.replacing(file) as opened:
        opened.write(encoded)


def _relative(value: Any, name: str, option: Option, folder: Path) -> Any:
    """Return a value with its paths as seen from a folder; an absolute path stays as it is."""
    if isinstance(value, list):
        return [_relative(each, name, option, folder) for each in value]

    def move(path: str) -> str:
        given = Path(path)
        if given.is_absolute() or given.parent == folder == Path():
            return path
        # resolved: ".." after a link leads elsewhere. The last part is kept: a card lies next to it.
        return os.path.relpath(given.parent.resolve() / given.name, folder.resolve())

    return _moved(value, name, option, move)

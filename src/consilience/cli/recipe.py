"""A recipe: the options of a command in a TOML file.

The keys are the names of the options, without the dashes. They stand in a table that is named after the
command; a file for one command may leave the table out. click takes the values as defaults, so options on
the command line win.
"""

from __future__ import annotations

import json
import os
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from consilience._version import __version__
from consilience.cli import library
from consilience.exceptions import InvalidInputError, shown, visible
from consilience.options import Option, did_you_mean

_NOT_IN_IT = ("config", "write_config")
_WIDTH = 100
_MOST = 2**20  # bytes of a recipe


def recipe_keys(command: Any) -> dict[str, click.Parameter]:
    """Return what may stand in a recipe of this command, in the order of its help."""
    return {
        max(one.opts, key=len).lstrip("-").replace("_", "-"): one
        for one in command.params
        if one.name not in _NOT_IN_IT
    }


def read_recipe(file: Path, ctx: click.Context) -> dict[str, Any]:
    """Return the values of a recipe by the names of the command's parameters.

    Relative paths become relative to the folder of the file.
    """
    command: Any = ctx.command
    keys, values = recipe_keys(command), {}
    for written, value in _table(file, command.name).items():
        key = written.replace("_", "-")
        if key not in keys:
            hint = did_you_mean(key, keys) or f" See consilience {command.name} --help."
            raise InvalidInputError(f"{file}: {command.name} has no option {written!r}.{hint}")
        name = str(keys[key].name)
        option = command.options[name]
        given = value if isinstance(value, list) or not option.check.many else [value]
        values[name] = _moved(given, name, option, lambda path: str(file.parent / path))
        try:
            keys[key].type_cast_value(ctx, values[name])
        except InvalidInputError as error:
            raise error.changed(message=f"{file}: {error.message}") from None
    return values


def _table(file: Path, name: str) -> Mapping[str, Any]:
    """Return the keys for a command: its table, or all of a file without tables."""
    try:  # some editors begin a file with a mark
        content = tomllib.loads(library.read_bytes(file, most=_MOST, links=True).decode("utf-8-sig"))
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, and of lists in lists in lists
        raise InvalidInputError(f"--config: {file} is not TOML: {str(error).rstrip('.')}.") from error
    tables = [key for key, value in content.items() if isinstance(value, dict)]
    if tables and (name not in tables or len(tables) < len(content)):
        listing = ", ".join(f"[{key}]" for key in tables)
        raise InvalidInputError(
            f"{file} has the tables {listing}: its keys for this command must stand below [{name}]."
        )
    return dict(content[name]) if tables else content


def _moved(value: Any, name: str, option: Option, move: Callable[[str], str]) -> Any:
    """Return a value of which each path, if it holds one, is changed by `move`."""
    if isinstance(value, list):
        return [_moved(each, name, option, move) for each in value]
    if isinstance(value, str | Path) and option.check.read is Path:
        return str(value) if library.is_address(value) else move(str(value))
    teacher, at, path = str(value).partition("=@")
    return f"{teacher}=@{move(path)}" if name == "classes" and at and path else value


def write_recipe(file: Path, command: Any, path: str, given: Mapping[str, Any]) -> None:
    """Write the values of a command's parameters, by name; `path` is how it is called: ``consilience unify``.

    Every option is there with its help; those that were not given are comments.
    """

    def move(path: str) -> str:
        # resolved: ".." after a link leads elsewhere. The last part is kept: a card lies next to it.
        whole = Path(path).parent.resolve() / Path(path).name
        return path if Path(path).is_absolute() else os.path.relpath(whole, file.parent.resolve())

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
        value = _moved(given.get(name), name, command.options[name], move)
        # a text, a number, a truth value and a list of these are in TOML what they are in JSON
        text = json.dumps("none" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")
        lines.append(f"{key} = {text}" if name in given else f"# {key} =")
    try:
        encoded = "\n".join([*lines, ""]).encode()
    except UnicodeEncodeError as error:
        bad = shown(error.object[error.start :])
        message = f"--write-config: {bad} is not UTF-8, and TOML is. Rename the file."
        raise InvalidInputError(message) from error
    with library.replacing(file) as opened:
        opened.write(encoded)

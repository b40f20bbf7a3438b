"""A recipe: the options of a command in a TOML file.

The keys are the names of the options, without the dashes. They stand in a table that is named after the
command; a file for one command may leave the table out. click takes the values as defaults, so options on
the command line win.
"""

from __future__ import annotations

import difflib
import enum
import os
import textwrap
import tomllib
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from consilience.cli.toml import toml_comment, toml_key, toml_value
from consilience.exceptions import InvalidInputError, shown

NOT_IN_A_RECIPE = ("config", "write_config")
_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    Path: "a path in quotes",
}
_WIDTH = 100


@dataclass(frozen=True)
class Key:
    """A key of a recipe.

    Attributes
    ----------
    key : str
        As it is written in the file.
    name : str
        The parameter of the command.
    kind : type
        bool, int, float, str or Path; object if it is none of these.
    many : bool
        The value is a list.
    help : str
    """

    key: str
    name: str
    kind: type
    many: bool
    help: str


def recipe_keys(command: Any) -> dict[str, Key]:
    """Return what may stand in a recipe of this command, in the order of its help."""
    hints = {"log": str} | get_type_hints(command.callback)
    found = {}
    for parameter in command.params:
        if parameter.name in NOT_IN_A_RECIPE:
            continue
        words = [word.lstrip("-") for word in parameter.opts]
        key = max(words, key=len).replace("_", "-")
        kind, many = _kind(hints.get(parameter.name, object))
        found[key] = Key(key, parameter.name, kind, many, getattr(parameter, "help", None) or "")
    return found


def _kind(hint: Any) -> tuple[type, bool]:
    """Return the type of an option, and whether it is a list, from the annotation of its parameter."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [one for one in get_args(hint) if one is not type(None)][:1]
    if get_origin(hint) is list:
        return _kind(get_args(hint)[0])[0], True
    if get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        return str, False
    return (hint if hint in _WORDS else object), False


def read_recipe(file: Path, command: Any, commands: Collection[str]) -> dict[str, Any]:
    """Return the values of a recipe by the names of the command's parameters.

    Relative paths become relative to the folder of the file.

    Parameters
    ----------
    file : Path
    command : click command
    commands : collection of str
        All commands of the app: each may have a table in the file.
    """
    keys = recipe_keys(command)
    values: dict[str, Any] = {}
    for written, value in _table(file, command.name, keys, commands).items():
        key = keys.get(written.replace("_", "-"))
        if key is None:
            hint = _nearest(written.replace("_", "-"), keys) or f" See consilience {command.name} --help."
            raise InvalidInputError(f"{file}: {command.name} has no option {written!r}.{hint}")
        if key.name in values:
            raise InvalidInputError(f"{file}: {key.key} is given twice, with - and with _. Keep one.")
        values[key.name] = _read_value(file, key, value)
    return values


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


def _read_value(file: Path, key: Key, value: Any) -> Any:
    values = value if key.many and isinstance(value, list) else [value]
    for one in values:
        if not _fits(one, key.kind):
            wanted = f"a list, each item {_WORDS[key.kind]}" if key.many else _WORDS[key.kind]
            raise InvalidInputError(f"{file}: {key.key} must be {wanted}; {shown(one)} is not.")
    read = [_moved(one, key, lambda path: str(file.parent / path)) for one in values]
    return read if key.many else read[0]


def _fits(value: Any, kind: type) -> bool:
    if kind is object:
        return not isinstance(value, dict)
    if isinstance(value, bool):
        return kind is bool
    # some options take a word or a number, such as --teacher-weight
    allowed = {int: int, float: (int, float), str: (str, int, float), Path: str}.get(kind, ())
    return isinstance(value, allowed)  # type: ignore[arg-type]


def _moved(value: Any, key: Key, move: Callable[[str], str]) -> Any:
    """Return a value whose path, if it holds one, is changed by `move`."""
    if key.kind is Path:
        from consilience.teachers.remote import is_address

        return str(value) if is_address(value) else move(str(value))
    if key.kind is str:
        name, at, path = str(value).partition("=@")
        return f"{name}=@{move(path)}" if key.name == "classes" and at and path else str(value)
    return value


def write_recipe(file: Path, command: Any, path: str, values: Mapping[str, Any]) -> None:
    """Write the values of a command's parameters as a recipe.

    Parameters
    ----------
    file : Path
    command : click command
    path : str
        How the command is called: ``"consilience unify"``.
    values : mapping
        By the names of the parameters.
    """
    from consilience.files.disk import replacing
    from consilience.files.readers import check_target

    check_target(file, (".toml",), "--write-config")
    try:
        text = recipe_text(file, command, path, values).encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"--write-config: {shown(error.object)} is not UTF-8, and TOML is. Rename the file."
        ) from error
    with replacing(file) as opened:
        opened.write(text)


def recipe_text(file: Path, command: Any, path: str, values: Mapping[str, Any]) -> str:
    """Return a recipe: every option with its help; those without a value are comments."""
    from consilience import __version__

    lines = [
        toml_comment(f"Written by consilience {__version__}. Run it: {path} --config {file.name}"),
        toml_comment("Paths are relative to the folder of this file."),
        toml_comment("Options on the command line win over this file."),
        "",
        f"[{toml_key(command.name)}]",
    ]
    for key in recipe_keys(command).values():
        lines += map(toml_comment, textwrap.wrap(" ".join(key.help.split()), _WIDTH))
        value = values.get(key.name)
        if value is None or (key.many and not value):
            lines.append(toml_comment(f"{toml_key(key.key)} ="))
            continue
        written = [_written(one, key, file.parent) for one in (value if key.many else [value])]
        lines.append(f"{toml_key(key.key)} = {toml_value(written if key.many else written[0])}")
    return "\n".join(lines) + "\n"


def _written(value: Any, key: Key, folder: Path) -> Any:
    plain = value.value if isinstance(value, enum.Enum) else value
    return _moved(plain, key, lambda path: _relative(path, folder))


def _relative(path: str, folder: Path) -> str:
    """Return a path as seen from a folder; an absolute path stays as it is."""
    given = Path(path)
    if given.is_absolute() or given.parent == folder == Path():
        return path
    # resolved: ".." after a link leads elsewhere. The last part is kept: a card lies next to it.
    target = given.parent.resolve() / given.name
    try:
        return os.path.relpath(target, folder.resolve())
    except ValueError:  # another drive of Windows
        return str(target)

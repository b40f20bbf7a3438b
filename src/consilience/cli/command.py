"""Commands are made of functions, and of the declarations of options that are their parameters' defaults.

A parameter's default is an `Option`, for an option of the command's own; or a class of options, or some of
one by name, which the function gets as a dict of what was given. Where such an option chooses an object, as
``--method ce`` does, the object's own options are options of the command, too: ``--temperature 3``.

A command returns what ``--json`` prints, and the parts that `console.show` draws. Where the former says that
it has not ``passed``, the exit code is 1. A parameter ``run`` gets a `Run`, which also draws the progress.
"""

from __future__ import annotations

import inspect
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from consilience._version import __version__
from consilience.cli import library, recipe
from consilience.cli.console import show
from consilience.cli.declared import Slot, Target, flag_of, parameter, path, target
from consilience.cli.log import Log, current, progress_bars
from consilience.exceptions import ConsilienceError, ConsilienceWarning, InvalidInputError, as_keyword, shown
from consilience.options import Option, choice, flag, option
from consilience.run import using

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_MODELS = ("teacher", "model", "files")  # what these name may have a card, which is read, too
_SHARED: dict[str, Option] = {
    "config": option(path(), "Read options from this recipe. Options given here win over it.", default=None),
    "write_config": option(
        target(".toml"), "Write the options of this command line to a recipe, and stop.", default=None
    ),
    "log": option(
        choice("text", "json"),
        "How to write progress, warnings and errors: text or json (an object per line).",
        default=None,
    ),
    "quiet": option(flag(), "Show no progress.", default=False, flag="--quiet -q"),
    "as_json": option(flag(), "Print the result as JSON on stdout.", default=False, flag="--json"),
}
"""The options that all commands have."""


class Command(click.Command):
    """A command made of a function, with the options that all commands have.

    `needs` says which options need others: ``{"test_data": "test_labels out"}``.
    """

    def __init__(self, function: Callable[..., Any], needs: Mapping[str, str]) -> None:
        name = function.__name__.strip("_").replace("_", "-")
        super().__init__(name, help=_help(function.__doc__ or ""), context_settings=_SETTINGS)
        self.allow_extra_args = True  # `parse_args` says what they are
        self.function, self.needs = function, dict(needs)
        del self.params  # they are found when they are needed

    @cached_property
    def groups(self) -> dict[str, dict[str, Option] | Option]:
        """What each parameter of the function stands for: an option, or several by name."""
        found: dict[str, dict[str, Option] | Option] = {}
        defaults = {name: one.default for name, one in inspect.signature(self.function).parameters.items()}
        for name, default in defaults.items():
            group = default.declared() if hasattr(default, "declared") else default or {}
            if isinstance(group, Mapping):  # an option of the command's own wins
                group = {key: one for key, one in group.items() if one.check.read and key not in defaults}
            found[name] = group
        return found

    @cached_property
    def options(self) -> dict[str, Option]:
        """All declared options by key; those of an object begin with its slot: ``method__temperature``."""
        found: dict[str, Option] = {}
        for name, group in self.groups.items():
            found |= group if isinstance(group, dict) else {name: group}
        # the student is the last to name its options: other objects keep names that they share with it
        slots = sorted(
            (key for key, one in found.items() if one.check.make), key=lambda key: key == "student"
        )
        self.slots = {key: Slot(key, found[key]) for key in slots}
        for slot in self.slots.values():
            found |= slot.options({flag_of(key, one) for key, one in found.items()})
        return found | _SHARED

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """Everything that may be given, in the order of the help."""
        made = {key: parameter(key, one) for key, one in self.options.items()}
        for key, callback in (("config", _use_recipe), ("log", _use_format)):
            made[key].is_eager, made[key].callback = True, callback
        return list(made.values())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line. Extra arguments are explained: the shell may have made them of a pattern."""
        log = current()
        log.command, log.spell = self.name, partial(self.spelled, ctx.params)
        # a mistake in another option is found before --log is read; its sentence is a line of JSON, too
        log.is_json = ("--log", "json") in pairwise(args) or "--log=json" in args
        rest = super().parse_args(ctx, args)
        if rest:
            ctx.fail(
                f"Got an extra argument, {rest[0]!r}. Repeat an option to give it several values, and put a "
                "pattern for --data in quotes: 'rows/*.csv'."
            )
        return rest

    def spelled(self, given: Mapping[str, Any], name: str, value: str | None) -> str:
        """Write an argument of the library as the option that it is here: the one that has this value."""
        known: list[Any] = [one for one in self.params if str(one.name).rpartition("__")[2] == name]
        if known:
            one = min(known, key=lambda one: shown(given.get(one.name)) != value)
            if getattr(one, "is_flag", False):
                return str((one.secondary_opts if value == "False" else one.opts)[-1])
            words = {"True": "true", "False": "false", "None": "none"}
            return one.opts[0] if value is None else f"{one.opts[0]} {words.get(value, value)}"
        return as_keyword(name, value)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or write its recipe and stop."""
        log, given = current(), _given(ctx)
        goal = given.get("write_config")
        if goal is not None:
            self._check_files({"write_config": goal})
            recipe.write_recipe(goal, self, ctx.command_path, given)
            advice = f"Run it: {ctx.command_path} --config {goal}"
            log.tell(
                "info", "written", f"{goal} is written, and nothing else was done. {advice}", file=str(goal)
            )
            return
        self._check_files(given)
        arguments = self.arguments(given, _given(ctx, (ParameterSource.COMMANDLINE,)))
        log.begun = True
        log.tell("info", "started", f"consilience {self.name} begins.", version=__version__)
        options, ray = arguments.pop("run", {}), arguments.pop("ray", {})
        with (
            progress_bars(log, quiet=given.get("quiet", False)) as progress,
            using(progress=progress, engine_options=ray or None, **options) as run,
        ):
            result = self.function(**arguments, **({"run": run} if "run" in self.groups else {}))
        if result is not None:
            show(*result)
            ctx.exit(0 if result[0].get("passed", True) else 1)

    def arguments(self, given: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the function for what was given, with objects in their slots.

        `here` is what the command line gives, and not a recipe.
        """
        values = dict(given)
        for name, slot in self.slots.items():
            inner = {key: value for key, value in given.items() if key.startswith(f"{name}__")}
            # an object on the command line replaces the one of the recipe, whose other options do not matter
            stale = set(inner) - set(here) if name in here else set()
            if inner:
                values[name] = slot.chosen(given.get(name, slot.option.default), inner, stale)
        return {
            name: {key: values[key] for key in one if key in values}
            if isinstance(one, dict)
            else values.get(name, one.default)
            for name, one in self.groups.items()
        }

    def _check_files(self, given: Mapping[str, Any]) -> None:
        """Refuse options that lack another, and to write a file that the command reads or that cannot be."""
        flags = {key: flag_of(key, one) for key, one in self.options.items()}
        ray = self.groups.get("ray")
        on_ray = dict.fromkeys(ray if isinstance(ray, dict) else (), "engine")
        for name, others in (self.needs | on_ray).items():
            lacking = [flags[other] for other in others.split() if not given.get(other)]
            if given.get(name) and lacking:
                raise InvalidInputError(f"{flags[name]} needs {lacking[0]}. Give both, or neither.")
        checks = {key: self.options[key].check for key in given}
        read = {
            key: given[key] if check.many else [given[key]]
            for key, check in checks.items()
            if check.read is Path and not isinstance(check, Target)
        }
        models = [file for key in _MODELS for file in read.pop(key, ())]
        rows = [file for files in read.values() for file in files]
        for key, check in checks.items():
            if isinstance(check, Target):
                library.check_target(given[key], check.endings, flags[key], rows, models)


def _given(
    ctx: click.Context, sources: Any = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
) -> dict[str, Any]:
    """Return what was given, on the command line or in a recipe."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in ctx.params.items()
        if ctx.get_parameter_source(key) in sources
    }


def _use_recipe(ctx: click.Context, option: Any, file: Path | None) -> Path | None:
    """Take the values of a recipe as defaults."""
    ctx.default_map = {} if file is None else recipe.read_recipe(file, ctx)
    return file


def _use_format(ctx: click.Context, option: Any, chosen: str | None) -> str | None:
    """Choose how the log is written."""
    current().is_json = chosen == "json"
    return chosen


class Commands(click.Group):
    """Commands that answer bad input with one sentence on stderr and exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were made."""
        return list(self.commands)

    def new(self, function: Callable[..., Any], **needs: str) -> None:
        """Make a command of a function; `needs` says which options need others."""
        self.add_command(Command(function, needs))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and say how it ended."""
        if ctx.parent is not None:
            return super().invoke(ctx)
        began, code = time.monotonic(), 1
        log = ctx.obj = Log()
        with _library_warnings():
            try:
                code = self._exit_code(ctx)
            finally:
                if log.begun:
                    message = f"consilience {log.command} ended with exit code {code}."
                    seconds = round(time.monotonic() - began, 3)
                    log.tell("info", "finished", message, exit_code=code, seconds=seconds)
            ctx.exit(code)

    def _exit_code(self, ctx: click.Context) -> int:
        try:
            super().invoke(ctx)
            sys.stdout.flush()  # here, and not when Python ends: a reader that has left is found in time
            return 0
        except click.exceptions.Exit as end:
            return end.exit_code
        except KeyboardInterrupt:
            return 130
        except (click.exceptions.NoArgsIsHelpError, BrokenPipeError):
            raise
        except (click.UsageError, ConsilienceError, OSError) as error:
            current().tell("error", "error", sentence(error))
            return 2
        except Exception as error:  # a mistake of ours: in a log of JSON, its traceback is data, too
            if not current().is_json:
                raise
            current().tell("error", "error", sentence(error), traceback=traceback.format_exc())
            return 1


def new_app(text: str, name: str | None = None) -> Commands:
    """Return a command line without commands. The examples build theirs on it."""
    return Commands(name, help=_help(text), context_settings=_SETTINGS, no_args_is_help=True)


def sentence(error: Exception) -> str:
    """Return an error as one sentence, with options as they are written here."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'Stdout, or a file,'} cannot be read or written: {error.strerror}."
    if isinstance(error, click.UsageError):
        return error.format_message()
    if isinstance(error, InvalidInputError):
        return error.worded(current().spell)
    return str(error) or repr(error)


@contextmanager
def _library_warnings() -> Iterator[None]:
    """Show the warnings of this library, one line each, and hide all others."""

    def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if isinstance(message, ConsilienceWarning):
            text = message.worded(current().spell)
            current().tell("warning", "warning", text, category=category.__name__)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConsilienceWarning)
        warnings.showwarning = show_warning
        yield


def _help(text: str) -> str:
    """Return a docstring as help: its examples keep their lines."""
    return inspect.cleandoc(text).replace("\nExample", "\n\b\nExample")

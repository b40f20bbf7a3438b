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
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from consilience._version import __version__
from consilience.cli import library, recipe
from consilience.cli.console import show
from consilience.cli.declared import NONE, Slot, flag_of, parameter, written
from consilience.cli.log import current, new_log, progress_bars
from consilience.exceptions import ConsilienceError, ConsilienceWarning, InvalidInputError, as_keyword
from consilience.options import Option, check_choice
from consilience.run import using

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_GOAL = "consilience.write_config"
_MODELS = ("teacher", "model", "files")  # what these name may have a card, which is read, too


class Command(click.Command):
    """A command made of a function, with the options that all commands have.

    `needs` says which options need others: ``{"test_data": "test_labels out"}``.
    """

    def __init__(self, function: Callable[..., Any], needs: Mapping[str, str]) -> None:
        name = function.__name__.strip("_").replace("_", "-")
        super().__init__(name, help=_help(function.__doc__ or ""), context_settings=_SETTINGS)
        self.allow_extra_args = True  # `parse_args` says what they are
        self.function, self.needs = function, needs
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
        slots = [(key, one) for key, one in found.items() if one.check.make is not None]
        # the student is the last to name its options: other objects keep names that they share with it
        slots.sort(key=lambda slot: slot[0] == "student")
        self.slots = {key: Slot(key, one) for key, one in slots}
        for slot in self.slots.values():
            found |= slot.options({flag_of(key, one) for key, one in found.items()})
        return found

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """Everything that may be given, in the order of the help."""
        return [*(parameter(key, one) for key, one in self.options.items()), *_shared()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line. Extra files are answered: the shell has made them of a pattern."""
        log = current()
        log.command, log.spell = self.name, self.spelled
        # a mistake in another option is found before --log is read; its sentence is a line of JSON, too
        log.is_json = ("--log", "json") in pairwise(args) or "--log=json" in args
        rest = super().parse_args(ctx, args)
        files = [name for name in rest if Path(name).is_file()]
        if files:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            ctx.fail(
                f"Got an extra file, {files[0]!r}{more}. If this was a pattern for --data, put it in quotes: "
                "'rows/*.csv'. Other options take one file; repeat them for more."
            )
        if rest:
            ctx.fail(f"Got unexpected extra argument ({' '.join(rest)}).")
        return rest

    def spelled(self, name: str, value: str | None) -> str:
        """Write an argument of the library as the option that it is here."""
        for one in self.params:
            if isinstance(one, click.Option) and str(one.name).rpartition("__")[2] == name:
                if one.is_flag:
                    return (one.secondary_opts if value == "False" else one.opts)[-1]
                words = {"True": "true", "False": "false", "None": "none"}
                return one.opts[0] if value is None else f"{one.opts[0]} {words.get(value, value)}"
        return as_keyword(name, value)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or write its recipe and stop."""
        log, goal = current(), ctx.meta.get(_GOAL)
        if goal is not None:
            values = ctx.params | {"log": "json" if log.is_json else "text"}
            recipe.write_recipe(goal, self, ctx.command_path, values)
            advice = f"Run it: {ctx.command_path} --config {goal}"
            log.tell(
                "info", "written", f"{goal} is written, and nothing else was done. {advice}", file=str(goal)
            )
            return
        log.begun = True
        log.tell("info", "started", f"consilience {self.name} begins.", version=__version__)
        arguments = self.arguments(ctx.params)
        options, ray = arguments.pop("run", {}), arguments.pop("ray", {})
        with (
            progress_bars(quiet=ctx.params["quiet"]) as progress,
            using(progress=progress, engine_options=ray or None, **options) as run,
        ):
            result = self.function(**arguments, **({"run": run} if "run" in self.groups else {}))
        if result is not None:
            show(*result)
            ctx.exit(0 if result[0].get("passed", True) else 1)

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the function for what was given, with objects in their slots."""
        given = {key: values[key] for key in self.options if values[key] is not None}
        given |= {key: None for key, value in given.items() if value is NONE}
        self._check_files(given)
        for name, slot in self.slots.items():
            inner = {
                key.removeprefix(f"{name}__"): given[key] for key in given if key.startswith(f"{name}__")
            }
            if inner:
                given[name] = slot.chosen(given.get(name, slot.option.default), inner)
        return {
            name: {key: given[key] for key in one if key in given}
            if isinstance(one, dict)
            else given.get(name, one.default)
            for name, one in self.groups.items()
        }

    def _check_files(self, given: Mapping[str, Any]) -> None:
        """Refuse options that lack another, and to write a file that the command reads or that cannot be."""

        flags = {key: flag_of(key, one) for key, one in self.options.items()}
        for name, others in self.needs.items():
            lacking = [flags[other] for other in others.split() if not given.get(other)]
            if given.get(name) and lacking:
                raise InvalidInputError(f"{flags[name]} needs {lacking[0]}. Give both, or neither.")
        models: list[Path] = []
        rows: list[Path] = []
        for key, value in given.items():
            if self.options[key].check.read is Path:
                files = models if key in _MODELS else rows
                files.extend(value if isinstance(value, list) else [value])
        for key, value in given.items():
            if self.options[key].check.read is written:
                library.check_target(value, self.options[key].check.values, flags[key], rows, models)


def _shared() -> list[click.Option]:
    """Return the options that all commands have. Those that are eager are read first, in this order."""
    eager: dict[str, Any] = {"is_eager": True, "expose_value": False}
    file: dict[str, Any] = {"metavar": "FILE.toml", "type": click.Path(path_type=Path)}
    return [
        click.Option(
            ["--config"], callback=_use_recipe, **file, **eager,
            help="Read options from this recipe. Options given here win over it.",
        ),
        click.Option(
            ["--write-config"], **file, **eager,
            callback=lambda ctx, _, value: ctx.meta.update({_GOAL: value}),
            help="Write the options of this command line to a recipe, and stop.",
        ),
        click.Option(
            ["--log"], callback=_use_format, metavar="NAME", **eager,
            help="How to write progress, warnings and errors: text or json (an object per line).",
        ),
        click.Option(["--quiet", "-q"], is_flag=True, help="Show no progress."),
        click.Option(["as_json", "--json"], is_flag=True, help="Print the result as JSON on stdout."),
    ]  # fmt: skip


def _use_recipe(ctx: click.Context, option: Any, file: Path | None) -> None:
    """Take the values of a recipe as defaults."""
    if file is not None:
        ctx.default_map = recipe.read_recipe(file, ctx.command)


def _use_format(ctx: click.Context, option: Any, chosen: str | None) -> None:
    """Choose how the log is written."""
    if chosen is not None:
        check_choice("log", chosen, ("text", "json"))
        current().is_json = chosen == "json"


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
        began = time.monotonic()
        with new_log() as log, _library_warnings():
            code = 1
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
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename} cannot be read or written: {error.strerror}."
    if isinstance(error, click.UsageError):
        return error.format_message()
    return (error.worded(current().spell) if isinstance(error, InvalidInputError) else str(error)) or repr(
        error
    )


@contextmanager
def _library_warnings() -> Iterator[None]:
    """Show the warnings of this library, one line each, and hide all others."""

    def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if isinstance(message, ConsilienceWarning):
            text = message.worded(current().spell)
            current().tell("warning", "warning", text, category=type(message).__name__)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConsilienceWarning)
        warnings.showwarning = show_warning
        yield


def _help(text: str) -> str:
    """Return a docstring as help: its examples keep their lines."""
    return inspect.cleandoc(text).replace("\nExample", "\n\b\nExample")

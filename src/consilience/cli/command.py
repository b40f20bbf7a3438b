"""What every command has: options for a recipe and for the log, without a line of its own for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from consilience.cli import log

_TARGET = "consilience.write_config"
_LAST = ("config", "write_config", "log", "quiet", "as_json")  # the order at the end of the help


class Command(TyperCommand):
    """A command with ``--config``, ``--write-config`` and ``--log``."""

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **settings: Any) -> None:
        found = [*(params or ()), *_shared_options()]
        found.sort(key=lambda one: _LAST.index(one.name) + 1 if one.name in _LAST else 0)
        super().__init__(name, params=found, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        log.current().command = self.name
        # a mistake in another option is found before --log is read; its sentence is a line of JSON, too
        if ("--log", "json") in pairwise(args) or "--log=json" in args:
            log.current().format = "json"
        return super().parse_args(ctx, args)

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that leaves out a list of arguments that is not given: the recipe may have it.

        It answers extra files itself: the shell has made them of a pattern.
        """
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
            found, rest, order = parse(args)
            files = [name for name in rest if Path(name).is_file()]
            if files and not ctx.resilient_parsing:  # mostly an unquoted pattern
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                ctx.fail(
                    f"Got an extra file, {files[0]!r}{more}. If this was a pattern for --data, put it in "
                    "quotes: 'rows/*.csv'. Other options take one file; repeat them for more."
                )
            return {name: value for name, value in found.items() if value != ()}, rest, order

        parser.parse_args = parse_args
        return parser

    def invoke(self, ctx: Any) -> Any:
        """Run the command, or write its recipe and stop."""
        target: Path | None = ctx.meta.get(_TARGET)
        if target is None:
            log.current().start()
            return super().invoke(ctx)
        from consilience.cli.recipe import write_recipe

        values = {**ctx.params, "log": log.current().format}
        write_recipe(target, self, ctx.command_path, values)
        log.current().say(
            "written",
            f"{target} is written, and nothing else was done. Run it: {ctx.command_path} --config {target}",
            file=str(target),
        )
        return None


class App(typer.Typer):
    """An app whose commands are all of the class above."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[Any], Any]:
        """Register a function as a command."""
        return super().command(name, cls=cls or Command, **settings)


def _use_recipe(ctx: typer.Context, file: Path | None) -> None:
    """Take the values of a recipe as defaults."""
    if file is None or ctx.resilient_parsing:
        return
    from consilience.cli.recipe import read_recipe

    group = None if ctx.parent is None else ctx.parent.command
    commands: Sequence[str] = list(getattr(group, "commands", {ctx.command.name: None}))
    ctx.default_map = read_recipe(file, ctx.command, commands)


def _note_target(ctx: typer.Context, file: Path | None) -> None:
    """Keep where the recipe goes until all options are read."""
    ctx.meta[_TARGET] = file


def _use_format(chosen: str) -> None:
    """Choose how the log is written."""
    if chosen not in log.FORMATS:
        from consilience._validation import check_choice

        check_choice("log", chosen, log.FORMATS)
    log.current().format = chosen


@cache
def _shared_options() -> tuple[Any, ...]:
    """Return the options that all commands get. typer makes them, so this works with every version of it."""
    app = typer.Typer(add_completion=False)

    # eager, and in this order: a recipe is read before all other options
    @app.command()
    def shared(
        config: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE.toml",
                help="Read options from this recipe. Options given here win over it.",
                is_eager=True, expose_value=False, callback=_use_recipe,
            ),
        ] = None,
        write_config: Annotated[
            Path | None,
            typer.Option(
                metavar="FILE.toml",
                help="Write the options of this command line to a recipe, and stop.",
                is_eager=True, expose_value=False, callback=_note_target,
            ),
        ] = None,
        log: Annotated[
            str,
            typer.Option(
                help="How to write progress, warnings and errors: text or json (an object per line).",
                is_eager=True, expose_value=False, callback=_use_format,
            ),
        ] = "text",
    ) -> None: ...  # fmt: skip

    return tuple(typer.main.get_command(app).params)

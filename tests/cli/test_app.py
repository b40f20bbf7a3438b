"""What all commands share: how the library's arguments are written here."""

from __future__ import annotations

import warnings

import typer
from typer.testing import CliRunner

from consilience.cli.app import new_app, spelling
from consilience.exceptions import ConvergenceWarning, InvalidInputError


def commands() -> list:
    app = new_app()

    @app.command()
    def first(
        batch_size: int = typer.Option(1),
        check: bool = typer.Option(True, "--check/--no-check"),
        jobs: int = typer.Option(1),
        balance: str = typer.Option("auto"),
    ) -> None: ...

    @app.command()
    def second(seed: int = typer.Option(0)) -> None: ...

    return list(typer.main.get_group(app).commands.values())


def test_an_argument_is_written_as_the_option_that_it_is() -> None:
    spell = spelling(commands())
    assert spell("batch_size", "0") == "--batch-size 0"
    assert spell("batch_size", None) == "--batch-size"
    assert spell("n_jobs", "0") == "--jobs 0"
    assert spell("random_state", "-1") == "--seed -1"
    assert spell("check", "False") == "--no-check"
    assert spell("check", "True") == "--check"
    assert spell("balance", "True") == "--balance True"  # an option with a value, no flag
    assert spell("superclasses", None) == "superclasses="
    assert spell("off_set", "True") == "off_set=True"


def test_errors_and_warnings_of_a_command_speak_of_its_options() -> None:
    app = new_app()

    @app.command()
    def work(max_iter: int = typer.Option(1)) -> None:
        warnings.warn(
            ConvergenceWarning("Stopped at {argument}.", argument="max_iter", value=max_iter), stacklevel=1
        )
        raise InvalidInputError(
            "{argument} is bad;\n use {remedy}.", argument="tol", value=0, remedy="max_iter"
        )

    @app.command()
    def rest() -> None: ...

    result = CliRunner().invoke(app, ["work"])
    assert result.exit_code == 2
    assert result.stderr == "Warning: Stopped at --max-iter 1.\nError: tol=0 is bad; use --max-iter.\n"

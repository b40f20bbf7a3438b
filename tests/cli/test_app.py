"""What all commands share: how the library's arguments are written here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from consilience.cli.app import fit_on, new_app, spelling
from consilience.exceptions import (
    ConsilienceError,
    ConvergenceWarning,
    InvalidInputError,
    InvalidTypeError,
    LabelSpaceError,
    MissingDependencyError,
)


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
    def second(
        seed: int = typer.Option(0), bootstrap: int = typer.Option(1), clusters: int = typer.Option(1)
    ) -> None: ...

    return list(typer.main.get_group(app).commands.values())


def test_an_argument_is_written_as_the_option_that_it_is() -> None:
    spell = spelling(commands())
    assert spell("batch_size", "0") == "--batch-size 0"
    assert spell("batch_size", None) == "--batch-size"
    assert spell("n_jobs", "0") == "--jobs 0"
    assert spell("random_state", "-1") == "--seed -1"
    assert spell("n_bootstrap", "-1") == "--bootstrap -1"
    assert spell("n_clusters", None) == "--clusters"
    assert spell("check", "False") == "--no-check"
    assert spell("check", "True") == "--check"
    assert spell("balance", "True") == "--balance True"  # an option with a value, no flag
    assert spell("superclasses", None) == "superclasses="
    assert spell("off_set", "True") == "off_set=True"


def failing(error: BaseException) -> Any:
    """Return the result of a command that raises this error."""
    app = new_app()

    @app.command()
    def work() -> None:
        raise error

    @app.command()
    def rest() -> None: ...

    return CliRunner().invoke(app, ["work"])


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "Full", "u.onnx"), "u.onnx cannot be read or written: Full."),
        (OSError("gone"), "gone"),
        (OSError(), "OSError"),
        (ConsilienceError("two\n  lines."), "two lines."),
        (typer.BadParameter("no\x1b[2J."), "Invalid value: no\\x1b[2J."),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence_on_stderr_and_exit_code_2(error: Exception, sentence: str) -> None:
    result = failing(error)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {sentence}\n")


def test_a_closed_pipe_and_our_own_mistakes_are_not_told_as_bad_input() -> None:
    for error in (BrokenPipeError(32, "Broken pipe", "out"), ZeroDivisionError("ours"), ValueError("ours")):
        result = failing(error)
        assert "Error:" not in result.stderr
        assert result.exit_code == 1


class Learner:
    """Raises an error in `fit`, as an estimator may."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def fit(self, X: object, y: object) -> None:
        self.seen = X, y
        if self.error:
            raise self.error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("Input has\n NaN."), "It cannot learn from X.npy: Input has NaN."),
        (caused(InvalidInputError("Bad X."), ValueError("has NaN.")), "It cannot learn from X.npy: has NaN."),
        (caused(InvalidTypeError("Bad X."), TypeError("is text.")), "It cannot learn from X.npy: is text."),
        (caused(InvalidInputError("Bad X."), KeyError("a")), "Bad X."),
        (caused(LabelSpaceError("No classes."), ValueError("empty")), "No classes."),
        (InvalidInputError("Bad X."), "Bad X."),
        (MissingDependencyError("needs torch."), "needs torch."),
    ],
)  # fmt: skip
def test_what_a_student_cannot_learn_names_the_file(error: Exception, sentence: str) -> None:
    with pytest.raises(ConsilienceError) as raised:
        fit_on(Learner(error), 1, 2, Path("X.npy"), "It")  # type: ignore[type-var]
    assert str(raised.value) == sentence


def test_what_a_student_learns_from_are_the_rows_and_labels() -> None:
    learner: Any = Learner(None)
    assert fit_on(learner, 1, 2, Path("X.npy"), "It") is learner
    assert learner.seen == (1, 2)


def test_errors_and_warnings_of_a_command_speak_of_its_options() -> None:
    app = new_app()

    @app.command()
    def work(max_iter: int = typer.Option(1)) -> None:
        warnings.warn("of another library", FutureWarning, stacklevel=1)
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


def test_a_pattern_that_the_shell_spread_is_told_to_be_put_in_quotes(tmp_path: Path) -> None:
    app = new_app()

    @app.command()
    def work(data: str = typer.Option("")) -> None: ...

    @app.command()
    def rest() -> None: ...

    files = [tmp_path / f"part{number}.csv" for number in range(3)]
    for file in files:
        file.touch()
    spread = CliRunner().invoke(app, ["work", "--data", *map(str, files)])
    assert spread.exit_code == 2
    assert f"Got an extra file, {str(files[1])!r} and 1 more." in spread.stderr
    assert "put it in quotes: 'rows/*.csv'." in spread.stderr
    assert "repeat them for more" in spread.stderr  # -t models/*.onnx
    other = CliRunner().invoke(app, ["work", "no-such-file"])
    assert other.exit_code == 2
    assert "unexpected extra argument" in other.stderr
    assert "quotes" not in other.stderr

"""Commands from declarations: signature, check, message, help and command line are one thing."""

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

import click
from click.testing import CliRunner

from consilience.cli.command import Commands, new_app
from consilience.cli.declared import path, target
from consilience.exceptions import ConsilienceError, ConvergenceWarning, InvalidInputError
from consilience.options import Check, Options, anything, choice, count, each, flag, number, option

calls: list[dict[str, Any]] = []
raised: list[BaseException] = []


class Thin(Options):
    """A kind of bread."""

    slices: int = option(count(), "How many. A `Bread` has some.", default=2)
    crust: bool = option(flag(), "Whether it has one; see `Thick`.", default=True)


class Thick(Thin):
    """Another kind."""

    crust: bool = option(flag(), "Whether it is hard.", default=True)
    butter: float = option(number(above=0), "Grams.", default=5.0)


class Wine(Options):
    """A drink."""

    glasses: int = option(count(), "How many.", default=1)
    slices: int = option(count(), "Of lemon.", default=1)


BREAD = {"thin": Thin, "thick": Thick}


class Meal(Options):
    """What a meal may have."""

    student: Any = option(
        Check(lambda _, value: value, "NAME", str, ("wine",), lambda _: Wine()), "Who drinks.", default=None
    )
    bread: Any = option(
        Check(lambda _, value: value, "NAME", str, tuple(BREAD), lambda name: BREAD[name]()),
        "Which bread.",
        default="thin",
    )
    guests: Any = option(anything("a list"), "Python only.", default=None)


def cook(
    data: Path = option(path(), "What is read.", flag="--data -d"),
    also: list[Path] = option(each(path()), "More.", flag="ALSO..."),
    out: Path | None = option(target(".txt"), "What is written.", default=None),
    meal: Any = Meal,
    hot: bool = option(flag(), "Whether it is hot.", default=True),
    spice: list[str] = option(each(choice("salt", "pepper")), "Which.", default=()),
    n_jobs: int = option(count(), "How many cook.", default=1, flag="--jobs"),
) -> Any:
    """Cook a meal.

    Example:
        kitchen cook salad.txt -d soup.txt
    """
    calls.append(locals())
    if raised:
        warnings.warn("of another library", FutureWarning, stacklevel=1)
        warnings.warn(ConvergenceWarning("Stopped at {argument}.", argument="n_jobs", value=3), stacklevel=1)
        raise raised[0]
    return {"spice": list(spice)}, "done"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    calls.clear()
    raised.clear()
    made = new_app("A kitchen.")
    made.new(cook, out="spice")
    return made


def run(app: Commands, line: str) -> Any:
    return CliRunner().invoke(app, ["cook", *line.split()])


def cooked(app: Commands, line: str) -> dict[str, Any]:
    result = run(app, line)
    assert result.exit_code == 0, result.output
    return calls[-1]


def test_what_is_not_given_is_the_default(app: Commands) -> None:
    found = cooked(app, "-d a b c")
    assert (found["data"], found["also"]) == (Path("a"), [Path("b"), Path("c")])
    assert (found["out"], found["meal"], found["hot"], found["spice"], found["n_jobs"]) == (
        None,
        {},
        True,
        (),
        1,
    )


def test_texts_become_values_and_objects(app: Commands) -> None:
    found = cooked(
        app, "-d a b --no-hot --spice salt --spice pepper --jobs 3 --bread thick --butter 2 --no-crust"
    )
    assert (found["hot"], found["spice"], found["n_jobs"]) == (False, ["salt", "pepper"], 3)
    bread = found["meal"]["bread"]
    assert type(bread) is Thick
    assert (bread.butter, bread.crust, bread.slices) == (2.0, False, 2)
    assert cooked(app, "-d a b --bread thick")["meal"] == {"bread": "thick"}
    assert cooked(app, "-d a b --slices 4")["meal"]["bread"].slices == 4  # of the default
    # where two objects have an option of one name, the student's says whose it is
    found = cooked(app, "-d a b --student wine --student-slices 1 --glasses 2")
    assert (found["meal"]["student"].slices, found["meal"]["student"].glasses) == (1, 2)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("b", "Missing option '--data' / '-d'."),
        ("-d a", "Missing argument 'ALSO...'."),
        ("-d a b --jobs 0", "--jobs 0 must be a whole number of at least 1."),
        ("-d a b --jobs x", "--jobs 'x' must be a whole number of at least 1."),
        ("-d a b --spice suger", "--spice 'suger' is unknown; use 'salt' or 'pepper'."),
        ("-d a b --butter 2", "--butter is an option of --bread thick. Choose one of these."),
        ("-d a b --bread thick --butter 0", "--butter 0.0 must be a finite number above 0."),
        ("-d a b --glasses 2", "--glasses is an option of --student wine. Choose one of these."),
        ("-d a b --guests 2", "No such option '--guests'."),
        ("-d a b --hott", "No such option '--hott'. (Did you mean one of: '--hot'"),
        ("-d a b --jobs 3 --student wine --student-slices 0", "--student-slices 0 must be"),
        ("-d a b --out c.txt", "--out needs --spice. Give both, or neither."),
        ("-d a b --spice salt --out c.csv", "--out writes .txt; 'c.csv' has another ending."),
        (
            "-d a.txt b --spice salt --out a.txt",
            "--out 'a.txt' would replace a file that is read, or its card.",
        ),
        (
            "-d a b.txt --spice salt --out b.txt",
            "--out 'b.txt' would replace a file that is read, or its card.",
        ),
    ],
)
def test_a_mistake_is_one_sentence_before_the_work(app: Commands, line: str, sentence: str) -> None:
    result = run(app, line)
    assert (result.exit_code, result.stdout, calls) == (2, "", [])
    assert result.stderr.startswith(f"Error: {sentence}")
    assert result.stderr.count("\n") == 1


def test_the_help_says_it_without_what_is_python_only(app: Commands) -> None:
    shown = run(app, "--help").stdout
    text = " ".join(shown.split())
    assert "  Example:\n      kitchen cook salad.txt -d soup.txt\n" in shown
    assert "-d, --data FILE What is read. [required]" in text
    assert "ALSO... More." in text
    assert "--jobs INT How many cook. [default: 1]" in text
    assert "--slices INT [--bread thin, thick] How many." in text
    assert (
        "--crust / --no-crust [--bread thin] Whether it has one. [--bread thick] Whether it is hard." in text
    )
    assert "Python only" not in shown
    assert "`" not in shown
    assert [line.split()[0] for line in shown.splitlines()[-8:] if "--" in line][-3:] == [
        "-q,",
        "--json",
        "-h,",
    ]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "Full", "u.onnx"), "u.onnx cannot be read or written: Full."),
        (OSError("gone"), "gone"),
        (OSError(), "OSError()"),
        (ConsilienceError("two\n  lines."), "two lines."),
        (click.BadParameter("no\x1b[2J."), "Invalid value: no\\x1b[2J."),
        (InvalidInputError("{argument} is bad;\n use {remedy}.", argument="n_jobs", value=0, remedy="bread"),
         "--jobs 0 is bad; use --bread."),
        (InvalidInputError("{argument}; {remedy}", argument="hot", value=True, remedy=("hot", False)),
         "--hot; --no-hot"),
        (InvalidInputError("{argument} is bad.", argument="tol", value=0), "tol=0 is bad."),
    ],
)  # fmt: skip
def test_an_error_is_told_in_the_words_of_the_command_line(
    error: Exception, sentence: str, app: Commands
) -> None:
    raised.append(error)
    result = run(app, "-d a b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"Warning: Stopped at --jobs 3.\nError: {sentence}\n"


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe", "out"), ValueError("ours")])
def test_a_closed_pipe_and_our_own_mistakes_are_not_told_as_bad_input(
    error: Exception, app: Commands
) -> None:
    raised.append(error)
    result = run(app, "-d a b")
    assert "Error:" not in result.stderr
    assert result.exit_code == 1

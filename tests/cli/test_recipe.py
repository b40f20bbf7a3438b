"""Recipes: what a command line means comes back from the file that it wrote, for every command."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

typer = pytest.importorskip("typer")

from typer.testing import CliRunner  # noqa: E402

from consilience.cli.app import new_app  # noqa: E402
from consilience.cli.commands import app  # noqa: E402
from consilience.cli.recipe import recipe_keys  # noqa: E402

COMMANDS = [  # those of a group have their own tests
    name for name, one in typer.main.get_group(app).commands.items() if not hasattr(one, "commands")
]
SAMPLES: dict[type, str] = {int: "7", float: "0.125", str: 'a "b" \\c', Path: "some folder/f.x", object: "w"}
SILENT = (
    "serve",
    "verify",
    "cache",
)  # commands without progress
COMMON = ["--config", "--write-config", "--log", "--quiet", "--json", "--help"]


class Captured:
    """The command line of this project, whose commands only note what they are called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.group = typer.main.get_group(app)
        for command in self.group.commands.values():
            command.callback = functools.wraps(command.callback)(lambda **values: self.calls.append(values))

    def run(self, *arguments: str) -> Any:
        """Run a command; return the values that it got, and None if it did not run."""
        self.calls.clear()
        with pytest.raises(SystemExit) as ended:
            self.group(list(arguments), prog_name="consilience")
        assert ended.value.code == 0
        return self.calls[0] if self.calls else None


def every_option(command: Any) -> list[str]:
    """Return a command line with each option of a command."""
    kinds = {key.name: key for key in recipe_keys(command).values()}
    words: list[str] = []
    for parameter in command.params:
        key = kinds.get(parameter.name)
        if key is None or key.name == "log":
            continue
        name = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
        if key.kind is bool:
            words += parameter.secondary_opts[:1] if parameter.default else parameter.opts[:1]
        else:
            for number in range(1 + key.many):
                words += [*name, f"{SAMPLES[key.kind]}{number if key.kind in (str, Path) else ''}"]
    return words


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def captured() -> Captured:
    return Captured()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_comes_back(name: str, captured: Captured, capsys: pytest.CaptureFixture[str]) -> None:
    words = every_option(captured.group.commands[name])
    meant = captured.run(name, *words)
    assert captured.run(name, *words, "--write-config", "r.toml") is None  # it writes, and runs nothing
    output = capsys.readouterr()
    assert output.out == ""
    assert f"Run it: consilience {name} --config r.toml" in output.err
    assert captured.run(name, "--config", "r.toml") == meant
    keys = recipe_keys(captured.group.commands[name])
    (table,) = tomllib.loads(Path("r.toml").read_text(encoding="utf-8")).values()
    assert list(table) == [key for key in keys if key in table]  # in the order of the help
    assert set(keys) - set(table) == set()
    # a recipe of a recipe, with one option changed
    captured.run(name, "--config", "r.toml", "--write-config", "again.toml", "--log", "json")
    again = Path("again.toml").read_text(encoding="utf-8")
    assert captured.run(name, "--config", "again.toml", "--log", "text") == meant
    assert again.replace("again.toml", "r.toml").replace('"json"', '"text"') == Path("r.toml").read_text(
        "utf-8"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_not_given_stays_open(name: str, captured: Captured) -> None:
    command = captured.group.commands[name]
    needed = []
    for parameter in command.params:
        if parameter.required:
            word = SAMPLES[recipe_keys(command)[max(parameter.opts, key=len).lstrip("-")].kind]
            needed += [word] if parameter.param_type_name == "argument" else [parameter.opts[0], word]
    meant = captured.run(name, *needed)
    captured.run(name, *needed, "--write-config", "r.toml")
    assert captured.run(name, "--config", "r.toml") == meant


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_ends_with_what_all_commands_share(name: str) -> None:
    listing = CliRunner().invoke(app, [name, "--help"]).stdout.partition("Options:")[2]
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", listing, re.M)
    common = [option for option in COMMON if option != "--quiet" or name not in SILENT]
    assert options[-len(common) :] == common
    assert len(set(options)) == len(options)


def test_paths_are_relative_to_the_file(captured: Captured, folder: Path) -> None:
    needed = ["-t", "low.onnx", "--data", str(folder / "X.npy"), "--classes", "low=@names.txt"]
    captured.run("unify", *needed, "--out", "deep/u.onnx", "--write-config", "deep/r.toml")
    table = tomllib.loads(Path("deep/r.toml").read_text(encoding="utf-8"))["unify"]
    assert table["teacher"] == ["../low.onnx"]
    assert table["classes"] == ["low=@../names.txt"]
    assert table["out"] == "u.onnx"
    assert table["data"] == str(folder / "X.npy")  # an absolute path stays one
    values = captured.run("unify", "--config", "deep/r.toml")
    assert [str(path) for path in values["teacher"]] == ["deep/../low.onnx"]
    assert list(values["classes"]) == ["low=@deep/../names.txt"]
    assert str(values["out"]) == "deep/u.onnx"


def test_paths_are_right_behind_a_link(captured: Captured, folder: Path) -> None:
    (folder / "far" / "away").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "far" / "away", target_is_directory=True)
    (folder / "X.npy").touch()
    captured.run(
        "cluster", "--data", "X.npy", "--clusters", "2", "--out", "c.npy", "--write-config", "link/r.toml"
    )
    values = captured.run("cluster", "--config", "link/r.toml")
    assert Path(values["data"]).samefile(folder / "X.npy")


def test_the_command_line_wins_and_both_spellings_and_forms_are_read(captured: Captured) -> None:
    Path("r.toml").write_text(
        'teacher = "one.onnx"\ndata = "X.npy"\nseed = 1\nmin_label = 0.5\nbatch_size = 9\ncalibrate = true\n'
    )
    values = captured.run("unify", "--config", "r.toml", "--seed", "5", "--data", "other.npy")
    assert [str(path) for path in values["teacher"]] == ["one.onnx"]
    assert (values["seed"], str(values["data"])) == (5, "other.npy")
    assert (values["min_label"], values["batch_size"], values["calibrate"]) == (0.5, 9, True)
    values = captured.run("unify", "-t", "a.onnx", "-t", "b.onnx", "--config", "r.toml")
    assert [str(path) for path in values["teacher"]] == ["a.onnx", "b.onnx"]  # the list is replaced
    Path("r.toml").write_text(
        '[inspect]\nfiles = ["a.onnx", "b.onnx"]\n'
        '[distil]\ndata = "X.npy"\nlabels = "y.npy"\nout = "s.onnx"\nteacher-weight = 0.5\ncheck = false\n'
    )
    assert [str(path) for path in captured.run("inspect", "--config", "r.toml")["files"]] == [
        "a.onnx",
        "b.onnx",
    ]
    assert [str(path) for path in captured.run("inspect", "c.npz", "--config", "r.toml")["files"]] == [
        "c.npz"
    ]
    values = captured.run("distil", "--config", "r.toml")
    assert (values["teacher_weight"], values["check"]) == ("0.5", False)
    assert captured.run("distil", "--config", "r.toml", "--check")["check"] is True


def test_the_recipe_in_the_documents_is_one(captured: Captured) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)
    Path("pipeline.toml").write_text(recipe, encoding="utf-8")
    for name, table in tomllib.loads(recipe).items():
        values = captured.run(name, "--config", "pipeline.toml")
        assert {key: values[key] for key in table if not isinstance(table[key], str | list)} == {
            key: value for key, value in table.items() if not isinstance(value, str | list)
        }
    assert (values["model"], values["labels"]) == (Path("unified.onnx"), Path("y_test.npy"))


BAD = {
    'tes-data = "X.npy"': "r.toml: unify has no option 'tes-data'. Did you mean 'test-data'?",
    "xyzzy = 1": "r.toml: unify has no option 'xyzzy'. See consilience unify --help.",
    'config = "r.toml"': "r.toml: unify has no option 'config'.",
    "[unifi]": "r.toml: [unifi] is no command. Did you mean 'unify'?",
    "[rank]": "r.toml has no table [unify]; it has [rank].",
    "seed = 1\n[unify]": "r.toml: seed stands outside of a table. Put it below [unify]",
    'seed = "five"': "r.toml: seed must be a whole number; 'five' is not.",
    "seed = 1.5": "r.toml: seed must be a whole number; 1.5 is not.",
    "seed = true": "r.toml: seed must be a whole number; True is not.",
    "seed = {a = 1}": "r.toml: seed must be a whole number; {'a': 1} is not.",
    "seed = [1]": "r.toml: seed must be a whole number; [1] is not.",
    "[[unify]]": "r.toml: unify has no option 'unify'.",
    "min_label = 1979-05-27": "r.toml: min-label must be a number; datetime.date(1979, 5, 27) is not.",
    "data = 3": "r.toml: data must be a path in quotes; 3 is not.",
    'teacher = ["a.onnx", 3]': "r.toml: teacher must be a list, each item a path in quotes; 3 is not.",
    'calibrate = "yes"': "r.toml: calibrate must be true or false; 'yes' is not.",
    'test-data = "a"\ntest_data = "b"': "r.toml: test-data is given twice, with - and with _. Keep one.",
    'log = "xml"': "--log 'xml' is unknown; use 'text' or 'json'.",
    "seed =\n": "--config: r.toml is not TOML: Invalid value (at line 1, column 7).",
    f"seed = {'[' * 9999}": "--config: r.toml is not TOML: it is nested too deeply.",
    'data = "\\udc00"': "--config: r.toml is not TOML: ",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20])
def test_a_mistake_is_one_sentence(text: str) -> None:
    Path("r.toml").write_text(text)
    result = CliRunner().invoke(app, ["unify", "--config", "r.toml", "-t", "t.npz", "--data", "X.npy"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {BAD[text]}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "no.toml"], "--config: no.toml cannot be read: No such file or directory."),
        (["--config", "latin.toml"], "--config: latin.toml is not TOML: 'utf-8' codec"),
        (["--write-config", "r.json"], "--write-config writes .toml; 'r.json' has another ending."),
        (["--write-config", "no/r.toml"], "--write-config: the folder 'no' does not exist. Make it first."),
        (
            ["--plot", "p\udcff.png", "--write-config", "r.toml"],
            "--write-config: 'p\\udcff.png' is not UTF-8",
        ),
    ],
)
def test_files_that_cannot_be_read_or_written(arguments: list[str], sentence: str, folder: Path) -> None:
    Path("latin.toml").write_bytes(b'plot = "\xe9.png"')
    before = sorted(folder.iterdir())
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {sentence}")
    assert sorted(folder.iterdir()) == before


def test_every_app_of_ours_has_recipes_also_with_one_command() -> None:
    seen = []
    made = new_app()

    @made.command()
    def work(rows: int = 1, names: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        seen.append((rows, names))

    Path("r.toml").write_text('[work]\nrows = 3\nnames = ["a"]\n')
    command = typer.main.get_command(made)
    for arguments in (["--config", "r.toml"], ["--config", "r.toml", "b", "--rows", "4"], []):
        command.main(arguments, standalone_mode=False)
    assert seen[:2] == [(3, ["a"]), (4, ["b"])]
    assert not seen[2][1]


def test_a_run_by_recipe_gives_what_the_command_line_gives(folder: Path) -> None:
    np.savez("t.npz", proba=np.tile([0.25, 0.75], (12, 1)), classes=["a", "b"])
    np.save("X.npy", np.random.RandomState(0).normal(size=(12, 2)))
    words = ["unify", "-t", "t.npz", "--data", "X.npy", "--soft-labels", "q.npz", "--method", "sd", "--json"]
    first = CliRunner().invoke(app, words)
    content = Path("q.npz").read_bytes()
    CliRunner().invoke(app, [*words, "--write-config", "r.toml"])
    second = CliRunner().invoke(app, ["unify", "--config", "r.toml"])
    drop: Callable[[str], dict[str, Any]] = lambda text: json.loads(text) | {"seconds": 0}  # noqa: E731
    assert drop(first.stdout) == drop(second.stdout)
    assert Path("q.npz").read_bytes() == content

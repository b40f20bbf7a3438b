"""Recipes: what a command line means comes back from the file that it wrote, for every command."""

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from tests.cli.running import done, refused, view_of

from consilience.cli.app import app
from consilience.cli.recipe import recipe_keys

COMMANDS = [name for name in app.commands if name != "repo"]
calls: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and commands that only note what they are called with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    calls.clear()
    return tmp_path


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COMMANDS:
        command: Any = app.commands[name]
        assert command.groups  # found before the function is replaced
        monkeypatch.setattr(command, "function", lambda **given: calls.append(given))
        monkeypatch.setattr(command, "_check_files", lambda given: None)


def run(*arguments: str) -> Any:
    """Run a command; return the values that it got, and None if it did not run."""
    calls.clear()
    done(*arguments)
    return {name: value for name, value in calls[0].items() if name != "run"} if calls else None


def every_option(command: Any) -> list[str]:
    """Return a command line with each option of a command, but those of objects."""
    words: list[str] = []
    for key, one in command.options.items():
        (parameter,) = (p for p in command.params if p.name == key)
        name = [] if isinstance(parameter, click.Argument) else [parameter.opts[0]]
        check = one.check
        if "__" in key or key in ("config", "write_config"):
            continue
        if getattr(parameter, "is_flag", False):
            words += (parameter.secondary_opts if one.default else parameter.opts)[:1]
            continue
        sample = {"int": "7", "float": "0.125"}.get(check.says.partition(",")[0].split()[0], 'a "b" \\c.x')
        if check.values:
            sample = str(next((value for value in check.values if isinstance(value, str)), sample))
        sample = {"memory": "2GB", "cache_limit": "2GB", "limit": "2GB", "engine": "ray"}.get(key, sample)
        for number in range(1 + check.many):
            words += [*name, sample if check.values or not check.many else f"{sample}{number}"]
    return words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_comes_back(name: str, noted: None) -> None:
    command: Any = app.commands[name]
    words = [name, *every_option(command)]
    meant = run(*words)
    assert run(*words, "--write-config", "r.toml") is None  # it writes, and runs nothing
    assert run(name, "--config", "r.toml") == meant
    keys = recipe_keys(command)
    (table,) = tomllib.loads(Path("r.toml").read_text(encoding="utf-8")).values()
    assert list(table) == [key for key in keys if key in table]  # in the order of the help
    assert {key for key, one in keys.items() if "__" not in str(one.name)} == set(table)
    # a recipe of a recipe
    run(name, "--config", "r.toml", "--write-config", "again.toml")
    again = Path("again.toml").read_text(encoding="utf-8")
    assert again.replace("again.toml", "r.toml") == Path("r.toml").read_text("utf-8")


def test_paths_are_relative_to_the_file(noted: None, folder: Path) -> None:
    needed = ["-t", "low.onnx", "--data", str(folder / "X.npy"), "--classes", "low=@names.txt"]
    run("unify", *needed, "--out", "deep/u.onnx", "--write-config", "deep/r.toml")
    table = tomllib.loads(Path("deep/r.toml").read_text(encoding="utf-8"))["unify"]
    assert (table["teacher"], table["classes"], table["out"]) == (
        ["../low.onnx"],
        ["low=@../names.txt"],
        "u.onnx",
    )
    assert table["data"] == str(folder / "X.npy")  # an absolute path stays one
    values = run("unify", "--config", "deep/r.toml")
    assert [str(file) for file in values["teacher"]] == ["deep/../low.onnx"]
    assert values["classes"] == ["low=@deep/../names.txt"]
    assert str(values["out"]) == "deep/u.onnx"
    (folder / "far" / "away").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "far" / "away", target_is_directory=True)
    (folder / "X.npy").touch()
    run("cluster", "--data", "X.npy", "--clusters", "2", "--out", "c.npy", "--write-config", "link/r.toml")
    assert Path(run("cluster", "--config", "link/r.toml")["data"]).samefile(folder / "X.npy")


def test_the_command_line_wins_and_both_spellings_and_forms_are_read(noted: None) -> None:
    Path("r.toml").write_text(
        'teacher = "one.onnx"\ndata = "X.npy"\nseed = 1\nmethod = "ce"\noff_set = true\ntol = 1\n'
    )
    values = run("unify", "--config", "r.toml", "--seed", "5", "--data", "other.npy")
    assert [str(file) for file in values["teacher"]] == ["one.onnx"]
    assert (values["random_state"], str(values["data"])) == (5, "other.npy")
    assert (values["options"]["method"].off_set, values["options"]["method"].tol) == (True, 1)
    values = run("unify", "-t", "a.onnx", "-t", "b.onnx", "--config", "r.toml", "--no-off-set")
    assert [str(file) for file in values["teacher"]] == ["a.onnx", "b.onnx"]  # the list is replaced
    assert values["options"]["method"].off_set is False
    for name, off_set in (("ranks", None), ("ce", True)):
        method = run("unify", "-t", "a.onnx", "--config", "r.toml", "--method", name)["options"]["method"]
        assert (method.name, getattr(method, "off_set", None)) == (name, off_set)
    Path("r.toml").write_text(
        '[inspect]\nfiles = ["a.onnx", "b.onnx"]\n'
        '[distil]\ndata = "X.npy"\nlabels = "y.npy"\nout = "s.onnx"\nteacher-weight = 0.5\n'
    )
    assert run("distil", "--config", "r.toml")["options"]["teacher_weight"] == 0.5
    for words, files in (([], ["a.onnx", "b.onnx"]), (["c.npz"], ["c.npz"])):
        assert [str(file) for file in run("inspect", *words, "--config", "r.toml")["files"]] == files


def test_the_recipe_in_the_documents_is_one(noted: None) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)
    Path("pipeline.toml").write_text(recipe, encoding="utf-8")
    for name in tomllib.loads(recipe):
        values = run(name, "--config", "pipeline.toml")
    assert (str(values["model"]), str(values["labels"])) == ("unified.onnx", "y_test.npy")


BAD = {
    'tes-data = "X.npy"': "r.toml: unify has no option 'tes-data'. Did you mean 'test-data'?",
    "xyzzy = 1": "r.toml: unify has no option 'xyzzy'. See consilience unify --help.",
    'config = "r.toml"': "r.toml: unify has no option 'config'.",
    "[unifi]": "r.toml has the tables [unifi]: its keys for this command must stand below [unify].",
    "seed = 1\n[unify]": "r.toml has the tables [unify]: its keys for this command must stand below [unify].",
    'seed = "five"': "r.toml: --seed 'five' must be a whole number",
    "seed = 1.5": "r.toml: --seed 1.5 must be a whole number",
    "seed = true": "r.toml: --seed true must be a whole number",
    "seed = [1]": "r.toml: --seed [1] must be a whole number",
    "data = 3": "r.toml: --data 3 must be a path in quotes.",
    'teacher = ["a.onnx", 3]': "r.toml: --teacher 3 must be a path in quotes.",
    'quiet = "maybe"': "Invalid value for '--quiet' / '-q': 'maybe' is not a valid boolean.",
    'method = "ce"\nstudent-max-iter = 0\ntol = -1': "--tol -1 must be a finite number above 0.",
    'student = "torch"\nmax-iter = 5\nstudent-max-iter = 0': "--student-max-iter 0 must be",
    'log = "xml"': "r.toml: --log 'xml' is unknown; use 'text' or 'json'.",
    "seed =\n": "--config: r.toml is not TOML: Invalid value (at line 1, column 7).",
    f"seed = {'[' * 9999}": "--config: r.toml is not TOML: ",
    'data = "\\udc00"': "--config: r.toml is not TOML: ",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20])
def test_a_mistake_is_one_sentence(text: str) -> None:
    Path("r.toml").write_text(text)
    words = ["-t", "t.npz", "--data", "X.npy", "--soft-labels", "q.npz"]
    assert refused("unify", "--config", "r.toml", *words).startswith(f"Error: {BAD[text]}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "no.toml"], "no.toml cannot be read: No such file or directory."),
        (["--config", "latin.toml"], "--config: latin.toml is not TOML: 'utf-8' codec"),
        (["--write-config", "r.json"], "--write-config writes .toml; 'r.json' has another ending."),
        (["--write-config", "no/r.toml"], "--write-config: the folder 'no' does not exist. Make it first."),
        (["--plot", "p\udcff.png", "--write-config", "r.toml"], "--write-config: '\\udcff.png"),
    ],
)
def test_files_that_cannot_be_read_or_written(arguments: list[str], sentence: str, folder: Path) -> None:
    Path("latin.toml").write_bytes(b'plot = "\xe9.png"')
    before = sorted(folder.iterdir())
    assert refused("demo", *arguments).startswith(f"Error: {sentence}")
    assert sorted(folder.iterdir()) == before


def test_a_run_by_recipe_gives_what_the_command_line_gives(folder: Path) -> None:
    np.savez("t.npz", proba=np.tile([0.25, 0.75], (12, 1)), classes=["a", "b"])
    np.save("X.npy", np.random.RandomState(0).normal(size=(12, 2)))
    words = ["unify", "-t", "t.npz", "--data", "X.npy", "--soft-labels", "q.npz", "--method", "sd"]
    first, content = view_of(*words), Path("q.npz").read_bytes()
    done(*words, "--write-config", "r.toml")
    second = view_of("unify", "--config", "r.toml")
    assert first | {"seconds": 0} == second | {"seconds": 0}
    assert Path("q.npz").read_bytes() == content

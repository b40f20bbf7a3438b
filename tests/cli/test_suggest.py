"""``consilience inspect --suggest``: from files to an aliases file that ``unify`` reads as it is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tests.cli.running import done, refused, run, view_of

from consilience.files.readers import read_aliases, write_aliases

ENGLISH = ["zero", "one", "two", "three", "four", "five"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf"]


def write_teachers(folder: Path, english: list[Any], german: list[Any]) -> None:
    """Write what two models of digits say about some rows, each in its own language."""
    X, y = load_digits(n_class=6, return_X_y=True)
    X = X / 16
    for stem, names, rows in (("uk", english, slice(0, 300)), ("de", german, slice(300, 600))):
        model = LogisticRegression(max_iter=500).fit(X[rows], y[rows])
        np.savez(folder / f"{stem}.npz", proba=model.predict_proba(X[600:]), classes=np.array(names))
    np.save(folder / "X.npy", X[600:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teachers")
    write_teachers(folder, ENGLISH, GERMAN)
    return folder


def test_the_file_it_writes_is_read_by_unify_as_it_is(folder: Path, tmp_path: Path) -> None:
    teachers, out = (folder / "uk.npz", folder / "de.npz"), tmp_path / "aliases.json"
    result = done("inspect", *teachers, "--data", folder / "X.npy", "--suggest", "--out", out)
    assert "names likely one class" in result.stdout
    assert "agreement" in result.stdout
    aliases = json.loads(out.read_text(encoding="utf8"))
    pairs = {frozenset(pair) for pair in aliases.items()}
    assert pairs <= {frozenset(pair) for pair in zip(ENGLISH, GERMAN, strict=True)}
    assert len(pairs) >= 4  # two teachers alone show less than many do
    data = ("--data", folder / "X.npy", "--soft-labels", tmp_path / "q.npz")
    unified = done("unify", "-t", teachers[0], "-t", teachers[1], *data, "--aliases", out, "--json", "-q")
    assert unified.stderr == ""  # every alias fits, and the names now do, too
    assert json.loads(unified.stdout)["classes"] == sorted({*ENGLISH, *GERMAN} - set(aliases))
    without = run("unify", "-t", teachers[0], "-t", teachers[1], *data)
    assert "different names for one class" in without.stderr


def test_json_has_the_suggestions_and_nothing_is_written_without_out(folder: Path) -> None:
    before = sorted(folder.iterdir())
    view = view_of("inspect", folder / "uk.npz", folder / "de.npz", "--data", folder / "X.npy", "--suggest")
    assert 4 <= len(view["suggestions"]["same_class"]) <= 6
    assert all(len(pair["rows"]) == 3 for pair in view["suggestions"]["same_class"])
    assert view["n_classes"] == 12  # nothing is applied
    assert sorted(folder.iterdir()) == before


def test_known_aliases_are_in_the_file_too(folder: Path, tmp_path: Path) -> None:
    known, out = tmp_path / "known.json", tmp_path / "aliases.json"
    known.write_text('{"eins": "one"}', encoding="utf8")
    options = ("--data", folder / "X.npy", "--suggest", "--aliases", known, "--out", out)
    done("inspect", folder / "uk.npz", folder / "de.npz", *options)
    aliases = json.loads(out.read_text(encoding="utf8"))
    assert (aliases["eins"], len(aliases)) == ("one", 6)


def test_names_are_shown_not_obeyed(tmp_path: Path) -> None:
    write_teachers(tmp_path, ["[red]a", "b\x1b[2J", *ENGLISH[2:]], GERMAN)
    words = ("inspect", tmp_path / "uk.npz", tmp_path / "de.npz")
    shown = done(*words, "--data", tmp_path / "X.npy", "--suggest").stdout
    assert "\x1b" not in shown
    assert shown.count("[red]a") == done(*words).stdout.count("[red]a") + 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--suggest"], "--suggest needs --data"),
        (["--data", "X.npy"], "--data needs --suggest"),
        (["--out", "a.json"], "--out needs --data"),
        (["--suggest", "--data", "X.npy", "--out", "a.csv"], "--out writes .json"),
        (["--suggest", "--data", "none.npy"], "none.npy does not exist"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(folder)
    assert says in refused("inspect", "uk.npz", "de.npz", *options)
    assert not (folder / "a.json").exists()


@pytest.mark.parametrize(
    "aliases",
    [{"a": "b", "ü": "\n"}, {3: 5, -2: 5}, {1.5: 2.0}, {"3": "5"}, {}],
)
def test_aliases_are_read_as_they_were_written(tmp_path: Path, aliases: dict[Any, Any]) -> None:
    write_aliases(tmp_path / "a.json", aliases)
    found = read_aliases(tmp_path / "a.json")
    assert found == aliases
    assert [type(key) for key in found or ()] == [type(key) for key in aliases]


@pytest.mark.parametrize("text", ['{"a": 1}', '{"1": 2, "01": 2}', '{"1": 2, "1.0": 2}', '{"true": 1}'])
def test_keys_that_are_no_numbers_stay_texts(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert read_aliases(tmp_path / "a.json") == json.loads(text)

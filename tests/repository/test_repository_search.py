"""Reference rows, descriptions and search."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from consilience import CrossTaskDistiller, Repository
from consilience.exceptions import ConsilienceWarning, InvalidInputError
from consilience.repository.description import read_references, write_reference
from consilience.repository.shelf import Shelf


@pytest.fixture
def described(repository: Repository, digits: Any) -> Repository:
    repository.set_reference(digits[0][:120])
    assert repository.describe().done == ("high", "low", "middle")
    return repository


def test_only_the_best_few_are_run(
    described: Repository, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = digits[0][:800], digits[1][:800]
    opened: list[str] = []
    original = Repository.__getitem__
    monkeypatch.setattr(
        Repository, "__getitem__", lambda self, name: opened.append(name) or original(self, name)
    )
    found = described.search(X[y <= 3], y[y <= 3], top=2)
    assert sorted(found.matches) == ["high", "low", "middle"]
    assert (found.n_run, found.n_models, len(found), found.to_dict()["n_run"]) == (2, 3, 2, 2)
    assert opened == list(found.matches)[:2]
    assert sorted(opened) == sorted(row.name for row in found)
    assert found.best.name == found[0].name == "low"
    assert [name for name, _, _ in found.scored_teachers()] == [row.name for row in found]
    assert "2 of 3 models run" in repr(found)
    distiller = CrossTaskDistiller(found, "logistic", check=False, random_state=0)
    assert distiller.fit(X[y <= 3], y[y <= 3]).score(X[y <= 3], y[y <= 3]) > 0.9


def test_a_model_is_described_when_it_is_added(repository: Repository, onnx_file: Path, digits: Any) -> None:
    calls: list[Any] = []
    repository.add(onnx_file, name="new", reference=digits[0][:100])
    assert len(list((repository.folder / "new").glob("description-*.npz"))) == 1
    done = repository.describe(progress=lambda *report: calls.append(report))
    assert done.done == ("high", "low", "middle")  # not the new one again
    assert calls[-1] == ("describing", 3, 3)
    assert repr(repository.describe()) == "0 models described"
    assert repository.verify().passed


def test_new_reference_rows_ask_for_new_descriptions(described: Repository, digits: Any) -> None:
    X, y = digits
    described.set_reference(X[200:300])
    with pytest.raises(InvalidInputError, match=r"set_reference, and call describe\(\)"):
        described.search(X[:50], y[:50])
    assert len(described.describe().done) == 3
    described.set_reference(["a text", "another"])  # of another kind: the first set stays
    assert described.describe().done == ()
    assert described.search(X[:80], y[:80], top=1).n_run == 1


def test_what_cannot_be_searched_is_a_sentence(repository: Repository, digits: Any) -> None:
    X, y = digits
    says = {
        "has a description yet": (X[:50], 5),
        "None of 3 models takes": (X[:50, :7], 5),
        "top=0": (X[:50], 0),
    }
    for words, (rows, top) in says.items():
        with pytest.raises(InvalidInputError, match=words):
            repository.search(rows, y[:50], top=top)


@pytest.mark.parametrize("damage", ["cut", "pickle", "other"])
def test_a_damaged_description_counts_as_none(described: Repository, digits: Any, damage: str) -> None:
    (file,) = (described.folder / "low").glob("description-*.npz")
    (other,) = (described.folder / "high").glob("description-*.npz")
    pickled = io.BytesIO()
    np.savez(pickled, answers=np.array([{}], dtype=object), allow_pickle=True)
    # "other" is a good description, of another model
    bad = {"cut": file.read_bytes()[:-50], "pickle": pickled.getvalue(), "other": other.read_bytes()}
    file.write_bytes(bad[damage])
    found = described.search(digits[0][:100], digits[1][:100], top=1)
    assert found.undescribed == ("low",)
    assert "1 model without a description" in repr(found)
    assert described.describe().done == ("low",)


def test_a_huge_description_is_not_kept(
    repository: Repository, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.repository.description.MOST_DESCRIPTION", 10)
    repository.set_reference(digits[0][:20])
    failed = repository.describe().failed
    assert sorted(failed) == ["high", "low", "middle"]
    assert "at most 10 are kept" in failed["low"]


def test_a_model_that_fails_is_added_and_says_so(
    repository: Repository, onnx_file: Path, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.set_reference(digits[0][:20])

    def fail(*_: Any) -> None:
        raise InvalidInputError("It failed.")

    monkeypatch.setattr("consilience.repository.repository.describe", fail)
    with pytest.warns(ConsilienceWarning, match="'new' is added, but has no description"):
        repository.add(onnx_file, name="new")
    assert "new" in repository


ROWS = [
    np.arange(12.0).reshape(4, 3),
    np.zeros((2, 3, 4, 4), dtype=np.uint8),
    ["a text", "", "ü and \u4f60"],
    pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
]


@pytest.mark.parametrize("X", ROWS, ids=["numbers", "images", "texts", "table"])
def test_reference_rows_come_back(X: Any, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "new", None)
    made = write_reference(shelf, X)
    assert write_reference(shelf, X).sha256 == made.sha256
    (back,) = read_references(shelf)
    assert back.X == X if isinstance(X, list) else np.array_equal(np.asarray(back.X), np.asarray(X))
    (file,) = (tmp_path / "new" / "_repository" / "reference").iterdir()
    good = file.read_bytes()
    file.write_bytes(good[:-5])
    with pytest.raises(InvalidInputError, match=r"are damaged\. Give them again"):
        read_references(shelf)
    write_reference(shelf, X)
    assert file.read_bytes() == good
    file.unlink()
    assert read_references(shelf) == []


@pytest.mark.parametrize(
    "X", [np.zeros(3), [], np.zeros((0, 3)), [object()]], ids=["flat", "empty", "no rows", "objects"]
)
def test_other_reference_rows_are_refused(X: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="Reference rows must be"):
        write_reference(Shelf(tmp_path / "new", None), X)


def test_files_of_strangers_among_the_references(repository: Repository, digits: Any) -> None:
    repository.set_reference(digits[0][:20])
    folder = repository.folder / "_repository" / "reference"
    (folder / "notes.txt").write_text("x")
    assert len(repository.describe().done) == 3
    with (folder / f"{'a' * 64}.npz").open("wb") as file:
        np.savez(file, X=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="are damaged"):
        repository.describe()
    repository.set_reference(digits[0][:20])  # gives them again, and drops what is damaged
    assert repository.describe().failed == {}

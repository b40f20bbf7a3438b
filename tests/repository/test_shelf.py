"""Where models lie: a folder, or a URL: in memory, as a bucket is, and a server, which can rename."""

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.files import folder_server  # noqa: F401  # registers server://

from consilience import Repository, as_teacher
from consilience.exceptions import InvalidInputError, StorageError
from consilience.files.storage import StoragePath, storage_path
from consilience.repository.shelf import OWN, STALE

Open = Callable[[], Repository]


@pytest.fixture(params=["local", "memory", "server"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place where nothing is yet."""
    place = tmp_path / "bucket" / "models"
    return str(place) if request.param == "local" else f"{request.param}:/{place}"


behind_url = pytest.mark.parametrize("url", ["memory", "server"], indirect=True)


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Open:
    """Open the repository as another process would: with nothing but its URL."""
    return lambda: Repository(url, copies=tmp_path / "copies")


@pytest.fixture
def bucket(opened: Open, original: Path, digits: Any) -> Repository:
    """A repository of the three models, with reference rows."""
    made = opened()
    made.set_reference(digits[0][:60])
    for name in ("low", "middle", "high"):
        made.add(Repository(original).path(name), task="digits", metrics={"ms": len(name)})
    return made


def files(url: str) -> dict[str, bytes]:
    """Return everything behind a URL, by its path below it."""
    return {path: entry.path.read(2**30) or b"" for path, entry in storage_path(url).tree().items()}


def put(url: str, path: str, data: bytes) -> None:
    target = storage_path(url) / path
    target.parent.make_root()
    with target.writing() as file:
        file.write(data)


def model_file(url: str, name: str) -> str:
    (found,) = (path for path in files(url) if path.startswith(f"{name}/") and path.endswith(".onnx"))
    return found


def test_models_come_back(
    bucket: Repository, opened: Open, url: str, fitted: Any, digits: Any, tmp_path: Path
) -> None:
    (X, y), other, found = digits, opened(), files(url)
    assert {path.count("/") for path in found if path.endswith(".onnx")} == {2}  # a folder for each add
    assert {"low/low.card.json", f"{OWN}/README.txt"} <= set(found)
    assert sum(path.startswith("low/description-") for path in found) == 1
    texts = b"".join(data for path, data in found.items() if path.endswith((".json", ".txt")))
    assert str(tmp_path).encode() not in texts
    assert list(other) == list(bucket) == ["high", "low", "middle"]
    assert other.show("LOW").classes == (0, 1, 2, 3)
    assert np.allclose(
        np.exp(other["low"].predict_logits(X[:9])), fitted["low"].predict_proba(X[:9]), atol=1e-5
    )
    assert other.verify().passed
    few = y < 3
    best = other.search(X[few], y[few], top=1)
    assert (best.best.name, best.n_run) == ("low", 1)


def test_a_name_is_taken_once_and_free_after_remove(
    bucket: Repository, opened: Open, onnx_file: Path, url: str
) -> None:
    before = files(url)
    with pytest.raises(InvalidInputError, match="has a model 'low' already"):
        opened().add(onnx_file, name="LOW")
    assert files(url).keys() == before.keys()
    bucket.remove("low")
    assert "low" not in opened()
    assert not [path for path in files(url) if path.startswith("low/")]
    assert opened().add(onnx_file, [5, 6, 7, 8], "LOW").name == "LOW"
    assert bucket["low"].classes.tolist() == [5, 6, 7, 8]


def test_of_adds_at_once_one_wins(opened: Open, onnx_file: Path, url: str) -> None:
    barrier = threading.Barrier(4)

    def add(number: int) -> bool:
        repository = opened()
        barrier.wait(60)
        with contextlib.suppress(InvalidInputError):
            return bool(repository.add(onnx_file, [number, 10, 11, 12], "same"))
        return False

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(add, range(4)))
    assert sum(won) == 1
    assert opened()["same"].classes.tolist()[0] == won.index(True)
    assert opened().verify().passed  # those that lost left nothing


def test_an_add_that_is_killed_is_not_there_and_swept(
    bucket: Repository, opened: Open, onnx_file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(StoragePath, "create", lambda *_: sys.exit(9))
        patched.setattr(StoragePath, "delete", lambda *_: None)  # nobody is left to clean up
        with pytest.raises(SystemExit):
            opened().add(onnx_file, name="killed")
    left = [path for path in files(url) if path.startswith("killed/")]
    assert len(left) == 2
    assert "killed" not in opened()
    assert [one.model for one in opened().verify().findings] == [""]  # it might still be at work
    assert set(left) <= set(files(url))
    monkeypatch.setattr("consilience.repository.shelf.time.time", lambda: time.time_ns() / 1e9 + 2 * STALE)
    assert opened().verify().passed
    assert not set(left) & set(files(url))
    assert len(opened()) == 3


@behind_url
def test_a_damaged_file_is_never_opened(bucket: Repository, opened: Open, url: str, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "copies")
    path = model_file(url, "low")
    good = files(url)[path]
    for data in (good[:-1] + b"x", good * 2, None):
        (storage_path(url) / path).delete()
        if data is not None:
            put(url, path, data)
        with pytest.raises(InvalidInputError, match="missing, or not the file that was added"):
            opened().path("low")
        found = [(one.model, one.problem) for one in opened().verify().findings]
        assert found == [("low", "missing" if data is None else "damaged")]


@behind_url
def test_a_damaged_copy_is_fetched_again(bucket: Repository, opened: Open, tmp_path: Path) -> None:
    path = opened().path("low")
    assert path.is_relative_to(tmp_path / "copies")
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    assert opened().path("low").read_bytes() == good
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(good)
    path.symlink_to(tmp_path / "elsewhere")
    assert not opened().path("low").is_symlink()
    assert not list((tmp_path / "copies").glob(".*"))


@behind_url
def test_a_second_card_that_says_otherwise_is_found(bucket: Repository, opened: Open, url: str) -> None:
    path = f"{model_file(url, 'low').rpartition('/')[0]}/low.card.json"
    put(url, path, b"{}")
    assert [one.problem for one in opened().verify().findings] == ["damaged"]
    assert opened()["low"].classes.tolist() == [0, 1, 2, 3]  # the first card counts


def test_a_bucket_and_a_folder_can_be_copied_to_each_other(
    bucket: Repository, url: str, original: Path, tmp_path: Path, digits: Any
) -> None:
    for path, data in files(url).items():
        (tmp_path / "down" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "down" / path).write_bytes(data)
    for file in filter(Path.is_file, original.rglob("*")):
        put(f"{url}-up", file.relative_to(original).as_posix(), file.read_bytes())
    expected = bucket["low"].predict_logits(digits[0][:5])
    for place in (tmp_path / "down", f"{url}-up"):
        other = Repository(place, copies=tmp_path / "copies")
        assert other.verify().passed
        assert np.array_equal(other["low"].predict_logits(digits[0][:5]), expected)
        other.remove("low")
        assert list(other) == ["high", "middle"]


@behind_url
def test_a_store_that_loses_what_was_sent_is_noticed(
    opened: Open, onnx_file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = opened()
    monkeypatch.setattr(StoragePath, "upload", lambda *_: None)
    with pytest.raises(StorageError, match="does not hold what was sent"):
        repository.add(onnx_file, name="lost")
    assert "lost" not in repository


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_a_model_folder_is_kept(opened: Open, url: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.teachers.model_folders import text_folder

    folder = text_folder(tmp_path / "news-v1.2")[0]
    texts = ["a cat", "the dog ran"]
    opened().add(folder)
    assert len({path for path in files(url) if path.endswith("/config.json")}) == 1
    expected = as_teacher(folder).predict_logits(texts)
    assert np.array_equal(opened()["news-v1.2"].predict_logits(texts), expected)
    assert opened().verify().passed
    opened().remove("news-v1.2")
    assert not [path for path in files(url) if path.startswith("news")]

"""Folders and files on this machine and behind URLs; of the former, regular files and real folders only."""

import os
import pickle
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.files.folder_server import FolderServer

from consilience import InvalidInputError
from consilience.exceptions import MissingDependencyError, StorageError, WriteError
from consilience.files.storage import StoragePath, storage_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    for path in (made / "inner", tmp_path / "outside"):
        path.mkdir(parents=True)
    (made / "file").write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    links = {"link": "secret", "dangling": "nothing", "inner link": "outside", "loop": "folder/loop"}
    for name, target in links.items():
        (made / name).symlink_to(tmp_path / target)
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize("as_url", [False, True])
def test_only_regular_files_and_real_folders_count(folder: Path, as_url: bool) -> None:
    here = storage_path(folder.as_uri() if as_url else folder)
    before = os.stat(folder.parent / "secret").st_mtime_ns
    assert [(one.path.name, one.size) for one in here.entries()] == [("file", 7)]
    assert here.folders() == ["inner"]
    assert here.names() == sorted(path.name for path in folder.iterdir())
    assert {path for path, one in here.tree().items() if one.kind == "file"} == {"file"}
    assert here.local == folder
    for name in ("link", "dangling", "inner", "inner link", "loop", "pipe", "nothing"):
        path = here / name
        with pytest.raises(FileNotFoundError), path.reading():
            pass
        assert path.read(100) is None
        path.touch()
        path.delete()
        assert not path.is_file()
        assert path.is_folder() is (name == "inner")
        assert name == "nothing" or os.path.lexists(folder / name)
    assert os.stat(folder.parent / "secret").st_mtime_ns == before


def test_links_of_strangers_and_of_users(folder: Path) -> None:
    here = storage_path(folder)
    with (here / "link").writing() as file:  # it is replaced, and not written through
        file.write(b"mine")
    assert (folder.parent / "secret").read_bytes() == b"secret"
    assert stat.S_ISREG((folder / "link").lstat().st_mode)
    for name in ("inner link", "file"):
        with pytest.raises(WriteError, match=r"is a link or a file|File exists"):
            (here / name).make_folder()
    here.delete_folder()  # which is not empty
    assert folder.is_dir()
    assert [(here / name).is_root() for name in ("inner link", "nothing", "file")] == [True, None, False]
    (folder.parent / "outside" / "a").write_bytes(b"a")
    assert (here / "inner link").names() == ["a"]  # as the root, a link is the user's


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "cat" * 100_000])
def test_text_that_can_be_no_path(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be a path"):
        storage_path(text)


def test_a_path_stays_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    here = storage_path("inner")
    assert str(here / "a/b") == "inner/a/b"
    monkeypatch.chdir(folder.parent)
    assert pickle.loads(pickle.dumps(here)).local == here.local == folder / "inner"  # noqa: S301
    os.utime(folder / "file", (0, 0))
    file = storage_path(folder / "file")
    assert file.about().used == 0  # type: ignore[union-attr]
    file.touch()
    assert file.about().used > 1e9  # type: ignore[union-attr]


@pytest.fixture(params=["local", "memory", "server"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> StoragePath:
    """A folder that does not exist yet, of each kind of storage."""
    path = tmp_path / "root"
    made = storage_path(str(path) if request.param == "local" else f"{request.param}:/{path}")
    assert made.is_root() is None
    assert made.names() == []
    made.make_root()
    return made


def write(path: StoragePath, content: bytes = b"0123456789") -> None:
    with path.writing() as file:
        file.write(content)


def test_what_is_written_is_listed_and_read(root: StoragePath) -> None:
    inner = root / "inner"
    inner.make_folder()
    for path, content in {inner / "b": b"", inner / "a": b"0123456789", root / "README": b"x"}.items():
        write(path, content)
    assert (root.folders(), root.names()) == (["inner"], ["README", "inner"])
    assert [(entry.path.name, entry.size) for entry in inner.entries()] == [("a", 10), ("b", 0)]
    assert all(entry.used > 1e9 for entry in inner.entries())
    assert (root.is_root(), (inner / "a").is_root()) == (True, False)
    assert ((inner / "a").is_file(), inner.is_file()) == (True, False)
    with (inner / "a").reading() as file:
        assert (file.read(2), file.seek(-3, os.SEEK_END), file.read()) == (b"01", 7, b"789")
    assert (inner / "a").read(10) == b"0123456789"
    assert (inner / "a").read(9) is (inner / "c").read(9) is None
    tree = root.tree()
    assert set(tree) == {"README", "inner/a", "inner/b"}
    assert root.read_all([tree["inner/a"], tree["inner/b"]], 9) == [None, b""]
    other = pickle.loads(pickle.dumps(root))  # noqa: S301
    assert other == root
    assert (str(other / "inner/a"), (other / "inner/a").parent) == (str(inner / "a"), inner)
    with pytest.raises(FileNotFoundError), inner.reading():
        pass


def test_of_several_that_create_a_file_one_wins(root: StoragePath) -> None:
    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(lambda i: (root / "a").create(bytes([i])), range(4)))
    assert sum(won) == 1
    assert (root / "a").read(1) == bytes([won.index(True)])
    assert root.names() == ["a"]


def test_a_failed_write_changes_nothing(root: StoragePath, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "a", b"old")
    with pytest.raises(KeyboardInterrupt), (root / "a").writing() as file:  # noqa: PT012
        file.write(b"half")
        raise KeyboardInterrupt
    with monkeypatch.context() as patched:
        patched.setattr(FolderServer, "mv", lambda *_: 1 / 0)
        if str(root).startswith("server"):
            with pytest.raises(StorageError, match="ZeroDivisionError"):
                write(root / "a")
    assert (root / "a").read(9) == b"old"
    assert root.names() == ["a"]
    write(root / "a", b"new")
    assert (root / "a").read(9) == b"new"


def test_deleting(root: StoragePath) -> None:
    inner = root / "inner"
    inner.make_folder()
    write(inner / "a")
    inner.delete()
    inner.delete_folder()
    assert inner.names() == ["a"]
    for _ in range(2):
        (inner / "a").delete()
    assert (inner / "a").about() is None
    inner.delete_folder()
    assert root.folders() == []
    with pytest.raises(FileNotFoundError), (root / "a").reading():
        pass


@pytest.mark.parametrize("name", ["", ".", "..", "a\\b", "../x", "a/../b", "/a", "a//b", "a\0b"])
def test_paths_do_not_leave_their_folder(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is no path below a folder"):
        storage_path("memory://root") / name


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:hidden@bucket/x", "has a password or a query"),
        ("s3://bucket/x?sig=hidden", "has a password or a query"),
        ("simplecache::s3://bucket", "is a chain of URLs"),
        ("nowhere://x", "there is no nowhere://"),
        (Path("s3://bucket/x"), "was a URL before it became a Path"),
    ],
)
def test_urls_that_are_none(url: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        storage_path(url)
    assert "hidden" not in str(caught.value)


def test_a_package_that_is_missing() -> None:
    fsspec.register_implementation("gone", "no_such_package.System", errtxt="Install gonefs to go there")
    with pytest.raises(MissingDependencyError, match=r"gone:// needs a package.*Install gonefs"):
        storage_path("gone://x")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError("Access Denied for AKIAABCDEFGHIJKLMNOP"), "credentials are set"),
        (TimeoutError("https://host/x?sig=hidden timed out"), "did not answer in time"),
        (ConnectionError("no route"), "Check the network and the address"),
        (NotImplementedError(), "cannot be written. Give another one"),
        (RuntimeError("odd"), r"\(RuntimeError: odd\). Check the URL"),
    ],
)
def test_errors_of_a_bucket_have_a_remedy_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    path = storage_path("memory://errors/x")
    for name in ("pipe_file", "open", "ls"):
        monkeypatch.setattr(MemoryFileSystem, name, fail)
    with pytest.raises(StorageError, match=says) as caught:
        write(path)
    for secret in ("hidden", "AKIA", "host"):
        assert secret not in str(caught.value)
    with pytest.raises(StorageError, match="cannot be listed"):
        path.names()
    with pytest.raises(StorageError, match="cannot be read"), path.reading():
        pass

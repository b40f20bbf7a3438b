"""Folders and files on this machine and behind URLs; of the former, regular files and real folders only."""

from __future__ import annotations

import os
import pickle
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from consilience import InvalidInputError
from consilience.exceptions import MissingDependencyError, StorageError
from consilience.files.storage import StoragePath, storage_path


@pytest.fixture
def folder(tmp_path: Path) -> StoragePath:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "file").write_bytes(b"content")
    (made / "inner").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (made / "link").symlink_to(tmp_path / "secret")
    (made / "dangling").symlink_to(tmp_path / "nothing")
    (made / "inner link").symlink_to(tmp_path / "outside")
    if hasattr(os, "mkfifo"):
        os.mkfifo(made / "pipe")
    return StoragePath(made)


def test_only_regular_files_and_real_folders_are_listed(folder: StoragePath) -> None:
    assert [one.path.name for one in folder.entries()] == ["file"]
    assert folder.folders() == ["inner"]
    assert {"file", "inner", "link"} < set(folder.names())
    assert (folder / "nothing").names() == []
    assert (folder / "file").about().size == 7
    assert not (folder / "link").is_file()


@pytest.mark.parametrize("name", ["link", "dangling", "inner", "inner link", "pipe", "nothing"])
def test_what_is_no_regular_file_is_not_read_touched_or_deleted(folder: StoragePath, name: str) -> None:
    before = os.stat(folder.path.parent / "secret").st_mtime_ns
    with pytest.raises(FileNotFoundError), (folder / name).reading():
        pass
    (folder / name).touch()
    (folder / name).delete()
    assert name == "nothing" or os.path.lexists(folder.path / name)
    assert os.stat(folder.path.parent / "secret").st_mtime_ns == before


def test_a_link_is_replaced_and_not_written_through(folder: StoragePath) -> None:
    with (folder / "link").writing() as file:
        file.write(b"mine")
    assert (folder.path.parent / "secret").read_bytes() == b"secret"
    assert stat.S_ISREG((folder.path / "link").lstat().st_mode)


def test_folders(folder: StoragePath) -> None:
    with pytest.raises(OSError, match="is a link or a file"):
        (folder / "inner link").make_folder()
    folder.delete_folder()  # which is not empty
    assert folder.path.is_dir()
    assert (folder / "inner link").is_root() is True
    assert (folder / "nothing").is_root() is None
    assert (folder / "file").is_root() is False


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "cat" * 100_000])
def test_text_that_can_be_no_path(text: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be a path"):
        storage_path(text)


def test_using_a_file_shows(folder: StoragePath) -> None:
    os.utime(folder.path / "file", (0, 0))
    assert (folder / "file").about().used == 0
    (folder / "file").touch()
    assert (folder / "file").about().used > 1e9


@pytest.fixture(params=["local", "memory", "file"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A folder that does not exist yet, of each kind of storage."""
    if request.param != "local":
        pytest.importorskip("fsspec")
    path = tmp_path / "root"
    made = storage_path(
        {"local": str(path), "memory": f"memory:/{path}", "file": path.as_uri()}[request.param]
    )
    assert made.is_root() is None
    assert made.names() == []
    made.make_root()
    return made


class TestEveryStorage:
    def write(self, path: Any, content: bytes = b"0123456789") -> None:
        with path.writing() as file:
            file.write(content)

    def test_what_is_written_is_listed_and_read(self, root: Any) -> None:
        inner = root / "inner"
        inner.make_folder()
        self.write(inner / "b", b"")
        self.write(inner / "a")
        self.write(root / "README")
        assert root.folders() == ["inner"]
        assert root.names() == ["README", "inner"]
        assert inner.names() == ["a", "b"]
        assert [(entry.path.name, entry.size) for entry in inner.entries()] == [("a", 10), ("b", 0)]
        assert all(entry.used > 1e9 for entry in inner.entries())
        assert (inner / "a").about().size == 10
        assert (root.is_root(), (inner / "a").is_root()) == (True, False)
        assert (inner / "a").is_file()
        assert not inner.is_file()
        with (inner / "a").reading() as file:
            assert file.read(2) == b"01"
            assert file.seek(-3, os.SEEK_END) == 7
            assert file.read() == b"789"
        assert b"".join((inner / "a").blocks()) == b"0123456789"
        assert (inner / "a").read(10) == b"0123456789"
        assert (inner / "a").read(9) is (inner / "c").read(9) is None
        assert set(root.tree()) == {"README", "inner/a", "inner/b"}
        assert root.read_all([root.tree()["inner/a"], root.tree()["inner/b"]], 9) == [None, b""]
        assert str(root.at("inner/a")) == str(inner / "a")

    def test_of_several_that_create_a_file_one_wins(self, root: Any) -> None:
        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(lambda i: (root / "a").create(bytes([i])), range(4)))
        assert sum(won) == 1
        assert (root / "a").read(1) == bytes([won.index(True)])
        assert root.names() == ["a"]

    def test_a_failed_write_changes_nothing(self, root: Any) -> None:
        self.write(root / "a", b"old")
        with pytest.raises(KeyboardInterrupt), (root / "a").writing() as file:  # noqa: PT012
            file.write(b"half")
            raise KeyboardInterrupt
        with (root / "a").reading() as file:
            assert file.read() == b"old"
        assert root.names() == ["a"]
        self.write(root / "a", b"new")
        with (root / "a").reading() as file:
            assert file.read() == b"new"

    def test_deleting(self, root: Any) -> None:
        inner = root / "inner"
        inner.make_folder()
        self.write(inner / "a")
        inner.delete()
        inner.delete_folder()
        assert inner.names() == ["a"]
        (inner / "a").delete()
        (inner / "a").delete()
        assert (inner / "a").about() is None
        inner.delete_folder()
        assert root.folders() == []

    def test_what_is_not_there_is_not_found(self, root: Any) -> None:
        with pytest.raises(FileNotFoundError), (root / "a").reading():
            pass

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "../x"])
    def test_names_do_not_leave_their_folder(self, root: Any, name: str) -> None:
        with pytest.raises(InvalidInputError, match="is no name of a file"):
            root / name

    def test_copies_mean_the_same(self, root: Any) -> None:
        self.write(root / "a")
        for other in (pickle.loads(pickle.dumps(root)), root.absolute()):  # noqa: S301
            assert other == root
            assert other.names() == ["a"]


class TestLinksBehindFileUrls:
    def test_they_count_as_nothing(self, folder: StoragePath) -> None:
        pytest.importorskip("fsspec")
        url = storage_path(folder.path.as_uri())
        assert ([one.path.name for one in url.entries()], url.folders()) == (["file"], ["inner"])
        for name in ("link", "inner link", "pipe"):
            with pytest.raises(FileNotFoundError), (url / name).reading():
                pass
            (url / name).delete()
            assert os.path.lexists(folder.path / name)


class TestUrls:
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
    def test_those_that_are_none(self, url: Any, says: str) -> None:
        pytest.importorskip("fsspec")
        with pytest.raises(InvalidInputError, match=says) as caught:
            storage_path(url)
        assert "hidden" not in str(caught.value)

    def test_a_package_that_is_missing(self) -> None:
        fsspec = pytest.importorskip("fsspec")
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
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
    ) -> None:
        pytest.importorskip("fsspec")
        from fsspec.implementations.memory import MemoryFileSystem

        def fail(*_: Any, **__: Any) -> Any:
            raise error

        path = storage_path("memory://errors/x")
        for name in ("pipe_file", "cat_file", "ls"):
            monkeypatch.setattr(MemoryFileSystem, name, fail)
        with pytest.raises(StorageError, match=says) as caught, path.writing() as file:
            file.write(b"x")
        for secret in ("hidden", "AKIA", "host"):
            assert secret not in str(caught.value)
        with pytest.raises(StorageError, match="cannot be listed"):
            path.names()
        with pytest.raises(StorageError, match="cannot be read"), path.reading():
            pass

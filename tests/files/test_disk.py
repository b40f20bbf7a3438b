"""Regular files of a bounded size are opened, and a link only where that is said; files are written whole."""

import errno
import os
from pathlib import Path

import pytest

from consilience.exceptions import InvalidInputError, UnsafeFileError, WriteError
from consilience.files.disk import opened, read_bytes, replacing


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    assert read_bytes(tmp_path / "a", most=4) == b"1234"
    with pytest.raises(InvalidInputError, match="The card has 4 bytes; at most 3 are read"):
        read_bytes(tmp_path / "a", "The card", most=3)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "lost").symlink_to(tmp_path / "gone")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    for name in ("link", "lost", "folder", "pipe"):
        with pytest.raises(UnsafeFileError, match="not a regular file"), opened(tmp_path / name):
            pass
    with opened(tmp_path / "link", links=True) as file:
        assert file.read() == b"x"
    for path in (tmp_path / "gone", tmp_path / "lost", tmp_path / "file" / "x", Path("a\0b")):
        with pytest.raises(InvalidInputError, match="cannot be read"), opened(path, links=True):
            pass
    with pytest.raises(UnsafeFileError), opened("/dev/zero"):
        pass


def test_handles_are_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for path in (tmp_path, Path(__file__)):
        with pytest.raises(InvalidInputError), opened(path, most=1):
            pass
    assert len(os.listdir("/dev/fd")) == before


def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "model.bin"
    target.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(WriteError, match=r"model\.bin cannot be written: No space left on device\.") as caught,
        replacing(target) as file,
    ):
        file.write(b"new")
    assert caught.value.errno == errno.ENOSPC
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.bin"]


def test_only_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "folder", tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InvalidInputError, match="is a folder, a pipe or a device"), replacing(target):
            pass
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")
    assert not (tmp_path / "link").is_symlink()  # replaced, not followed
    assert (tmp_path / "file").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link", "pipe"]

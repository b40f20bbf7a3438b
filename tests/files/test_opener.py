"""Only regular files of a bounded size are opened, and a link only where that is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from consilience.exceptions import InvalidInputError, UnsafeFileError
from consilience.files.disk import opened, read_bytes


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
    (tmp_path / "long").write_bytes(b"12345")
    before = len(os.listdir("/dev/fd"))
    for path in (tmp_path, tmp_path / "long"):
        with pytest.raises(InvalidInputError), opened(path, most=1):
            pass
    assert len(os.listdir("/dev/fd")) == before

"""What a store asks of the file system: regular files and real folders only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from consilience.teachers.scoring.store import disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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
    return made


def test_only_regular_files_and_real_folders_are_listed(folder: Path) -> None:
    assert disk.names(folder) == ["file"]
    assert disk.folders(folder) == ["inner"]
    assert {"file", "inner", "link"} < set(disk.all_names(folder))
    assert disk.names(folder / "nothing") == []
    assert disk.entry(folder / "file").size == 7
    assert disk.entry(folder / "link") is None


@pytest.mark.parametrize("name", ["link", "dangling", "inner", "inner link", "pipe", "nothing"])
def test_what_is_no_regular_file_is_not_read_touched_or_deleted(folder: Path, name: str) -> None:
    before = os.stat(folder.parent / "secret").st_mtime_ns
    with pytest.raises(FileNotFoundError), disk.reading(folder / name):
        pass
    disk.touch(folder / name)
    disk.delete(folder / name)
    assert name == "nothing" or os.path.lexists(folder / name)
    assert os.stat(folder.parent / "secret").st_mtime_ns == before


def test_a_link_is_replaced_and_not_written_through(folder: Path) -> None:
    with disk.writing(folder / "link") as file:
        file.write(b"mine")
    assert (folder.parent / "secret").read_bytes() == b"secret"
    assert stat.S_ISREG((folder / "link").lstat().st_mode)


def test_folders(folder: Path) -> None:
    with pytest.raises(OSError, match="is a link"):
        disk.make_folder(folder / "inner link")
    disk.delete_folder(folder)  # which is not empty
    assert folder.is_dir()
    assert disk.is_root(folder / "inner link") is True
    assert disk.is_root(folder / "nothing") is None
    assert disk.is_root(folder / "file") is False


def test_using_a_file_shows(folder: Path) -> None:
    os.utime(folder / "file", (0, 0))
    assert disk.entry(folder / "file").used == 0
    disk.touch(folder / "file")
    assert disk.entry(folder / "file").used > 1e9

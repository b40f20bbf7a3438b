"""Files are written whole or not at all, and what stands in the way is worded."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from consilience.exceptions import ConsilienceError, InvalidInputError, WriteError
from consilience.files.disk import replacing


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
    assert isinstance(caught.value, ConsilienceError)
    assert caught.value.errno == errno.ENOSPC
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.bin"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_device_without_room(tmp_path: Path) -> None:
    target = tmp_path / "soft.npy"
    full = open("/dev/full", "wb")  # noqa: SIM115
    with pytest.raises(WriteError, match="No space left"), replacing(target), full:
        np.save(full, np.zeros(100_000))
    assert list(tmp_path.iterdir()) == []


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

"""Arrays on disk, written and read by parts."""

from __future__ import annotations

import errno
import gc
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError
from consilience.files import spool as module
from consilience.files.spool import Spool, check_space


@pytest.fixture
def values() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(100, 3, 2)).astype(np.float32)


@pytest.fixture
def spool(values: np.ndarray[Any, Any], tmp_path: Path) -> Spool:
    made = Spool((3, 2), np.float32, tmp_path)
    for start in (60, 0, 30):  # in any order, and 30 to 60 twice
        made.write(start, values[start : start + 40])
    return made


def test_rows_written_in_any_order_are_read_by_slices(spool: Spool, values: np.ndarray[Any, Any]) -> None:
    assert spool.shape == values.shape
    assert len(spool) == 100
    for rows in (slice(None), slice(5, 17), slice(90, 1000), slice(-3, None), slice(7, 7), slice(9, 3)):
        np.testing.assert_array_equal(spool[rows], values[rows])
    np.testing.assert_array_equal(spool[10:80:7], values[10:80:7])


@pytest.mark.parametrize("chunk", [1, 100, 2**20])
def test_rows_are_read_by_positions_and_masks(
    spool: Spool, values: np.ndarray[Any, Any], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    rows = np.array([0, 1, 1, 5, 40, 41, 99])
    np.testing.assert_array_equal(spool[rows], values[rows])
    assert spool[rows[:0]].shape == (0, 3, 2)
    mask = np.arange(100) % 3 == 1
    np.testing.assert_array_equal(spool[mask], values[mask])


def test_positions_all_over_a_file_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 800)
    spool, sizes = Spool((1,), np.float64), []
    spool.append(np.arange(10_000.0)[:, None])
    read = spool._read
    monkeypatch.setattr(spool, "_read", lambda start, stop: sizes.append(stop - start) or read(start, stop))
    assert spool[np.arange(0, 10_000, 3)].ravel().tolist() == list(range(0, 10_000, 3))
    assert max(sizes) <= 100


def test_a_mapped_view_outlives_the_spool(spool: Spool, values: np.ndarray[Any, Any]) -> None:
    view = spool.mapped()
    del spool
    gc.collect()
    assert isinstance(view, np.memmap)
    np.testing.assert_array_equal(view, values)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_an_empty_spool_and_rows_without_columns() -> None:
    empty = Spool((4,), np.uint8)
    assert empty[:].shape == empty.mapped().shape == (0, 4)
    empty.append(np.empty((0, 4)))
    assert len(empty) == 0
    bare = Spool((0,), np.float32)
    bare.append(np.empty((5, 0)))
    assert bare[2:].shape == (3, 0)
    assert bare.mapped().shape == (5, 0)


def test_appended_rows_follow_each_other_and_get_the_type() -> None:
    spool = Spool((2,), np.float32)
    spool.append(np.arange(4).reshape(2, 2))
    spool.append(np.asfortranarray(np.arange(4, 8).reshape(2, 2)))
    assert spool[:].dtype == np.float32
    assert spool[:].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_the_file_has_no_name_and_goes_with_the_object(tmp_path: Path) -> None:
    spool = Spool((2,), np.float32, tmp_path)
    spool.append(np.ones((3, 2)))
    assert list(tmp_path.iterdir()) == []
    number = spool._file.fileno()
    inode = os.fstat(number).st_ino
    del spool
    gc.collect()
    try:
        assert os.fstat(number).st_ino != inode  # somebody else may have the number by now
    except OSError as error:
        assert error.errno == errno.EBADF  # noqa: PT017


def test_a_full_disk_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "pwrite", full)
    with pytest.raises(InvalidInputError, match=r"No space left on device\. Set .*TMPDIR"):
        Spool((2,), np.float32).append(np.ones((2, 2)))


def test_space_is_checked_beforehand(tmp_path: Path) -> None:
    check_space(1, tmp_path)
    with pytest.raises(InvalidInputError, match=r"Temporary files of .* do not fit: .* left\. Set .*TMPDIR"):
        check_space(2**62, tmp_path)


def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(module.os, "pwrite", lambda file, data, place: write(file, data[:5], place))
    spool = Spool((3,), np.float64)
    spool.append(np.arange(12.0).reshape(4, 3))
    assert spool[:].ravel().tolist() == list(range(12))


def test_a_spool_is_not_sent_to_other_processes(spool: Spool) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot be sent .* Write them to files"):
        pickle.dumps(spool)

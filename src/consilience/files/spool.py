"""Arrays that are too large for memory: written and read by parts, in a file without a name."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consilience._sizes import size_text
from consilience.exceptions import InvalidInputError

_CHUNK = 2**20  # bytes: positions that lie this close are read together
_ADVICE = "Set the environment variable TMPDIR to a folder with more space."


class Spool:
    """An array (n, ...) on disk. Its file has no name: it is gone with the object, also after a crash.

    It is read and not mapped, so its pages do not count as memory of this process.

    Parameters
    ----------
    row_shape : tuple of int
        The shape of a row.
    dtype : dtype
    folder : path, optional
        Where the file lies; by default where the system keeps temporary files.

    Examples
    --------
    >>> spool = Spool((2,), np.float32)
    >>> spool.write(0, np.eye(2))
    >>> spool[1:].tolist(), spool.shape
    ([[0.0, 1.0]], (2, 2))
    """

    def __init__(
        self, row_shape: tuple[int, ...], dtype: DTypeLike, folder: str | os.PathLike[str] | None = None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self._row_bytes = math.prod(row_shape) * self.dtype.itemsize
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it lives as long as this object)
        weakref.finalize(self, self._file.close)
        self._rows = 0

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidInputError(
            "Rows that are kept in a temporary file cannot be sent to another process. Write them to files "
            "first, and give their folder."
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, ...), with the rows written so far."""
        return (self._rows, *self._row_shape)

    def __len__(self) -> int:
        return self._rows

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Write rows from a position on."""
        data = np.ascontiguousarray(values, dtype=self.dtype)
        view = data.reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
        place = start * self._row_bytes
        while view:
            try:
                done = os.pwrite(self._file.fileno(), view, place)
            except OSError as error:
                size = size_text(place)
                raise InvalidInputError(
                    f"A temporary file cannot grow beyond {size}: {error.strerror}. {_ADVICE}"
                ) from error
            view, place = view[done:], place + done
        self._rows = max(self._rows, start + len(data))

    def append(self, values: NDArray[Any]) -> None:
        """Write rows after the last."""
        self.write(self._rows, values)

    def __getitem__(self, rows: slice | NDArray[Any]) -> NDArray[Any]:
        """Return some rows, by a slice without steps, a mask (n,), or their positions in ascending order."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self._rows)
            return self._read(start, stop) if step == 1 else self[np.arange(start, stop, step)]
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        found = np.empty((len(rows), *self._row_shape), self.dtype)
        # what lies in the same part of the file is read at once, and never much more than one part
        parts = rows // max(1, _CHUNK // max(1, self._row_bytes))
        borders = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(rows)]
        for a, b in pairwise(borders):
            if b > a:
                first, last = int(rows[a]), int(rows[b - 1])
                found[a:b] = self._read(first, last + 1)[rows[a:b] - first]
        return found

    def mapped(self) -> NDArray[Any]:
        """Return all rows as a read-only array that is mapped from the file."""
        if not self._rows or not self._row_bytes:
            return np.empty(self.shape, self.dtype)
        return np.memmap(self._file, self.dtype, "r", shape=self.shape)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        values = np.empty((max(0, stop - start), *self._row_shape), self.dtype)
        view = values.reshape(-1).view(np.uint8).data if values.size else memoryview(b"")
        place = start * self._row_bytes
        while view:
            done = os.preadv(self._file.fileno(), [view], place)
            if not done:
                raise OSError(f"A temporary file ends at byte {place}.")
            view, place = view[done:], place + done
        return values


def check_space(n_bytes: int, folder: str | os.PathLike[str] | None = None) -> None:
    """Raise if temporary files of this size would not fit on the disk."""
    place = tempfile.gettempdir() if folder is None else folder
    free = shutil.disk_usage(place).free
    if n_bytes > free:
        raise InvalidInputError(
            f"Temporary files of {size_text(n_bytes)} do not fit: {os.fspath(place)} has {size_text(free)} "
            f"left. {_ADVICE}"
        )

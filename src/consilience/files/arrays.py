"""Read .npy and .npz files of strangers: nothing is unpickled, mapped or inflated without a check.

A header may promise more than the file holds, and a few megabytes of archive may hold gigabytes. So the
header and the archive's directory are compared with the size of the file before memory is taken.
"""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from consilience._sizes import size_text
from consilience.exceptions import InvalidInputError

MAGIC = b"\x93NUMPY"
MAX_INFLATED = 2**30
"""Bytes that a compressed archive may always hold."""
MAX_RATIO = 64
"""How many times its own size a larger archive may hold; deflate reaches 1000 with zeros alone."""
_CHUNK = 2**20

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # as 2.0, but for field names beyond latin-1
}


class ArrayFileError(InvalidInputError):
    """A file of arrays cannot be read.

    Parameters
    ----------
    path : path
    reason : str
        A clause without a full stop.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path, self.reason = os.fspath(path), reason
        super().__init__(f"{self.path} cannot be read: {reason}.")

    def __reduce__(self) -> tuple[type[ArrayFileError], tuple[str, str]]:
        return type(self), (self.path, self.reason)


@dataclass(frozen=True)
class NpyFile:
    """An .npy file whose header fits its size; its numbers are still on disk.

    Attributes
    ----------
    path : Path
    shape : tuple of int
    dtype : numpy.dtype
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def read(self) -> NDArray[Any]:
        """Read the array; raise where the file is no longer the one that was opened.

        It is not mapped into memory: if someone shortens a mapped file, the process crashes.
        """
        with _reading(self.path), self.path.open("rb") as file:
            return _read_values(file, self._header(file))

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows from `start` to `stop`; raise where the file is no longer the one that was opened."""
        with _reading(self.path), self.path.open("rb") as file:
            header = self._header(file)
            shape = (stop - start, *self.shape[1:])
            if not header.fortran:
                file.seek(header.start + start * math.prod(self.shape[1:]) * self.dtype.itemsize)
                return _read_values(file, _Header(shape, self.dtype, fortran=False, start=0))
            # columns lie one after the other, and each holds its part of the rows
            values = np.empty((math.prod(self.shape[1:]), stop - start), dtype=self.dtype)
            for i, column in enumerate(values):
                file.seek(header.start + (i * self.shape[0] + start) * self.dtype.itemsize)
                column[:] = _read_values(file, _Header(column.shape, self.dtype, fortran=False, start=0))
            return values.reshape(shape[:0:-1] + shape[:1]).T

    def _header(self, file: IO[bytes]) -> _Header:
        """Read the header again, and raise where it is no longer that of the file that was opened."""
        header = _read_header(file, os.fstat(file.fileno()).st_size)
        if (header.shape, header.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"it now holds {header.dtype} of shape {header.shape}, and held {self.dtype} of shape "
                f"{self.shape} when it was opened"
            )
        return header


def open_npy(path: str | os.PathLike[str]) -> NpyFile:
    """Read the header of an .npy file, and check that the file holds what it promises."""
    source = Path(path)
    with _reading(source), source.open("rb") as file:
        header = _read_header(file, os.fstat(file.fileno()).st_size)
    return NpyFile(source.absolute(), header.shape, header.dtype)


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an .npy file."""
    return open_npy(path).read()


def read_npz(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read some arrays of an .npz file by name, by default all; names that it lacks are left out."""
    with NpzFile(path) as archive:
        wanted = archive.names if names is None else [name for name in names if name in archive.names]
        return {name: archive.read(name) for name in wanted}


class NpzFile:
    """An .npz file to read arrays from, one by one; a context manager.

    Parameters
    ----------
    path : path
    compressed : bool
        Whether members may be compressed. If not, the file is as large as its content.
    file : binary file, optional
        The opened file, if it is not to be opened by its path. It is closed with the archive.

    Attributes
    ----------
    names : list of str
        The arrays of the archive.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, compressed: bool = True, file: IO[bytes] | None = None
    ) -> None:
        self.path = Path(path)
        with _reading(self.path):
            # zipfile leaves a file that is no archive open
            self._file = self.path.open("rb") if file is None else file
            try:
                self._zip = zipfile.ZipFile(self._file)
                self._check_members(compressed)
            except BaseException:
                self._file.close()
                raise

    def _check_members(self, compressed: bool) -> None:
        entries = self._zip.infolist()
        self.names = [entry.filename.removesuffix(".npy") for entry in entries]
        self._entries = dict(zip(self.names, entries, strict=True))
        if len(self._entries) != len(entries):
            raise ValueError("it has two members of one name")
        packed = [entry for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
        if packed and not compressed:
            raise ValueError("it is compressed")
        size = self._file.seek(0, os.SEEK_END)
        inflated = sum(entry.file_size for entry in packed)
        if inflated > max(MAX_INFLATED, MAX_RATIO * size):
            raise ValueError(
                f"it has {size_text(size)} and would inflate to {size_text(inflated)}. If that is meant, "
                "write it without compression (np.savez)"
            )
        if sum(entry.file_size for entry in entries if entry not in packed) > size:
            raise ValueError("its directory promises more than the file holds")

    def checksum(self, name: str) -> tuple[int, int]:
        """Return the size and the CRC-32 of one member, as the directory has them; `read` checks both."""
        entry = self._entries[name]
        return entry.file_size, entry.CRC

    def read(self, name: str) -> NDArray[Any]:
        """Read one array."""
        with _reading(self.path):
            entry = self._entries[name]
            with self._zip.open(entry) as member:
                try:
                    header = _read_header(member, entry.file_size)
                    if header.end != entry.file_size:
                        raise ValueError(f"it has {entry.file_size} bytes for an array of {header.end}")
                    return _read_values(member, header)
                except ValueError as error:
                    raise ValueError(f"its member {entry.filename!r} is no array: {error}") from error

    def read_bytes(self, name: str, most: int) -> bytes:
        """Read a member that is no array, of at most so many bytes."""
        with _reading(self.path):
            entry = self._entries[name]
            if entry.file_size > most:
                raise ValueError(f"its member {name!r} has more than {size_text(most)}")
            return self._zip.read(entry)

    def read_rows(self, name: str, rows: Iterable[int]) -> NDArray[Any]:
        """Read some rows of one array that is not compressed. No CRC is checked: the caller must do so."""
        with _reading(self.path):
            entry = self._entries[name]
            with self._zip.open(entry) as member:  # checks that the archive has the member here
                header = _read_header(member, entry.file_size)
            if entry.compress_type != zipfile.ZIP_STORED or header.fortran or header.end != entry.file_size:
                raise ValueError(f"its member {entry.filename!r} cannot be read by rows")
            self._file.seek(entry.header_offset + 26)  # where the lengths of a name and of extras are
            lengths = self._file.read(4)
            start = entry.header_offset + 30 + lengths[0] + 256 * lengths[1] + lengths[2] + 256 * lengths[3]
            places = list(rows)
            for row in places:
                if not 0 <= row < header.shape[0]:
                    raise ValueError(f"its member {entry.filename!r} has no row {row}")
            values = np.empty((len(places), *header.shape[1:]), dtype=header.dtype)
            width = values.dtype.itemsize * math.prod(header.shape[1:])
            buffer = values.reshape(-1).view(np.uint8).data
            for i, row in enumerate(places):
                self._file.seek(start + header.start + row * width)
                if self._file.readinto(buffer[i * width : (i + 1) * width]) != width:  # type: ignore[attr-defined]
                    raise ValueError(f"its member {entry.filename!r} ends before row {row}")
            return values

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()
        self._file.close()


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int  # where the numbers begin

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        return self.start + self.count * self.dtype.itemsize


def _read_header(file: IO[bytes], size: int) -> _Header:
    """Read the header of an .npy file of some size, and leave the file where the numbers begin."""
    if size == 0:
        raise ValueError("the file is empty")
    magic = file.read(len(MAGIC) + 2)
    if magic[: len(MAGIC)] != MAGIC or len(magic) < len(MAGIC) + 2:
        hint = "; it is an archive, so call it .npz" if magic.startswith(b"PK") else ""
        raise ValueError(f"it does not begin like an .npy file{hint}")
    read = _HEADERS.get((magic[-2], magic[-1]))
    if read is None:
        raise ValueError(f"it is of version {magic[-2]}.{magic[-1]} of the format, which is unknown")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser's remarks on a damaged text
            shape, fortran, dtype = read(file)
    except Exception as error:  # numpy evaluates the text: a flipped bit may raise anything
        text = " ".join(str(error).split())[:100]
        raise ValueError(f"its header is damaged ({type(error).__name__}: {text})") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which would have to be unpickled")
    header = _Header(tuple(int(length) for length in shape), dtype, bool(fortran), file.tell())
    if any(length < 0 for length in header.shape):
        raise ValueError(f"its header has the shape {header.shape}")
    if header.end > size:
        raise ValueError(
            f"its header promises {dtype} of shape {header.shape}, which needs {header.end} bytes, and it "
            f"has {size}; the file was cut or damaged"
        )
    return header


def _read_values(file: IO[bytes], header: _Header) -> NDArray[Any]:
    """Read the numbers that follow a header."""
    values = np.empty(header.count, dtype=header.dtype)
    if values.nbytes:
        buffer = values.view(np.uint8).data
        place = 0
        while place < len(buffer):
            found = file.read(min(_CHUNK, len(buffer) - place))
            if not found:
                raise ValueError(f"it ends after {place} of {len(buffer)} bytes of numbers")
            buffer[place : place + len(found)] = found
            place += len(found)
    return values.reshape(header.shape[::-1]).T if header.fortran else values.reshape(header.shape)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever numpy, zipfile and zlib raise for a damaged file into an ArrayFileError."""
    try:
        yield
    except ArrayFileError:
        raise
    except zipfile.BadZipFile as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ArrayFileError(path, f"it is not a valid .npz archive ({reason})") from error
    except MemoryError as error:
        raise ArrayFileError(path, "there is not enough memory") from error
    except OSError as error:
        raise ArrayFileError(path, error.strerror or str(error) or type(error).__name__) from error
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or "no message"
        plain = isinstance(error, ValueError)
        raise ArrayFileError(path, reason if plain else f"{type(error).__name__}: {reason}") from error

"""Read .npy and .npz files of strangers: nothing is unpickled, mapped or inflated without a check.

A header may promise more than the file holds, and a few megabytes of archive may hold gigabytes. So the
header and the archive's directory are compared with the size of the file before memory is taken.
"""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from consilience._words import size_text
from consilience.exceptions import InvalidInputError
from consilience.files.disk import opened

MAX_INFLATED = 2**30
"""Bytes that a compressed archive may always hold."""
MAX_RATIO = 64
"""How many times its own size a larger archive may hold; deflate reaches 1000 with zeros alone."""
_HEADERS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # as 2.0, but for field names beyond latin-1
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


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int  # where the numbers begin
    end: int


@dataclass(frozen=True)
class NpyFile:
    """An .npy file whose header fits its size; its numbers are still on disk.

    It is not mapped into memory: if someone shortens a mapped file, the process crashes.

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
        """Read the array; raise where the file is no longer the one that was opened."""
        with self._opened() as (file, _):
            file.seek(0)
            return npy.read_array(file, allow_pickle=False)

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows from `start` to `stop`; raise where the file is no longer the one that was opened."""
        rows, width = stop - start, math.prod(self.shape[1:])
        with self._opened() as (file, header):
            # in Fortran's order, columns lie one after the other, and each holds its part of the rows
            places = range(start, self.shape[0] * width, self.shape[0]) if header.fortran else [start * width]
            values = np.empty((len(places), rows if header.fortran else rows * width), self.dtype)
            for place, run in zip(places, values, strict=True):
                file.seek(header.start + place * self.dtype.itemsize)
                run[:] = np.fromfile(file, self.dtype, len(run))
        shape = (rows, *self.shape[1:])
        return values.reshape(shape[:0:-1] + shape[:1]).T if header.fortran else values.reshape(shape)

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], _Header]]:
        with _reading(self.path), opened(self.path, links=True) as file:
            header = _read_header(file, os.fstat(file.fileno()).st_size)
            if (header.shape, header.dtype) != (self.shape, self.dtype):
                raise ValueError(
                    f"it now holds {header.dtype} of shape {header.shape}, and held {self.dtype} of shape "
                    f"{self.shape} when it was opened"
                )
            yield file, header


def open_npy(path: str | os.PathLike[str]) -> NpyFile:
    """Read the header of an .npy file, and check that the file holds what it promises."""
    source = Path(path)
    with _reading(source), opened(source, links=True) as file:
        header = _read_header(file, os.fstat(file.fileno()).st_size)
    return NpyFile(source.absolute(), header.shape, header.dtype)


@dataclass(frozen=True)
class NpzFile:
    """An .npz file to read arrays from, one by one; see `open_npz`.

    Attributes
    ----------
    names : list of str
        The arrays of the archive.
    """

    _path: Path
    _zip: zipfile.ZipFile
    _entries: dict[str, zipfile.ZipInfo]

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> NDArray[Any]:
        """Read one array."""
        entry = self._entries[name]
        with _reading(self._path):
            try:
                with self._zip.open(entry) as member:
                    end = _read_header(member, entry.file_size).end
                if end != entry.file_size:
                    raise ValueError(f"it has {entry.file_size} bytes for an array of {end}")
                with self._zip.open(entry) as member:
                    values = npy.read_array(member, allow_pickle=False)
                    member.read()  # to its end, where zipfile compares the checksum
                    return values
            except ValueError as error:
                raise ValueError(f"its member {entry.filename!r} is no array: {error}") from error

    def read_bytes(self, name: str, most: int) -> bytes:
        """Read a member that is no array, of at most so many bytes."""
        with _reading(self._path):
            if self._entries[name].file_size > most:
                raise ValueError(f"its member {name!r} has more than {size_text(most)}")
            return self._zip.read(self._entries[name])


@contextmanager
def open_npz(
    path: str | os.PathLike[str], *, compressed: bool = True, file: IO[bytes] | None = None
) -> Iterator[NpzFile]:
    """Open an .npz file.

    Parameters
    ----------
    path : path
    compressed : bool
        Whether members may be compressed. If not, the file is as large as its content.
    file : binary file, optional
        The opened file, if it is not to be opened by its path. It is closed with the archive.
    """
    source = Path(path)
    with ExitStack() as stack:
        with _reading(source):
            content = stack.enter_context(opened(source, links=True) if file is None else file)
            archive = stack.enter_context(zipfile.ZipFile(content))
            entries = archive.infolist()
            _check_sizes(entries, content.seek(0, os.SEEK_END), compressed)
            named = {entry.filename.removesuffix(".npy"): entry for entry in entries}
            if len(named) != len(entries):
                raise ValueError("it has two members of one name")
        yield NpzFile(source, archive, named)


def _check_sizes(entries: Sequence[zipfile.ZipInfo], size: int, compressed: bool) -> None:
    """Raise where an archive of some size promises too much."""
    packed = sum(entry.file_size for entry in entries if entry.compress_type != zipfile.ZIP_STORED)
    if packed and not compressed:
        raise ValueError("it is compressed")
    if packed > max(MAX_INFLATED, MAX_RATIO * size):
        raise ValueError(
            f"it has {size_text(size)} and would inflate to {size_text(packed)}. If that is meant, "
            "write it without compression (np.savez)"
        )
    if sum(entry.file_size for entry in entries) - packed > size:
        raise ValueError("its directory promises more than the file holds")


def _read_header(file: IO[bytes], size: int) -> _Header:
    """Read the header of an .npy file of some size, and leave the file where the numbers begin."""
    magic = file.read(npy.MAGIC_LEN)
    if len(magic) < npy.MAGIC_LEN or not magic.startswith(npy.MAGIC_PREFIX):
        hint = "; it is an archive, so call it .npz" if magic.startswith(b"PK") else ""
        raise ValueError(f"it does not begin like an .npy file{hint}" if size else "the file is empty")
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
        raise ValueError(
            "it holds Python objects, which would have to be unpickled; save texts as fixed-width strings"
        )
    header = _Header(shape, dtype, fortran, file.tell(), file.tell() + math.prod(shape) * dtype.itemsize)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header has the shape {shape}")
    if header.end > size:
        raise ValueError(
            f"its header promises {dtype} of shape {shape}, which needs {header.end} bytes, and it "
            f"has {size}; the file was cut or damaged"
        )
    return header


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever numpy, zipfile and zlib raise for a damaged file into an ArrayFileError."""
    try:
        yield
    except InvalidInputError:  # of the opener
        raise
    except Exception as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
        if isinstance(error, zipfile.BadZipFile):
            reason = f"it is not a valid .npz archive ({reason})"
        elif isinstance(error, MemoryError):
            reason = "there is not enough memory"
        elif not isinstance(error, OSError | ValueError):
            reason = f"{type(error).__name__}: {reason}"
        raise ArrayFileError(path, reason or type(error).__name__) from error

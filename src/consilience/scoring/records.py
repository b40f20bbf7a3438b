"""The files of a cache: records of one width, each with its own checksum."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b, shake_128
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.files.storage import Entry

FILE_BYTES = 2**26
"""A file that would grow beyond this is followed by another: files are deleted as a whole."""

_NAME = re.compile(r"([1-9][0-9]{0,6})(?:-([0-9]{1,6}))?-[0-9a-f]{16}\.rows")
_CHUNK = 2**22  # bytes that are read at once
_GAP = 2**12  # bytes between two records that are read rather than skipped
_SUMMED = 1024  # rows whose words are summed at once, to stay near the processor


class Kind(NamedTuple):
    """What the records of a file hold, which its name says."""

    n_classes: int
    width: int | None
    """Of the embeddings. None: they were not asked for. 0: the teacher has none."""

    @property
    def n_bytes(self) -> int:
        """Of a record: two words of digest, the values in single precision, and a word of checksum."""
        return 8 * (3 + (self.n_classes + (self.width or 0) + 1) // 2)

    @classmethod
    def parse(cls, name: str) -> Kind | None:
        """Read the name of a file; None if it is none of ours."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found[1]), None if found[2] is None else int(found[2]))

    def new_name(self) -> str:
        """Return the name of a new file."""
        width = "" if self.width is None else f"-{self.width}"
        return f"{self.n_classes}{width}-{secrets.token_hex(8)}.rows"

    def sums(self, key: str, records: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the checksum (n,) of each record of a model: its words times odd numbers."""
        about = f"{key} {self.n_classes} {self.width}".encode()
        sums = np.full(len(records), np.frombuffer(blake2b(about, digest_size=8).digest(), np.uint64)[0])
        odd = _odd_numbers(records.shape[1] - 1)
        for start in range(0, len(records), _SUMMED):
            part = slice(start, start + _SUMMED)
            sums[part] += records[part, :-1] @ odd
        return sums


def is_ours(entry: Entry) -> bool:
    """Tell whether a file may be one of records, by its name and size."""
    kind = Kind.parse(entry.path.name)
    return kind is not None and entry.size <= max(FILE_BYTES, kind.n_bytes)


def is_plain(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell which rows are finite or all NaN, as a teacher's are."""
    finite = np.asarray(np.isfinite(values).all(axis=1))
    return finite if finite.all() else finite | np.asarray(np.isnan(values).all(axis=1))


def all_records(file: BinaryIO, kind: Kind) -> Iterator[NDArray[np.uint64]]:
    """Yield the records of a file from where it is, some at a time; half a record at the end is none."""
    while data := file.read(max(1, _CHUNK // kind.n_bytes) * kind.n_bytes):
        whole = len(data) // kind.n_bytes
        if whole:
            yield np.frombuffer(data, np.uint64, whole * kind.n_bytes // 8).reshape(whole, kind.n_bytes // 8)


def read_records(file: BinaryIO, kind: Kind, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the records at some positions, in order; zeros beyond the end."""
    records = np.zeros((len(rows), kind.n_bytes // 8), np.uint64)
    far = np.flatnonzero(np.diff(rows) * kind.n_bytes > kind.n_bytes + _GAP) + 1
    for a, b in pairwise([0, *far.tolist(), len(rows)] if len(rows) else []):
        first, last = int(rows[a]), int(rows[b - 1])
        close = last - first == b - 1 - a  # each record once: straight to its place
        found = records[a:b] if close else np.zeros((last + 1 - first, records.shape[1]), np.uint64)
        file.seek(first * kind.n_bytes)
        file.readinto(found.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
        if not close:
            records[a:b] = found[rows[a:b] - first]
    return records


@cache
def _odd_numbers(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(shake_128(b"consilience").digest(8 * count), np.uint64) | np.uint64(1)

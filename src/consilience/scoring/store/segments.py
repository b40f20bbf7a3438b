"""The files of a store: some rows of one teacher each.

A segment is an uncompressed .npz file. The zip format has a CRC-32 of each member: of an array with its type
and shape. The last member, `seal`, binds the names, sizes and CRCs of the others to the teacher. So damage to
the file's directory is detected, like damage to its numbers. Each row has a checksum of its own as well, so
that a few rows can be read without the rest of the file.

The name of a file tells what is in it: ``block-16384-<hash of the digests>-xe.npz`` is found without a look
into any other file. Names are believed only as far as the content bears them out.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consilience._validation import check_block
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import NpzFile
from consilience.files.storage import StoragePath

BLOCK_ROWS = 16_384
"""Rows of a block that is read at once; smaller segments are joined to blocks of at least so many rows."""

Place = Literal["block", "loose"]
_NAME = re.compile(r"(block|loose)-([1-9][0-9]{0,11})-([0-9a-f]{32})-([xr])([le])\.npz")
# the embeddings of a segment: not asked for, none, or some
_UNASKED, _WITHOUT, _WITH = range(3)
_SUMMED = 1024  # rows whose words are summed at once, to stay near the processor
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True)
class Segment:
    """Some rows of one teacher.

    Attributes
    ----------
    digests : (n, 2) uint64 array
    logits : (n, k) float64 or float32 array
    embeddings : (n, d) array or None
    rounded : bool or None
        Whether `logits` were rounded to single precision. None: a float32 array was, and others were not.
    loose : bool
        Whether it is the whole of a file that waits to be joined to a block.
    """

    digests: NDArray[np.uint64]
    logits: NDArray[Any]
    embeddings: NDArray[Any] | None
    rounded: bool | None = None
    loose: bool = False


@dataclass(frozen=True)
class Name:
    """What the name of a file tells of a segment.

    Attributes
    ----------
    place : "block" or "loose"
        Loose segments wait to be joined to a block.
    rows : int
    content : str
        A hash of the digests, in their order.
    rounded : bool
        Whether logits were rounded to single precision.
    asked : bool
        Whether embeddings were asked for; the teacher may have none.
    """

    place: Place
    rows: int
    content: str
    rounded: bool
    asked: bool

    def __str__(self) -> str:
        kind = f"{'r' if self.rounded else 'x'}{'e' if self.asked else 'l'}"
        return f"{self.place}-{self.rows}-{self.content}-{kind}.npz"

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """Read the name of a file; None if it is none of ours."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        place: Place = "block" if found[1] == "block" else "loose"
        return cls(place, int(found[2]), found[3], found[4] == "r", found[5] == "e")

    @property
    def size_order(self) -> tuple[bool, int, str]:
        """A key that sorts names: blocks after loose ones, then by the number of rows."""
        return self.place == "block", self.rows, str(self)

    def serves(self, embeddings: bool, dtype: np.dtype[Any]) -> bool:
        """Tell whether a reader gets what it wants: rounded numbers are unknown to one of float64."""
        return (self.asked or not embeddings) and (not self.rounded or dtype == np.float32)

    def covers(self, other: Name) -> bool:
        """Tell whether each row here is known at least as well as there."""
        return (self.asked or not other.asked) and (other.rounded or not self.rounded)


def names_of(digests: NDArray[np.uint64], embeddings: bool, dtype: np.dtype[Any]) -> list[Name]:
    """Return the names of all segments that hold exactly these rows for a reader, the smallest first."""
    content = content_of(digests)
    places: tuple[Place, ...] = ("block", "loose")
    found = [
        Name(place, len(digests), content, rounded, asked)
        for place in places
        for asked in (False, True)
        for rounded in (True, False)
    ]
    return [name for name in found if name.serves(embeddings, dtype)]


def content_of(digests: NDArray[np.uint64]) -> str:
    """Return the hash of some rows in their order."""
    return blake2b(_bytes(digests), digest_size=16).hexdigest()


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the type of logits that a caller wants, or raise."""
    found = np.dtype(dtype)
    if found not in _FLOATS:
        raise InvalidInputError("{argument} must be float64 or float32.", argument="dtype", value=dtype)
    return found


def as_float32(values: NDArray[Any]) -> tuple[NDArray[np.float32], bool]:
    """Return numbers in single precision, and whether any was rounded. What is too large becomes the largest.

    Examples
    --------
    >>> as_float32(np.array([0.5, np.nan]))[1], as_float32(np.array([0.1]))[1]
    (False, True)
    """
    if values.dtype == np.float32:
        return values, False
    with np.errstate(over="ignore"):
        low = values.astype(np.float32)
    same = low == values
    if same.all() or (same | (values != values)).all():
        return low, False
    most = np.finfo(np.float32).max
    return np.where(np.isinf(low) & ~np.isinf(values), np.copysign(most, low), low), True


def to_store(
    segment: Segment, place: Place, embeddings: bool, dtype: np.dtype[Any]
) -> tuple[Name, NDArray[Any]]:
    """Return the name of a segment's file, and its logits as they are stored.

    Single precision takes half of the bytes: it is used where it loses nothing or is asked for.
    """
    logits, rounded = segment.logits, bool(segment.rounded)
    if logits.dtype == np.float32:
        rounded = segment.rounded is not False
    else:
        low, lossy = as_float32(logits)
        if not lossy or dtype == np.float32:
            logits, rounded = low, rounded or lossy
        else:
            logits = logits.astype(np.float64, copy=False)
    asked = embeddings or segment.embeddings is not None
    return Name(place, len(segment.digests), content_of(segment.digests), rounded, asked), logits


def write_segment(
    file: BinaryIO,
    key: str,
    name: Name,
    digests: NDArray[np.uint64],
    logits: NDArray[Any],
    embeddings: NDArray[Any] | None,
) -> None:
    """Write a segment of the teacher `key`."""
    contents = _WITH if embeddings is not None else _WITHOUT if name.asked else _UNASKED
    arrays = {"digests": digests, "logits": logits}
    if embeddings is not None:
        arrays["embeddings"] = embeddings
    sums = [row_sums(label, digests, values) for label, values in arrays.items() if label != "digests"]
    arrays["sums"] = np.stack(sums, axis=1)
    # not np.savez: it copies each array, and a CRC that is known would have to be computed again
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for label, values in arrays.items():
            _write_member(archive, label, np.ascontiguousarray(values))
        members = [(label, *_sum(archive.getinfo(f"{label}.npy"))) for label in arrays]
        about = np.array([contents, name.rounded], dtype=np.uint8)
        _write_member(archive, "seal", np.concatenate([about, _seal(key, contents, name.rounded, members)]))


def _write_member(archive: zipfile.ZipFile, label: str, values: NDArray[Any]) -> None:
    header = np.lib.format.header_data_from_array_1_0(values)
    with archive.open(zipfile.ZipInfo(f"{label}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(_bytes(values))


def _sum(entry: zipfile.ZipInfo) -> tuple[int, int]:
    return entry.file_size, entry.CRC


def _bytes(values: NDArray[Any]) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data if values.size else b""


def _seal(key: str, contents: int, rounded: bool, sums: list[tuple[str, int, int]]) -> NDArray[np.uint8]:
    """Return what binds the members of a file to each other and to the teacher."""
    text = f"{key} {contents} {int(rounded)} {sums}"
    return np.frombuffer(blake2b(text.encode(), digest_size=16).digest(), dtype=np.uint8)


def row_sums(label: str, digests: NDArray[np.uint64], values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a checksum (n,) of each row of an array, bound to its digest and to the array's name and type.

    It is a sum of the row's words times odd numbers: a changed word always changes it.
    """
    width = values.dtype.itemsize * values.shape[1]
    word = np.dtype(np.uint64 if width % 8 == 0 else np.uint32 if width % 4 == 0 else np.uint8)
    words = np.ascontiguousarray(values).reshape(-1).view(word).reshape(len(values), width // word.itemsize)
    odd = _odd_numbers(2 + words.shape[1])
    start = blake2b(f"{label} {values.dtype.str} {values.shape[1:]}".encode(), digest_size=8).digest()
    sums = digests @ odd[:2] + np.frombuffer(start, np.uint64)
    for first in range(0, len(words) if width else 0, _SUMMED):
        part = slice(first, first + _SUMMED)
        sums[part] += words[part].astype(np.uint64, copy=False) @ odd[2:]
    return sums


@cache
def _odd_numbers(count: int) -> NDArray[np.uint64]:
    numbers = np.random.default_rng(0).integers(0, 2**64, size=count, dtype=np.uint64) | np.uint64(1)
    numbers.flags.writeable = False
    return numbers


class SegmentFile:
    """A segment to read array by array. All that is not as it must be raises a ValueError.

    Parameters
    ----------
    archive : NpzFile
    key : str
        Of the teacher.
    name : Name
    """

    def __init__(self, archive: NpzFile, key: str, name: Name) -> None:
        self._archive, self._name = archive, name
        for label in ("digests", "logits", "sums", "seal"):
            if label not in archive.names:
                raise ValueError(f"it has no {label}")
        seal = self._read("seal", (np.dtype(np.uint8),), (18,))
        sums = [(label, *archive.checksum(label)) for label in archive.names if label != "seal"]
        contents, rounded = int(seal[0]), bool(seal[1])
        if not np.array_equal(seal[2:], _seal(key, contents, rounded, sums)):
            raise ValueError("its checksum is wrong")
        self._with = contents == _WITH
        if (contents != _UNASKED) != name.asked or rounded != name.rounded:
            raise ValueError("it does not hold what its name says")

    @property
    def n_rows(self) -> int:
        """The number of its rows."""
        return self._name.rows

    def digests(self) -> NDArray[np.uint64]:
        """Return the digests (n, 2)."""
        found: NDArray[np.uint64] = self._read("digests", (np.dtype(np.uint64),), (self._name.rows, 2))
        return found

    def logits(self, n_classes: int) -> NDArray[Any]:
        """Return the logits (n, k), as they are stored."""
        return self._read("logits", _FLOATS, (self._name.rows, n_classes))

    def embeddings(self) -> NDArray[Any] | None:
        """Return the embeddings (n, d), or None if the teacher has none."""
        return self._read("embeddings", np.floating, (self._name.rows, None)) if self._with else None

    def segment(self, n_classes: int, embeddings: bool) -> Segment:
        """Return all that is stored; without embeddings where they are not wanted."""
        return self.part(self.digests(), None, n_classes, embeddings)

    def part(
        self, digests: NDArray[np.uint64], rows: NDArray[np.intp] | None, n_classes: int, embeddings: bool
    ) -> Segment:
        """Return some rows (None: all) in their order; `digests` are those of all rows."""
        logits, features = self.logits(n_classes), self.embeddings() if embeddings else None
        every = rows is None or len(rows) == len(digests)
        if not every:
            digests, logits = digests[rows], logits[rows]
            features = None if features is None else features[rows]
        loose = every and self._name.place == "loose" and self._name.asked == embeddings
        return replace(self._checked(digests, logits, features), loose=loose)

    def few(
        self, digests: NDArray[np.uint64], rows: NDArray[np.intp], n_classes: int, embeddings: bool
    ) -> tuple[NDArray[np.bool_], Segment]:
        """Return those of a few rows that have these digests, and which; the rest of the file is not read."""
        places, n = rows.tolist(), len(rows)
        whole = (np.dtype(np.uint64),)
        found = {
            "digests": self._check("digests", self._archive.read_rows("digests", places), whole, (n, 2)),
            "sums": self._check("sums", self._archive.read_rows("sums", places), whole, (n, 1 + self._with)),
            "logits": self._check(
                "logits", self._archive.read_rows("logits", places), _FLOATS, (n, n_classes)
            ),
        }
        if embeddings and self._with:
            features = self._archive.read_rows("embeddings", places)
            found["embeddings"] = self._check("embeddings", features, np.floating, (n, None))
        for place, label in enumerate(("logits", "embeddings")):
            sums = None if label not in found else row_sums(label, found["digests"], found[label])
            if sums is not None and not np.array_equal(sums, found["sums"][:, place]):
                raise ValueError(f"the checksum of a row of its {label} is wrong")
        right = (found["digests"] == digests).all(axis=1)
        kept = {label: values[right] for label, values in found.items()}
        return right, self._checked(kept["digests"], kept["logits"], kept.get("embeddings"))

    def _checked(
        self, digests: NDArray[np.uint64], logits: NDArray[Any], features: NDArray[Any] | None
    ) -> Segment:
        check_block(logits, "logits")
        if features is not None:
            check_block(features, "embeddings")
        return Segment(digests, logits, features, self._name.rounded)

    def _read(
        self, label: str, kinds: tuple[np.dtype[Any], ...] | type[np.generic], shape: tuple[int | None, ...]
    ) -> NDArray[Any]:
        """Return one array, or raise unless its type and shape (None: any length) are right."""
        return self._check(label, self._archive.read(label), kinds, shape)

    def _check(
        self,
        label: str,
        values: NDArray[Any],
        kinds: tuple[np.dtype[Any], ...] | type[np.generic],
        shape: tuple[int | None, ...],
    ) -> NDArray[Any]:
        fits = values.ndim == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, values.shape, strict=True)
        )
        known = values.dtype in kinds if isinstance(kinds, tuple) else np.issubdtype(values.dtype, kinds)
        if not fits or not known:
            raise ValueError(f"its {label} are {values.dtype} of shape {values.shape}")
        return values


@contextmanager
def opened(path: StoragePath, key: str, name: Name, *, parts: bool = False) -> Iterator[SegmentFile]:
    """Open a segment, perhaps to read only parts. A FileNotFoundError tells that there is none."""
    # refuse compressed files: we write none, and those of others may inflate to any size
    with path.reading(parts=parts) as file, NpzFile(path.name, compressed=False, file=file) as archive:
        yield SegmentFile(archive, key, name)


def cast(segment: Segment, dtype: np.dtype[Any]) -> Segment:
    """Return a segment with logits of a type."""
    if segment.logits.dtype == dtype:
        return segment
    if dtype == np.float64:
        return replace(segment, logits=segment.logits.astype(np.float64))
    low, lossy = as_float32(segment.logits)
    return replace(segment, logits=low, rounded=lossy or segment.rounded)

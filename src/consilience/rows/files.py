"""Rows in files: one file, several, or all of a folder."""

from __future__ import annotations

import csv
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import TextIOWrapper
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import installed, require
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import ArrayFileError, NpyFile, open_npy, open_npz
from consilience.options import check_choice
from consilience.rows.images import IMAGES, read_header, read_image
from consilience.rows.rows import BLOCK_BYTES, LOOKED_AT, HeldRows, Rows, block_rows, bytes_of, cut, n_rows
from consilience.rows.tables import column_names, columns_of, in_order, is_table, kind_of, quoted

ENDINGS = (".csv", ".parquet", ".npy", ".npz", ".txt")
"""The endings of files of rows."""
_LINES = 4096  # of texts: where every so many begin is remembered
_BOM = "\ufeff"  # the mark with which some editors begin a file


def open_files(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    option: str = "X",
    expected: Mapping[Any, str] | None = None,
    drop: Sequence[str] = (),
) -> Rows:
    """Return the rows of a file, a folder, a pattern such as ``rows/*.parquet``, or a list of files.

    Parameters
    ----------
    given : path or list of paths
        .csv, .parquet, .npy, .npz (key ``X``), .txt with a text per line, or images. Columns with names
        may come in another order in each file.
    option : str
        What named them, for messages.
    expected : mapping, optional
        What columns of .csv files should hold, by name: see `consilience.rows.csv.CsvRows.expect`.
    drop : sequence of str
        Columns to leave out. Not all files need have them.
    """
    paths = files_of(given, option)
    kinds = Counter(path.suffix.lower() for path in paths)
    kind = next(iter(kinds))
    if set(kinds) <= IMAGES:
        if drop:
            raise InvalidInputError("--drop names a column, and images have none.")
        return ImageRows(paths, option)
    if len(kinds) > 1:
        listed = ", ".join(f"{count} {kind or 'without ending'}" for kind, count in kinds.most_common(4))
        raise InvalidInputError(f"{option} has files of several kinds: {listed}. Give files of one kind.")
    if kind not in ENDINGS:
        raise InvalidInputError(
            f"{option} reads {', '.join(ENDINGS)}; {paths[0].name!r} ends in none of these."
        )
    rows: Rows | None = None
    if kind == ".csv" and not installed("pyarrow") and not drop:
        rows = _plain_numbers(paths)
    if rows is None:
        files = [FilePart(path, option, _opener(kind)) for path in paths]
        columns = common_columns(files, drop, option)
        if kind == ".csv":
            from consilience.rows.csv import CsvRows

            rows = CsvRows([file.part for file in files], columns, expected or {})
        elif kind == ".parquet":
            from consilience.rows.arrow import parquet_rows

            rows = parquet_rows(files, columns, option)
        else:
            rows = PartRows(files)
    rows.option = option
    return rows


def _plain_numbers(paths: Sequence[Path]) -> Rows | None:
    """Return .csv files of numbers alone, for which numpy will do; None for others."""
    try:
        return HeldRows(np.concatenate([np.loadtxt(path, delimiter=",", ndmin=2) for path in paths]))
    except ValueError:
        return None


def _opener(kind: str) -> Callable[[Path], Any]:
    if kind == ".csv":
        require("pyarrow", extra="tables", purpose="Reading a .csv file with names, texts or missing values")
        from consilience.rows.csv import CsvTable

        return CsvTable
    if kind == ".parquet":
        from consilience.rows.arrow import Fragment

        return Fragment.of_file
    return Texts if kind == ".txt" else Arrays


def read_alike(path: Path, option: str, X: Any, data: str, drop: Sequence[str] = ()) -> Any:
    """Return rows like those of X, of the file `data`: their columns in the same order, without `drop`."""
    expected = dict(zip(X.columns, map(kind_of, columns_of(X)), strict=True)) if is_table(X) else None
    found: Any = open_files(path, option, expected)
    if found.names:
        found.choose([name for name in found.names if name not in drop])
    rows = in_order(found.all(None), column_names(X), f"{option}: {path}")
    # texts have no shape of their own; NumPy would pad all of them to the longest
    got, wanted = (() if isinstance(one, list) else np.shape(one)[1:] for one in (rows, X))
    if got != wanted:
        raise InvalidInputError(
            f"{option}: {path} has rows of shape {got}, and {data} of {wanted}. Give rows of one kind."
        )
    return rows


class PartRows(Rows):
    """Rows of parts that follow each other, such as files. No block holds rows of two of them.

    A part has `n_rows` and ``read(start, stop, columns)``. If it has `stretch`, too, reading from the row
    ``stretch(row)`` on is as quick as reading from `row`.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = [part for part in parts if part.n_rows]
        counts = [part.n_rows for part in self._parts]
        self._starts = np.cumsum([0, *counts])
        few = self._rows(self._parts[0], 0, min(LOOKED_AT, counts[0]))
        self.borders = cut(counts, block_rows(bytes_of(few), n_rows(few)))

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        return self._rows(*self._place(block))

    def _place(self, block: int) -> tuple[Any, int, int]:
        """Return the part of a block, and the rows of that part."""
        rows = self.rows_of(block)
        number = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        start = int(self._starts[number])
        return self._parts[number], rows.start - start, rows.stop - start

    def _rows(self, part: Any, start: int, stop: int) -> Any:
        """Return rows of a part as a teacher takes them."""
        return part.read(start, stop)

    @property
    def stretches(self) -> Sequence[range]:
        """Blocks that begin in the same group of rows of a part."""

        def group(block: int) -> tuple[int, int]:
            part, start, _ = self._place(block)
            return id(part), part.stretch(start) if hasattr(part, "stretch") else start

        grouped = (list(blocks) for _, blocks in groupby(range(self.n_blocks), group))
        return [range(blocks[0], blocks[-1] + 1) for blocks in grouped]


class FilePart:
    """A file of rows, which must stay as it was when it was opened."""

    def __init__(self, path: Path, option: str, kind: Callable[[Path], Any]) -> None:
        with reading(path, option):
            self.path, self._option, self._stamp = path, option, _stamp(path)
            self.part = kind(path)
            self.n_rows: int = self.part.n_rows
        if self.n_rows == 0:
            raise InvalidInputError(f"{option}: {path} has no rows; expected at least one.")
        if hasattr(self.part, "stretch"):
            self.stretch = self.part.stretch

    def read(self, start: int, stop: int, *columns: Sequence[str]) -> Any:
        """Return the rows from `start` to `stop`; raise where the file has changed."""
        with reading(self.path, self._option):
            if _stamp(self.path) != self._stamp:
                raise ValueError(
                    f"it had {counted(self.n_rows, 'row')} when it was opened, and has changed since. Run "
                    "again when nobody writes to it"
                )
            return self.part.read(start, stop, *columns)


class Arrays:
    """An .npy file, or an .npz, which may be compressed: it is read at once."""

    names = None

    def __init__(self, path: Path) -> None:
        self._values: Any = open_npy(path) if path.suffix.lower() == ".npy" else read_npz_array(path, "X")
        dtype, shape = self._values.dtype, self._values.shape
        if dtype.kind not in "biuf" or len(shape) < 2 or 0 in shape:
            raise ValueError(
                f"it holds {dtype} of shape {shape}; expected numbers (n, ...), with at least one row"
            )
        self.n_rows, self.kind = shape[0], f"{dtype} of shape (n, {', '.join(map(str, shape[1:]))})"

    def read(self, start: int, stop: int) -> Any:
        """Return some rows."""
        whole = isinstance(self._values, NpyFile)
        return self._values.part(start, stop) if whole else self._values[start:stop]


class Texts:
    """A text per line; an empty line is an empty text."""

    names, kind = None, "texts"

    def __init__(self, path: Path) -> None:
        self._path, self._marks, self.n_rows, place = path, [0], 0, 0  # where line 0, _LINES, ... begins
        for line in self._from(0):
            place += len(line) if line.isascii() else len(line.encode())
            self.n_rows += 1
            if self.n_rows % _LINES == 0:
                self._marks.append(place)

    def _from(self, place: int) -> Iterator[str]:
        # every end of a line counts, and is kept, so that places can be added up
        with TextIOWrapper(self._path.open("rb"), newline="", encoding="utf-8") as file:
            file.buffer.seek(place)  # before anything is read
            yield from file

    def read(self, start: int, stop: int) -> Any:
        """Return some rows."""
        mark, first = divmod(start, _LINES)
        lines = islice(self._from(self._marks[mark]), first, first + stop - start)
        texts = [line.rstrip("\r\n") for line in lines]
        return texts if start or not texts else [texts[0].removeprefix(_BOM), *texts[1:]]


class ImageRows(Rows):
    """Images as rows (height, width, 3) of uint8, or (height, width) if all of them are grey.

    The sizes come from the first bytes of the files; the pixels are read block by block. Images of one size
    come as one array (b, height, width, 3), others as a list of arrays.
    """

    def __init__(self, paths: Sequence[Path], option: str = "X") -> None:
        self._paths, self.option = list(paths), option
        *shapes, grey = zip(*(read_header(path, option) for path in self._paths), strict=True)
        self._mode, self._sizes = "L" if all(grey) else "RGB", np.array(shapes, dtype=np.int64).T
        self._one_size = bool((self._sizes == self._sizes[0]).all())
        self._bytes = self._sizes.prod(axis=1) * len(self._mode)
        # a block is what begins in the same stretch of so many bytes; a block of tiny images has some rows
        sizes = np.maximum(self._bytes, BLOCK_BYTES / block_rows(1, 1))
        number = (sizes.cumsum() - sizes) // BLOCK_BYTES
        self.borders = np.array([0, *(np.flatnonzero(np.diff(number)) + 1), len(number)], dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, height, width, 3) of all rows; (n,) if they differ in size."""
        size = (*map(int, self._sizes[0]), 3)[: len(self._mode) // 3 + 2]
        return (len(self), *size) if self._one_size else (len(self),)

    @cached_property
    def head(self) -> Any:
        """The first few images; the rest of their block is not read."""
        return self.take(np.arange(min(int(self.borders[1]), LOOKED_AT)))

    @property
    def n_bytes(self) -> int:
        """How much memory the pixels of all images would take."""
        return int(self._bytes.sum())

    def read(self, block: int) -> Any:
        """Return the images of one block: (b, height, width, 3), or a list if sizes differ."""
        return self.take(np.arange(len(self))[self.rows_of(block)])

    def take(self, rows: NDArray[np.intp]) -> Any:
        """Return some images, by their positions. Only their files are read."""
        found = [self._image(row) for row in rows.tolist()]
        if not self._one_size:
            return found
        return np.stack(found) if found else np.empty((0, *self.shape[1:]), np.uint8)

    def _image(self, row: int) -> NDArray[np.uint8]:
        values = read_image(self._paths[row], self._mode, self.option)
        if values.shape[:2] != tuple(self._sizes[row]):
            raise InvalidInputError(
                f"{self.option}: {self._paths[row]} is {values.shape[1]} x {values.shape[0]}, and was "
                f"{self._sizes[row, 1]} x {self._sizes[row, 0]} when it was first opened. Leave the files "
                "alone while they are read."
            )
        return values


def common_columns(files: Sequence[FilePart], drop: Sequence[str], option: str) -> Any:
    """Return the columns that are read, in order; None where they have no names. All files must agree."""
    first, *others = ((file.path, file.part.names, file.part.kind) for file in files)
    wanted = _without(first[1], drop)
    for path, names, kind in others:
        if (names is None) != (first[1] is None):
            which = ("no header", "one") if names is None else ("a header", "none")
            raise InvalidInputError(
                f"{option}: {path} has {which[0]}, and {first[0].name} has {which[1]}. Give all files one, "
                "or none."
            )
        if kind != first[2]:
            raise InvalidInputError(
                f"{option}: {path} holds {kind}, and {first[0].name} {first[2]}. Give files of one kind."
            )
        found = _without(names, drop)
        differ = [("lacks", _without(wanted, found)), ("has the other", _without(found, wanted))]
        told = " and ".join(f"{verb} columns {quoted(names)}" for verb, names in differ if names)
        if told:
            raise InvalidInputError(
                f"{option}: {path} {told}, compared with {first[0].name}. Give files with the same columns."
            )
    if drop and first[1] is None:
        raise InvalidInputError(f"--drop names a column, and those of {first[0]} have no names.")
    for name in drop:
        check_choice("drop", name, list(dict.fromkeys(name for file in files for name in file.part.names)))
    if drop and not wanted:
        raise InvalidInputError(f"--drop leaves no column of {first[0]}.")
    return None if first[1] is None else wanted


def _without(names: Sequence[str] | None, others: Sequence[str]) -> list[str]:
    return [name for name in names or () if name not in others]


def read_npz_array(path: Path, key: str) -> Any:
    """Return the array of some name of an .npz file, or its only one."""
    with open_npz(path) as archive:
        found = archive.names if len(archive.names) == 1 else [name for name in archive.names if name == key]
        if not found:
            raise ValueError(f"it has {shorten(archive.names) or 'nothing'}; expected an array {key}")
        return archive.read(found[0])


def files_of(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], option: str = "X"
) -> list[Path]:
    """Return the files that are listed, or that a path stands for: a file, a folder or a pattern."""
    if not isinstance(given, str | os.PathLike):
        if not all(isinstance(path, str | os.PathLike) for path in given):
            raise InvalidInputError(f"{option} is a list of paths and other things; give paths alone.")
        return [Path(path) for path in given]
    name = os.fspath(given)
    path = Path(name)
    if path.is_dir():
        known = {*ENDINGS, *IMAGES}
        if path.resolve() == path.resolve().parent:
            raise InvalidInputError(
                f"{option}: {path} is a whole disk. Give the folder that the rows are in."
            )
        inside = [other for other in sorted(path.rglob("*")) if other.suffix.lower() in known]
        paths = [other for other in inside if not _is_hidden(other.relative_to(path)) and other.is_file()]
        none = f"the folder {path} has no rows; expected files that end in "
        none += shorten([*ENDINGS, *sorted(IMAGES)], 20)
    elif path.exists():
        return [path]
    else:
        paths = [Path(found) for found in sorted(glob.glob(name, recursive=True)) if os.path.isfile(found)]
        none = f"{path} does not exist. Give a file, a folder or a pattern"
        if glob.has_magic(name):
            none = f"no file fits {name!r}"
    if not paths:
        raise InvalidInputError(f"{option}: {none}.")
    return paths


def _is_hidden(path: Path) -> bool:
    """Tell whether a file is no data, as programs that write folders of files mark it: _SUCCESS, .crc."""
    return any(part.startswith((".", "_")) for part in path.parts)


@contextmanager
def reading(path: Path, option: str) -> Iterator[None]:
    """Say which file of which option cannot be read, and why."""
    if not path.is_file():
        raise InvalidInputError(f"{option}: {path} does not exist, or is no file.")
    try:
        yield
    except ArrayFileError as error:
        raise InvalidInputError(f"{option}: {error}") from error
    except InvalidInputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, csv.Error) as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in reason:
            reason = "it is no text in UTF-8. Save it in UTF-8"
        hint = " Is a quote left open?" if isinstance(error, csv.Error) or "straddling" in reason else ""
        raise InvalidInputError(f"{option}: {path} cannot be read: {reason}.{hint}") from error


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes where a file is written anew."""
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns

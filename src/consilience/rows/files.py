"""Rows in files: one file, several, or all of a folder."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from consilience._optional import installed, require
from consilience._tables import column_names, columns_of, in_order, is_table, kind_of, quoted
from consilience._validation import check_choice
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import NpyFile, open_npy, open_npz
from consilience.rows.images import IMAGES, ImageRows
from consilience.rows.parts import FilePart, PartRows, TableRows, reading
from consilience.rows.rows import HeldRows, Rows

ENDINGS = (".csv", ".parquet", ".npy", ".npz", ".txt")
"""The endings of files of rows."""
_LINES = 4096  # of texts: where every so many begin is remembered
_BOM = "\ufeff"  # the mark with which some editors begin a file


def open_files(
    given: str | os.PathLike[str] | Sequence[Path],
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
        What columns of .csv files should hold, by name: see `consilience.rows.csv.Layout.expecting`.
    drop : sequence of str
        Columns to leave out. Not all files need have them.
    """
    paths = list(given) if isinstance(given, list | tuple) else files_of(given, option)  # type: ignore[arg-type]
    kinds = Counter(path.suffix.lower() for path in paths)
    rows: Rows
    if set(kinds) <= IMAGES:
        if drop:
            raise InvalidInputError("--drop names a column, and images have none.")
        rows = ImageRows(paths, option)
    elif len(kinds) > 1:
        listed = ", ".join(f"{count} {kind or 'without ending'}" for kind, count in kinds.most_common(4))
        raise InvalidInputError(f"{option} has files of several kinds: {listed}. Give files of one kind.")
    else:
        open_kind = _KINDS.get(next(iter(kinds)))
        if open_kind is None:
            raise InvalidInputError(
                f"{option} reads {', '.join(_KINDS)}; {paths[0].name!r} ends in none of these."
            )
        rows = open_kind(paths, option, drop, expected or {})
    rows.option = option
    return rows


def read_alike(path: Path, option: str, X: Any, data: str, drop: Sequence[str] = ()) -> Any:
    """Return rows like those of X, of the file `data`: their columns in the same order, without `drop`."""
    expected = dict(zip(X.columns, map(kind_of, columns_of(X)), strict=True)) if is_table(X) else None
    found = open_files(path, option, expected)
    if isinstance(found, TableRows) and found.names:
        found.choose([name for name in found.names if name not in drop])
    rows = in_order(found.all(None), column_names(X), f"{option}: {path}")
    # texts have no shape of their own; NumPy would pad all of them to the longest
    got, wanted = (() if isinstance(one, list) else np.shape(one)[1:] for one in (rows, X))
    if got != wanted:
        raise InvalidInputError(
            f"{option}: {path} has rows of shape {got}, and {data} of {wanted}. Give rows of one kind."
        )
    return rows


class _Array(FilePart):
    """An .npy file, or an .npz, which may be compressed: it is read at once."""

    def __init__(self, path: Path, option: str) -> None:
        super().__init__(path, option)
        self._values = open_npy(path) if path.suffix.lower() == ".npy" else read_npz_array(path, "X")
        dtype, shape = self._values.dtype, self._values.shape
        if dtype.kind not in "biuf" or len(shape) < 2:
            raise ValueError(
                f"it holds {dtype} of shape {shape}; expected numbers of shape (n, ...), a row per sample"
            )
        if 0 in shape:
            raise ValueError(f"it has shape {shape}; expected at least one row")
        self.n_rows, self.kind = shape[0], f"{dtype} of shape (n, {', '.join(map(str, shape[1:]))})"

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
        if isinstance(self._values, NpyFile):
            return self._values.part(start, stop)
        return self._values[start:stop]


class _Texts(FilePart):
    """A text per line; an empty line is an empty text."""

    kind = "texts"

    def __init__(self, path: Path, option: str) -> None:
        super().__init__(path, option)
        self._marks, self.n_rows, place = [0], 0, 0  # where line 0, _LINES, 2 * _LINES, ... begins
        for line in self._from(0):
            place += len(line) if line.isascii() else len(line.encode())
            self.n_rows += 1
            if self.n_rows % _LINES == 0:
                self._marks.append(place)

    def _from(self, place: int) -> Iterator[str]:
        # every end of a line counts, and is kept, so that places can be added up
        with TextIOWrapper(self.path.open("rb"), newline="", encoding="utf-8") as file:
            file.buffer.seek(place)  # before anything is read
            yield from file

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
        lines = islice(
            self._from(self._marks[start // _LINES]), start % _LINES, start % _LINES + stop - start
        )
        texts = [line.rstrip("\r\n") for line in lines]
        return texts if start or not texts else [texts[0].removeprefix(_BOM), *texts[1:]]


def _arrays(paths: Sequence[Path], option: str, drop: Sequence[str], expected: Mapping[Any, str]) -> Rows:
    parts = _open(_Texts if paths[0].suffix.lower() == ".txt" else _Array, paths, option)
    _common(paths, [None for _ in parts], drop, option)
    _check_kinds(paths, [part.kind for part in parts], option)
    return PartRows(parts)


def _csv(paths: Sequence[Path], option: str, drop: Sequence[str], expected: Mapping[Any, str]) -> Rows:
    if not installed("pyarrow") and not drop:  # a table of plain numbers needs no extra
        try:
            return HeldRows(np.concatenate([np.loadtxt(path, delimiter=",", ndmin=2) for path in paths]))
        except ValueError:
            pass
    require("pyarrow", extra="tables", purpose="Reading a .csv file with names, texts or missing values")
    from consilience.rows.csv import CsvRows, CsvTable

    tables = _open(lambda path, option: CsvTable(path), paths, option)
    columns = _common(paths, [table.names if table.header else None for table in tables], drop, option)
    if columns is None:
        _check_kinds(paths, [counted(len(table.names), "column") for table in tables], option)
    return CsvRows(tables, columns, expected)


def _parquet(paths: Sequence[Path], option: str, drop: Sequence[str], expected: Mapping[Any, str]) -> Rows:
    require("pyarrow", extra="tables", purpose="Reading parquet")
    from consilience.rows.arrow import ParquetFile, unified

    parts = _open(ParquetFile, paths, option)
    columns = _common(paths, [part.names for part in parts], drop, option)
    schema = unified(parts, columns, option)
    return TableRows(parts, schema, set().union(*(part.gaps for part in parts)).intersection(columns))


def _open(kind: Any, paths: Sequence[Path], option: str) -> list[Any]:
    parts = []
    for path in paths:
        with reading(path, option):
            parts.append(kind(path, option))
        if parts[-1].n_rows == 0:
            raise InvalidInputError(f"{option}: {path} has no rows; expected at least one.")
    return parts


def _common(
    paths: Sequence[Path], names: Sequence[list[str] | None], drop: Sequence[str], option: str
) -> Any:
    """Return the columns that are read, in order; None where they have no names. All files must agree."""
    first = names[0]
    for path, found in zip(paths, names, strict=True):
        if (first is None) != (found is None):
            which = ("no header", "one") if found is None else ("a header", "none")
            raise InvalidInputError(
                f"{option}: {path} has {which[0]}, and {paths[0].name} has {which[1]}. Give all files one, "
                "or none."
            )
        lacking, others = _others(first, found, drop), _others(found, first, drop)
        if lacking or others:
            differ = [("lacks", lacking), ("has the other", others)]
            told = " and ".join(f"{verb} columns {quoted(names)}" for verb, names in differ if names)
            raise InvalidInputError(
                f"{option}: {path} {told}, compared with {paths[0].name}. Give files with the same columns."
            )
    if first is None:
        if drop:
            raise InvalidInputError(f"--drop names a column, and those of {paths[0]} have no names.")
        return None
    for name in drop:
        check_choice("drop", name, list(dict.fromkeys(name for one in names for name in one or ())))
    left = _others(first, (), drop)
    if not left:
        raise InvalidInputError(f"--drop leaves no column of {paths[0]}.")
    return left


def _others(names: Sequence[str] | None, known: Sequence[str] | None, drop: Sequence[str]) -> list[str]:
    """Return the names that are not known, without those to drop."""
    return [name for name in names or () if name not in (known or ()) and name not in drop]


def _check_kinds(paths: Sequence[Path], kinds: Sequence[str], option: str) -> None:
    for path, kind in zip(paths, kinds, strict=True):
        if kind != kinds[0]:
            raise InvalidInputError(
                f"{option}: {path} holds {kind}, and {paths[0].name} {kinds[0]}. Give files of one kind."
            )


def read_npz_array(path: Path, key: str) -> Any:
    """Return the array of some name of an .npz file, or its only one."""
    with open_npz(path) as archive:
        found = archive.names if len(archive.names) == 1 else [name for name in archive.names if name == key]
        if not found:
            raise ValueError(f"it has {shorten(archive.names) or 'nothing'}; expected an array {key}")
        return archive.read(found[0])


_KINDS: dict[str, Any] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npy": _arrays,
    ".npz": _arrays,
    ".txt": _arrays,
}


def files_of(name: str | os.PathLike[str], option: str = "X") -> list[Path]:
    """Return the files that a path stands for: itself, those of a folder, or those that fit a pattern."""
    name = os.fspath(name)
    path = Path(name)
    if path.is_dir():
        known = {*ENDINGS, *IMAGES}
        inside = [other for other in sorted(path.rglob("*")) if other.suffix.lower() in known]
        paths = [other for other in inside if not _is_hidden(other.relative_to(path)) and other.is_file()]
        if not paths:
            raise InvalidInputError(
                f"{option}: the folder {path} has no rows; expected files that end in "
                f"{shorten([*ENDINGS, *sorted(IMAGES)], 20)}."
            )
        return paths
    if path.exists():
        return [path]
    if not glob.has_magic(name):
        raise InvalidInputError(f"{option}: {path} does not exist. Give a file, a folder or a pattern.")
    paths = [Path(found) for found in sorted(glob.glob(name, recursive=True)) if os.path.isfile(found)]
    if not paths:
        raise InvalidInputError(f"{option}: no file fits {name!r}.")
    return paths


def _is_hidden(path: Path) -> bool:
    """Tell whether a file is no data, as programs that write folders of files mark it: _SUCCESS, .crc."""
    return any(part.startswith((".", "_")) for part in path.parts)

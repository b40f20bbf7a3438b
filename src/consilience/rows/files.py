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
from consilience.files.arrays import NpzFile, open_npy
from consilience.rows.arrow import Fragment, TableRows, gaps_of
from consilience.rows.csv import CsvRows, CsvTable
from consilience.rows.images import IMAGES, ImageRows
from consilience.rows.parts import FilePart, PartRows, reading
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


class _Npy(FilePart):
    def __init__(self, path: Path, option: str) -> None:
        super().__init__(path, option)
        self._file = open_npy(path)
        check_numbers(self._file)
        self.n_rows, self.kind = len(self._file), _array_type(self._file)

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
        return self._file.part(start, stop)


class _Npz(FilePart):
    """An archive, which may be compressed: it is read at once."""

    def __init__(self, path: Path, option: str) -> None:
        super().__init__(path, option)
        self._values = read_npz_array(path, "X")
        check_numbers(self._values)
        self.n_rows, self.kind = len(self._values), _array_type(self._values)

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
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


class _ParquetFile(FilePart):
    def __init__(self, path: Path, option: str) -> None:
        super().__init__(path, option)
        dataset = require("pyarrow.dataset", extra="tables", purpose="Reading parquet")
        (found,) = dataset.dataset(path, format="parquet").get_fragments()
        schema = found.physical_schema.remove_metadata()
        self._fragment, self.schema = Fragment(found, schema), schema
        # pandas writes its index as one more column
        self.names = [name for name in schema.names if not name.startswith("__index_level_")]
        if not self.names:
            raise ValueError("it has no columns")
        self.n_rows, self.gaps = self._fragment.n_rows, gaps_of(found, schema)

    def stretch(self, row: int) -> int:
        return self._fragment.stretch(row)

    def _read(self, start: int, stop: int, columns: Sequence[str] | None) -> Any:
        return self._fragment.read(start, stop, columns)


def _arrays(kind: type[Any]) -> Any:
    """Return what opens files of rows that have no named columns."""

    def opened(paths: Sequence[Path], option: str, drop: Sequence[str], expected: Mapping[Any, str]) -> Rows:
        parts = _open(kind, paths, option)
        if drop:
            raise InvalidInputError(f"--drop names a column, and those of {paths[0]} have no names.")
        for part in parts[1:]:
            _check_kind(part.path, part.kind, paths[0], parts[0].kind, option)
        return PartRows(parts)

    return opened


def _csv(paths: Sequence[Path], option: str, drop: Sequence[str], expected: Mapping[Any, str]) -> Rows:
    if not installed("pyarrow") and not drop:  # a table of plain numbers needs no extra
        try:
            return HeldRows(np.concatenate([np.loadtxt(path, delimiter=",", ndmin=2) for path in paths]))
        except ValueError:
            pass
    tables = _open(lambda path, option: CsvTable(path), paths, option)
    names = [table.layout.names if table.layout.header else None for table in tables]
    columns = _common(paths, names, drop, option)
    if columns is None:
        widths = [counted(len(table.layout.names), "column") for table in tables]
        for path, width in zip(paths, widths, strict=True):
            _check_kind(path, width, paths[0], widths[0], option)
    return CsvRows(tables, columns, expected)


def _parquet(paths: Sequence[Path], option: str, drop: Sequence[str], expected: Mapping[Any, str]) -> Rows:
    arrow = require("pyarrow", extra="tables", purpose="Reading parquet")
    parts = _open(_ParquetFile, paths, option)
    columns = _common(paths, [part.names for part in parts], drop, option)
    schemas = [arrow.schema([part.schema.field(name) for name in columns]) for part in parts]
    if any(not schema.equals(schemas[0]) for schema in schemas):  # one type for each column
        schemas = [
            arrow.schema([(field.name, _plain(arrow, field.type)) for field in one]) for one in schemas
        ]
    together = schemas[0]
    for path, schema in zip(paths, schemas, strict=True):
        try:
            together = arrow.unify_schemas([together, schema], promote_options="permissive")
        except arrow.ArrowTypeError as error:
            raise InvalidInputError(
                f"{option}: {path} does not fit {paths[0].name}: {error}. Write the column in one type in "
                "all files."
            ) from error
    return TableRows(parts, together, set().union(*(part.gaps for part in parts)).intersection(columns))


def _plain(arrow: Any, kind: Any) -> Any:
    return kind.value_type if arrow.types.is_dictionary(kind) else kind


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
    if first is None:
        left = None
        if drop:
            raise InvalidInputError(f"--drop names a column, and those of {paths[0]} have no names.")
    else:
        for name in drop:
            check_choice("drop", name, list(dict.fromkeys(name for one in names for name in one or ())))
        left = [name for name in first if name not in drop]
        if not left:
            raise InvalidInputError(f"--drop leaves no column of {paths[0]}.")
    for path, found in zip(paths, names, strict=True):
        where = f"{option}: {path}"
        if (first is None) != (found is None):
            which = ("no header", "one") if found is None else ("a header", "none")
            raise InvalidInputError(
                f"{where} has {which[0]}, and {paths[0].name} has {which[1]}. Give all files one, or none."
            )
        given = [name for name in found or () if name not in drop]
        missing = [name for name in left or () if name not in given]
        unknown = [name for name in given if name not in (left or ())]
        if missing or unknown:
            differ = [("lacks", missing), ("has the other", unknown)]
            told = " and ".join(f"{verb} columns {quoted(names)}" for verb, names in differ if names)
            raise InvalidInputError(
                f"{where} {told}, compared with {paths[0].name}. Give files with the same columns."
            )
    return left


def _check_kind(path: Path, kind: str, first: Path, wanted: str, option: str) -> None:
    if kind != wanted:
        raise InvalidInputError(
            f"{option}: {path} holds {kind}, and {first.name} {wanted}. Give files of one kind."
        )


def check_numbers(values: Any) -> None:
    """Raise unless an array, or the header of one, holds rows of numbers."""
    if values.dtype.kind not in "biuf" or values.ndim < 2:
        raise ValueError(
            f"it holds {values.dtype} of shape {values.shape}; expected numbers of shape (n, ...), a row per "
            "sample"
        )
    if 0 in values.shape:
        raise ValueError(f"it has shape {values.shape}; expected at least one row")


def read_npz_array(path: Path, key: str) -> Any:
    """Return the array of some name of an .npz file, or its only one."""
    with NpzFile(path) as archive:
        found = archive.names if len(archive.names) == 1 else [name for name in archive.names if name == key]
        if not found:
            raise ValueError(f"it has {shorten(archive.names) or 'nothing'}; expected an array {key}")
        return archive.read(found[0])


def _array_type(values: Any) -> str:
    return f"{values.dtype} of shape (n, {', '.join(map(str, values.shape[1:]))})"


_KINDS: dict[str, Any] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npy": _arrays(_Npy),
    ".npz": _arrays(_Npz),
    ".txt": _arrays(_Texts),
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

"""Rows in files: one file, several, or all of a folder."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from consilience._tables import quoted
from consilience._validation import check_choice
from consilience._words import shorten
from consilience.exceptions import InvalidInputError
from consilience.files.readers import reading
from consilience.files.streams import ENDINGS, CsvFile, ParquetFile, RowFile, open_rows
from consilience.rows.images import IMAGES, ImageSource
from consilience.rows.rows import LOOKED_AT, Rows, block_rows, bytes_of, cut


class FileSource(Rows):
    """Rows of files of one kind, one file after the other.

    Parameters
    ----------
    paths : sequence of Path
        .csv, .parquet, .npy, .npz (key ``X``) or .txt with a text per line. Columns with names may come in
        another order in each file.
    option : str
        What named them, for messages.
    expected : mapping, optional
        What columns of .csv files should hold, by name: see `consilience.files.cells.Layout.expecting`.
    drop : sequence of str
        Columns to leave out. Not all files need have them.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        option: str = "X",
        expected: Mapping[Any, str] | None = None,
        drop: Sequence[str] = (),
    ) -> None:
        self._option, self._drop = option, tuple(drop)
        self._files = [open_rows(path, option) for path in paths]
        first = self._files[0]
        self._columns = self._left()
        for other in self._files[1:]:
            self._check(first, other)
        _read_alike([file for file in self._files if isinstance(file, CsvFile)], expected or {})
        tables = [file for file in self._files if isinstance(file, ParquetFile)]
        for table in tables:
            table.gaps = set().union(*(other.gaps for other in tables))
        counts = [file.n_rows for file in self._files]
        few = self._part(first, 0, min(LOOKED_AT, first.n_rows))
        self.borders = cut(counts, block_rows(bytes_of(few), len(few)))
        self._starts = np.cumsum([0, *counts])

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        return [file.path for file in self._files]

    def read(self, block: int) -> Any:
        """Return the rows of one block."""
        rows = self.rows_of(block)
        number = int(np.searchsorted(self._starts, rows.start, side="right")) - 1
        file, start = self._files[number], int(self._starts[number])
        return self._part(file, rows.start - start, rows.stop - start)

    def _part(self, file: RowFile, start: int, stop: int) -> Any:
        columns = None if file.names == self._columns else self._columns
        with reading(file.path, self._option):
            return file.part(start, stop, columns).X

    def _left(self) -> list[str] | None:
        """Return the columns that are left, in order; None if they have no names."""
        first = self._files[0]
        if not self._drop:
            return first.names
        if first.names is None:
            raise InvalidInputError(f"--drop names a column, and those of {first.path} have no names.")
        every = list(dict.fromkeys(name for file in self._files for name in file.names or ()))
        for name in self._drop:
            check_choice("drop", name, every)
        left = [name for name in first.names if name not in self._drop]
        if not left:
            raise InvalidInputError(f"--drop leaves no column of {first.path}.")
        return left

    @property
    def stretches(self) -> Sequence[range]:
        """Blocks that begin in the same group of rows of a file."""

        def begin(block: int) -> tuple[int, int]:
            row = int(self.borders[block])
            number = int(np.searchsorted(self._starts, row, side="right")) - 1
            return number, self._files[number].stretch(row - int(self._starts[number]))

        grouped = (list(blocks) for _, blocks in groupby(range(self.n_blocks), begin))
        return [range(blocks[0], blocks[-1] + 1) for blocks in grouped]

    def _check(self, first: RowFile, other: RowFile) -> None:
        """Raise unless two files have the same columns."""
        where = f"{self._option}: {other.path}"
        if (first.names is None) != (other.names is None):
            which = ("no header", "one") if other.names is None else ("a header", "none")
            raise InvalidInputError(
                f"{where} has {which[0]}, and {first.path.name} has {which[1]}. Give all files one, or none."
            )
        given = [name for name in other.names or [] if name not in self._drop]
        missing = [name for name in self._columns or [] if name not in given]
        unknown = [name for name in given if name not in (self._columns or [])]
        if missing or unknown:
            parts = [("lacks", missing), ("has the other", unknown)]
            told = " and ".join(f"{verb} columns {quoted(names)}" for verb, names in parts if names)
            raise InvalidInputError(
                f"{where} {told}, compared with {first.path.name}. Give files with the same columns."
            )
        if self._columns is None and first.row_type != other.row_type:
            raise InvalidInputError(
                f"{where} holds {other.row_type}, and {first.path.name} {first.row_type}. "
                "Give files of one kind."
            )
        if isinstance(first, ParquetFile) and isinstance(other, ParquetFile):
            for name in self._columns or ():
                kind = first.kinds[name]
                if "nothing" not in (kind, other.kinds[name]) and kind != other.kinds[name]:
                    raise InvalidInputError(
                        f"{where} holds {other.kinds[name]} in column {name!r}, and {first.path.name} holds "
                        f"{kind}. Write the column in one type in all files."
                    )


def _read_alike(files: Sequence[CsvFile], expected: Mapping[Any, str]) -> None:
    """Let all .csv files be read as one would be: a column of texts in one file is one in all."""
    for file in files:
        file.layout = file.layout.expecting_by_name(expected)
    if len(files) < 2:
        return
    places = [{name: i for i, name in enumerate(file.layout.names)} for file in files]
    kinds, gaps = {}, {}
    for name in set(places[0]).intersection(*places):  # some may lack one that is left out
        columns = [(file.layout, place[name]) for file, place in zip(files, places, strict=True)]
        found = {layout.kinds[i] for layout, i in columns if layout.filled[i]}
        kinds[name] = found.pop() if len(found) == 1 else "text" if found else "number"
        gaps[name] = any(layout.gaps[i] for layout, i in columns)
    matrix = all(file.layout.matrix for file in files)
    for file in files:
        own = file.layout
        alike = [kinds.get(name, kind) for name, kind in zip(own.names, own.kinds, strict=True)]
        empty = [gaps.get(name, gap) for name, gap in zip(own.names, own.gaps, strict=True)]
        file.layout = replace(own, kinds=alike, gaps=empty, matrix=matrix)


def open_files(
    given: str | os.PathLike[str] | Sequence[Path],
    option: str = "X",
    expected: Mapping[Any, str] | None = None,
    drop: Sequence[str] = (),
) -> Rows:
    """Return the rows of a file, a folder, a pattern such as ``rows/*.parquet``, or a list of files.

    `expected` is what columns of .csv files should hold, and `drop` which are left out; see `FileSource`.
    """
    paths = list(given) if isinstance(given, list | tuple) else files_of(given, option)  # type: ignore[arg-type]
    kinds = Counter(path.suffix.lower() for path in paths)
    if set(kinds) <= IMAGES:
        if drop:
            raise InvalidInputError("--drop names a column, and images have none.")
        return ImageSource(paths, option)
    if len(kinds) > 1:
        listed = ", ".join(f"{count} {kind or 'without ending'}" for kind, count in kinds.most_common(4))
        raise InvalidInputError(f"{option} has files of several kinds: {listed}. Give files of one kind.")
    return FileSource(paths, option, expected, drop)


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

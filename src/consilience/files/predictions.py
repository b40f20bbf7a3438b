"""Write predictions batch by batch. The file appears when the last one is in it."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing

LABEL = "label"
ENDINGS = (".csv", ".parquet", ".npy", ".npz", ".txt")

Write = Callable[[NDArray[np.intp], NDArray[Any], Mapping[str, Any]], None]
"""Takes the position of each row's class (n,), probabilities (n, L), and columns to pass on."""


def column_titles(classes: NDArray[Any]) -> list[str]:
    """Return the names of the columns of a table of predictions: ``label`` and one for each class.

    Examples
    --------
    >>> column_titles(np.array(["cat", "dog"]))
    ['label', 'probability_cat', 'probability_dog']
    """
    return [LABEL, *(f"probability_{name}" for name in classes.tolist())]


@contextmanager
def writing(path: Path, classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    """Open a file of predictions of so many rows; its ending tells the format.

    A .csv or .parquet file has the columns that are passed on, `label` and a probability for each class; an
    .npy file the probabilities (n, L) as float32; an .npz file `probabilities`, `label` and `classes`; a .txt
    file a label per line.
    """
    with replacing(path) as file, _FORMATS[path.suffix.lower()](file, classes, n_rows) as write:
        yield write


@contextmanager
def _csv(file: IO[bytes], classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    plain, quoted = (
        csv.writer(text, lineterminator="\n", quoting=rule) for rule in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    names, began = classes.tolist(), False
    returns = any("\r" in str(name) for name in names)

    def write(codes: NDArray[np.intp], proba: NDArray[Any], kept: Mapping[str, Any]) -> None:
        nonlocal began
        passed = [part.to_pylist() if hasattr(part, "to_pylist") else part for part in kept.values()]
        # Python before 3.13 leaves a carriage return without quotes, and readers end the line there
        cells = (cell for part in (kept, *passed) for cell in part)
        lines = quoted if returns or any("\r" in cell for cell in cells if isinstance(cell, str)) else plain
        if not began:
            lines.writerow([*kept, *column_titles(classes)])
            began = True
        for i, (code, row) in enumerate(zip(codes.tolist(), proba.tolist(), strict=True)):
            # nine digits tell all floats of 32 bits apart
            lines.writerow([*(part[i] for part in passed), names[code], *(f"{p:.9g}" for p in row)])

    try:
        yield write
    finally:
        text.detach()  # flushes, and leaves the file open


@contextmanager
def _parquet(file: IO[bytes], classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    pyarrow = require("pyarrow", extra="tables", purpose="Writing parquet")
    parquet = require("pyarrow.parquet", extra="tables", purpose="Writing parquet")
    names, writer = pyarrow.array(classes.tolist()), None

    def write(codes: NDArray[np.intp], proba: NDArray[Any], kept: Mapping[str, Any]) -> None:
        nonlocal writer
        passed = {
            name: part if hasattr(part, "to_pylist") else pyarrow.array(part, pyarrow.string())
            for name, part in kept.items()
        }
        values = [names.take(pyarrow.array(codes)), *np.ascontiguousarray(proba.T, dtype=np.float32)]
        table = pyarrow.table(passed | dict(zip(column_titles(classes), values, strict=True)))
        if writer is None:
            writer = parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _npy(file: IO[bytes], classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    _write_header(file, n_rows, len(classes))
    yield lambda _codes, proba, _kept: _write_numbers(file, proba)


@contextmanager
def _npz(file: IO[bytes], classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    labels = []
    with zipfile.ZipFile(file, "w") as archive:
        # a ZipInfo of its own has a fixed date: equal predictions, equal bytes
        with archive.open(zipfile.ZipInfo("probabilities.npy"), "w", force_zip64=True) as member:
            _write_header(member, n_rows, len(classes))

            def write(codes: NDArray[np.intp], proba: NDArray[Any], kept: Mapping[str, Any]) -> None:
                labels.append(codes.astype(np.int32))
                _write_numbers(member, proba)

            yield write
        for name, values in ((LABEL, classes[np.concatenate(labels)]), ("classes", classes)):
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


@contextmanager
def _txt(file: IO[bytes], classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    broken = [name for name in classes.tolist() if {"\n", "\r"} & set(str(name))]
    if broken:
        raise InvalidInputError(
            f"A .txt file has a label per line, and the class {broken[0]!r} has a line break. Write .csv."
        )
    lines = [f"{name}\n".encode("utf-8", "surrogatepass") for name in classes.tolist()]
    yield lambda codes, _proba, _kept: file.writelines(lines[code] for code in codes.tolist())


def _write_header(file: IO[bytes], rows: int, columns: int) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
    np.lib.format.write_array_header_1_0(file, header)


def _write_numbers(file: IO[bytes], proba: NDArray[Any]) -> None:
    file.write(np.ascontiguousarray(proba, dtype="<f4").tobytes())


_FORMATS: dict[str, Callable[..., Any]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npy": _npy,
    ".npz": _npz,
    ".txt": _txt,
}

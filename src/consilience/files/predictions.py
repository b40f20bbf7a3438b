"""Write predictions batch by batch. The file appears when the last one is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing
from consilience.rows.rows import new_array
from consilience.run import Run

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
    ending = path.suffix.lower()
    kind = {".csv": _table, ".parquet": _table, ".txt": _lines}.get(ending, _arrays)
    with replacing(path) as file, kind(file, ending, classes, n_rows) as write:
        yield write


@contextmanager
def _table(file: IO[bytes], ending: str, classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    arrow = require("pyarrow", extra="tables", purpose=f"Writing {ending}")
    formats = require(f"pyarrow.{ending[1:]}", extra="tables", purpose=f"Writing {ending}")
    names, open_writer = arrow.array(classes.tolist()), getattr(formats, "CSVWriter", None)
    writer: Any = None

    def write(codes: NDArray[np.intp], proba: NDArray[Any], kept: Mapping[str, Any]) -> None:
        nonlocal writer
        columns = {name: arrow.array(values) for name, values in kept.items()}
        if open_writer:  # which has no word for lists and the like
            columns = {name: _plain(arrow, values) for name, values in columns.items()}
        values = [names.take(arrow.array(codes)), *np.ascontiguousarray(proba.T, dtype=np.float32)]
        table = arrow.table(columns | dict(zip(column_titles(classes), values, strict=True)))
        if writer is None:
            writer = (open_writer or formats.ParquetWriter)(file, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _plain(arrow: Any, values: Any) -> Any:
    """Return a column as texts, unless it holds texts or numbers."""
    if arrow.types.is_string(values.type) or arrow.types.is_primitive(values.type):
        return values
    return arrow.array(
        [None if value is None else str(value) for value in values.to_pylist()], arrow.string()
    )


@contextmanager
def _arrays(file: IO[bytes], ending: str, classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    probabilities, labels = new_array((n_rows, len(classes)), Run()), np.zeros(n_rows, np.int32)
    done = 0

    def write(codes: NDArray[np.intp], proba: NDArray[Any], kept: Mapping[str, Any]) -> None:
        nonlocal done
        rows = slice(done, done + len(codes))
        probabilities[rows], labels[rows], done = proba, codes, done + len(codes)

    yield write
    if ending == ".npy":
        np.save(file, probabilities, allow_pickle=False)
    else:
        named = {"probabilities": probabilities, LABEL: classes[labels], "classes": classes}
        np.savez(file, allow_pickle=False, **named)


@contextmanager
def _lines(file: IO[bytes], ending: str, classes: NDArray[Any], n_rows: int) -> Iterator[Write]:
    broken = [name for name in classes.tolist() if {"\n", "\r"} & set(str(name))]
    if broken:
        raise InvalidInputError(
            f"A .txt file has a label per line, and the class {broken[0]!r} has a line break. Write .csv."
        )
    lines = [f"{name}\n".encode("utf-8", "surrogatepass") for name in classes.tolist()]
    yield lambda codes, _proba, _kept: file.writelines(lines[code] for code in codes.tolist())

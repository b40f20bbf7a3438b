"""The files that people name on the command line: labels, classes and other names to read, results to write.

Nothing is ever unpickled. Predictions are written batch by batch; the file appears when the last is in it.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError
from consilience.files.arrays import open_npy
from consilience.files.card import Card, card_path, write_card
from consilience.files.disk import file_sha256, read_bytes, replacing
from consilience.files.strict_json import parse_json
from consilience.rows.files import read_npz_array, reading
from consilience.rows.rows import new_array
from consilience.run import Run

LABEL = "label"
_MOST_TEXT = 2**26  # bytes of a file of names

Write = Callable[[NDArray[np.intp], NDArray[Any], Mapping[str, Any]], None]
"""Takes the position of each row's class (n,), probabilities (n, L), and columns to pass on."""
_WITH_CARD = (".onnx", ".npy", ".npz", ".parquet")


def read_labels(path: Path, rows: int, option: str) -> NDArray[Any]:
    """Return the labels (n,) of a file; None where there is none.

    An .npz has them under ``y``, or as its only array; a .csv or .parquet file is one column of them.
    """
    suffix = path.suffix.lower()
    if suffix not in _LABELS:
        raise InvalidInputError(f"{option} reads {', '.join(_LABELS)}; {path.name!r} ends in none of these.")
    with reading(path, option):
        values: NDArray[Any] = np.asarray(_LABELS[suffix](path))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (rows,):
        header = f" If {values[0]!r} is a header, write 'label' there." if values.shape == (rows + 1,) else ""
        raise InvalidInputError(f"{option}: {path} has shape {values.shape}; expected ({rows},).{header}")
    return values


def write_clusters(path: Path, labels: NDArray[np.intp]) -> None:
    """Write the cluster of each row (n,): an .npy, or a .csv of one column."""
    with replacing(path) as file:
        if path.suffix.lower() == ".npy":
            np.save(file, labels, allow_pickle=False)
        else:
            np.savetxt(file, labels, fmt="%d", header="label", comments="")


def check_target(
    path: Path | None,
    suffixes: Sequence[str],
    option: str,
    inputs: Iterable[Path | None] = (),
    models: Sequence[Path] = (),
) -> None:
    """Refuse a file that could not be written, or that would replace an input. Call this before long work.

    Parameters
    ----------
    path : Path or None
        The file to write; None if there is none.
    suffixes : sequence of str
        The endings that it may have.
    option : str
        What named the file, for messages.
    inputs : iterable of Path or None
        Files that are read.
    models : sequence of Path
        Models that are read, and their cards with them.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(f"{option} writes {' or '.join(suffixes)}; {path.name!r} has another ending.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{option}: the folder {str(path.parent)!r} does not exist. Make it first.")
    no_file = os.path.lexists(path) and not (path.is_symlink() or path.is_file())
    if no_file or not os.access(path.parent, os.W_OK):
        raise InvalidInputError(f"{option}: {str(path)!r} cannot be written.")
    # by os: pathlib raises where a link leads to itself
    read = {os.path.realpath(file) for file in (*inputs, *models) if file is not None}
    cards, goal = {card_path(os.path.realpath(model)) for model in models}, os.path.realpath(path)
    if goal in read or (path.suffix.lower() in _WITH_CARD and card_path(goal) in cards):
        raise InvalidInputError(
            f"{option} {str(path)!r} would replace a file that is read, or its card. Give another name."
        )
    if path.suffix.lower() == ".onnx":
        for module in ("onnx", "onnxruntime"):
            require(module, extra="onnx", purpose="Saving as ONNX")


def write_soft_labels(path: Path, Q: NDArray[np.float64], classes: NDArray[Any]) -> None:
    """Write soft labels (n, L): an .npz with the classes, or an .npy and a card that has them.

    Either can be a teacher again. A reader sees the old file or the new one, never half of one.
    """
    with replacing(path) as file:
        if path.suffix.lower() == ".npz":
            np.savez_compressed(file, proba=Q, classes=classes)
        else:
            np.save(file, Q, allow_pickle=False)
    if path.suffix.lower() == ".npy":
        card = Card(path.stem, tuple(classes.tolist()), "probabilities", file_sha256(path), "Soft labels.")
        write_card(card_path(path), card)


def parse_classes(given: Sequence[str], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the classes of teachers from texts such as ``birds=crow,wren`` and ``pets=@pets.txt``."""
    parsed = {}
    for text in given:
        name, equals, listing = text.partition("=")
        if not equals or not listing:
            raise InvalidInputError(f"--classes {text!r} is not NAME=A,B,C or NAME=@FILE.")
        if name not in names:
            raise InvalidInputError(
                f"--classes names the teacher {name!r}; the teachers are {shorten(names)} "
                "(a file's name without its ending)."
            )
        if listing.startswith("@"):
            parsed[name] = read_classes(Path(listing[1:]))
        else:
            parsed[name] = numbers_or_text([part.strip() for part in listing.split(",")])
    return parsed


def read_classes(path: Path) -> list[Any]:
    """Return class names from a file with one per line, or from a JSON list."""
    text = _read_text(path)
    if path.suffix.lower() != ".json":
        return numbers_or_text([line.strip() for line in text.splitlines() if line.strip()])
    values = parse_json(text, str(path))
    if not isinstance(values, list):
        raise InvalidInputError(f"{path} must hold a JSON list of classes.")
    return values


def read_aliases(path: Path | None) -> dict[Any, Any] | None:
    """Return other names of classes from a JSON object. If all names are numbers, so are the aliases."""
    if path is None:
        return None
    values = parse_json(_read_text(path), str(path))
    if not isinstance(values, dict):
        raise InvalidInputError(f'{path} must hold a JSON object such as {{"automobile": "car"}}.')
    return _number_keys(values)


def write_aliases(path: Path, aliases: Mapping[Any, Any]) -> None:
    """Write other names of classes as a JSON object that `read_aliases` reads."""
    text = json.dumps({str(alias): name for alias, name in aliases.items()}, indent=2, ensure_ascii=False)
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def _number_keys(aliases: dict[str, Any]) -> dict[Any, Any]:
    """Return aliases with numbers for keys if all names are numbers: keys of JSON are always texts."""
    kinds = {type(name) for name in aliases.values()}
    if not kinds or not kinds <= {int, float}:
        return aliases
    try:
        keys = [json.loads(key) for key in aliases]
    except ValueError:
        return aliases
    whole = all(type(key) in (int, float) for key in keys) and len(set(keys)) == len(aliases)
    return dict(zip(keys, aliases.values(), strict=True)) if whole else aliases


def numbers_or_text(values: Sequence[str]) -> list[Any]:
    """Return integers if all values are integers, as the classes of many models are; else text.

    Examples
    --------
    >>> numbers_or_text(["3", "7"]), numbers_or_text(["3", "cat"])
    ([3, 7], ['3', 'cat'])
    """
    try:
        numbers = [int(value) for value in values]
    except ValueError:
        return list(values)
    # "01" and "1" are two names and one number
    return numbers if len(set(numbers)) == len(set(values)) else list(values)


def _csv_labels(path: Path) -> NDArray[Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [line or [""] for line in csv.reader(file)]  # an empty line is a row without a label
    if not any(map(any, lines)):
        raise ValueError("it is empty")
    if max(map(len, lines)) > 1:
        raise ValueError("it has several columns; labels are one")
    values = [line[0].strip() for line in lines]
    if values[0] in ("y", "label", "labels", "class", "target"):
        values = values[1:]
    known = iter(numbers_or_text([value for value in values if value]))
    return np.array([next(known) if value else None for value in values], dtype=object)


def _parquet_labels(path: Path) -> NDArray[Any]:
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
    with parquet.ParquetFile(path) as file:
        table = file.read()
    # pandas writes its index as one more column
    columns = [table.column(name) for name in table.column_names if not name.startswith("__index_level_")]
    if len(columns) != 1:
        raise ValueError(f"it has {counted(len(columns), 'column')}; labels are one")
    return np.array([*columns[0].to_pylist(), None], dtype=object)[:-1]


_LABELS: dict[str, Callable[[Path], Any]] = {
    ".npy": lambda path: open_npy(path).read(),
    ".npz": partial(read_npz_array, key="y"),
    ".csv": _csv_labels,
    ".parquet": _parquet_labels,
}


def _read_text(path: Path) -> str:
    try:
        # some editors begin a file with a mark
        return read_bytes(path, most=_MOST_TEXT, links=True).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a text file in UTF-8.") from error


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

"""Predict the rows of a file of any length into another file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._tables import is_table, name_problem, quoted
from consilience._validation import check_count, take_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files.predictions import column_titles, writing
from consilience.files.streams import FileRows, RowFile, TextLines, open_rows, read_batches
from consilience.rows.files import files_of
from consilience.rows.images import IMAGES, ImageSource
from consilience.students.loaded import LoadedClassifier

__all__ = ["Predicted", "predict_file"]


FILE = "file"
"""The one column of images that can be passed on."""


@dataclass(frozen=True)
class Predicted:
    """What was predicted.

    Attributes
    ----------
    n_rows : int
    classes : (L,) array
    counts : (L,) array of int
        How many rows were given each class.
    confidence : float
        The mean probability of the class that a row was given.
    """

    n_rows: int
    classes: NDArray[Any]
    counts: NDArray[np.intp]
    confidence: float


def predict_file(
    model: LoadedClassifier,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    batch_size: int = 4096,
    progress: Progress = silent,
    option: str = "data",
) -> Predicted:
    """Predict the rows of a file, or of several, into another: batch by batch, so memory does not grow.

    Everything is checked before the first batch. If a batch fails, `out` stays as it was.

    Parameters
    ----------
    model : LoadedClassifier
        From `load`.
    data : path
        Rows: .csv, .parquet, .npy, .npz (key ``X``, read at once) or, for a model of texts, .txt. Named
        columns may come in any order. A folder or a pattern stands for its files, one after the other. Or
        a folder of images.
    out : path
        .csv, .parquet, .npy, .npz or .txt; see `consilience.files.predictions.writing`.
    keep : sequence of str
        Columns of `data` to pass on to `out`. The model need not know them. Of images, ``"file"`` is the
        name of the file.
    batch_size : int
        Rows at a time.
    progress : callable
        Called with ("predicting", rows done, rows in all).
    option : str
        What to call `data` in an error.
    """
    size, target = check_count("batch_size", batch_size), Path(out)
    paths = files_of(data, option)
    images = all(path.suffix.lower() in IMAGES for path in paths)
    open_parts = _image_parts if images else _table_parts
    n_rows, parts = open_parts(paths, Asked(model, Path(data), target, keep, size, option))
    counts, total, done = np.zeros(len(model.classes_), dtype=np.intp), 0.0, 0
    with writing(target, model.classes_, n_rows) as write:
        for rows in parts:
            proba = _ask(model, rows.X, done)
            codes = proba.argmax(axis=1)
            write(codes, proba, rows.kept)
            counts += np.bincount(codes, minlength=len(counts))
            total += float(proba.max(axis=1).sum())
            done += len(codes)
            progress("predicting", done, n_rows)
    return Predicted(done, model.classes_, counts, total / done)


class Asked(NamedTuple):
    """What is to be predicted, and how."""

    model: LoadedClassifier
    data: Path
    target: Path
    keep: Sequence[str]
    size: int
    option: str


def _table_parts(paths: Sequence[Path], asked: Asked) -> tuple[int, Iterator[FileRows]]:
    """Return the number of rows of files, and the rows batch by batch."""
    sources = [open_rows(path, asked.option) for path in paths]
    for source in sources:
        _check_keep(source, asked.keep, asked.model, asked.target, asked.option)
    columns = [_model_columns(source, asked.keep, asked.model, asked.option) for source in sources]
    kinds = asked.model.column_kinds
    parts = (
        rows
        for source, chosen in zip(sources, columns, strict=True)
        for rows in read_batches(source, asked.size, chosen, asked.keep, asked.option, kinds)
    )
    return sum(source.n_rows for source in sources), parts


def _image_parts(paths: Sequence[Path], asked: Asked) -> tuple[int, Iterator[FileRows]]:
    """Return the number of images, and the images block by block."""
    if asked.keep:
        _check_table(asked.target)
    unknown = [name for name in asked.keep if name != FILE]
    if unknown:
        raise InvalidInputError(
            f"{{argument}} names {quoted(unknown)}; {asked.option} is images, which have {FILE!r} alone: "
            "the name of the file.",
            argument="keep",
        )
    source = ImageSource(paths, asked.option)
    within = asked.data if asked.data.is_dir() else Path()
    names = [(path.relative_to(within) if path.is_relative_to(within) else path).as_posix() for path in paths]

    def read() -> Iterator[FileRows]:
        for block in source.blocks():
            for start in range(0, block.rows.stop - block.rows.start, asked.size):
                part = take_rows(block.X, slice(start, start + asked.size))
                first = block.rows.start + start
                kept = {FILE: names[first : first + len(part)]} if asked.keep else {}
                yield FileRows(part, kept)

    return len(source), read()


def _ask(model: LoadedClassifier, X: Any, start: int) -> NDArray[np.float64]:
    """Return probabilities; an error names the row of the file, not that of the batch."""
    if model.takes_texts and is_table(X):
        column = X.iloc[:, 0]
        X = ["" if missing else str(text) for text, missing in zip(column, column.isna(), strict=True)]
    try:
        return model.predict_proba(X)
    except InvalidInputError as error:
        raise (error if error.row is None else error.changed(row=error.row + start)) from error


def _check_keep(
    source: RowFile, keep: Sequence[str], model: LoadedClassifier, target: Path, option: str
) -> None:
    """Raise where columns cannot be passed on."""
    if not keep:
        return
    _check_table(target)
    if source.names is None:
        raise InvalidInputError(
            f"{{argument}} needs names of columns, and {source.path.name} has none. Give it a header.",
            argument="keep",
        )
    unknown = [name for name in keep if name not in source.names]
    if unknown:
        raise InvalidInputError(
            f"{{argument}} names {quoted(unknown)}; {option}: {source.path} has {quoted(source.names)}.",
            argument="keep",
        )
    titles = column_titles(model.classes_)
    taken = [name for i, name in enumerate(keep) if name in titles or name in keep[:i]]
    if taken:
        raise InvalidInputError(
            f"{{argument}} names {quoted(taken)}, and the predictions have a column of that name already. "
            "Rename it in the file, or do not keep it.",
            argument="keep",
        )


def _check_table(target: Path) -> None:
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidInputError(
            f"{{argument}} passes columns on to a .csv or .parquet file, not to {target.name!r}.",
            argument="keep",
        )


def _model_columns(
    source: RowFile, keep: Sequence[str], model: LoadedClassifier, option: str
) -> list[str] | None:
    """Return the columns of a file that the model takes, in its order; None for all, by position."""
    where = f"{option}: {source.path}"
    if isinstance(source, TextLines):
        if not model.takes_texts:
            raise InvalidInputError(f"{where} holds texts, and the model takes a table or an array.")
        return None
    known = getattr(model, "feature_names_in_", None)
    given = None if source.names is None else [name for name in source.names if name not in keep]
    if known is not None and source.names is not None:
        wanted = known.tolist()
        problem = name_problem([name for name in source.names if name in wanted or name not in keep], wanted)
        if problem:
            raise InvalidInputError(f"{where} {problem} {{remedy}} passes columns on.", remedy="keep")
        return list(wanted)
    width = source.width if given is None else len(given)
    expected = 1 if model.takes_texts else getattr(model, "n_features_in_", None)
    if expected is not None and width != expected:
        found = "rows of another shape" if width is None else counted(width, "column")
        what = "texts: one column, or a .txt file" if model.takes_texts else counted(expected, "column")
        raise InvalidInputError(f"{where} has {found}; the model takes {what}.")
    return given if keep else None

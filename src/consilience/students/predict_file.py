"""Predict the rows of a file of any length into another file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_count, take_rows
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.files.predictions import column_titles, writing
from consilience.rows import Rows
from consilience.rows.arrow import TableRows
from consilience.rows.files import ImageRows, files_of, open_files
from consilience.rows.tables import columns_of, is_table, name_problem, quoted, read_texts
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
    rows, where = open_files(paths, option), f"{option}: {paths[0]}"
    if keep:
        _check_keep(rows, keep, model, paths[0], target, option)
    if isinstance(rows, TableRows):
        _choose_columns(rows, keep, model, where)
    elif rows.kind == "texts" and not model.takes_texts:
        raise InvalidInputError(f"{where} holds texts, and the model takes a table or an array.")
    elif rows.kind == "array" and not isinstance(rows, ImageRows):
        _check_width(rows.shape[1] if len(rows.shape) == 2 else None, model, where)
    counts, total, done = np.zeros(len(model.classes_), dtype=np.intp), 0.0, 0
    with writing(target, model.classes_, len(rows)) as write:
        for X, kept in _batches(rows, keep, size, _names(paths, Path(data))):
            proba = _ask(model, X, done)
            codes = proba.argmax(axis=1)
            write(codes, proba, kept)
            counts += np.bincount(codes, minlength=len(counts))
            total += float(proba.max(axis=1).sum())
            done += len(codes)
            progress("predicting", done, len(rows))
    return Predicted(done, model.classes_, counts, total / done)


def _names(paths: Sequence[Path], data: Path) -> list[str]:
    """Return the names of files, within the folder that was given."""
    within = data if data.is_dir() else Path()
    return [(path.relative_to(within) if path.is_relative_to(within) else path).as_posix() for path in paths]


def _batches(
    rows: Rows, keep: Sequence[str], size: int, names: Sequence[str]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield rows batch by batch, and the columns of them to pass on."""
    for number in range(rows.n_blocks):
        found = rows.rows_of(number)
        if isinstance(rows, TableRows):
            X, kept = rows.read_with(number, keep)
        else:
            X, kept = rows.read(number), dict.fromkeys(keep, names[found])
        for start in range(0, found.stop - found.start, size):
            part = slice(start, start + size)
            yield take_rows(X, part), {name: column[part] for name, column in kept.items()}


def _ask(model: LoadedClassifier, X: Any, start: int) -> NDArray[np.float64]:
    """Return probabilities; an error names the row of the file, not that of the batch."""
    if model.takes_texts and is_table(X):
        X = read_texts(columns_of(X)[0], X.columns[0]).tolist()
    try:
        return model.predict_proba(X)
    except InvalidInputError as error:
        raise (error if error.row is None else error.changed(row=error.row + start)) from error


def _check_keep(
    rows: Rows, keep: Sequence[str], model: LoadedClassifier, path: Path, target: Path, option: str
) -> None:
    """Raise where columns cannot be passed on."""
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidInputError(
            f"{{argument}} passes columns on to a .csv or .parquet file, not to {target.name!r}.",
            argument="keep",
        )
    images = isinstance(rows, ImageRows)
    names = [FILE] if images else rows.names if isinstance(rows, TableRows) else None
    if names is None:
        raise InvalidInputError(
            f"{{argument}} needs names of columns, and {path.name} has none. Give it a header.",
            argument="keep",
        )
    unknown = [name for name in keep if name not in names]
    if unknown:
        has = f"{option}: {path} has {quoted(names)}."
        if images:
            has = f"{option} is images, which have {FILE!r} alone: the name of the file."
        raise InvalidInputError(f"{{argument}} names {quoted(unknown)}; {has}", argument="keep")
    titles = column_titles(model.classes_)
    taken = [name for i, name in enumerate(keep) if name in titles or name in keep[:i]]
    if taken:
        raise InvalidInputError(
            f"{{argument}} names {quoted(taken)}, and the predictions have a column of that name already. "
            "Rename it in the file, or do not keep it.",
            argument="keep",
        )


def _choose_columns(rows: TableRows, keep: Sequence[str], model: LoadedClassifier, where: str) -> None:
    """Read the columns that the model takes, in its order, and as what it takes them."""
    known, names = getattr(model, "feature_names_in_", None), rows.names
    if known is not None and names is not None:
        chosen = known.tolist()
        problem = name_problem([name for name in names if name in chosen or name not in keep], chosen)
        if problem:
            raise InvalidInputError(f"{where} {problem} {{remedy}} passes columns on.", remedy="keep")
        rows.choose(chosen)
    else:
        if names is not None:
            rows.choose([name for name in names if name not in keep])
        _check_width(len(rows.chosen), model, where)
    if model.column_kinds is not None:
        rows.expect(dict(zip(rows.chosen, model.column_kinds, strict=True)))


def _check_width(width: int | None, model: LoadedClassifier, where: str) -> None:
    """Raise unless rows have as many columns as the model takes."""
    expected = 1 if model.takes_texts else getattr(model, "n_features_in_", None)
    if expected is not None and width != expected:
        found = "rows of another shape" if width is None else counted(width, "column")
        what = "texts: one column, or a .txt file" if model.takes_texts else counted(expected, "column")
        raise InvalidInputError(f"{where} has {found}; the model takes {what}.")

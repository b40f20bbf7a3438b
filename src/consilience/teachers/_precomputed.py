"""Precomputed outputs as teachers: arrays, and .npy, .npz and .parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._words import shorten
from consilience.exceptions import ConsilienceError, TeacherError
from consilience.files.arrays import ArrayFileError, NpyFile, NpzFile, open_npy
from consilience.files.card import Card
from consilience.files.record import data_hash
from consilience.teachers._aligned import Aligned
from consilience.teachers._base import (
    Options,
    Teacher,
    given_classes,
    own_or_given,
    summary,
)
from consilience.teachers._features import read_features
from consilience.teachers._files import centres_of, open_source
from consilience.teachers._hard_labels import label_teacher
from consilience.teachers._outputs import tensor_values

_NPZ_SCORES = {
    "logits": "logits",
    "proba": "probabilities",
    "probabilities": "probabilities",
    "labels": "labels",
}
_PART_ROWS = 2**16  # that are looked at together


class PrecomputedTeacher(Aligned):
    """Scores (n, k) in memory, or in an .npy file that is read when they are asked for."""

    _table: NDArray[Any] | NpyFile

    def _scores(self, X: Any, rows: int) -> Any:
        if isinstance(self._table, NpyFile):
            with _reading(self.name):
                return self._table.read()
        return self._table

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher:
        """Return a teacher of some rows. All rows decide whether they are probabilities, as in memory."""
        if not self.settled:
            low, high = self._extremes()
            if low <= high:  # else all rows are abstentions
                self._reader.decide(low, high)
        return super().part(rows)

    def _cut(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        if not isinstance(self._table, NpyFile):
            return self._table[rows]
        if isinstance(rows, slice):
            return self._table.part(rows.start, rows.stop)
        return self._table.read()[rows]

    def _extremes(self) -> tuple[float, float]:
        """Return the least and the largest score, abstentions aside; infinity first if there are none."""
        low, high = np.inf, -np.inf
        for start in range(0, self._rows, _PART_ROWS):
            with _reading(self.name):
                part = self._cut(slice(start, min(start + _PART_ROWS, self._rows)))
            values = part.astype(np.float64, copy=False)
            low = float(np.fmin.reduce(values, axis=None, initial=low))
            high = float(np.fmax.reduce(values, axis=None, initial=high))
        return low, high

    def _keep(self, rows: slice | NDArray[np.intp]) -> None:
        with _reading(self.name):
            self._table = self._cut(rows)

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, k) of all rows, read-only where they are the array that was given."""
        logits = super().predict_logits(X)
        if isinstance(self._table, np.ndarray) and np.may_share_memory(logits, self._table):
            logits = logits.view()
            logits.flags.writeable = False
        return logits


def is_array(obj: Any) -> bool:
    """Tell whether an object is an array, a list, a tensor, or a data frame or series."""
    if isinstance(obj, np.ndarray | list | tuple):
        return True
    if isinstance(obj, type):
        return False
    return hasattr(obj, "detach") or (hasattr(obj, "to_numpy") and hasattr(obj, "shape"))


def array_teacher(obj: Any, classes: ArrayLike | None, name: str | None, options: Options) -> Teacher:
    """Make a teacher of an array, list, tensor, series or data frame (whose columns are then the classes)."""
    shown = name or "array"
    own = list(obj.columns) if hasattr(obj, "columns") else None
    if own == ["label"]:
        own, obj = None, obj["label"]
    try:
        values = _as_array(obj)
    except Exception as error:  # rows that differ in length, a sparse tensor, ...
        raise TeacherError(
            shown, f"cannot be used: its rows cannot be read as an array ({summary(error)})."
        ) from error
    return _make(values, own, classes, shown, options)


def _as_array(obj: Any) -> NDArray[Any]:
    """Return scores or hard labels as an array, None where a label is missing."""
    if hasattr(obj, "detach"):
        return tensor_values(obj)
    if isinstance(obj, np.ma.MaskedArray):
        if obj.ndim == 1:
            return np.asarray(obj.tolist(), dtype=object)  # None where it is masked
        return np.asarray(np.ma.filled(obj.astype(np.float64), np.nan))
    if hasattr(obj, "to_numpy"):
        if len(obj.shape) > 1:
            return np.asarray(obj.to_numpy())
        # pandas has several marks for a missing label, and None stands for all of them; polars has one
        plain = obj.to_numpy(dtype=object, na_value=None) if hasattr(obj, "iloc") else obj.to_list()
        return np.asarray(plain, dtype=object)
    values = np.asarray(obj)
    if values.ndim == 1 and not isinstance(obj, np.ndarray):
        values = np.empty(len(obj), dtype=object)  # an array of numbers and names would change some of them
        values[:] = obj
    return values


def npy_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of an .npy file; its classes come from `classes` or the card."""
    source, shown, options, card = open_source(path, name, options)
    with _reading(shown):
        file = open_npy(source)
        # scores stay on disk until they are asked for; hard labels are small
        values = file if file.ndim == 2 and options.output != "labels" else file.read()
    teacher = _make(values, None if card is None else card.classes, classes, shown, options)
    _take_card(teacher, card)
    return teacher


def npz_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of an .npz file with `logits`, `proba` or `labels`, and `classes`.

    It may also hold `embeddings` (n, d), and the `class_weights` (k, d) that belong to them.
    """
    source, shown, options, card = open_source(path, name, options)
    with _reading(shown), NpzFile(source) as archive:
        found = [key for key in _NPZ_SCORES if key in archive.names]
        if len(found) > 1 and options.output != "auto":
            found = [key for key in found if _NPZ_SCORES[key] == options.output]
        if len(found) != 1:
            raise TeacherError(
                shown,
                f"has {shorten(archive.names) or 'nothing'} in {source.name}; expected one of "
                f"{', '.join(_NPZ_SCORES)}. With several, choose one with {{remedy}}.",
                remedy="output",
            )
        wanted = (found[0], "classes", "embeddings", "class_weights")
        arrays = {key: archive.read(key) for key in wanted if key in archive.names}
    values, own = arrays[found[0]], arrays.get("classes")
    embeddings, weights = arrays.get("embeddings"), arrays.get("class_weights")
    kind = _NPZ_SCORES[found[0]]
    if options.output not in ("auto", kind):
        raise TeacherError(
            shown,
            f"has {found[0]} in {source.name}, not {options.output}. Drop {{argument}}.",
            argument="output",
        )
    if own is None and card is not None:
        own = np.asarray(card.classes)
    teacher = _make(values, own, classes, shown, replace(options, output=kind))  # type: ignore[arg-type]
    _take_card(teacher, card)
    if embeddings is not None and options.embed is None:
        _store(teacher, embeddings, weights)
    elif weights is not None and embeddings is None:
        raise TeacherError(
            shown, f"has class_weights in {source.name} and no embeddings that they belong to."
        )
    return teacher


def parquet_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of a .parquet file: a column per class, or one column `label` of hard labels."""
    source, shown, options, card = open_source(path, name, options)
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
    own = None if card is None else card.classes
    with _reading_parquet(source, shown):
        # not read_table: that takes folders too, and adds columns for "key=value" in the path
        with parquet.ParquetFile(source) as file:
            table = file.read()
        # pandas writes its index as one more column
        kept = [i for i, key in enumerate(table.column_names) if not key.startswith("__index_level_")]
        columns = [table.column_names[i] for i in kept]
        if columns == ["label"]:
            values = np.asarray(table.column(kept[0]).to_pylist(), dtype=object)
            teacher = _make(values, own, classes, shown, replace(options, output="labels"))
            _take_card(teacher, card)
            return teacher
        if options.output == "labels":
            raise TeacherError(
                shown, f"has the columns {shorten(columns)}; hard labels are one column 'label'."
            )
        scores = np.empty((table.num_rows, len(columns)))
        for i, column in enumerate(kept):
            scores[:, i] = table.column(column).to_numpy()
    teacher = _make(scores, own_or_given(columns, own, shown), classes, shown, options)
    _take_card(teacher, card)
    return teacher


def _take_card(teacher: Aligned, card: Card | None) -> None:
    """Give a teacher what its card says about centres and rows."""
    teacher.class_centres, teacher._rows_sha256 = centres_of(card), data_hash(card)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Name the teacher whose file cannot be read."""
    try:
        yield
    except ArrayFileError as error:
        objects = "Python objects" in error.reason
        hint = " Save text as fixed-width strings: arrays of objects are pickles." if objects else ""
        raise TeacherError(name, f"cannot be read from {error.path}: {error.reason}.{hint}") from error


@contextmanager
def _reading_parquet(source: Path, name: str) -> Iterator[None]:
    """Turn whatever pyarrow raises for a broken file into a TeacherError."""
    try:
        yield
    except ConsilienceError:
        raise
    except Exception as error:
        raise TeacherError(name, f"cannot be read from {source}: {summary(error).rstrip('.')}.") from error


def _make(
    values: NDArray[Any] | NpyFile,
    own: ArrayLike | None,
    classes: ArrayLike | None,
    name: str,
    options: Options,
) -> Aligned:
    """Make a teacher of scores (n, k) or hard labels (n,). If `embed` is an array, it has the embeddings."""
    if options.embed is None or callable(options.embed):
        return _plain(values, own, classes, name, options)
    if not is_array(options.embed):
        raise TeacherError(
            name,
            "has {argument}; give an array (n, d) of features, or a function of X.",
            argument="embed",
            value=options.embed,
        )
    teacher = _plain(values, own, classes, name, replace(options, embed=None))
    _store(teacher, options.embed, None)
    return teacher


def _check_labels(labels: NDArray[Any], name: str) -> None:
    """Raise unless all hard labels are texts, numbers, or missing."""
    for row, label in enumerate(labels if labels.dtype.kind == "O" else ()):
        plain = label is None or isinstance(label, str | int | float | np.generic)
        if not plain and type(label).__name__ not in ("NAType", "NaTType"):
            raise TeacherError(
                name,
                f"has a {type(label).__name__} in row {row}, which is no hard label. Give the name of a "
                "class, or None; a row of scores has a number per class.",
            )


def _store(teacher: Aligned, embeddings: Any, weights: NDArray[Any] | None) -> None:
    """Give a teacher the features that were computed with its scores, checked."""
    features = read_features(embeddings, teacher._rows, teacher.name)
    if weights is not None and weights.shape != (len(teacher.classes), features.shape[1]):
        raise TeacherError(
            teacher.name,
            f"has class_weights of shape {weights.shape}; expected ({len(teacher.classes)}, "
            f"{features.shape[1]}): a row per class and a column per feature.",
        )
    teacher._stored_features, teacher._stored_weights = features, weights


def _plain(
    values: NDArray[Any] | NpyFile,
    own: ArrayLike | None,
    classes: ArrayLike | None,
    name: str,
    options: Options,
) -> Aligned:
    if isinstance(values, np.ndarray) and options.output == "labels" and values.shape[1:] == (1,):
        values = values[:, 0]
    if isinstance(values, np.ndarray) and values.ndim == 1 and options.output in ("auto", "labels"):
        _check_labels(values, name)
        return label_teacher(values, classes if classes is not None else own, name, options)
    if options.output == "labels" or values.ndim != 2:
        raise TeacherError(
            name,
            f"has an array of shape {values.shape}; expected (n, k): a row per sample and a column per class"
            + (", or (n,) for hard labels." if options.output in ("auto", "labels") else "."),
        )
    if own is not None:
        found = own_or_given(own, classes, name)
    else:
        found = given_classes(classes, name, "an array of scores")
    if values.shape[1] != len(found):
        raise TeacherError(
            name,
            f"has {values.shape[1]} columns for {len(found)} classes. Give {{remedy}} one name per column.",
            remedy="classes",
        )
    teacher = PrecomputedTeacher(name, found, options)
    teacher._table, teacher._rows = values, len(values)
    return teacher

"""Precomputed outputs as teachers: arrays, and .npy, .npz and .parquet files."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience.exceptions import TeacherError
from consilience.labels import shorten
from consilience.teachers._base import (
    Aligned,
    Options,
    Teacher,
    given_classes,
    own_or_given,
    summary,
)
from consilience.teachers._features import read_features
from consilience.teachers._files import centres_of, open_source
from consilience.teachers._hard_labels import label_teacher

_NPZ_SCORES = {
    "logits": "logits",
    "proba": "probabilities",
    "probabilities": "probabilities",
    "labels": "labels",
}

# what numpy, zipfile and pyarrow raise for a broken file
_READ_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    MemoryError,
    NotImplementedError,
    zipfile.BadZipFile,
)


class PrecomputedTeacher(Aligned):
    """Scores (n, k), possibly mapped from a file."""

    _table: Any

    def _scores(self, X: Any, rows: int) -> Any:
        return self._table

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, k) of all rows, read-only where they are the array that was given."""
        logits = super().predict_logits(X)
        if np.may_share_memory(logits, self._table):
            logits = logits.view()
            logits.flags.writeable = False
        return logits


def is_array(obj: Any) -> bool:
    """Tell whether an object is an array, a list, a tensor, or a data frame or series."""
    if isinstance(obj, np.ndarray | list | tuple):
        return True
    return (
        not isinstance(obj, type)
        and hasattr(obj, "shape")
        and (hasattr(obj, "to_numpy") or hasattr(obj, "detach"))
    )


def array_teacher(obj: Any, classes: ArrayLike | None, name: str | None, options: Options) -> Teacher:
    """Make a teacher of an array, list, tensor, series or data frame (whose columns are then the classes)."""
    shown = name or "array"
    own = list(obj.columns) if hasattr(obj, "columns") else None
    if own == ["label"]:
        own, obj = None, obj["label"]
    if hasattr(obj, "detach"):
        obj = obj.detach().cpu().numpy()
    elif hasattr(obj, "to_numpy"):
        obj = list(obj.to_list()) if len(obj.shape) == 1 else obj.to_numpy()
    try:
        values = np.asanyarray(obj)
    except ValueError as error:
        raise TeacherError(shown, f"cannot be used: its rows differ in length ({error}).") from error
    if values.ndim == 1 and not isinstance(obj, np.ndarray):
        values = np.empty(len(obj), dtype=object)  # an array of numbers and names would change some of them
        values[:] = obj
    elif np.ma.is_masked(values) and values.ndim == 2:
        values = np.ma.filled(values.astype(np.float64), np.nan)
    return _make(values, own, classes, shown, options)


def npy_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of an .npy file, mapped into memory; its classes come from classes= or the card."""
    source, shown, options, card = open_source(path, name, options)
    with _reading(source, shown):
        values = _load_npy(source)
    if not isinstance(values, np.ndarray):
        raise TeacherError(shown, f"cannot be read from {source}: it is an .npz under another name.")
    teacher = _make(values, None if card is None else card.classes, classes, shown, options)
    teacher.class_centres = centres_of(card)
    return teacher


def npz_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of an .npz file with `logits`, `proba` or `labels`, and `classes`.

    It may hold `embeddings` (n, d) besides, and the `class_weights` (k, d) that belong to them.
    """
    source, shown, options, card = open_source(path, name, options)
    if not zipfile.is_zipfile(source):
        raise TeacherError(shown, f"cannot be read from {source}: it is no .npz archive.")
    with _reading(source, shown), np.load(source, allow_pickle=False) as archive:
        found = [key for key in _NPZ_SCORES if key in archive.files]
        if len(found) > 1 and options.output != "auto":
            found = [key for key in found if _NPZ_SCORES[key] == options.output]
        if len(found) != 1:
            raise TeacherError(
                shown,
                f"has {shorten(archive.files) or 'nothing'} in {source.name}; expected one of "
                f"{', '.join(_NPZ_SCORES)}. With several, choose one with output=.",
            )
        values = archive[found[0]]
        own = archive["classes"] if "classes" in archive.files else None
        embeddings = archive["embeddings"] if "embeddings" in archive.files else None
        weights = archive["class_weights"] if "class_weights" in archive.files else None
    kind = _NPZ_SCORES[found[0]]
    if options.output not in ("auto", kind):
        raise TeacherError(shown, f"has {found[0]} in {source.name}, not {options.output}. Drop output=.")
    if own is None and card is not None:
        own = np.asarray(card.classes)
    teacher = _make(values, own, classes, shown, replace(options, output=kind))  # type: ignore[arg-type]
    teacher.class_centres = centres_of(card)
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
    with _reading(source, shown):
        # not read_table: that takes folders too, and adds columns for "key=value" in the path
        with parquet.ParquetFile(source) as file:
            table = file.read()
        # pandas writes its index as one more column
        kept = [i for i, key in enumerate(table.column_names) if not key.startswith("__index_level_")]
        columns = [table.column_names[i] for i in kept]
        if columns == ["label"]:
            values = np.asarray(table.column(kept[0]).to_pylist(), dtype=object)
            teacher = _make(values, own, classes, shown, replace(options, output="labels"))
            teacher.class_centres = centres_of(card)
            return teacher
        if options.output == "labels":
            raise TeacherError(
                shown, f"has the columns {shorten(columns)}; hard labels are one column 'label'."
            )
        scores = np.empty((table.num_rows, len(columns)))
        for i, column in enumerate(kept):
            scores[:, i] = table.column(column).to_numpy()
    teacher = _make(scores, own_or_given(columns, own, shown), classes, shown, options)
    teacher.class_centres = centres_of(card)
    return teacher


def _load_npy(source: Path) -> Any:
    """Map an .npy file; read it where numpy cannot map (no rows)."""
    if source.stat().st_size == 0:
        raise ValueError("the file is empty")
    values = np.load(source, mmap_mode="r", allow_pickle=False) if _has_rows(source) else None
    return np.load(source, allow_pickle=False) if values is None else values


def _has_rows(source: Path) -> bool:
    with source.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError("it does not begin like an .npy file")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        return 0 not in read(file)[0]


@contextmanager
def _reading(source: Path, name: str) -> Iterator[None]:
    """Word what goes wrong inside numpy and pyarrow."""
    try:
        yield
    except TeacherError:
        raise
    except _READ_ERRORS as error:
        objects = re.search(r"Object arrays|Python objects", str(error))
        hint = " Save text as fixed-width strings: arrays of objects are pickles." if objects else ""
        raise TeacherError(
            name, f"cannot be read from {source}: {summary(error).rstrip('.')}.{hint}"
        ) from error


def _make(
    values: NDArray[Any], own: ArrayLike | None, classes: ArrayLike | None, name: str, options: Options
) -> Aligned:
    """Make a teacher of scores (n, k) or hard labels (n,); an array as embed= holds its embeddings."""
    if options.embed is None or callable(options.embed):
        return _plain(values, own, classes, name, options)
    if not is_array(options.embed):
        raise TeacherError(
            name, f"has embed={options.embed!r}; give an array (n, d) of features, or a function of X."
        )
    teacher = _plain(values, own, classes, name, replace(options, embed=None))
    _store(teacher, options.embed, None)
    return teacher


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
    values: NDArray[Any], own: ArrayLike | None, classes: ArrayLike | None, name: str, options: Options
) -> Aligned:
    if options.output == "labels" and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1 and options.output in ("auto", "labels"):
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

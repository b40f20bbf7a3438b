"""Precomputed outputs as teachers: arrays, and .npy, .npz and .parquet files of scores or hard labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience._words import shorten
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError, warn
from consilience.files.arrays import ArrayFileError, NpyFile, open_npy, open_npz
from consilience.files.card import Card, data_hash, rows_sha256
from consilience.labels import read_labels
from consilience.options import number, option, takes
from consilience.teachers.base import (
    Adapter,
    Teacher,
    TeacherOptions,
    class_array,
    foreign,
    open_source,
    own_or_given,
    teacher_name,
)
from consilience.teachers.outputs import Output, read_features, tensor_values

_NPZ_SCORES: dict[str, Output] = {
    "logits": "logits",
    "proba": "probabilities",
    "probabilities": "probabilities",
    "labels": "labels",
}
_PART_ROWS = 2**16  # that are looked at together
LABEL_SMOOTHING = 0.01


@dataclass
class Stored:
    """What an array or a file holds: scores (n, k) or hard labels (n,), and what is known about them."""

    name: str
    values: NDArray[Any] | NpyFile
    output: Output
    classes: Any = None
    embeddings: Any = None
    weights: NDArray[Any] | None = None
    file: Path | None = None
    card: Card | None = None

    def __post_init__(self) -> None:
        if self.output == "labels" and isinstance(self.values, np.ndarray) and self.values.shape[1:] == (1,):
            self.values = self.values[:, 0]

    @property
    def hard(self) -> bool:
        """Whether it holds hard labels."""
        return self.values.ndim == 1 and self.output in ("auto", "labels")


class _RowOutputs(Adapter):
    """Outputs that belong to the rows of one X."""

    batched = False
    _gives_costs = True
    _table: NDArray[Any] | NpyFile  # scores (n, k), or codes (n,) of hard labels

    def _keep(self, stored: Stored, options: TeacherOptions) -> None:
        """Remember what is stored with the outputs."""
        self._rows_sha256 = data_hash(stored.card)  # of the rows that the card names
        self._stored_features, self._stored_weights = None, None
        if stored.file is not None:
            self._take_card(stored.file, stored.card)
        given = stored.embeddings if options.embed is None else options.embed
        if given is None or callable(given):
            return
        if not is_array(given):
            raise TeacherError(
                self.name,
                "has {argument}; give an array (n, d) of features, or a function of X.",
                argument="embed",
                value=given,
            )
        self._embed = None
        features = self._stored_features = read_features(given, len(self._table), self.name)
        if stored.weights is not None and given is stored.embeddings:
            self._stored_weights, expected = stored.weights, (len(self.classes), features.shape[1])
            if stored.weights.shape != expected:
                raise TeacherError(
                    self.name,
                    f"has class_weights of shape {stored.weights.shape}; expected {expected}: a row per "
                    "class and a column per feature.",
                )

    def _look(self, X: Any, *, scores: bool = False, features: bool = False) -> tuple[Any, Any]:
        self.check_rows(X)
        return super()._look(X, scores=scores, features=features)

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        seen = None
        if features:
            seen = self._embed(X) if self._stored_features is None else self._stored_features
        return self._scores() if scores else None, seen

    def _scores(self) -> Any:
        """Return the scores (n, k) of all rows."""
        return self._cut(slice(0, len(self._table)))

    def _cut(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        if not isinstance(self._table, NpyFile):
            return self._table[rows]
        with _reading(self.name):
            if isinstance(rows, slice):
                return self._table.part(rows.start, rows.stop)
            return self._table.read()[rows]

    def _embeddable(self) -> bool:
        return self._stored_features is not None or self._embed is not None

    def _width(self) -> int:
        return 0 if self._stored_features is None else int(np.shape(self._stored_features)[1])

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) that were stored with the embeddings, if any."""
        return self._stored_weights

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher:
        """Return a teacher that holds the outputs of some of the rows."""
        other = copy(self)
        other._table, other._rows_sha256 = self._cut(rows), None
        if self._stored_features is not None:
            other._stored_features = self._stored_features[rows]
        return other

    def check_rows(self, X: Any) -> None:
        """Raise unless X has as many rows; warn if it has other rows than the card names."""
        rows = n_rows(X)
        if rows != len(self._table):
            raise TeacherError(
                self.name,
                f"holds outputs for {len(self._table)} rows and X has {rows}. "
                "Precomputed outputs belong to one X, row for row.",
            )
        # only cards that name their rows cost a checksum of X
        if self._rows_sha256 is not None and rows_sha256(X) not in (None, self._rows_sha256):
            self._rows_sha256 = None  # one warning is enough
            warn(
                ConsilienceWarning(
                    f"Teacher {self.name!r} holds outputs for other rows than X: the checksum on its card "
                    "is another. Outputs must belong to the same rows in the same order. If they do, and "
                    "only a number or a type is written in another way, there is nothing to mend."
                )
            )


class Precomputed(_RowOutputs):
    """Scores (n, k) that were computed elsewhere, a row per row of X; a row of NaN abstains.

    An array, a list, a tensor, a data frame (whose columns are then the classes), or a file: ``.npy``,
    ``.npz`` (one of ``logits``, ``proba``; and ``classes``, ``embeddings``, ``class_weights``) or
    ``.parquet`` (a column per class). The scores of an ``.npy`` file are read when they are asked for.

    Examples
    --------
    >>> Precomputed([[0.9, 0.1], [0.2, 0.8]], ["cat", "dog"]).predict_logits([0, 1]).argmax(axis=1).tolist()
    [0, 1]
    """

    @takes(TeacherOptions)
    def __init__(
        self, scores: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        stored = read_stored(scores, name, options)
        shown, values = stored.name, stored.values
        if stored.output == "labels" or values.ndim != 2:
            hint = ", or (n,) for hard labels" if stored.output in ("auto", "labels") else ""
            raise TeacherError(
                shown,
                f"has an array of shape {values.shape}; expected (n, k): a row per sample and a column "
                f"per class{hint}.",
            )
        found = own_or_given(stored.classes, classes, shown, what="an array of scores")
        if values.shape[1] != len(found):
            raise TeacherError(
                shown,
                f"has {values.shape[1]} columns for {len(found)} classes. Give {{remedy}} one name per "
                "column.",
                remedy="classes",
            )
        super().__init__(shown, found, options, output=stored.output)
        self._table = values
        self._keep(stored, options)

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher:
        """Return a teacher of some rows. All rows decide whether they are probabilities, as in memory."""
        if not self.settled:
            low, high = np.inf, -np.inf
            for start in range(0, len(self._table), _PART_ROWS):
                values = self._cut(slice(start, min(start + _PART_ROWS, len(self._table)))).astype(np.float64)
                low = float(np.fmin.reduce(values, axis=None, initial=low))
                high = float(np.fmax.reduce(values, axis=None, initial=high))
            if low <= high:  # else all rows are abstentions
                self._reader.decide(low, high)
        return super().part(rows)

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, k) of all rows, read-only where they are the array that was given."""
        logits = super().predict_logits(X)
        if isinstance(self._table, np.ndarray) and np.may_share_memory(logits, self._table):
            logits = logits.view()
            logits.flags.writeable = False
        return logits


class LabelOptions(TeacherOptions):
    """What hard labels take."""

    label_smoothing: float = option(
        number(above=0, below=1),
        "s: the label's logit is log(1 - s + s / k), the others' log(s / k).",
        default=LABEL_SMOOTHING,
    )


class HardLabels(_RowOutputs):
    """Hard labels (n,) that name classes; None, NaN, or -1 if that is no class, abstain.

    An array, a list, a series, or a file: ``.npy``, ``.npz`` (``labels``) or ``.parquet`` (one column
    ``label``). By default the classes are those that occur.

    Examples
    --------
    >>> HardLabels(["cat", "dog", None]).predict_logits([0, 1, 2]).argmax(axis=1)[:2].tolist()
    [0, 1]
    """

    @takes(LabelOptions)
    def __init__(
        self, labels: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        options.output = "labels" if options.output == "auto" else options.output
        stored = read_stored(labels, name, options)
        values = np.asarray(stored.values.read() if isinstance(stored.values, NpyFile) else stored.values)
        _check_labels(values, stored.name)
        own = stored.classes if classes is None else classes
        given = None if own is None else class_array(own, stored.name)
        try:
            found, codes = read_labels(
                values,
                where="its array of hard labels",
                classes=given,
                at_least=0 if given is not None else 1,
            )
        except InvalidInputError as error:
            by_place = error.row is not None and given is not None
            hint = (
                " Labels name classes; for positions, give np.asarray(classes)[labels]." if by_place else ""
            )
            problem = f"cannot be used: {error.message}{hint}"
            raise TeacherError(stored.name, problem).changed(**error.data) from None
        super().__init__(stored.name, found, options, output="logits")
        self._table, self._label_smoothing = codes, options.label_smoothing
        self._keep(stored, options)

    def _scores(self) -> Any:
        codes, k, s = np.asarray(self._table), len(self.classes), self._label_smoothing
        logits = np.full((len(codes), k), np.log(s / k))
        present = np.flatnonzero(codes >= 0)
        logits[present, codes[present]] = np.log((1 - s) + s / k)
        logits[codes < 0] = np.nan
        return logits


def _check_labels(labels: NDArray[Any], name: str) -> None:
    """Raise unless all hard labels are texts, numbers, or missing."""
    for row, label in enumerate(labels if labels.dtype.kind == "O" and labels.ndim == 1 else ()):
        plain = label is None or isinstance(label, str | int | float | np.generic)
        if not plain and type(label).__name__ not in ("NAType", "NaTType"):
            raise TeacherError(
                name,
                f"has a {type(label).__name__} in row {row}, which is no hard label. Give the name of a "
                "class, or None; a row of scores has a number per class.",
            )


def is_array(obj: Any) -> bool:
    """Tell whether an object is an array, a list, a tensor, or a data frame or series."""
    if isinstance(obj, np.ndarray | list | tuple):
        return True
    if isinstance(obj, type):
        return False
    return hasattr(obj, "detach") or (hasattr(obj, "to_numpy") and hasattr(obj, "shape"))


def stored_teacher(
    source: Any, classes: ArrayLike | None = None, name: str | None = None, **options: Any
) -> Teacher:
    """Make a teacher of an array or a file of outputs: hard labels if it holds these, or else scores."""
    stored = read_stored(source, name, TeacherOptions(output=options.get("output", "auto")))
    return (HardLabels if stored.hard else Precomputed)(stored, classes, name, **options)


def read_stored(source: Any, name: str | None, options: TeacherOptions) -> Stored:
    """Read an array, a list, a tensor, a series or a data frame, or a file of outputs."""
    if isinstance(source, Stored):
        return source
    if isinstance(source, str | os.PathLike):
        path, shown, card = open_source(source, name, options)
        stored = {".npz": _read_npz, ".parquet": _read_parquet}.get(path.suffix.lower(), _read_npy)(
            path, shown, options.output
        )
        stored.file, stored.card = path, card
        if card is not None:
            stored.classes = own_or_given(stored.classes, card.classes, shown)
        return stored
    shown = teacher_name(name, "array")
    own = list(source.columns) if hasattr(source, "columns") else None
    if own == ["label"]:
        own, source = None, source["label"]
    with foreign(shown, "cannot be used: its rows cannot be read as an array"):
        return Stored(shown, _as_array(source), options.output, own)


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


def _read_npy(path: Path, name: str, output: Output) -> Stored:
    with _reading(name):
        file = open_npy(path)
        # scores stay on disk until they are asked for; hard labels are small
        return Stored(name, file if file.ndim == 2 and output != "labels" else file.read(), output)


def _read_npz(path: Path, name: str, output: Output) -> Stored:
    with _reading(name), open_npz(path) as archive:
        found = [key for key in _NPZ_SCORES if key in archive.names]
        if len(found) > 1 and output != "auto":
            found = [key for key in found if _NPZ_SCORES[key] == output]
        if len(found) != 1:
            raise TeacherError(
                name,
                f"has {shorten(archive.names) or 'nothing'} in {path.name}; expected one of "
                f"{', '.join(_NPZ_SCORES)}. With several, choose one with {{remedy}}.",
                remedy="output",
            )
        if output not in ("auto", _NPZ_SCORES[found[0]]):
            raise TeacherError(
                name, f"has {found[0]} in {path.name}, not {output}. Drop {{argument}}.", argument="output"
            )
        wanted = (found[0], "classes", "embeddings", "class_weights")
        arrays = {key: archive.read(key) for key in wanted if key in archive.names}
    stored = Stored(name, arrays[found[0]], _NPZ_SCORES[found[0]], arrays.get("classes"))
    stored.embeddings, stored.weights = arrays.get("embeddings"), arrays.get("class_weights")
    if stored.weights is not None and stored.embeddings is None:
        raise TeacherError(name, f"has class_weights in {path.name} and no embeddings that they belong to.")
    return stored


def _read_parquet(path: Path, name: str, output: Output) -> Stored:
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
    with foreign(name, f"cannot be read from {path}"):
        # not read_table: that takes folders too, and adds columns for "key=value" in the path
        with parquet.ParquetFile(path) as file:
            table = file.read()
        # pandas writes its index as one more column
        names = [one for one in table.column_names if not one.startswith("__index_level_")]
        if names == ["label"]:
            return Stored(name, np.asarray(table.column("label").to_pylist(), dtype=object), "labels")
        if output == "labels":
            raise TeacherError(name, f"has the columns {shorten(names)}; hard labels are one column 'label'.")
        scores = np.column_stack([table.column(one).to_numpy().astype(np.float64) for one in names])
    return Stored(name, scores, output, names)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Name the teacher whose file cannot be read."""
    try:
        yield
    except ArrayFileError as error:
        objects = "Python objects" in error.reason
        hint = " Save text as fixed-width strings: arrays of objects are pickles." if objects else ""
        raise TeacherError(name, f"cannot be read from {error.path}: {error.reason}.{hint}") from error

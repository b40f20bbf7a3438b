"""Precomputed outputs as teachers: arrays, and .npy, .npz and .parquet files of scores or hard labels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience._version import __version__
from consilience._words import shorten
from consilience.exceptions import ConsilienceWarning, warn
from consilience.files.arrays import NpyFile, open_npy, open_npz
from consilience.files.card import Card, carded
from consilience.files.disk import replacing
from consilience.files.made import KEY, data_hash, date_now
from consilience.labels import LabelSpace, read_labels
from consilience.options import number, option, takes
from consilience.rows import as_rows
from consilience.rows.tables import rows_sha256
from consilience.run import Run
from consilience.teachers.base import (
    Adapter,
    Teacher,
    TeacherOptions,
    class_array,
    open_source,
    own_or_given,
    teacher_name,
)
from consilience.teachers.outputs import (
    Output,
    ensure,
    foreign,
    in_the_name_of,
    plain_array,
    read_features,
)

_KINDS: dict[str, Output] = {
    "logits": "logits",
    "proba": "probabilities",
    "labels": "labels",
    "probabilities": "probabilities",
}
"""The arrays of an .npz file that hold outputs, and what they are."""
_PART_ROWS = 2**16  # that are looked at together


class Stored(NamedTuple):
    """What an array or a file holds: scores (n, k) or hard labels (n,), and what is known about them."""

    name: str
    output: Output
    values: NDArray[Any] | NpyFile
    arrays: Mapping[str, Any]  # classes, embeddings and class_weights, where there are any
    file: Path | None = None
    card: Card | None = None


class Precomputed(Adapter):
    """Scores (n, k) that were computed elsewhere, a row per row of X; a row of NaN abstains.

    An array, a list, a tensor, a data frame (whose columns are then the classes), or a file: ``.npy``,
    ``.npz`` (one of ``logits``, ``proba``; and ``classes``, ``embeddings``, ``class_weights``) or
    ``.parquet`` (a column per class). The scores of an ``.npy`` file are read when they are asked for.

    Examples
    --------
    >>> Precomputed([[0.9, 0.1], [0.2, 0.8]], ["cat", "dog"]).predict_logits([0, 1]).argmax(axis=1).tolist()
    [0, 1]
    """

    batched = False
    _gives_costs = True
    _weights: NDArray[Any] | None = None

    @takes(TeacherOptions)
    def __init__(
        self, scores: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        stored = read_stored(scores, name, options)
        shown, values = stored.name, stored.values
        hint = ", or (n,) for hard labels" if stored.output in ("auto", "labels") else ""
        ensure(
            stored.output != "labels" and values.ndim == 2,
            shown,
            f"has an array of shape {values.shape}; expected (n, k): a row per sample and a column "
            f"per class{hint}.",
        )
        found = own_or_given(stored.arrays.get("classes"), classes, shown, what="an array of scores")
        ensure(
            values.shape[1] == len(found),
            shown,
            f"has {values.shape[1]} columns for {len(found)} classes. Give {{remedy}} one name per column.",
            remedy="classes",
        )
        super().__init__(shown, found, options, output=stored.output)
        if isinstance(values, np.ndarray):  # logits are this array itself: nobody may write into it
            values = values.view()
            values.flags.writeable = False
        self._keep(stored, values, options.embed)

    def _keep(self, stored: Stored, values: NDArray[Any] | NpyFile, embed: Any) -> None:
        """Remember the values, scores (n, k) or codes (n,), and what is stored with them."""
        self._table, self._rows_sha256 = values, data_hash(stored.card)  # of the rows that the card names
        if stored.file is not None:
            self._take_card(stored.file, stored.card)
        given = stored.arrays.get("embeddings") if embed is None else embed
        if given is None or callable(given):
            return
        ensure(
            is_array(given),
            self.name,
            "has {argument}; give an array (n, d) of features, or a function of X.",
            argument="embed",
            value=given,
        )
        self._embed = read_features(given, len(values), self.name)
        if embed is None and "class_weights" in stored.arrays:
            self._weights = stored.arrays["class_weights"]
            expected = len(self.classes), self._embed.shape[1]
            ensure(
                self._weights.shape == expected,
                self.name,
                f"has class_weights of shape {self._weights.shape}; expected {expected}: a row per class and "
                "a column per feature.",
            )

    def _look(self, X: Any, features: bool) -> tuple[Any, Any]:
        self.check_rows(X)
        return super()._look(X, features)

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        return self._cut(slice(0, rows)), self._embed

    def _cut(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        if isinstance(self._table, np.ndarray):
            return self._table[rows]
        with in_the_name_of(self.name):
            if isinstance(rows, slice):
                return self._table.part(rows.start, rows.stop)
            return self._table.read()[rows]

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) that were stored with the embeddings, if any."""
        return self._weights

    def part(self, rows: slice | NDArray[np.intp]) -> Teacher:
        """Return a teacher of some rows. All rows decide whether scores are probabilities."""
        if self.output is None:
            n = len(self._table)
            parts = (slice(start, min(start + _PART_ROWS, n)) for start in range(0, n, _PART_ROWS))
            self._reader.settle(map(self._cut, parts))
        other = copy(self)
        other._table, other._rows_sha256 = self._cut(rows), None
        if isinstance(self._embed, np.ndarray):
            other._embed = self._embed[rows]
        return other

    def check_rows(self, X: Any) -> None:
        """Raise unless X has as many rows; warn if it has other rows than the card names."""
        ensure(
            n_rows(X) == len(self._table),
            self.name,
            f"holds outputs for {len(self._table)} rows and X has {n_rows(X)}. "
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


class LabelOptions(TeacherOptions):
    """What hard labels take."""

    label_smoothing: float = option(
        number(above=0, below=1),
        "s: the label's logit is log(1 - s + s / k), the others' log(s / k).",
        default=0.01,
    )


class HardLabels(Precomputed):
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
        own = stored.arrays.get("classes") if classes is None else classes
        given = None if own is None else class_array(own, stored.name)
        hint = (
            "" if given is None else " Labels name classes; for positions, give np.asarray(classes)[labels]."
        )
        with in_the_name_of(stored.name, hint=hint):
            least, where = 0 if given is not None else 1, "its array of hard labels"
            found, codes = read_labels(values, where=where, classes=given, at_least=least)
        options.output = "logits"
        Adapter.__init__(self, stored.name, found, options)
        self._smoothing = options.label_smoothing
        self._keep(stored, codes, options.embed)

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        codes, k, s = np.asarray(self._table), len(self.classes), self._smoothing
        logits = np.full((rows, k), np.log(s / k))
        logits[np.arange(rows), codes] = np.log((1 - s) + s / k)
        logits[codes < 0] = np.nan
        return logits, self._embed


def is_array(obj: Any) -> bool:
    """Tell whether an object is an array, a list, a tensor, or a data frame or series."""
    if isinstance(obj, np.ndarray | list | tuple):
        return True
    frame = hasattr(obj, "to_numpy") and hasattr(obj, "shape")
    return not isinstance(obj, type) and (hasattr(obj, "detach") or frame)


def stored_teacher(
    source: Any, classes: ArrayLike | None = None, name: str | None = None, **options: Any
) -> Teacher:
    """Make a teacher of an array or a file of outputs: hard labels if it holds these, or else scores."""
    chosen = TeacherOptions(output=options.get("output", "auto"))
    chosen.check_options()
    stored = read_stored(source, name, chosen)
    hard = stored.values.ndim == 1 and stored.output in ("auto", "labels")
    return (HardLabels if hard else Precomputed)(stored, classes, name, **options)


def read_stored(source: Any, name: str | None, options: TeacherOptions) -> Stored:
    """Read an array, a list, a tensor, a series or a data frame, or a file of outputs."""
    if isinstance(source, Stored):
        return source
    path, card, arrays = None, None, dict[str, Any]()
    if isinstance(source, str | os.PathLike):
        path, shown, card = open_source(source, name, options)
        readers = {".npz": _read_npz, ".parquet": _read_parquet}
        with in_the_name_of(shown):
            if path.suffix.lower() in readers:
                arrays = readers[path.suffix.lower()](path, shown, options.output)
            else:  # scores stay on disk until they are asked for; hard labels are small
                npy = open_npy(path)
                arrays["auto"] = npy if npy.ndim == 2 and options.output != "labels" else npy.read()
    else:
        shown = teacher_name(name, "array")
        names = list(source.columns) if hasattr(source, "columns") else None
        with foreign(shown, "cannot be used: its rows cannot be read as an array"):
            arrays["auto"] = _as_array(source["label"] if names == ["label"] else source)
        if names is not None and names != ["label"]:
            arrays["classes"] = names
    if card is not None:
        arrays["classes"] = own_or_given(arrays.get("classes"), card.classes, shown)
    kind = next(iter(arrays))  # the outputs are first
    values, output = arrays.pop(kind), _KINDS.get(kind, options.output)
    if output == "labels" and isinstance(values, np.ndarray) and values.shape[1:] == (1,):
        values = values[:, 0]
    return Stored(shown, output, values, arrays, path, card)


def _as_array(obj: Any) -> NDArray[Any]:
    """Return scores or hard labels as an array, None where a label is missing."""
    if hasattr(obj, "to_list") and len(obj.shape) == 1:
        obj = obj.to_list()  # as an array, whole numbers beside a missing one would be rounded
    values = plain_array(obj)
    if values.ndim == 1 and isinstance(obj, list | tuple):
        values = np.empty(len(obj), dtype=object)  # an array of numbers and names would change some of them
        values[:] = obj
    return values


def _read_npz(path: Path, name: str, output: Output) -> dict[str, Any]:
    with open_npz(path) as archive:
        chosen = [key for key in _KINDS if key in archive.names and output in ("auto", _KINDS[key])]
        expected = f"one of {', '.join(_KINDS)}" if output == "auto" else output
        ensure(
            len(chosen) == 1,
            name,
            f"has {shorten(archive.names) or 'nothing'} in {path.name}; expected {expected}. With "
            "several, choose one with {remedy}.",
            remedy="output",
        )
        wanted = (*chosen, "classes", "embeddings", "class_weights")
        arrays = {key: archive.read(key) for key in wanted if key in archive.names}
    ensure(
        "embeddings" in arrays or "class_weights" not in arrays,
        name,
        f"has class_weights in {path.name} and no embeddings that they belong to.",
    )
    return arrays


def _read_parquet(path: Path, name: str, output: Output) -> dict[str, Any]:
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading parquet")
    with foreign(name, f"cannot be used: {path} cannot be read"):
        # not read_table: that takes folders too, and adds columns for "key=value" in the path
        with parquet.ParquetFile(path) as file:
            table = file.read()
        # pandas writes its index as one more column
        names = [one for one in table.column_names if not one.startswith("__index_level_")]
        if names == ["label"]:
            return {"labels": np.asarray(table.column("label").to_pylist(), dtype=object)}
        ensure(
            output != "labels", name, f"has the columns {shorten(names)}; hard labels are one column 'label'."
        )
        scores = np.column_stack([table.column(one).to_numpy().astype(np.float64) for one in names])
    return {"auto": scores, "classes": names}


class WrittenScores(NamedTuple):
    """What was written: rows, those about which the teacher says nothing, and the rows' checksum if known."""

    n_rows: int
    n_abstentions: int
    rows_sha256: str | None


def write_scores(path: Path, teacher: Teacher, X: Any, run: Run) -> WrittenScores:
    """Write a teacher's logits for the rows of X, and a card that says for which rows they are.

    ``as_teacher(path)`` then says about X what the teacher says.

    Parameters
    ----------
    path : Path
        .npz (`logits` and `classes`), .npy or .parquet (a column per class); the card has the classes.
    teacher : Teacher
    X : array, sparse matrix, data frame, list or Rows
        n rows. Those that do not lie in memory have no checksum.
    run : Run
    """
    from consilience.scoring.blocks import score  # which imports teachers

    rows = as_rows(X)
    logits, digest = score([teacher], LabelSpace([teacher.classes]), rows, run), rows_sha256(rows.given)
    about = {"data": {"rows": len(rows), "sha256": digest}, "teachers": [{"name": teacher.name}]}
    card = Card(
        path.stem,
        tuple(teacher.classes.tolist()),
        "logits",
        description=f"What {teacher.name!r} says about {len(rows)} rows.",
        details={KEY: {"version": __version__, "date": date_now(), **about}},
    )
    with carded(path, card), replacing(path) as file:
        if path.suffix.lower() == ".npy":
            np.save(file, logits, allow_pickle=False)
        elif path.suffix.lower() == ".npz":
            np.savez_compressed(file, logits=logits, classes=teacher.classes)
        else:
            arrow = require("pyarrow", extra="tables", purpose="Writing parquet")
            parquet = require("pyarrow.parquet", extra="tables", purpose="Writing parquet")
            names = [str(name) for name in teacher.classes.tolist()]
            parquet.write_table(arrow.table([*logits.T], names=names), file)
    return WrittenScores(len(rows), int(np.isnan(logits[:, 0]).sum()), digest)

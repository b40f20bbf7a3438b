"""Read a saved classifier back, as a scikit-learn classifier, and predict files of any length with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience._validation import check_choice, check_count, take_rows
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError
from consilience.files.card import Card, find_card
from consilience.files.disk import as_path
from consilience.files.made import read_made
from consilience.files.ngram_model import is_text_model
from consilience.files.readers import column_titles, writing
from consilience.kernels.arrays import Floats
from consilience.rows import Rows
from consilience.rows.files import ImageRows, files_of, open_files
from consilience.rows.tables import columns_of, is_table, name_problem, quoted, read_texts
from consilience.run import Progress, silent
from consilience.students.classifier import FittedClassifier
from consilience.teachers import Teacher, as_teacher
from consilience.teachers.onnx import Onnx

__all__ = ["LoadedClassifier", "Predicted", "load", "predict_file"]

FILE = "file"
"""The one column of images that can be passed on."""


class LoadedClassifier(FittedClassifier):
    """A saved classifier that predicts: what `load` returns.

    It is fitted, and `clone` leaves it so. `as_teacher` and `Unifier` take it as a teacher.

    Parameters
    ----------
    path : path
        A file that `save` wrote.

    Attributes
    ----------
    classes_ : (L,) array
    feature_names_in_ : (d,) array
        The names of the columns, if it was fitted on a table with names. New rows may have them in any order.
    n_features_in_ : int
        How many columns it takes, if it takes columns.
    card_ : Card or None
        What the card next to the file says.
    teacher_ : Teacher
        The model as a teacher.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        teacher, self.card_ = _open(path)
        self.teacher_: Teacher = teacher
        self.classes_: NDArray[Any] = teacher.classes
        names = teacher.columns.names if isinstance(teacher, Onnx) else None
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        width = teacher.width if isinstance(teacher, Onnx) else None
        if width is not None:
            self.n_features_in_ = width

    @property
    def takes_texts(self) -> bool:
        """Whether its rows are texts."""
        return not isinstance(self.teacher_, Onnx)

    @property
    def column_kinds(self) -> list[str] | None:
        """What each column of a table holds, such as ``"text"``; None if all hold numbers."""
        return self.teacher_.columns.kinds if isinstance(self.teacher_, Onnx) else ["text"]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Do nothing: the model is fitted already, as in scikit-learn's FrozenEstimator."""
        return self

    def probabilities(self, X: Any) -> Floats:
        """Return probabilities (n, L) of rows in memory.

        Rows with missing values raise an error, as in the student that was saved, unless it can use them.
        """
        scores = np.asarray(self.teacher_.raw_scores(X), dtype=np.float64)  # type: ignore[attr-defined]
        lost = np.isnan(scores).any(axis=1)
        if lost.any():  # an ONNX model carries NaN through, and argmax would take it for the first class
            raise InvalidInputError(
                f"The model has no answer for row {{row}} ({counted(int(lost.sum()), 'such row')}): a value "
                "is missing or not finite. Fill missing values first.",
                row=int(lost.argmax()),
            )
        return np.asarray(softmax(scores, axis=1)) if self.takes_texts else scores

    @property
    def aliases_(self) -> Mapping[Any, Any] | None:
        """The aliases on the card that name a class of the model."""
        found = read_made(self.card_).get("aliases")
        if not isinstance(found, Mapping):
            return None
        known = self.classes_.tolist()
        pairs = [(key, name) for key, name in found.items() if name in known]
        if self.classes_.dtype.kind in "iu":  # JSON has only texts as keys
            pairs = [(int(key), name) for key, name in pairs if key.removeprefix("-").isdecimal()]
        return {key: name for key, name in pairs if key not in known}

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        return self  # there is nothing to fit anew

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = self.takes_texts
        return tags


def load(path: str | os.PathLike[str]) -> LoadedClassifier:
    """Read a classifier that `save` wrote.

    Parameters
    ----------
    path : path
        An ``.onnx`` file, or the ``.npz`` file of a model of texts. The checksum on its card is compared.

    Returns
    -------
    LoadedClassifier
        With `predict`, `predict_proba`, `score`, `classes_` and `feature_names_in_`.

    Raises
    ------
    InvalidInputError
        The file is none that we wrote, or its card belongs to another file or names other classes.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import SoftLabelClassifier
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["low", "low", "high", "high"]
    >>> path = Path(tempfile.mkdtemp()) / "model.onnx"
    >>> _ = SoftLabelClassifier("logistic").fit(X, y).save(path)
    >>> load(path).predict([[0.5], [2.5]]).tolist()
    ['low', 'high']
    """
    found = LoadedClassifier(as_path(path))
    inside = found.teacher_.own_classes if isinstance(found.teacher_, Onnx) else None
    if inside is not None and inside != found.classes_.tolist():
        raise InvalidInputError(
            f"The card next to {Path(path).name} names the classes {shorten(found.classes_, 5)}, and the "
            f"model in {Path(path).name} {shorten(inside, 5)}. Remove the card, or restore it."
        )
    return found


def _open(path: str | os.PathLike[str]) -> tuple[Any, Card | None]:
    """Return a file of ours as a teacher, and its card."""
    source = Path(path)
    if source.suffix.lower() not in (".onnx", ".npz"):
        raise InvalidInputError(f"load reads .onnx and .npz; {source.name!r} has another ending.")
    if not source.is_file():
        raise InvalidInputError(f"{source} does not exist, or is no file.")
    if source.suffix.lower() == ".npz" and not is_text_model(source):
        raise InvalidInputError(
            f"{source} holds arrays, and no model of texts. If these are the outputs of a model, use "
            "as_teacher(path)."
        )
    teacher = as_teacher(source)
    if isinstance(teacher, Onnx) and not teacher.ours:
        raise InvalidInputError(
            f"{source} is an ONNX model of others: its output may be anything. Use as_teacher(path), or "
            "'consilience score'; load reads what save wrote."
        )
    return teacher, find_card(source)


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
    drop: Sequence[str] = (),
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
        .csv, .parquet, .npy, .npz or .txt; see `consilience.files.readers.writing`.
    keep : sequence of str
        Columns of `data` to pass on to `out`. The model need not know them. Of images, ``"file"`` is the
        name of the file.
    drop : sequence of str
        Columns of `data` to leave out: the model knows all others.
    batch_size : int
        Rows at a time.
    progress : callable
        Called with ("predicting", rows done, rows in all).
    option : str
        What to call `data` in an error.
    """
    size, target = check_count("batch_size", batch_size), Path(out)
    paths = files_of(data, option)
    rows, where = open_files(paths, option, drop=drop), f"{option}: {paths[0]}"
    if keep:
        _check_keep(rows, keep, model, paths[0], target)
    if hasattr(rows, "read_with"):
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
        if hasattr(rows, "read_with"):
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


def _check_keep(rows: Rows, keep: Sequence[str], model: LoadedClassifier, path: Path, target: Path) -> None:
    """Raise where columns cannot be passed on."""
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise InvalidInputError(
            f"{{argument}} passes columns on to a .csv or .parquet file, not to {target.name!r}.",
            argument="keep",
        )
    names = [FILE] if isinstance(rows, ImageRows) else rows.names
    if names is None:
        raise InvalidInputError(
            f"{{argument}} needs names of columns, and {path.name} has none. Give it a header.",
            argument="keep",
        )
    for name in keep:
        check_choice("keep", name, names)
    titles = column_titles(model.classes_)
    taken = [name for i, name in enumerate(keep) if name in titles or name in keep[:i]]
    if taken:
        raise InvalidInputError(
            f"{{argument}} names {quoted(taken)}, and the predictions have a column of that name already. "
            "Rename it in the file, or do not keep it.",
            argument="keep",
        )


def _choose_columns(rows: Any, keep: Sequence[str], model: LoadedClassifier, where: str) -> None:
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

"""Hard labels as teachers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import TeacherError
from consilience.labels import shorten
from consilience.teachers._base import Aligned, Options, class_array


class LabelTeacher(Aligned):
    """Hard labels; -1 in `_codes` is an abstention."""

    _codes: NDArray[np.intp]
    _label_smoothing: float

    def _scores(self, X: Any, rows: int) -> Any:
        k, s = len(self.classes), self._label_smoothing
        logits = np.full((rows, k), np.log(s / k))
        present = np.flatnonzero(self._codes >= 0)
        logits[present, self._codes[present]] = np.log((1 - s) + s / k)
        logits[self._codes < 0] = np.nan
        return logits


def label_teacher(
    labels: NDArray[Any], classes: ArrayLike | None, name: str, options: Options
) -> LabelTeacher:
    """Make a teacher of labels (n,) that name classes; by default the classes are those that occur."""
    given = None if classes is None else class_array(classes, name)
    values, present = _present(labels, given)
    found = given if given is not None else class_array(np.unique(_plain(values, name)), name)
    teacher = LabelTeacher(name, found, options, output="logits")
    teacher._codes = np.full(len(labels), -1, dtype=np.intp)
    teacher._codes[present] = _codes(_plain(values, name), found, present, name)
    teacher._label_smoothing, teacher._rows = options.label_smoothing, len(labels)
    return teacher


def _present(labels: NDArray[Any], classes: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the labels that are no abstentions, and their rows."""
    if labels.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in labels], dtype=bool)
    elif labels.dtype.kind == "f":
        missing = np.isnan(labels)
    else:
        missing = np.zeros(len(labels), dtype=bool)
    rows = np.flatnonzero(~missing)
    values = np.asarray(labels)[rows]
    if values.dtype.kind in "iufO" and (classes is None or -1 not in classes.tolist()):
        keep = np.flatnonzero(values != -1)
        rows, values = rows[keep], values[keep]
    return values, rows


def _plain(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Return labels with a sortable dtype: text, or whole numbers where they are."""
    plain = np.asarray(_one_kind(values, name)) if values.dtype.kind == "O" else values
    if plain.dtype.kind == "f" and np.array_equal(plain, np.floor(plain)):
        return plain.astype(np.int64)  # missing entries turn integer labels into floats
    return plain


def _one_kind(values: NDArray[Any], name: str) -> list[Any]:
    """Return labels of one kind as a list, or say that they are mixed."""
    if len({isinstance(value, str) for value in values}) > 1:
        raise TeacherError(
            name, "has hard labels that mix text and numbers. Make them one kind, such as str."
        )
    return list(values)


def _codes(
    values: NDArray[Any], classes: NDArray[Any], rows: NDArray[np.intp], name: str
) -> NDArray[np.intp]:
    """Return the column of each label."""
    if len(values) == 0:
        return np.empty(0, dtype=np.intp)
    order = np.argsort(classes)
    if (values.dtype.kind == "U") == (classes.dtype.kind == "U"):
        place = np.minimum(np.searchsorted(classes, values, sorter=order), len(classes) - 1)
        columns = order[place]
        wrong = np.flatnonzero(classes[columns] != values)
    else:
        columns, wrong = order, np.arange(len(values))
    if len(wrong):
        first = int(wrong[0])
        raise TeacherError(
            name,
            f"has the hard label {values[first].item()!r} in row {rows[first]} ({len(wrong)} such rows), "
            f"which is none of the classes {shorten(classes, 5)}. Labels name classes; for positions, "
            "give np.asarray(classes)[labels].",
        )
    return columns

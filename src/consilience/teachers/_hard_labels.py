"""Hard labels as teachers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.labels import read_labels
from consilience.teachers._aligned import Aligned
from consilience.teachers._base import Options, class_array


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

    def _keep(self, rows: slice | NDArray[np.intp]) -> None:
        self._codes = self._codes[rows]


def label_teacher(labels: Any, classes: ArrayLike | None, name: str, options: Options) -> LabelTeacher:
    """Make a teacher of labels (n,) that name classes; by default the classes are those that occur."""
    given = None if classes is None else class_array(classes, name)
    try:
        found, codes = read_labels(
            labels, where="its array of hard labels", classes=given, at_least=0 if given is not None else 1
        )
    except InvalidInputError as error:
        hint = ""
        if error.row is not None and given is not None:
            hint = " Labels name classes; for positions, give np.asarray(classes)[labels]."
        raise TeacherError(name, f"cannot be used: {error.message}{hint}").changed(**error.data) from None
    teacher = LabelTeacher(name, found, options, output="logits")
    teacher._codes, teacher._rows = codes, len(codes)
    teacher._label_smoothing = options.label_smoothing
    return teacher

"""Labelled rows in memory, of X that may not fit."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows
from consilience.exceptions import ConsilienceWarning
from consilience.labels.reader import LabelCodes, read_labels
from consilience.rows import rows_that_fit
from consilience.run import Run
from consilience.teachers import Teacher


class LabelledRows(NamedTuple):
    """Rows in memory and their labels.

    Attributes
    ----------
    X : array, data frame or list
    labels : LabelCodes
    places : (n,) array of int or None
        Where they are among all rows, if these are not all.
    """

    X: Any
    labels: LabelCodes
    places: NDArray[np.intp] | None

    def teacher(self, teacher: Teacher) -> Teacher:
        """Return a teacher of these rows, if it holds the outputs of all rows; else itself."""
        return teacher if self.places is None else teacher.part(self.places) or teacher


def read_labelled_rows(X: Any, y: Any, memory: Any, *, seed: int = 0, stacklevel: int = 3) -> LabelledRows:
    """Read rows and labels. Of a source that does not fit in memory, take labelled rows first, and warn.

    Parameters
    ----------
    X : rows or Rows
    y : (n,) sequence
        Labels; None, NaN or -1 for none.
    memory : int, str or None
        The budget; see `consilience.rows.memory_budget`.
    seed : int
        Draws the rows.
    stacklevel : int
        Where the warning points.
    """
    labels = read_labels(y, n_rows(X), at_least=2)
    rows, places = rows_that_fit(X, labels.known, Run(memory=memory), seed)
    if places is None:
        return LabelledRows(rows, labels, None)
    warnings.warn(
        f"{len(places):,} random rows of {len(labels.codes):,} are used, those with a label first: all of "
        "them would take more memory. Raise memory= for more.",
        ConsilienceWarning,
        stacklevel=stacklevel,
    )
    return LabelledRows(rows, LabelCodes(labels.classes, labels.codes[places]), places)

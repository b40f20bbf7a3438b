"""Labels and label spaces.

Every verb, the command line and the readers of files read labels with `read_labels`, by these rules:

- Labels are texts or numbers, all of one kind: a list, an array, a tensor, or a series of pandas or polars.
- None, NaN, pandas.NA, NaT, masked entries, and -1 among numbers mean that a row has no label. If a list of
  classes names -1, it is that class.
- The empty text is a class like any other. Only an empty cell of a CSV file means no label.
- Whole numbers are integers, even if they are stored as floats, as numpy and pandas do beside NaN.
- Without a list of classes, the classes are those that occur, sorted.
"""

from __future__ import annotations

from consilience.labels.reader import LabelCodes, read_labels
from consilience.labels.space import (
    BETWEEN_GROUPS,
    Disconnected,
    LabelSpace,
    apply_aliases,
    check_block,
    check_packed_logits,
    class_list,
)

__all__ = [
    "BETWEEN_GROUPS",
    "Disconnected",
    "LabelCodes",
    "LabelSpace",
    "apply_aliases",
    "check_block",
    "check_packed_logits",
    "class_list",
    "read_labels",
]

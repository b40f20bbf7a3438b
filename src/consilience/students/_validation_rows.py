"""Labelled rows that a torch student is measured on while it trains."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError
from consilience.rows.tables import as_values
from consilience.students._rows import LazyRows


class Validation(NamedTuple):
    """Rows (n, ...) and the positions (n,) of their labels among the classes."""

    X: Tensor | LazyRows
    codes: Tensor


def check_pair(validation: Any) -> tuple[Any, Any]:
    """Return rows and labels of ``validation=``, or raise unless it is a pair of the same length."""
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise InvalidInputError(
            f"validation is a {type(validation).__name__}; give a pair of rows and labels: (X, y)."
        )
    X, y = as_values(validation[0]), validation[1]
    if n_rows(X) != n_rows(y):
        raise InvalidInputError(
            f"validation has {n_rows(X)} rows and {n_rows(y)} labels; give a label for each row."
        )
    return X, y


def read_codes(y: Any, n_classes: int) -> NDArray[np.intp]:
    """Return positions (n,) of labels among the classes, -1 for no label, or raise."""
    codes = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise InvalidInputError(
            f"The labels of validation have shape {codes.shape} and type {codes.dtype}; expected (n,) whole "
            f"numbers from 0 to {n_classes - 1}, the positions of classes. Unifier takes names of classes."
        )
    codes = codes.astype(np.intp)
    if len(codes) == 0 or codes.max() < 0:
        raise InvalidInputError("validation has no row with a label. Give some, or leave validation out.")
    if codes.max() >= n_classes or codes.min() < -1:
        wrong = codes.max() if codes.max() >= n_classes else codes.min()
        raise InvalidInputError(
            f"validation has the label {wrong}; expected 0 to {n_classes - 1}, or -1 for no label."
        )
    return codes

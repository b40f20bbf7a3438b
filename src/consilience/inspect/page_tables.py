"""Tables and texts that several pages share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.inspect.blocks import Block, Form, column, table


def least_sure(
    caption: str,
    proba: NDArray[np.float64],
    rows: NDArray[np.intp],
    names: Sequence[Any],
    most: int,
    form: Form = "name",
) -> Block:
    """Return the rows with the smallest probability of what is likeliest, and what is next.

    Parameters
    ----------
    caption : str
    proba : (n, K) array
    rows : (k,) array of int
        Which of the n rows may be listed.
    names : sequence
        What the K columns are.
    most : int
        List at most this many rows.
    form : str
        The form of a column of names.
    """
    order = rows[np.argsort(proba.max(axis=1)[rows], kind="stable")[:most]]
    cells = []
    for row in order.tolist():
        first, *others = np.argsort(-proba[row], kind="stable")[:2].tolist()
        second = [names[others[0]], float(proba[row, others[0]])] if others else [None, None]
        cells.append([row, names[first], float(proba[row, first]), *second])
    heads = [
        column("row", "place"),
        column("likeliest", form),
        column("probability", "percent", bar=True),
        column("next", form),
        column("its", "percent"),
    ]
    return table(caption, heads, cells)


def setting(value: Any) -> str:
    """Return a setting as text: numbers and words as they are, objects by the name of their class.

    Examples
    --------
    >>> setting(0.5), setting("auto"), setting(len), setting([1, 2])
    ('0.5', 'auto', 'len', 'list')
    """
    if isinstance(value, bool | int | float | str | np.number):
        return str(value)
    return str(getattr(value, "__name__", type(value).__name__))

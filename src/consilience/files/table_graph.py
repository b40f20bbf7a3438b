"""An ONNX model with one input per column of a table: the nodes that turn columns into one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.files.graph import PURPOSE, Tail, apply_names, rename_values

DAY = 86400.0
YEAR = 365.2425
"""Days of a mean year of the Gregorian calendar."""
FIRST_WEEKDAY = 3.0
"""1 January 1970 was a Thursday; Monday is 0."""


def time_parts(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return parts (n, 5) of moments in seconds since 1970 (UTC); NaN for NaN.

    They are days since 1970, the sine and cosine of the season, the weekday from 0 (Monday) and the hour.
    `prepend_columns` makes the same of ONNX nodes.

    Examples
    --------
    >>> time_parts(np.array([0.0, 90000.0])).round(2).tolist()
    [[0.0, 0.0, 1.0, 3.0, 0.0], [1.04, 0.02, 1.0, 4.0, 1.0]]
    """
    days = seconds / DAY
    whole = np.floor(days)
    phase = days * (2 * np.pi / YEAR)
    shifted = whole + FIRST_WEEKDAY
    weekday = shifted - 7.0 * np.floor(shifted / 7.0)
    return np.column_stack([days, np.sin(phase), np.cos(phase), weekday, (days - whole) * 24.0])


@dataclass(frozen=True)
class GraphColumn:
    """A column as an input of a graph.

    Attributes
    ----------
    name : str
    kind : str
        ``"text"``, ``"time"`` (seconds since 1970), or anything else for numbers.
    dtype : numpy.dtype
        Of its values; object for texts.
    keys : (k,) tuple of str
        The known values of texts.
    rows : (k + 1, w) array or None
        What each key becomes; the last row is for all other texts.
    width : int
        How many numbers a row of the input has: more than one for a matrix of numbers.
    """

    name: str
    kind: str
    dtype: np.dtype[Any]
    keys: tuple[str, ...] = ()
    rows: NDArray[np.float64] | None = None
    width: int = 1


def prepend_columns(
    model: Any, columns: Sequence[GraphColumn], fill: NDArray[Any], marked: NDArray[np.intp]
) -> Any:
    """Return a model of one matrix ``X`` (n, d) as one that takes an input (n, 1) per column.

    The matrix is: numbers, with missing ones filled; a 0 or 1 for each of the marked that was missing; texts.

    Parameters
    ----------
    model : onnx.ModelProto
        It is not changed.
    columns : sequence of GraphColumn
    fill : (a,) array
        What a missing number becomes, for each number; a time gives five numbers (`time_parts`).
    marked : (m,) array of int
        The numbers that have a mark.
    """
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    wanted = graph.input[0].type.tensor_type.elem_type
    tail = Tail(onnx, graph)
    inside = tail.name()
    apply_names(graph, {"X": inside})
    rename_values(graph, {column.name: f"{column.name}_inside" for column in columns})
    del graph.input[:]
    tail.begin()
    for column in columns:
        kind = onnx.helper.np_dtype_to_tensor_dtype(column.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(column.name, kind, ["n", column.width]))
    numbers = [_numbers(tail, column) for column in columns if column.rows is None]
    texts = [_one_hot(tail, column) for column in columns if column.rows is not None]
    blocks = _filled(tail, tail.joined(numbers), fill, marked) if numbers else []
    tail.node("Cast", [tail.joined([*blocks, *texts])], output=inside, to=wanted)
    tail.move_to_front()
    return result


def _numbers(tail: Tail, column: GraphColumn) -> str:
    """Return a column as doubles (n, w): one, or the five parts of a time."""
    value = tail.node("Cast", [column.name], to=tail.onnx.TensorProto.DOUBLE)
    if column.kind != "time":
        return value

    def floor_of(value: str, divisor: float) -> str:
        return tail.node("Floor", [tail.node("Div", [value, tail.constant(np.float64(divisor))])])

    days = tail.node("Div", [value, tail.constant(np.float64(DAY))])
    whole = tail.node("Floor", [days])
    phase = tail.node("Mul", [days, tail.constant(np.float64(2 * np.pi / YEAR))])
    shifted = tail.node("Add", [whole, tail.constant(np.float64(FIRST_WEEKDAY))])
    weeks = tail.node("Mul", [floor_of(shifted, 7.0), tail.constant(np.float64(7.0))])
    hour = tail.node("Mul", [tail.node("Sub", [days, whole]), tail.constant(np.float64(24.0))])
    season = [tail.node("Sin", [phase]), tail.node("Cos", [phase])]
    return tail.joined([days, *season, tail.node("Sub", [shifted, weeks]), hour])


def _one_hot(tail: Tail, column: GraphColumn) -> str:
    """Return the row (n, w) of each text."""
    flat = tail.node("Reshape", [column.name, tail.constant(np.array([-1], dtype=np.int64))])
    place = tail.node(
        "LabelEncoder",
        [flat],
        domain="ai.onnx.ml",
        keys_strings=list(column.keys),
        values_int64s=list(range(len(column.keys))),
        default_int64=len(column.keys),
    )
    return tail.node("Gather", [tail.constant(column.rows), place], axis=0)


def _filled(tail: Tail, value: str, fill: NDArray[Any], marked: NDArray[np.intp]) -> list[str]:
    """Return the numbers with missing ones filled, and the marks."""
    missing = tail.node("IsNaN", [value])
    blocks = [tail.node("Where", [missing, tail.constant(np.asarray(fill, dtype=np.float64)), value])]
    if len(marked):
        flags = tail.node("Cast", [missing], to=tail.onnx.TensorProto.DOUBLE)
        blocks.append(tail.node("Gather", [flags, tail.constant(np.asarray(marked, np.int64))], axis=1))
    return blocks

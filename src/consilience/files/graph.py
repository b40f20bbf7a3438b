"""ONNX graphs: nodes after a model and before it, and what all files of ours have in common.

Values are objects of onnx_ir. Names are made unique when a graph is written, so none of ours can be one of
the model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError

# Opset 18 is the native opset of torch's exporter; skl2onnx and every onnxruntime we allow support it. The IR
# version is fixed too: onnx would write its newest, which an older onnxruntime rejects.
OPSET = 18
ML_OPSET = 3
IR_VERSION = 10

PURPOSE = "Saving as ONNX"
NAME = "consilience"
"""The name of every graph: equal runs give equal files."""
DAY = 86400.0
YEAR = 365.2425
"""Days of a mean year of the Gregorian calendar."""
FIRST_WEEKDAY = 3.0
"""1 January 1970 was a Thursday; Monday is 0."""


class Graph:
    """A copy of a model to which nodes are added, in any order: they are sorted when it is written.

    Parameters
    ----------
    model : onnx.ModelProto
        It is not changed.

    Attributes
    ----------
    inputs, outputs : list of onnx_ir.Value
    nodes : onnx_ir.Graph
    """

    def __init__(self, model: Any) -> None:
        self._onnx = require("onnx", extra="onnx", purpose=PURPOSE)
        self._ir = require("onnx_ir", extra="onnx", purpose=PURPOSE)
        self._model = self._ir.from_proto(model)
        self.nodes = self._model.graph
        self.inputs, self.outputs = self.nodes.inputs, self.nodes.outputs

    def node(self, kind: str, inputs: Sequence[Any], *, domain: str = "", **attributes: Any) -> Any:
        """Add a node, and return its value."""
        made = self._ir.node(kind, inputs, attributes, domain=domain)
        self.nodes.append(made)
        return made.outputs[0]

    def constant(self, values: Any) -> Any:
        """Add a constant."""
        array = np.asarray(values)
        array = array.astype(label_dtype(array)) if array.dtype.kind in "Uib" else array
        tensor = self._ir.from_proto(self._onnx.numpy_helper.from_array(array))
        return self.node("Constant", [], value=tensor)

    def cast(self, value: Any, dtype: DTypeLike) -> Any:
        """Add the conversion of a value to a type."""
        return self.node("Cast", [value], to=self._type(dtype).value)

    def value(self, name: str, dtype: DTypeLike, shape: Sequence[Any]) -> Any:
        """Return a new value, to be an input."""
        return self._ir.val(name, self._type(dtype), shape)

    def set_outputs(self, outputs: Mapping[str, tuple[Any, Any, Any]]) -> None:
        """Make values the outputs of the graph, under these names, and say their type and shape."""
        for name, (value, dtype, shape) in outputs.items():
            value.name, value.dtype, value.shape = name, self._type(dtype), self._ir.Shape(shape)
        self.outputs[:] = [value for value, _, _ in outputs.values()]
        for value in self.inputs:
            value.name = f"student_{value.name}" if value.name in outputs else value.name

    def set_inputs(self, dtypes: Sequence[np.dtype[Any]]) -> None:
        """Give the inputs other types, from which they are cast, and any number of rows."""
        for i, (inside, dtype) in enumerate(zip(list(self.inputs), dtypes, strict=True)):
            self.inputs[i] = outside = self.value(inside.name, dtype, ["n", *list(inside.shape)[1:]])
            same = inside.dtype == outside.dtype
            inside.replace_all_uses_with(
                outside if same else self.node("Cast", [outside], to=inside.dtype.value)
            )

    def finished(self, metadata: Mapping[str, str]) -> Any:
        """Return the model with this metadata, without nodes that its outputs do not need.

        Notes of exporters on nodes and values are removed: they hold source lines and paths.
        """
        from onnx_ir.passes import common

        self._model.opset_imports.update({"": OPSET, "ai.onnx.ml": ML_OPSET})
        steps = (
            common.RemoveUnusedNodesPass,
            common.TopologicalSortPass,
            common.NameFixPass,
            common.RemoveUnusedOpsetsPass,
        )
        self._ir.passes.Sequential(*(step() for step in steps))(self._model)
        result = self._ir.to_proto(self._model)
        graph = result.graph
        for item in (*graph.node, *graph.input, *graph.output, *graph.initializer, graph, result):
            item.ClearField("doc_string")
            item.ClearField("metadata_props")
        graph.ClearField("value_info")
        graph.name, result.ir_version = NAME, IR_VERSION
        self._onnx.helper.set_model_props(result, dict(sorted(metadata.items())))
        return result

    def _type(self, dtype: DTypeLike) -> Any:
        return self._ir.DataType(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def label_dtype(table: NDArray[Any]) -> np.dtype[Any]:
    """Return the type in which ONNX holds these class names."""
    kinds = {"U": np.dtype(object), "i": np.dtype(np.int64), "f": np.dtype(np.float64), "b": np.dtype(bool)}
    if table.dtype.kind not in kinds:  # integers beyond int64
        raise InvalidInputError(
            f"Class names of type {table.dtype} cannot be written to ONNX; use text or int."
        )
    return kinds[table.dtype.kind]


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
    """A column of a table as an input of a graph.

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
    graph = Graph(model)
    (matrix,) = graph.inputs
    graph.inputs[:] = [graph.value(one.name, one.dtype, ["n", one.width]) for one in columns]
    pairs = list(zip(graph.inputs, columns, strict=True))
    numbers = [_numbers(graph, value, one.kind) for value, one in pairs if one.rows is None]
    blocks = [_one_hot(graph, value, one) for value, one in pairs if one.rows is not None]
    if numbers:
        table = graph.node("Concat", numbers, axis=1)
        missing = graph.node("IsNaN", [table])
        filled = graph.node("Where", [missing, graph.constant(np.asarray(fill, np.float64)), table])
        marks = graph.cast(missing, np.float64)
        places = graph.constant(np.asarray(marked, np.int64))
        blocks = [filled, graph.node("Gather", [marks, places], axis=1), *blocks]
    joined = graph.node("Concat", blocks, axis=1)
    matrix.replace_all_uses_with(graph.node("Cast", [joined], to=matrix.dtype.value))
    return graph.finished({})


def _numbers(graph: Graph, value: Any, kind: str) -> Any:
    """Return a column as doubles (n, w): one, or the five parts of a time."""

    def op(name: str, one: Any, other: float) -> Any:
        return graph.node(name, [one, graph.constant(np.float64(other))])

    value = graph.cast(value, np.float64)
    if kind != "time":
        return value
    days = op("Div", value, DAY)
    whole, phase = graph.node("Floor", [days]), op("Mul", days, 2 * np.pi / YEAR)
    shifted = op("Add", whole, FIRST_WEEKDAY)
    weeks = op("Mul", graph.node("Floor", [op("Div", shifted, 7.0)]), 7.0)
    weekday, hour = graph.node("Sub", [shifted, weeks]), op("Mul", graph.node("Sub", [days, whole]), 24.0)
    season = [graph.node(name, [phase]) for name in ("Sin", "Cos")]
    return graph.node("Concat", [days, *season, weekday, hour], axis=1)


def _one_hot(graph: Graph, value: Any, column: GraphColumn) -> Any:
    """Return the row (n, w) of each text."""
    place = graph.node(
        "LabelEncoder",
        [graph.node("Reshape", [value, graph.constant(np.array([-1], np.int64))])],
        domain="ai.onnx.ml",
        keys_strings=list(column.keys),
        values_int64s=list(range(len(column.keys))),
        default_int64=len(column.keys),
    )
    return graph.node("Gather", [graph.constant(column.rows), place], axis=0)

"""ONNX graphs: add nodes, rename values, drop what is not needed, and set versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import InvalidInputError

# Opset 18 is the native opset of torch's exporter; skl2onnx and every onnxruntime we allow support it. The IR
# version is fixed too: onnx would write its newest, which an older onnxruntime rejects.
OPSET = 18
ML_OPSET = 3
IR_VERSION = 10

PURPOSE = "Saving as ONNX"
NAME = "consilience"
"""The name of every graph: equal runs give equal files."""


def strip_notes(model: Any) -> None:
    """Remove the notes that exporters put on nodes and values, in place: they hold source lines and paths."""
    graph = model.graph
    for item in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        item.ClearField("doc_string")
        item.ClearField("metadata_props")
    for field in ("doc_string", "metadata_props", "value_info"):
        graph.ClearField(field)
    model.ClearField("doc_string")
    model.ClearField("metadata_props")


class Tail:
    """Append nodes to a graph, with names that the graph does not use yet."""

    def __init__(self, onnx: Any, graph: Any) -> None:
        self.onnx, self.graph, self.count, self.start = onnx, graph, 0, 0
        self.prefix = "consilience_"
        while any(name.startswith(self.prefix) for name in value_names(graph)):
            self.prefix = f"_{self.prefix}"

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def constant(self, values: Any) -> str:
        array = np.asarray(values)
        array = array.astype(label_dtype(array)) if array.dtype.kind in "Uib" else array
        self.graph.initializer.append(self.onnx.numpy_helper.from_array(array, self.name()))
        return str(self.graph.initializer[-1].name)

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or self.name()
        self.graph.node.append(
            self.onnx.helper.make_node(kind, inputs, [output], name=self.name(), **attributes)
        )
        return output

    def begin(self) -> None:
        """Remember where the graph ends now, for `move_to_front`."""
        self.start = len(self.graph.node)

    def move_to_front(self) -> None:
        """Move the nodes that were added since `begin` to the front of the graph."""
        nodes = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*nodes[self.start :], *nodes[: self.start]])

    def joined(self, values: Sequence[str]) -> str:
        """Return values (n, w) side by side."""
        return values[0] if len(values) == 1 else self.node("Concat", values, axis=1)

    def sharpen(self, value: str, power: float) -> str:
        """Raise probabilities to a power and normalise them again."""
        # in a binary forest, onnxruntime computes one probability as 1 - p, which may be -1e-8
        value = self.node("Relu", [value])
        if power == 1:
            return value
        # softmax(T log p) = p^T / sum p^T cannot underflow to 0/0, and log 0 = -inf correctly gives 0
        value = self.node("Mul", [self.node("Log", [value]), self.constant(np.float32(power))])
        return self.node("Softmax", [value], axis=1)

    def spread(self, value: str, where: NDArray[np.int64], n_classes: int) -> str:
        """Move column j to column where[j] of `n_classes`; the other columns are 0."""
        # one column of zeros and a gather: a 0/1 matrix (k, L) would grow with the square of the classes
        source = np.full(n_classes, len(where), dtype=np.int64)
        source[where] = np.arange(len(where))
        padded = self.node("Pad", [value, self.constant(np.array([0, 0, 0, 1], dtype=np.int64))])
        return self.node("Gather", [padded, self.constant(source)], axis=1)


def label_dtype(table: NDArray[Any]) -> np.dtype[Any]:
    """Return the type in which ONNX holds these class names."""
    kinds = {"U": np.dtype(object), "i": np.dtype(np.int64), "f": np.dtype(np.float64), "b": np.dtype(bool)}
    if table.dtype.kind not in kinds:  # integers beyond int64
        raise InvalidInputError(
            f"Class names of type {table.dtype} cannot be written to ONNX; use text or int."
        )
    return kinds[table.dtype.kind]


def stamp(onnx: Any, model: Any, metadata: Mapping[str, str]) -> None:
    """Set opsets, IR version and metadata."""
    domains = {entry.domain for entry in model.opset_import} - {"", "ai.onnx.ml"}
    imports = [("", OPSET)]
    if any(node.domain == "ai.onnx.ml" for node in model.graph.node):
        imports.append(("ai.onnx.ml", ML_OPSET))
    imports += [(e.domain, e.version) for e in model.opset_import if e.domain in domains]
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(*entry) for entry in imports)
    model.ir_version = IR_VERSION
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))


def value_names(graph: Any) -> set[str]:
    """Return all names of nodes and values in a graph and in its inner graphs."""
    names = {item.name for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info)}
    for node in graph.node:
        names |= {node.name, *node.input, *node.output}
        for inner in inner_graphs(node):
            names |= value_names(inner)
    return names


def rename_values(graph: Any, wanted: Mapping[str, str]) -> None:
    """Rename values in a graph and in its inner graphs."""
    taken = value_names(graph)
    new = {}
    for name in wanted.keys() & taken:
        new[name] = wanted[name]
        while new[name] in taken:
            new[name] += "_"
    if new:
        apply_names(graph, new)


def apply_names(graph: Any, new: Mapping[str, str]) -> None:
    """Give values other names, whether these are taken or not."""
    for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        item.name = new.get(item.name, item.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]
        for inner in inner_graphs(node):
            apply_names(inner, new)


def inner_graphs(node: Any) -> list[Any]:
    """Return the graphs inside a node, such as the branches of an If."""
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]


def prune(graph: Any) -> None:
    """Drop nodes and constants that the outputs do not need."""
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input).union(*(value_names(inner) for inner in inner_graphs(node)))
    nodes, constants = kept[::-1], [c for c in graph.initializer if c.name in needed]
    graph.ClearField("node")
    graph.node.extend(nodes)
    graph.ClearField("initializer")
    graph.initializer.extend(constants)


def cast_before_trees(onnx: Any, tail: Tail) -> None:
    """Round the input of trees to float, as scikit-learn does. A double could fall on the other side."""
    nodes = []
    for node in tail.graph.node:
        rounded = not any(attribute.name == "nodes_values_as_tensor" for attribute in node.attribute)
        if node.op_type.startswith("TreeEnsemble") and rounded:
            cast = onnx.helper.make_node(
                "Cast", [node.input[0]], [tail.name()], name=tail.name(), to=onnx.TensorProto.FLOAT
            )
            node.input[0] = cast.output[0]
            nodes.append(cast)
        nodes.append(node)
    del tail.graph.node[:]
    tail.graph.node.extend(nodes)


def cast_inputs(onnx: Any, tail: Tail, given: Sequence[np.dtype[Any]]) -> None:
    """Name the rows' dimension of each input, and cast from the user's types to those of the arithmetic."""
    graph = tail.graph
    inside = {}
    for entry, dtype in zip(graph.input, given, strict=True):
        tensor = entry.type.tensor_type
        wanted = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        if tensor.elem_type != wanted:
            inside[entry.name] = (tail.name(), tensor.elem_type)
            tensor.elem_type = wanted
        tensor.shape.dim[0].dim_param = "n"
    kept = [entry.name for entry in graph.input]
    apply_names(graph, {name: new for name, (new, _) in inside.items()})
    for entry, name in zip(graph.input, kept, strict=True):
        entry.name = name
    tail.begin()
    for name, (new, kind) in inside.items():
        tail.node("Cast", [name], output=new, to=kind)
    tail.move_to_front()

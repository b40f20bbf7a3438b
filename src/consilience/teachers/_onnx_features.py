"""Find the last layer of an ONNX graph: its input and its weights."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import TeacherError
from consilience.teachers._onnx_graph import Graph, constant_values, node_attribute

# Operators that may follow the last layer. They keep each column with its class, and the order of values,
# unlike Abs, Neg and Pow. For other operators it depends: see _keeps_columns.
_TAIL = {
    *("Cast", "CastLike", "Clip", "Dropout", "Exp", "Flatten", "Identity", "Log", "LogSoftmax", "Normalizer"),
    *("ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Sigmoid", "Softmax", "Squeeze"),
    *("Unsqueeze", "ZipMap"),
}


@dataclass(frozen=True)
class Features:
    """The place of a row's features in a graph.

    Attributes
    ----------
    tensor : str
        The tensor with the features.
    weights : (k, d) array or None
        The weights of the last layer, if the features are its input. They do not include a temperature.
    """

    tensor: str
    weights: NDArray[np.float64] | None


def find_features(graph: Graph, scores: str, n_classes: int, source: Path) -> Features | None:
    """Find the last Gemm, MatMul or LinearClassifier with constant weights that have one row for each class.

    Parameters
    ----------
    graph : Graph
    scores : str
        The output with the class scores.
    n_classes : int
        k.
    source : Path
        The model's file. Data of tensors may lie next to it; these files were checked before.
    """
    before = _ancestors(graph, scores)
    for node in reversed(graph.model.graph.node):
        if not before.intersection(node.output) or not node.input:
            continue
        weights = _weights(graph, node, source)
        if weights is None:
            continue
        turned = _per_class(graph, node, weights, n_classes, before)
        if turned is not None:
            return Features(node.input[0], turned)
    return None


def named_features(graph: Graph, tensor: str, found: Features | None, name: str) -> Features:
    """Return the features in the named tensor, with weights if it is the input of the last layer."""
    known = [*graph.producers, *(value.name for value in graph.model.graph.input)]
    if tensor not in known:
        near = difflib.get_close_matches(tensor, known, n=3, cutoff=0.3) or known[-3:]
        raise TeacherError(
            name,
            f"has no tensor {tensor!r} in its graph; it has, for example, {', '.join(map(repr, near))}. "
            "Give {remedy} the name of a tensor, or a function of X.",
            remedy="embed",
        )
    return Features(tensor, found.weights if found is not None and found.tensor == tensor else None)


def add_output(model: Any, tensor: str) -> None:
    """Make a tensor of a graph one of its outputs. Onnxruntime infers its type."""
    known = {value.name for value in [*model.graph.output, *model.graph.input]}
    if tensor not in known:
        model.graph.output.add().name = tensor


def _ancestors(graph: Graph, tensor: str) -> set[str]:
    """Return a tensor and all tensors that it is computed from."""
    seen: set[str] = set()
    waiting = [tensor]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        node = graph.producers.get(current)
        waiting.extend([] if node is None else [entry for entry in node.input if entry])
    return seen


def _weights(graph: Graph, node: Any, source: Path) -> NDArray[np.float64] | None:
    """Return the weights (outputs, d) of a linear node, or None if it is not linear with constant weights."""
    if node.op_type == "LinearClassifier":
        given, intercepts = node_attribute(node, "coefficients"), node_attribute(node, "intercepts")
        count = len(intercepts.floats) if intercepts is not None else 0
        if given is None or count == 0 or len(given.floats) % count:
            return None
        return np.asarray(given.floats, dtype=np.float64).reshape(count, -1)
    if node.op_type not in ("Gemm", "MatMul") or len(node.input) < 2:
        return None
    tensor = graph.constants.get(node.input[1])
    if tensor is None or len(tensor.dims) != 2 or _flag(node, "transA"):
        return None
    values = _numbers(constant_values(tensor, source.parent))
    if values is None:
        return None
    scale = node_attribute(node, "alpha") if node.op_type == "Gemm" else None
    turned = values if _flag(node, "transB") else values.T
    return turned if scale is None else turned * scale.f


def _per_class(
    graph: Graph, node: Any, weights: NDArray[np.float64], n_classes: int, before: set[str]
) -> NDArray[np.float64] | None:
    """Return the weights with one row per class, or None if the classes of the rows are unclear."""
    tail = _tail(graph, node, before)
    if len(weights) == n_classes:
        made = {tensor for step in [node, *tail] for tensor in step.output}
        if not all(_keeps_columns(graph, step, made) for step in tail):
            return None
        # a binary model as [-w, w] with a sigmoid on each: the logits differ by w x, not by 2 w x
        sigmoids = node.op_type == "LinearClassifier" or any(step.op_type == "Sigmoid" for step in tail)
        doubled = n_classes == 2 and sigmoids and np.array_equal(weights[0], -weights[1])
        return weights / 2 if doubled else weights
    if len(weights) != 1 or n_classes != 2:
        return None
    if node.op_type == "LinearClassifier":
        return np.vstack([-weights, weights]) / 2
    # one probability p becomes two: [1 - p, p], or the reverse
    for step in tail:
        if step.op_type != "Concat" or len(step.input) != 2:
            continue
        first, second = (graph.producers.get(tensor) for tensor in step.input)
        if first is not None and first.op_type == "Sub" and first.input[1] == step.input[1]:
            return np.vstack([-weights, weights]) / 2
        if second is not None and second.op_type == "Sub" and second.input[1] == step.input[0]:
            return np.vstack([weights, -weights]) / 2
    return None


def _tail(graph: Graph, node: Any, before: set[str]) -> list[Any]:
    """Return the nodes between a node and the scores."""
    reached = set(node.output)
    found = []
    for step in graph.model.graph.node:  # the format guarantees topological order
        if reached.intersection(step.input) and before.intersection(step.output):
            reached.update(step.output)
            found.append(step)
    return found


def _keeps_columns(graph: Graph, node: Any, made: set[str]) -> bool:
    """Tell whether a step keeps each column with its class; `made` are the tensors after the last layer."""
    if node.op_type == "ArrayFeatureExtractor":  # picks one margin of two; the adapter turns it into [0, d]
        picked = graph.constants.get(node.input[1])
        return picked is not None and math.prod(picked.dims) == 1
    if node.op_type == "Add":  # a bias
        return any(tensor in graph.constants for tensor in node.input)
    first, second = node.input[0], node.input[-1]
    if node.op_type in ("Sub", "Div") and first in made and second in made:
        return True  # a softmax written out: x - max(x), e / sum(e)
    if node.op_type == "Sub":
        return first in made and second in graph.constants
    if node.op_type in ("Mul", "Div"):  # a temperature
        return first in made and _is_positive_number(graph, second)
    return node.op_type in _TAIL


def _is_positive_number(graph: Graph, tensor: str) -> bool:
    constant = graph.constants.get(tensor)
    if constant is None or constant.external_data or math.prod(constant.dims) != 1:
        return False
    values = _numbers(constant_values(constant))
    return values is not None and bool((values > 0).all())


def _numbers(values: NDArray[Any] | None) -> NDArray[np.float64] | None:
    """Return values as floats, or None where they are no numbers."""
    try:
        return None if values is None else values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def _flag(node: Any, name: str) -> bool:
    found = node_attribute(node, name)
    return found is not None and bool(found.i)

"""Find out from an ONNX graph which output holds the scores, what they are, and the classes."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._words import shorten
from consilience.exceptions import TeacherError
from consilience.files.strict_json import RepeatedKeyError, parse_json
from consilience.teachers.outputs import choose_output

Kind = Literal["logits", "probabilities"]

MAX_METADATA = 2**20
_METADATA_KEYS = ("names", "class_names", "classes")
_CLASSIFIERS = {"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"}
# operators that leave the meaning of their first input alone
_PASSING = {"Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout", "ZipMap"}


@dataclass(frozen=True)
class Scores:
    """Where a graph's class scores are.

    Attributes
    ----------
    output : str
        Name of the graph's output.
    kind : {"logits", "probabilities"} or None
        What they are, where the graph leaves no doubt.
    margin : bool
        Whether a binary classifier's one margin was picked out.
    keys : list or None
        The keys of a ZipMap, in the order of its tensor's columns, when the output is a sequence of
        dictionaries.
    """

    output: str
    kind: Kind | None
    margin: bool
    keys: list[Any] | None


class Graph:
    """The top level of a model, indexed by the names of tensors."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.producers = {output: node for node in model.graph.node for output in node.output if output}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.output:
                value = node_attribute(node, "value")
                if value is not None and value.HasField("t"):
                    self.constants[node.output[0]] = value.t

    def origin(self, tensor: str) -> tuple[Any, bool]:
        """Return the node that gives a tensor its meaning, or None, and whether a column was picked."""
        picked = False
        for _ in range(64):  # a graph from a stranger may have a cycle
            node = self.producers.get(tensor)
            if node is None or not node.input:
                return None, picked
            if node.op_type == "ArrayFeatureExtractor" and node.input[0] not in self.constants:
                picked = True
            elif node.op_type not in _PASSING and not _is_l1_normalizer(node):
                return node, picked
            tensor = node.input[0]
        return None, picked


def find_scores(graph: Graph, name: str, wanted: str = "auto") -> Scores:
    """Find the output of class scores; `wanted` prefers logits or probabilities where there are both."""
    outputs = graph.model.graph.output
    candidates = [
        value for value in outputs if _is_float_tensor(value) or value.type.HasField("sequence_type")
    ]
    if not candidates:
        raise TeacherError(
            name,
            f"has no output of class scores; its outputs are {shorten(value.name for value in outputs)}.",
        )
    output = candidates[
        choose_output([value.name for value in candidates], [_dims(value) for value in candidates], wanted)
    ]
    zipmap = graph.producers.get(output.name) if output.type.HasField("sequence_type") else None
    if zipmap is not None and zipmap.op_type != "ZipMap":
        zipmap = None
    node, picked = graph.origin(output.name)
    kind = _kind(graph, node)
    # onnxruntime's columns of such a model contradict its own label: column 0 is the second class's margin
    if node is not None and node.op_type == "SVMClassifier" and kind == "logits" and _is_binary(node):
        raise TeacherError(
            name,
            "is a binary SVM without probabilities, whose scores onnxruntime gives in the wrong columns. "
            "Convert CalibratedClassifierCV around it instead.",
        )
    if kind is None and "logit" in output.name.lower():
        kind = "logits"  # but "probabilities" proves nothing: skl2onnx calls the margins of an SVC so, too
    return Scores(
        output.name,
        kind,
        picked and kind == "logits",
        None if zipmap is None else _class_labels(zipmap),
    )


def find_classes(graph: Graph, scores: Scores) -> list[Any] | None:
    """Return the classes that the file names, in the order of the score columns, or None.

    Looks at the metadata, the ZipMap, what the label output is made from, and last the node that makes the
    scores. The label goes before the scores: in a stack, the last classifier only numbers the classes.
    """
    metadata = {entry.key: entry.value for entry in graph.model.metadata_props}
    for key in _METADATA_KEYS:
        found = parse_names(metadata[key]) if key in metadata else None
        if found:
            return found
    if scores.keys:
        return scores.keys
    for value in graph.model.graph.output:
        if value.name != scores.output and _is_label(value):
            found = _node_classes(graph, graph.origin(value.name)[0])
            if found:
                return found
    node, _ = graph.origin(scores.output)
    return _class_labels(node) if node is not None and node.op_type in _CLASSIFIERS else None


def parse_names(text: str) -> list[Any] | None:
    """Read class names from metadata: a JSON list, a JSON object or a Python literal; None for anything else.

    Examples
    --------
    >>> parse_names("{0: 'person', 1: 'car'}"), parse_names('["a", "b"]'), parse_names("open('x')")
    (['person', 'car'], ['a', 'b'], None)
    """
    if len(text) > MAX_METADATA or not text.lstrip().startswith(("[", "{", "(")):
        return None
    try:
        names = parse_json(text)
    except RepeatedKeyError:
        return None
    except (ValueError, RecursionError):
        try:
            names = _literal(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
    if isinstance(names, dict):
        names = _by_index(names)
    if not names or not isinstance(names, list | tuple):
        return None
    if not all(isinstance(value, str | int | float) for value in names):
        return None
    return list(names)


def _literal(text: str) -> Any:
    """Return a Python literal. Raise if it is not one, or if a dictionary repeats a key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a stray backslash in a name is not the user's concern
        tree = ast.parse(text.strip(), mode="eval")
    value = ast.literal_eval(tree)
    if isinstance(tree.body, ast.Dict) and len(value) < len(tree.body.keys):
        raise ValueError("a key is given twice")
    return value


def _by_index(names: dict[Any, Any]) -> list[Any] | None:
    """Return the values of {index: name} in order, when the indices are exactly 0 to k - 1."""
    try:
        indexed = {int(key): value for key, value in names.items()}
    except (ValueError, TypeError):
        return None
    if sorted(indexed) != list(range(len(names))):
        return None
    return [indexed[i] for i in range(len(names))]


def _dims(value: Any) -> int | None:
    return len(value.type.tensor_type.shape.dim) if value.type.HasField("tensor_type") else None


def _kind(graph: Graph, node: Any) -> Kind | None:
    """Tell what a node's output is, where its operator leaves no doubt."""
    if node is None:
        return None
    # a Sigmoid per class does not sum to one: read as probabilities, it raises the error that explains it
    if node.op_type in ("Softmax", "Sigmoid"):
        return "probabilities"
    if node.op_type in ("LogSoftmax", "Gemm"):
        return "logits"
    if node.op_type == "Add":
        sources = [graph.producers.get(tensor) for tensor in node.input]
        has_bias = any(tensor in graph.constants for tensor in node.input)
        return (
            "logits" if has_bias and any(s is not None and s.op_type == "MatMul" for s in sources) else None
        )
    if node.op_type not in _CLASSIFIERS:
        return None
    attribute = node_attribute(node, "post_transform")
    transform = "NONE" if attribute is None else attribute.s.decode("ascii", "replace")
    if transform in ("SOFTMAX", "SOFTMAX_ZERO", "LOGISTIC"):
        return "probabilities"
    if transform != "NONE" or node.op_type == "TreeEnsembleClassifier":
        return None  # a forest's leaves hold probabilities, a boosted ensemble's hold logits
    return "probabilities" if node_attribute(node, "prob_a") is not None else "logits"


def _node_classes(graph: Graph, node: Any) -> list[Any] | None:
    """Return the classes behind a label: a classifier's own, or a constant that labels are picked from."""
    if node is None:
        return None
    if node.op_type in _CLASSIFIERS:
        return _class_labels(node)
    tensor = (
        graph.constants.get(node.input[0]) if node.op_type in ("ArrayFeatureExtractor", "Gather") else None
    )
    if tensor is None or tensor.external_data:
        return None
    found = constant_values(tensor)
    if found is None:
        return None
    values = found.ravel().tolist()
    values = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    whole = all(isinstance(value, float) and value.is_integer() for value in values)
    return [int(value) for value in values] if whole else values


def constant_values(tensor: Any, folder: Path | None = None) -> NDArray[Any] | None:
    """Return the values of a constant; None where its type is unknown or its data do not fill its shape.

    Parameters
    ----------
    tensor : onnx.TensorProto
    folder : Path, optional
        Where its external data lie, which was checked before.
    """
    numpy_helper = require("onnx.numpy_helper", extra="onnx", purpose="An ONNX teacher")
    try:
        return np.asarray(numpy_helper.to_array(tensor, "" if folder is None else str(folder)))
    except Exception:  # onnx raises various errors for data that no converter writes
        return None


def _class_labels(node: Any) -> list[Any] | None:
    for attribute in node.attribute:
        if attribute.name == "classlabels_strings" and attribute.strings:
            return [value.decode("utf-8", "replace") for value in attribute.strings]
        if attribute.name in ("classlabels_int64s", "classlabels_ints") and attribute.ints:
            return list(attribute.ints)
    return None


def _is_binary(node: Any) -> bool:
    return len(_class_labels(node) or ()) == 2


def node_attribute(node: Any, name: str) -> Any:
    """Return a node's attribute of some name, or None."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _is_l1_normalizer(node: Any) -> bool:
    norm = node_attribute(node, "norm") if node.op_type == "Normalizer" else None
    return norm is not None and norm.s == b"L1"


def _is_float_tensor(value: Any) -> bool:
    types = require("onnx", extra="onnx", purpose="An ONNX teacher").TensorProto
    floats = (types.FLOAT, types.DOUBLE, types.FLOAT16, types.BFLOAT16)
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in floats


def _is_label(value: Any) -> bool:
    types = require("onnx", extra="onnx", purpose="An ONNX teacher").TensorProto
    labels = (types.INT64, types.INT32, types.STRING)
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in labels

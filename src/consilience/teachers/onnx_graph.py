"""What an ONNX graph says: which output holds the scores, what they are, the classes, and the last layer.

All of it is read from one walk: from an output back through the nodes that compute it.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._words import shorten
from consilience.files.strict_json import RepeatedKeyError, parse_json
from consilience.teachers.outputs import check_known, choose_output, ensure

Kind = Literal["logits", "probabilities"]

MAX_METADATA = 2**20
_METADATA_KEYS = ("names", "class_names", "classes")
_LONGEST = 64  # steps of a walk: a graph from a stranger may have a cycle
_CLASSIFIERS = {"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"}
# operators that leave the meaning of their first input alone
_PASSING = {"Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout", "ZipMap"}
# and those that keep each column with its class, and the order of values, unlike Abs, Neg and Pow
_KEEPING = _PASSING | {
    *("Clip", "Exp", "Log", "LogSoftmax", "Normalizer", "ReduceMax", "ReduceMean", "ReduceSum", "Relu"),
    *("Sigmoid", "Softmax", "Concat"),
}
_LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
# a Sigmoid per class does not sum to one: read as probabilities, it raises the error that explains it
_KINDS: dict[str, Kind] = {
    "Softmax": "probabilities",
    "Sigmoid": "probabilities",
    "LogSoftmax": "logits",
    "Gemm": "logits",
}


@dataclass(frozen=True)
class Scores:
    """Where a graph's class scores are.

    Attributes
    ----------
    output : str
        The tensor that holds them: an output of the graph, or what a ZipMap makes an output of.
    kind : {"logits", "probabilities"} or None
        What they are, where the graph leaves no doubt.
    margin : bool
        Whether a binary classifier's one margin was picked out.
    keys : list
        The keys of the ZipMap, in the order of the tensor's columns.
    """

    output: str
    kind: Kind | None
    margin: bool
    keys: list[Any]


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


class Graph:
    """The top level of a model, indexed by the names of tensors."""

    def __init__(self, model: Any) -> None:
        self.model, self.metadata = model, {entry.key: entry.value for entry in model.metadata_props}
        self.producers = {output: node for node in model.graph.node for output in node.output if output}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.output and setting(node, "value"):
                self.constants[node.output[0]] = setting(node, "value")

    def walk(self, tensor: str) -> list[Any]:
        """Return the nodes behind a tensor, last first: each makes the first computed input of the next."""
        found: list[Any] = []
        while len(found) < _LONGEST:
            node = self.producers.get(tensor)
            if node is None or not node.input:
                break
            found.append(node)
            tensor = self.computed(node)
        return found

    def computed(self, node: Any) -> str:
        """Return the first input of a node that is no constant."""
        return str(next((tensor for tensor in node.input if tensor not in self.constants), node.input[0]))

    def origin(self, tensor: str) -> tuple[Any, bool]:
        """Return the node that gives a tensor its meaning, or None, and whether a column was picked."""
        picked = False
        for node in self.walk(tensor):
            if node.op_type == "ArrayFeatureExtractor" and node.input[0] not in self.constants:
                picked = True
            elif node.op_type not in _PASSING and setting(node, "norm") != b"L1":
                return node, picked
        return None, picked

    def values(self, tensor: str, folder: Path | None = None) -> NDArray[Any] | None:
        """Return a constant, or None where there is none, or where its data do not fill its shape.

        `folder` is where its external data lie, which were checked before; without it they are not read.
        """
        constant = self.constants.get(tensor)
        if constant is None or (folder is None and constant.external_data):
            return None
        numpy_helper = require("onnx.numpy_helper", extra="onnx", purpose="An ONNX teacher")
        try:
            return np.asarray(numpy_helper.to_array(constant, str(folder or "")))
        except Exception:  # onnx raises various errors for data that no converter writes
            return None

    def numbers(self, tensor: str, folder: Path | None = None) -> NDArray[np.float64] | None:
        """Return a constant as floats, or None where it holds no numbers."""
        values = self.values(tensor, folder)
        return None if values is None or values.dtype.kind in "OUSM" else values.astype(np.float64)


def setting(node: Any, name: str, otherwise: Any = None) -> Any:
    """Return the value of a node's attribute, or `otherwise` where it has none of this name."""
    helper = require("onnx.helper", extra="onnx", purpose="An ONNX teacher")
    found = next((one for one in node.attribute if one.name == name), None)
    return otherwise if found is None else helper.get_attribute_value(found)


def find_scores(graph: Graph, name: str, wanted: str = "auto") -> Scores:
    """Find the output of class scores; `wanted` prefers logits or probabilities where there are both."""
    outputs = graph.model.graph.output
    found = [one for one in outputs if _is_tensor(one, "f") or one.type.HasField("sequence_type")]
    known = shorten(value.name for value in outputs)
    ensure(found, name, f"has no output of class scores; its outputs are {known}.")
    dims = [
        len(one.type.tensor_type.shape.dim) if one.type.HasField("tensor_type") else None for one in found
    ]
    output = found[choose_output([one.name for one in found], dims, wanted)]
    maker = graph.producers.get(output.name)
    zipmap = maker if maker is not None and maker.op_type == "ZipMap" else None
    node, picked = graph.origin(output.name)
    kind = None if node is None else _kind(graph, node)
    # onnxruntime's columns of such a model contradict its own label: column 0 is the second class's margin
    svm = node is not None and node.op_type == "SVMClassifier" and len(_labels(node)) == 2
    ensure(
        not svm or kind != "logits",
        name,
        "is a binary SVM without probabilities, whose scores onnxruntime gives in the wrong columns. "
        "Convert CalibratedClassifierCV around it instead.",
    )
    if kind is None and "logit" in output.name.lower():
        kind = "logits"  # but "probabilities" proves nothing: skl2onnx calls the margins of an SVC so, too
    # the matrix itself: a dictionary for each row would cost more than the model
    tensor = output.name if zipmap is None else zipmap.input[0]
    return Scores(tensor, kind, picked and kind == "logits", _labels(zipmap))


def _kind(graph: Graph, node: Any) -> Kind | None:
    """Tell what a node's output is, where its operator leaves no doubt."""
    if node.op_type == "Add":
        before = graph.producers.get(graph.computed(node))
        biased = before is not None and before.op_type == "MatMul" and graph.constants.keys() & node.input
        return "logits" if biased else None
    if node.op_type not in _CLASSIFIERS:
        return _KINDS.get(node.op_type)
    transform = setting(node, "post_transform", b"NONE")
    if transform in (b"SOFTMAX", b"SOFTMAX_ZERO", b"LOGISTIC"):
        return "probabilities"
    if transform != b"NONE" or node.op_type == "TreeEnsembleClassifier":
        return None  # a forest's leaves hold probabilities, a boosted ensemble's hold logits
    return "probabilities" if setting(node, "prob_a") else "logits"


def find_classes(graph: Graph, scores: Scores) -> list[Any] | None:
    """Return the classes that the file names, in the order of the score columns, or None.

    Looks at the metadata, the ZipMap, what the label output is made from, and last the node that makes the
    scores. The label goes before the scores: in a stack, the last classifier only numbers the classes.
    """
    named = [parse_names(graph.metadata[key]) for key in _METADATA_KEYS if key in graph.metadata]
    labels = [
        one.name for one in graph.model.graph.output if one.name != scores.output and _is_tensor(one, "iO")
    ]
    made = [_classes_of(graph, graph.origin(tensor)[0]) for tensor in [*labels, scores.output]]
    return next((found for found in [*named, scores.keys, *made] if found), None)


def _classes_of(graph: Graph, node: Any) -> list[Any]:
    """Return a classifier's classes, or those of a constant that labels are picked from; else none."""
    if node is None or node.op_type not in ("ArrayFeatureExtractor", "Gather"):
        return _labels(node)
    found = graph.values(node.input[0])
    values = _texts([] if found is None else found.ravel().tolist())
    whole = all(isinstance(value, float) and value.is_integer() for value in values)
    return [int(value) for value in values] if whole else values


def _labels(node: Any) -> list[Any]:
    """Return the classes that a classifier or a ZipMap lists."""
    listed = () if node is None else (setting(node, name) for name in _LABELS)
    return next((_texts(found) for found in listed if found), [])


def _texts(values: Iterable[Any]) -> list[Any]:
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]


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
        names = _literal(text.strip())
    if isinstance(names, dict):  # by index
        indexed = {str(key): value for key, value in names.items()}
        names = [indexed.get(str(i)) for i in range(len(names))]
    fits = isinstance(names, list | tuple) and all(isinstance(name, str | int | float) for name in names)
    return list(names) or None if fits else None


def _literal(text: str) -> Any:
    """Return a Python literal, or None if it is none, or if a dictionary repeats a key."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a stray backslash in a name is not the user's concern
            tree = ast.parse(text, mode="eval")
        value = ast.literal_eval(tree)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    repeated = isinstance(tree.body, ast.Dict) and len(value) < len(tree.body.keys)
    return None if repeated else value


def dtype_of(value: Any) -> np.dtype[Any] | None:
    """Return the type of an input or an output in numpy; None where it is no tensor of a known type."""
    helper = require("onnx.helper", extra="onnx", purpose="An ONNX teacher")
    try:
        found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        return found
    except (KeyError, ValueError, TypeError):
        return None


def _is_tensor(value: Any, kinds: str) -> bool:
    """Tell whether an output is a tensor of some kinds: "f" for scores, "i" and "O" for labels."""
    dtype = dtype_of(value)
    return dtype is not None and (dtype.kind in kinds or (dtype.name == "bfloat16" and "f" in kinds))


def find_features(graph: Graph, scores: str, n_classes: int, source: Path) -> Features | None:
    """Find the Gemm, MatMul or LinearClassifier before the scores, with constant weights for each class.

    Data of tensors may lie next to the model's file `source`; these files were checked before.
    """
    tail: list[str] = []
    for node in graph.walk(scores):
        weights = _weights(graph, node, source)
        if weights is not None:
            turned = _per_class(node, tail, weights, n_classes)
            return None if turned is None else Features(node.input[0], turned)
        if not _keeps_columns(graph, node, flips=tail[-1:] == ["Concat"]):
            return None
        tail.append(node.op_type)
    return None


def _weights(graph: Graph, node: Any, source: Path) -> NDArray[np.float64] | None:
    """Return the weights (outputs, d) of a linear node, or None if it is not linear with constant weights."""
    if node.op_type == "LinearClassifier":
        given, count = np.array(setting(node, "coefficients", [])), len(setting(node, "intercepts", []))
        return given.reshape(count, -1) if count and len(given) % count == 0 else None
    if node.op_type not in ("Gemm", "MatMul") or len(node.input) < 2 or setting(node, "transA"):
        return None
    values = graph.numbers(node.input[1], source.parent)
    if values is None or values.ndim != 2:
        return None
    scale = float(setting(node, "alpha", 1.0))
    return (values if setting(node, "transB") else values.T) * scale


def _per_class(
    node: Any, tail: list[str], weights: NDArray[np.float64], n_classes: int
) -> NDArray[np.float64] | None:
    """Return the weights with one row per class, or None if the classes of the rows are unclear."""
    classifier = node.op_type == "LinearClassifier"
    if len(weights) == n_classes and "Concat" not in tail:
        # a binary model as [-w, w] with a sigmoid on each: the logits differ by w x, not by 2 w x
        doubled = n_classes == 2 and (classifier or "Sigmoid" in tail)
        return weights / 2 if doubled and np.array_equal(weights[0], -weights[1]) else weights
    if len(weights) != 1 or n_classes != 2 or not (classifier or "Concat" in tail):
        return None
    # one probability p becomes two: [1 - p, p], or the reverse
    sign = 1 if classifier or "Sub" in tail else -1
    return sign * np.vstack([-weights, weights]) / 2


def _keeps_columns(graph: Graph, node: Any, *, flips: bool) -> bool:
    """Tell whether a step keeps each column with its class; it `flips` where it may make 1 - p of p."""
    first, last = (tensor in graph.constants for tensor in (node.input[0], node.input[-1]))
    other = graph.producers.get(node.input[-1])
    reduced = other is not None and other.op_type.startswith("Reduce") and other.input[0] == node.input[0]
    values = graph.numbers(node.input[-1])
    match node.op_type:
        case "ArrayFeatureExtractor":  # picks one margin of two; the adapter turns it into [0, d]
            picked = graph.constants.get(node.input[1])
            return picked is not None and math.prod(picked.dims) == 1
        case "Add":  # a bias
            return first or last
        case "Concat":
            others = [getattr(graph.producers.get(tensor), "op_type", "") for tensor in node.input]
            return len(others) == 2 and "Sub" in others
        case "Sub" | "Div" if reduced and not first:  # a softmax written out: x - max(x), e / sum(e)
            return True
        case "Sub":
            return flips if first else last
        case "Mul" | "Div":  # a temperature
            return not first and values is not None and values.size == 1 and bool((values > 0).all())
    return node.op_type in _KEEPING


def named_features(graph: Graph, tensor: str, found: Features | None, name: str) -> Features:
    """Return the features in the named tensor, with weights if it is the input of the last layer."""
    known = [*graph.producers, *(value.name for value in graph.model.graph.input)]
    advice = "Give {remedy} the name of a tensor, or a function of X."
    check_known(name, tensor, known, "tensor", advice)
    return Features(tensor, found.weights if found is not None and found.tensor == tensor else None)

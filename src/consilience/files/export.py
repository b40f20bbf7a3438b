"""ONNX export: convert a scikit-learn model, append the tail that all students share, and write it safely.

An exported model has one input ``X`` (n, ...) and two outputs: ``probabilities`` (n, L), float32, and
``label`` (n,), the most probable class. Its metadata carries the class names as JSON.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import check_choice, check_number
from consilience.exceptions import InvalidInputError
from consilience.files.atomic import replacing
from consilience.labels import class_list

# Opset 18 is the native opset of torch's exporter; skl2onnx and every onnxruntime we allow support it. The IR
# version is fixed too: onnx would write its newest, which an older onnxruntime rejects.
OPSET = 18
ML_OPSET = 3
IR_VERSION = 10

TOLERANCE = 1e-5
"""Largest allowed difference in a probability between a scikit-learn model and its export."""

PURPOSE = "Saving as ONNX"


def exportable() -> str:
    """Return a sentence that says which students can be exported.

    Examples
    --------
    >>> exportable()
    'Students that can be exported: scikit-learn classifiers that skl2onnx converts, and torch modules.'
    """
    return (
        "Students that can be exported: scikit-learn classifiers that skl2onnx converts, and torch modules."
    )


def sklearn_to_onnx(model: Any, X_example: Any) -> Any:
    """Convert a fitted scikit-learn model that predicts probabilities to ONNX, and check it on example rows.

    The input has the type of `X_example` (float32, float64 or int64). Inside, the arithmetic is double, as in
    scikit-learn, or float if a converter does not support double.

    Parameters
    ----------
    model : classifier or regressor
        A fitted classifier or pipeline with `predict_proba`, or a regressor of probabilities (n, k).
    X_example : (n, d) array or data frame of numbers
        Rows that define the input type and on which the two models are compared. At most 256 are used.

    Returns
    -------
    onnx.ModelProto
        One input ``X`` (n, d) and one output ``probabilities`` (n, k), float32, with one column for each of
        ``model.classes_``, or each output of the regressor.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0], [1.0]]), ["no", "yes"]
    >>> onnx_model = sklearn_to_onnx(LogisticRegression().fit(X, y), X)
    >>> [output.name for output in onnx_model.graph.output]
    ['probabilities']
    """
    from sklearn.base import is_regressor

    if not (hasattr(model, "predict_proba") or is_regressor(model)):
        raise InvalidInputError(
            f"{_describe(model)} has no predict_proba, but an export needs it. {exportable()}"
        )
    require("skl2onnx", extra="onnx", purpose=PURPOSE)
    X_example = X_example[:256]
    rows = _numbers(X_example)
    expected = np.asarray((model.predict if is_regressor(model) else model.predict_proba)(X_example))
    expected = expected.reshape(len(rows), -1)  # a regressor of one output gives (n,)
    failures = []
    for kind in (np.float64, np.float32):
        try:
            converted = _convert(model, rows, expected.shape[1], kind)
            got = _run(converted, rows)
        except Exception as error:  # skl2onnx and onnxruntime raise almost any type
            failures.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}")
            continue
        worst = float(np.max(np.abs(got - expected), initial=0.0))
        if got.shape == expected.shape and worst <= TOLERANCE:
            return converted
        failures.append(f"its ONNX probabilities differ from its own by up to {worst:.2g}")
    raise InvalidInputError(f"{_describe(model)} cannot be exported to ONNX ({failures[0]}). {exportable()}")


def finish(
    model: Any,
    *,
    classes: ArrayLike,
    columns: ArrayLike,
    temperature: float,
    scores: Literal["logits", "probabilities"],
    metadata: Mapping[str, str],
) -> Any:
    """Append the tail that turns a student's scores into probabilities over all classes and a label.

    Logits go through a softmax. If a student was fitted on soft labels at temperature T, its probabilities p
    are sharpened to p^T / sum p^T; T = 1 leaves them unchanged. Classes that the student does not know get
    probability 0.

    Parameters
    ----------
    model : onnx.ModelProto
        A model with one output, the scores (n, k). It is not changed.
    classes : (L,) sequence of str, int, float or bool
        Class names. ``label`` is a string, int64, double or bool tensor accordingly.
    columns : (k,) sequence of int
        Position of each score among `classes`.
    temperature : float
        T above. It has no effect on logits, which are trained to be right at temperature 1.
    scores : {"logits", "probabilities"}
        The kind of the model's output.
    metadata : mapping of str to str
        Written into the model's metadata, next to ``classes``.

    Returns
    -------
    onnx.ModelProto
        With the outputs ``probabilities`` (n, L) float32 and ``label`` (n,).

    Examples
    --------
    >>> from onnx import parser
    >>> head = '<ir_version: 8, opset_import: ["": 18]> g (float[n, 2] X) => (float[n, 2] s)'
    >>> scores = parser.parse_model(head + "{ s = Identity(X) }")
    >>> done = finish(scores, classes=["a", "b"], columns=[0, 1], temperature=1, scores="logits", metadata={})
    >>> [output.name for output in done.graph.output], done.metadata_props[0].value
    (['probabilities', 'label'], '["a", "b"]')
    """
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    check_choice("scores", scores, ("logits", "probabilities"))
    power = check_number("temperature", temperature, above=0)
    names = class_list(classes)
    table = np.asarray(names)
    label_type = onnx.helper.np_dtype_to_tensor_dtype(_label_dtype(table))
    where = _positions(columns, len(names))
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    if len(graph.output) != 1:
        raise InvalidInputError(
            f"The model has {len(graph.output)} outputs; expected one, the scores (n, k)."
        )
    _rename(graph, {"probabilities": "student_probabilities", "label": "student_label"})
    tail = _Tail(onnx, graph)
    value = tail.node("Cast", [graph.output[0].name], to=onnx.TensorProto.FLOAT)
    softmax = scores == "logits"
    value = tail.node("Softmax", [value], axis=1) if softmax else tail.sharpen(value, power)
    if not np.array_equal(where, np.arange(len(names))):
        value = tail.spread(value, where, len(names))
    tail.node("Identity", [value], output="probabilities")
    best = tail.node("ArgMax", [value], axis=1, keepdims=0)
    tail.node("Gather", [tail.constant(table), best], output="label")
    del graph.output[:]
    make_value = onnx.helper.make_tensor_value_info
    graph.output.append(make_value("probabilities", onnx.TensorProto.FLOAT, ["n", len(names)]))
    graph.output.append(make_value("label", label_type, ["n"]))
    _stamp(onnx, result, {**metadata, "classes": json.dumps(names)})
    onnx.checker.check_model(result, full_check=True)
    return result


def write_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, atomically: a reader sees either the whole old file or the whole new one.

    Parameters
    ----------
    model : onnx.ModelProto
        Checked with `onnx.checker` first. Its weights must be inside it.
    path : path
        The file. Its folder must exist.
    """
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    target = Path(path)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise InvalidInputError(
                f"The model stores {tensor.name!r} in another file; export it as one file."
            )
    if model.ByteSize() >= 2**31:
        raise InvalidInputError("The model is 2 GB or larger, too large for one ONNX file.")
    onnx.checker.check_model(model)
    with replacing(target) as file:
        file.write(model.SerializeToString())


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


class _Tail:
    """Append nodes to a graph, with names that the graph does not use yet."""

    def __init__(self, onnx: Any, graph: Any) -> None:
        self.onnx, self.graph, self.count = onnx, graph, 0
        self.prefix = "consilience_"
        while any(name.startswith(self.prefix) for name in _names(graph)):
            self.prefix = f"_{self.prefix}"

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def constant(self, values: Any) -> str:
        array = np.asarray(values)
        array = array.astype(_label_dtype(array)) if array.dtype.kind in "Uib" else array
        self.graph.initializer.append(self.onnx.numpy_helper.from_array(array, self.name()))
        return str(self.graph.initializer[-1].name)

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or self.name()
        self.graph.node.append(
            self.onnx.helper.make_node(kind, inputs, [output], name=self.name(), **attributes)
        )
        return output

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


def _label_dtype(table: NDArray[Any]) -> np.dtype[Any]:
    kinds = {"U": np.dtype(object), "i": np.dtype(np.int64), "f": np.dtype(np.float64), "b": np.dtype(bool)}
    if table.dtype.kind not in kinds:  # integers beyond int64
        raise InvalidInputError(
            f"Class names of type {table.dtype} cannot be written to ONNX; use text or int."
        )
    return kinds[table.dtype.kind]


def _positions(columns: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    where = np.asarray(columns)
    if where.ndim != 1 or where.dtype.kind not in "iu" or len(np.unique(where)) != len(where):
        raise InvalidInputError(
            "{argument} must be distinct whole numbers, one for each column of scores.",
            argument="columns",
            value=columns,
        )
    if len(where) == 0 or where.min() < 0 or where.max() >= n_classes:
        raise InvalidInputError(
            f"{{argument}} must be positions among the {n_classes} classes.",
            argument="columns",
            value=columns,
        )
    return where.astype(np.int64)


def _stamp(onnx: Any, model: Any, metadata: Mapping[str, str]) -> None:
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


def _names(graph: Any) -> set[str]:
    """Return all names of nodes and values in a graph and in its inner graphs."""
    names = {item.name for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info)}
    for node in graph.node:
        names |= {node.name, *node.input, *node.output}
        for inner in _inner_graphs(node):
            names |= _names(inner)
    return names


def _rename(graph: Any, wanted: Mapping[str, str]) -> None:
    """Rename values in a graph and in its inner graphs."""
    taken = _names(graph)
    new = {}
    for name in wanted.keys() & taken:
        new[name] = wanted[name]
        while new[name] in taken:
            new[name] += "_"
    if new:
        _apply_names(graph, new)


def _apply_names(graph: Any, new: Mapping[str, str]) -> None:
    for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        item.name = new.get(item.name, item.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new.get(name, name) for name in names]
        for inner in _inner_graphs(node):
            _apply_names(inner, new)


def _inner_graphs(node: Any) -> list[Any]:
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else list(a.graphs))]


def _describe(model: Any) -> str:
    name = type(model).__name__
    steps = getattr(model, "steps", None)
    return f"{name} ({', '.join(type(step).__name__ for _, step in steps)})" if steps else name


def _numbers(X: Any) -> NDArray[Any]:
    """Return the rows as an (n, d) array of int64, float32 or float64."""
    rows = np.asarray(X)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"X_example has shape {rows.shape} and type {rows.dtype}; an export needs numbers (n, d)."
        )
    if rows.dtype.kind in "biu":
        return rows.astype(np.int64)
    return rows.astype(np.float64 if rows.dtype == np.float64 else np.float32, copy=False)


def _convert(model: Any, rows: NDArray[Any], n_classes: int, kind: type[np.floating[Any]]) -> Any:
    """Convert with skl2onnx, in double or float arithmetic. The input keeps the type of `rows`."""
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    from sklearn.ensemble import HistGradientBoostingClassifier

    tensor = DoubleTensorType if kind is np.float64 else FloatTensorType
    classifies = hasattr(model, "predict_proba")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"skl2onnx(\.|$)")
        # skl2onnx reads attributes that scikit-learn has deprecated; the warning names scikit-learn's file
        warnings.filterwarnings("ignore", category=FutureWarning)
        converted = convert_sklearn(
            model,
            initial_types=[("X", tensor([None, rows.shape[1]]))],
            options={id(model): {"zipmap": False}} if classifies else None,
            target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
            custom_conversion_functions={HistGradientBoostingClassifier: _convert_hist_boosting},
        )
    graph = converted.graph
    if classifies:
        del graph.output[0]  # the label
    (score,) = graph.output
    _rename(graph, {"probabilities": "scores"})
    _prune(graph)
    tail = _Tail(onnx, graph)
    if kind is np.float64:
        _cast_before_trees(onnx, tail)
    _cast_input(onnx, tail, rows.dtype, kind)
    # skl2onnx declares doubles even where a tree returns floats, so declare the type again
    kind_out = onnx.TensorProto.FLOAT
    tail.node("Cast", [score.name], output="probabilities", to=kind_out)
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info("probabilities", kind_out, ["n", n_classes]))
    strip_notes(converted)
    _stamp(onnx, converted, {})
    return converted


def _convert_hist_boosting(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.operator_converters.random_forest import convert_sklearn_random_forest_classifier

    convert_sklearn_random_forest_classifier(scope, operator, _HistContainer(container), op_version=ML_OPSET)


class _HistContainer:
    """A skl2onnx container that repairs the node of histogram gradient boosting.

    skl2onnx writes booleans where the format needs integers, and newer versions of protobuf reject them. It
    also rounds thresholds to float, but this is the only tree model of scikit-learn that compares doubles.
    """

    def __init__(self, container: Any) -> None:
        self._container = container

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    def add_node(self, kind: str, inputs: Any, outputs: Any, **attributes: Any) -> None:
        onnx = require("onnx", extra="onnx", purpose=PURPOSE)
        mended: dict[str, Any] = {}
        for name, value in attributes.items():
            if isinstance(value, np.ndarray) and value.dtype == np.float64:
                mended[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(value, name)
            elif isinstance(value, list) and value and not isinstance(value[0], str):
                mended[name] = [int(entry) for entry in value]
            else:
                mended[name] = value
        self._container.add_node(kind, inputs, outputs, **mended)


def _prune(graph: Any) -> None:
    """Drop nodes and constants that the outputs do not need."""
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input).union(*(_names(inner) for inner in _inner_graphs(node)))
    nodes, constants = kept[::-1], [c for c in graph.initializer if c.name in needed]
    graph.ClearField("node")
    graph.node.extend(nodes)
    graph.ClearField("initializer")
    graph.initializer.extend(constants)


def _cast_before_trees(onnx: Any, tail: _Tail) -> None:
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


def _cast_input(onnx: Any, tail: _Tail, given: np.dtype[Any], kind: type[np.floating[Any]]) -> None:
    """Name the input's row dimension, and cast from the user's type to the type of the arithmetic."""
    graph = tail.graph
    entry = graph.input[0]
    if given != kind:
        inside = tail.name()
        _apply_names(graph, {"X": inside})
        entry.name = "X"
        to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        nodes = [onnx.helper.make_node("Cast", ["X"], [inside], name=tail.name(), to=to), *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
        entry.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(given)
    entry.type.tensor_type.shape.dim[0].dim_param = "n"


def _run(model: Any, rows: NDArray[Any]) -> NDArray[Any]:
    runtime = require("onnxruntime", extra="onnx", purpose=PURPOSE)
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # we report failures ourselves
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"X": rows})[0])

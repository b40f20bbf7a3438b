"""ONNX export: convert a scikit-learn model, append the tail that all students share, and write it safely.

An exported model has one input ``X`` (n, ...), or one per column of a mixed table, and two outputs:
``probabilities`` (n, L), float32, and ``label`` (n,), the most probable class. Its metadata carries the class
names, and the names of the columns where they have any, as JSON.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import installed, require
from consilience._validation import take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing
from consilience.files.graph import ML_OPSET, NAME, OPSET, PURPOSE, Graph, label_dtype
from consilience.labels import class_list
from consilience.rows.tables import column_values, columns_of, input_names, is_numeric, is_table, kind_of

TOLERANCE = 1e-5
"""Largest allowed difference in a probability between a scikit-learn model and its export."""

EXPORTABLE = (
    "Students that can be exported: scikit-learn classifiers that skl2onnx converts, torch modules, and "
    "LightGBM's and XGBoost's classifiers with onnxmltools."
)
# by class: the module that holds it, and the converter that onnxmltools has for it
_FOREIGN = {"LGBMClassifier": ("lightgbm", "LightGbm"), "XGBClassifier": ("xgboost", "XGBoost")}


def sklearn_to_onnx(model: Any, X_example: Any) -> Any:
    """Convert a fitted scikit-learn model that predicts probabilities to ONNX, and check it on example rows.

    The input has the type of `X_example`. Inside, the arithmetic is double, as in scikit-learn, or float if a
    converter does not support double.

    Parameters
    ----------
    model : classifier or regressor
        A fitted classifier or pipeline with `predict_proba`, or a regressor of probabilities (n, k).
    X_example : (n, d) array or data frame
        Rows that define the input type and on which the two models are compared. At most 256 are used.

    Returns
    -------
    onnx.ModelProto
        One input ``X`` (n, d), or one (n, 1) for each column of a table that does not only hold numbers, and
        one output ``probabilities`` (n, k), float32, with one column for each of ``model.classes_``, or each
        output of the regressor.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0], [1.0]]), ["no", "yes"]
    >>> onnx_model = sklearn_to_onnx(LogisticRegression().fit(X, y), X)
    >>> [output.name for output in onnx_model.graph.output]
    ['probabilities']
    """
    from sklearn.base import is_regressor

    classifies = hasattr(model, "predict_proba")
    if not (classifies or is_regressor(model)):
        raise InvalidInputError(
            f"{_describe(model)} has no predict_proba, but an export needs it. {EXPORTABLE}"
        )
    require("skl2onnx", extra="onnx", purpose=PURPOSE)
    X_example = take_rows(X_example, slice(0, 256))
    feed = _feed(X_example)
    expected = np.asarray((model.predict_proba if classifies else model.predict)(X_example))
    expected = expected.reshape(len(expected), -1)  # a regressor of one output gives (n,)
    failures = []
    # columns keep their types if they can: whole numbers may be categories
    for kind in (np.float64, np.float32) if len(feed) == 1 else (None, np.float64, np.float32):
        try:
            converted = _convert(model, feed, expected.shape[1], kind)
            worst = _difference(converted, list(feed.values()), expected)
        except Exception as error:  # skl2onnx and onnxruntime raise almost any type
            failures.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}")
        else:
            if worst <= TOLERANCE:
                return converted
            failures.append(f"its ONNX probabilities differ from its own by up to {worst:.2g}")
    missing = [type(part).__name__ for part in _foreign_parts(model) if not installed("onnxmltools")]
    advice = f" {missing[0]} needs onnxmltools: pip install onnxmltools." if missing else ""
    raise InvalidInputError(
        f"{_describe(model)} cannot be exported to ONNX ({failures[0]}). {EXPORTABLE}{advice}"
    )


def finish(
    model: Any,
    *,
    classes: ArrayLike,
    columns: ArrayLike,
    temperature: float,
    scores: Literal["logits", "probabilities"],
    metadata: Mapping[str, str],
    rows: Any = None,
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
        The position of each score among `classes`.
    temperature : float
        T above. It has no effect on logits, which are trained to be right at temperature 1.
    scores : {"logits", "probabilities"}
        The kind of the model's output.
    metadata : mapping of str to str
        Written into the model's metadata, next to ``classes``.
    rows : array, optional
        If these are whole numbers such as pixels of uint8, the one input takes them in their own type.

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
    names = class_list(classes)
    table, where = np.asarray(names), np.asarray(columns, dtype=np.int64)
    graph = Graph(model)
    dtype = getattr(rows, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biu" and len(graph.inputs) == 1:
        graph.set_inputs([dtype])
    value = graph.cast(graph.outputs[0], np.float32)
    # in a binary forest, onnxruntime computes one probability as 1 - p, which may be -1e-8
    value = graph.node("Softmax", [value], axis=1) if scores == "logits" else graph.node("Relu", [value])
    if scores == "probabilities" and temperature != 1:
        # softmax(T log p) = p^T / sum p^T cannot underflow to 0/0, and log 0 = -inf correctly gives 0
        value = graph.node("Mul", [graph.node("Log", [value]), graph.constant(np.float32(temperature))])
        value = graph.node("Softmax", [value], axis=1)
    if not np.array_equal(where, np.arange(len(names))):
        # one column of zeros and a gather: a 0/1 matrix (k, L) would grow with the square of the classes
        source = np.full(len(names), len(where), dtype=np.int64)
        source[where] = np.arange(len(where))
        value = graph.node("Pad", [value, graph.constant(np.array([0, 0, 0, 1]))])
        value = graph.node("Gather", [value, graph.constant(source)], axis=1)
    best = graph.node("ArgMax", [value], axis=1, keepdims=0)
    label = graph.node("Gather", [graph.constant(table), best])
    outputs = {
        "probabilities": (value, np.float32, ["n", len(names)]),
        "label": (label, label_dtype(table), ["n"]),
    }
    graph.set_outputs(outputs)
    result = graph.finished({**metadata, "classes": json.dumps(names)})
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
    if model.ByteSize() >= 2**31:
        raise InvalidInputError("The model is 2 GB or larger, too large for one ONNX file.")
    onnx.checker.check_model(model)
    with replacing(Path(path)) as file:
        file.write(model.SerializeToString())


def check_export(
    model: Any, X: Any, kinds: Sequence[str] | None, expected: NDArray[Any], tolerance: float
) -> None:
    """Raise unless a finished model gives the expected probabilities (n, L) of rows, up to a tolerance.

    The kinds are those of the columns, as in `column_values`, where the model has an input for each.
    """
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    if kinds is not None:
        values = column_values(X, kinds)
    else:
        X = X.toarray() if hasattr(X, "toarray") else X
        values = [X.detach().cpu().numpy() if hasattr(X, "detach") else np.asarray(X)]
    types = [onnx.helper.tensor_dtype_to_np_dtype(e.type.tensor_type.elem_type) for e in model.graph.input]
    feed = [part.astype(kind) for part, kind in zip(values, types, strict=True)]
    worst = _difference(model, feed, expected)
    if not worst <= tolerance:
        raise InvalidInputError(
            f"The exported model differs from the fitted one by up to {worst:.2g} in a probability, so it is "
            "not written. Please report this, with the types of your columns."
        )


def _difference(model: Any, feed: Sequence[NDArray[Any]], expected: NDArray[Any]) -> float:
    """Return the largest difference of a probability in onnxruntime from what is expected."""
    runtime = require("onnxruntime", extra="onnx", purpose=PURPOSE)
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # we report failures ourselves
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in model.graph.input]
    got = session.run(None, dict(zip(names, feed, strict=True)))[0]
    return float(np.max(np.abs(got - expected), initial=0.0)) if got.shape == expected.shape else np.inf


def _describe(model: Any) -> str:
    name = type(model).__name__
    steps = getattr(model, "steps", None)
    return f"{name} ({', '.join(type(step).__name__ for _, step in steps)})" if steps else name


def _feed(X: Any) -> dict[str, NDArray[Any]]:
    """Return what each input is fed: one matrix ``X`` of numbers, or the columns (n, 1) of a mixed table."""
    if is_table(X) and not is_numeric(X):
        kinds = [kind_of(column) for column in columns_of(X)]
        return dict(zip(input_names(X), column_values(X, kinds), strict=True))
    rows = np.asarray(X)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"X_example has shape {rows.shape} and type {rows.dtype}; an export needs numbers (n, d)."
        )
    wide = rows.dtype.kind == "f" and rows.dtype != np.float64
    return {"X": rows.astype(np.float32) if wide else rows}


def _convert(
    model: Any, feed: Mapping[str, NDArray[Any]], n_classes: int, kind: type[np.floating[Any]] | None
) -> Any:
    """Convert with skl2onnx, in double or float arithmetic; inputs have the types of what they are fed."""
    from skl2onnx import convert_sklearn
    from sklearn.ensemble import HistGradientBoostingClassifier

    classifies = hasattr(model, "predict_proba")
    _register(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(skl2onnx|onnxmltools)(\.|$)")
        # skl2onnx reads attributes that scikit-learn has deprecated; the warning names scikit-learn's file
        warnings.filterwarnings("ignore", category=FutureWarning)
        converted = convert_sklearn(
            model,
            NAME,
            initial_types=[(name, _tensor_type(values, kind)) for name, values in feed.items()],
            options={id(model): {"zipmap": False}} if classifies else None,
            target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
            custom_conversion_functions={HistGradientBoostingClassifier: _convert_hist_boosting},
        )
    graph = Graph(converted)
    known = {value.name: value for value in graph.inputs}
    # it leaves out columns that a model does not use
    graph.inputs[:] = [
        known.get(name) or graph.value(name, one.dtype, ["n", 1]) for name, one in feed.items()
    ]
    if kind is not np.float32:
        _cast_before_trees(graph)
    graph.set_inputs([values.dtype for values in feed.values()])
    # skl2onnx declares doubles even where a tree returns floats, so declare the type again
    probabilities = graph.cast(graph.outputs[-1], np.float32)
    graph.set_outputs({"probabilities": (probabilities, np.float32, ["n", n_classes])})
    return graph.finished({})


def _cast_before_trees(graph: Graph) -> None:
    """Round the input of trees to float, as scikit-learn does. A double could fall on the other side."""
    for node in list(graph.nodes):
        if node.op_type.startswith("TreeEnsemble") and "nodes_values_as_tensor" not in node.attributes:
            node.replace_input_with(0, graph.cast(node.inputs[0], np.float32))


def _tensor_type(values: NDArray[Any], kind: type[np.floating[Any]] | None) -> Any:
    """Return the type of an input for skl2onnx; None keeps whole numbers."""
    from skl2onnx.common import data_types

    name = "Float" if kind is np.float32 else "Double"
    if values.dtype.kind == "O":
        name = "String"
    elif kind is None and values.dtype.kind in "biu":
        name = "Int64"
    return getattr(data_types, f"{name}TensorType")([None, values.shape[1]])


def _foreign_parts(model: Any) -> Iterator[Any]:
    """Yield the boosted trees of other libraries in a model or a pipeline."""
    for _, step in getattr(model, "steps", ()):
        yield from _foreign_parts(step)
    kind = type(model)
    if kind.__name__ in _FOREIGN and kind.__module__.startswith(_FOREIGN[kind.__name__][0]):
        yield model


def _register(model: Any) -> None:
    """Tell skl2onnx the converters of onnxmltools, as its documentation says."""
    if not installed("onnxmltools"):
        return
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    for part in _foreign_parts(model):
        library, name = _FOREIGN[type(part).__name__]
        place = f"onnxmltools.convert.{library}.operator_converters.{name}"
        update_registered_converter(
            type(part),
            f"Consilience{type(part).__name__}",
            calculate_linear_classifier_output_shapes,
            getattr(require(place, extra="onnx", purpose=PURPOSE), f"convert_{library}"),
            options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
        )


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
        for name, value in list(attributes.items()):
            if isinstance(value, np.ndarray) and value.dtype == np.float64:
                attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(attributes.pop(name), name)
            elif isinstance(value, list) and value and not isinstance(value[0], str):
                attributes[name] = [int(entry) for entry in value]
        self._container.add_node(kind, inputs, outputs, **attributes)

"""ONNX export: convert a scikit-learn model, append the tail that all students share, and write it safely.

An exported model has one input ``X`` (n, ...), or one per column of a mixed table, and two outputs:
``probabilities`` (n, L), float32, and ``label`` (n,), the most probable class. Its metadata carries the class
names, and the names of the columns where they have any, as JSON.
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
from consilience._tables import column_values, columns_of, input_names, is_numeric, is_table, kind_of
from consilience._validation import take_rows
from consilience.exceptions import InvalidInputError
from consilience.files.atomic import replacing
from consilience.files.boosting_onnx import advice, converters
from consilience.files.graph import (
    ML_OPSET,
    NAME,
    OPSET,
    PURPOSE,
    Tail,
    cast_before_trees,
    cast_inputs,
    label_dtype,
    prune,
    rename_values,
    stamp,
    strip_notes,
)
from consilience.labels import class_list

TOLERANCE = 1e-5
"""Largest allowed difference in a probability between a scikit-learn model and its export."""


EXPORTABLE = (
    "Students that can be exported: scikit-learn classifiers that skl2onnx converts, torch modules, and "
    "LightGBM's and XGBoost's classifiers with onnxmltools."
)


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

    if not (hasattr(model, "predict_proba") or is_regressor(model)):
        raise InvalidInputError(
            f"{_describe(model)} has no predict_proba, but an export needs it. {EXPORTABLE}"
        )
    require("skl2onnx", extra="onnx", purpose=PURPOSE)
    X_example = take_rows(X_example, slice(0, 256))
    feed = _feed(X_example)
    expected = np.asarray((model.predict if is_regressor(model) else model.predict_proba)(X_example))
    expected = expected.reshape(len(expected), -1)  # a regressor of one output gives (n,)
    failures = []
    # columns keep their types if they can: whole numbers may be categories
    for kind in (np.float64, np.float32) if len(feed) == 1 else (None, np.float64, np.float32):
        try:
            converted = _convert(model, feed, expected.shape[1], kind)
            got = run_model(converted, list(feed.values()))[0]
        except Exception as error:  # skl2onnx and onnxruntime raise almost any type
            failures.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}")
            continue
        worst = float(np.max(np.abs(got - expected), initial=0.0))
        if got.shape == expected.shape and worst <= TOLERANCE:
            return converted
        failures.append(f"its ONNX probabilities differ from its own by up to {worst:.2g}")
    raise InvalidInputError(
        f"{_describe(model)} cannot be exported to ONNX ({failures[0]}). {EXPORTABLE}{advice(model)}"
    )


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
        The position of each score among `classes`.
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
    names = class_list(classes)
    table = np.asarray(names)
    label_type = onnx.helper.np_dtype_to_tensor_dtype(label_dtype(table))
    where = np.asarray(columns, dtype=np.int64)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    if len(graph.output) != 1:
        raise InvalidInputError(
            f"The model has {len(graph.output)} outputs; expected one, the scores (n, k)."
        )
    rename_values(graph, {"probabilities": "student_probabilities", "label": "student_label"})
    tail = Tail(onnx, graph)
    value = tail.node("Cast", [graph.output[0].name], to=onnx.TensorProto.FLOAT)
    softmax = scores == "logits"
    value = tail.node("Softmax", [value], axis=1) if softmax else tail.sharpen(value, temperature)
    if not np.array_equal(where, np.arange(len(names))):
        value = tail.spread(value, where, len(names))
    tail.node("Identity", [value], output="probabilities")
    best = tail.node("ArgMax", [value], axis=1, keepdims=0)
    tail.node("Gather", [tail.constant(table), best], output="label")
    del graph.output[:]
    make_value = onnx.helper.make_tensor_value_info
    graph.output.append(make_value("probabilities", onnx.TensorProto.FLOAT, ["n", len(names)]))
    graph.output.append(make_value("label", label_type, ["n"]))
    graph.name = NAME
    stamp(onnx, result, {**metadata, "classes": json.dumps(names)})
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
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    from skl2onnx import convert_sklearn

    classifies = hasattr(model, "predict_proba")
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
            custom_conversion_functions=converters(model),
        )
    graph = converted.graph
    if classifies:
        del graph.output[0]  # the label
    (score,) = graph.output
    _order_inputs(onnx, graph, feed)
    rename_values(graph, {"probabilities": "scores"})
    prune(graph)
    tail = Tail(onnx, graph)
    if kind is not np.float32:
        cast_before_trees(onnx, tail)
    cast_inputs(onnx, tail, [values.dtype for values in feed.values()])
    # skl2onnx declares doubles even where a tree returns floats, so declare the type again
    kind_out = onnx.TensorProto.FLOAT
    tail.node("Cast", [score.name], output="probabilities", to=kind_out)
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info("probabilities", kind_out, ["n", n_classes]))
    strip_notes(converted)
    stamp(onnx, converted, {})
    return converted


def _order_inputs(onnx: Any, graph: Any, feed: Mapping[str, NDArray[Any]]) -> None:
    """Give a graph an input for each column, in order; skl2onnx leaves out what a model does not use."""
    known = {entry.name: entry for entry in graph.input}
    ordered = []
    for name, values in feed.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        ordered.append(known.get(name) or onnx.helper.make_tensor_value_info(name, kind, ["n", 1]))
    if len(known) > len(feed) or not known.keys() <= feed.keys():
        raise InvalidInputError(f"skl2onnx made the inputs {sorted(known)} of {sorted(feed)}.")
    del graph.input[:]
    graph.input.extend(ordered)


def _tensor_type(values: NDArray[Any], kind: type[np.floating[Any]] | None) -> Any:
    """Return the type of an input for skl2onnx; None keeps whole numbers."""
    from skl2onnx.common import data_types

    if values.dtype.kind == "O":
        tensor = data_types.StringTensorType
    elif kind is None and values.dtype.kind in "biu":
        tensor = data_types.Int64TensorType
    else:
        tensor = data_types.FloatTensorType if kind is np.float32 else data_types.DoubleTensorType
    return tensor([None, values.shape[1]])


def with_input_type(model: Any, X: Any) -> Any:
    """Return a model of one input ``X`` as one that takes whole numbers in the type of X, such as uint8."""
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    dtype = getattr(X, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biu" or len(model.graph.input) != 1:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    cast_inputs(onnx, Tail(onnx, result.graph), [dtype])
    return result


def example_feed(model: Any, X: Any, kinds: Sequence[str] | None) -> list[NDArray[Any]]:
    """Return rows as the inputs of a model take them; kinds as in `column_values`."""
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    if kinds is not None:
        values = column_values(X, kinds)
    elif hasattr(X, "toarray"):
        values = [X.toarray()]
    else:
        values = [X.detach().cpu().numpy() if hasattr(X, "detach") else np.asarray(X)]
    types = [onnx.helper.tensor_dtype_to_np_dtype(e.type.tensor_type.elem_type) for e in model.graph.input]
    return [part.astype(kind) for part, kind in zip(values, types, strict=True)]


def check_export(model: Any, feed: Sequence[NDArray[Any]], expected: NDArray[Any], tolerance: float) -> None:
    """Raise unless a finished model gives the expected probabilities (n, L), up to a tolerance."""
    got = run_model(model, feed)[0]
    worst = float(np.max(np.abs(got - expected), initial=0.0)) if got.shape == expected.shape else np.inf
    if not worst <= tolerance:
        raise InvalidInputError(
            f"The exported model differs from the fitted one by up to {worst:.2g} in a probability, so it is "
            "not written. Please report this, with the types of your columns."
        )


def run_model(model: Any, feed: Sequence[NDArray[Any]]) -> list[Any]:
    """Return the outputs of a model in onnxruntime, from what each of its inputs is fed."""
    runtime = require("onnxruntime", extra="onnx", purpose=PURPOSE)
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # we report failures ourselves
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in model.graph.input]
    return list(session.run(None, dict(zip(names, feed, strict=True))))

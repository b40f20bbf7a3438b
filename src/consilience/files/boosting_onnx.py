"""Converters of boosted trees for skl2onnx: scikit-learn's, LightGBM's and XGBoost's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from consilience._optional import installed, require
from consilience.files.graph import ML_OPSET, PURPOSE

# The class, by the module that holds it, and where onnxmltools has its converter.
_FOREIGN = {
    "LGBMClassifier": (
        "lightgbm",
        "onnxmltools.convert.lightgbm.operator_converters.LightGbm",
        "convert_lightgbm",
    ),
    "XGBClassifier": (
        "xgboost",
        "onnxmltools.convert.xgboost.operator_converters.XGBoost",
        "convert_xgboost",
    ),
}


def converters(model: Any) -> dict[type, Any]:
    """Return the functions that convert the boosted trees of a model, and make skl2onnx know foreign ones."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    for part in _parts(model):
        if _is_foreign(part) and installed("onnxmltools"):
            _register(type(part))
    return {HistGradientBoostingClassifier: _convert_hist_boosting}


def advice(model: Any) -> str:
    """Say what to install if a model has trees that cannot be converted without it; else an empty text."""
    names = [type(part).__name__ for part in _parts(model) if _is_foreign(part)]
    if not names or installed("onnxmltools"):
        return ""
    return f" {names[0]} needs onnxmltools: pip install onnxmltools."


def _parts(model: Any) -> Iterator[Any]:
    """Yield a model, and the steps of a pipeline."""
    yield model
    for _, step in getattr(model, "steps", ()):
        yield from _parts(step)


def _is_foreign(part: Any) -> bool:
    kind = type(part)
    return kind.__name__ in _FOREIGN and kind.__module__.startswith(_FOREIGN[kind.__name__][0])


def _register(kind: type) -> None:
    """Tell skl2onnx the converter of a class, as its documentation says."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    _, place, name = _FOREIGN[kind.__name__]
    update_registered_converter(
        kind,
        f"Consilience{kind.__name__}",
        calculate_linear_classifier_output_shapes,
        getattr(require(place, extra="onnx", purpose=PURPOSE), name),
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
        mended: dict[str, Any] = {}
        for name, value in attributes.items():
            if isinstance(value, np.ndarray) and value.dtype == np.float64:
                mended[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(value, name)
            elif isinstance(value, list) and value and not isinstance(value[0], str):
                mended[name] = [int(entry) for entry in value]
            else:
                mended[name] = value
        self._container.add_node(kind, inputs, outputs, **mended)

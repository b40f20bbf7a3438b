"""The columns that an ONNX file names: those that a saved model of ours was fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._tables import PURPOSE, Kind, as_values, column_names, column_values, is_table, name_problem
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers._onnx_graph import parse_names
from consilience.teachers.base import Input

_KINDS = {*get_args(Kind), "unused"}


@dataclass(frozen=True)
class Columns:
    """Columns in the order of the model's matrix, or of its inputs.

    Attributes
    ----------
    names : list of str or None
    kinds : list of str or None
        What each column holds, where the model has an input for each; ``"unused"`` has none.
    """

    names: list[str] | None = None
    kinds: list[str] | None = None

    def in_order(self, X: Any, teacher: str) -> Any:
        """Return X with its columns in the order of the model; rows without names are taken by position."""
        X = as_values(X)
        try:
            found = None if self.names is None else column_names(X)
        except InvalidInputError as error:
            raise TeacherError(teacher, f"cannot read X: {error}") from error
        if found is None or self.names is None or found.tolist() == self.names:
            return X
        problem = name_problem(found.tolist(), self.names)
        if problem:
            raise TeacherError(teacher, f"cannot read X: it {problem}")
        return X[self.names]

    def values(self, X: Any, teacher: str) -> list[NDArray[Any]] | None:
        """Return what each input is fed, (n, 1); None where the model has not an input for each column."""
        if self.kinds is None:
            return None
        if not is_table(X):
            values = np.asarray(X)
            if values.ndim != 2:
                raise TeacherError(
                    teacher,
                    f"takes a table of {len(self.kinds)} columns, and X has shape {values.shape}. "
                    "Give X as a data frame.",
                )
            X = require("pandas", extra="tables", purpose=PURPOSE).DataFrame(values).infer_objects()
        if X.shape[1] != len(self.kinds):
            raise TeacherError(
                teacher, f"takes a table of {len(self.kinds)} columns, and X has {X.shape[1]}."
            )
        try:
            return column_values(X, self.kinds)
        except InvalidInputError as error:
            raise TeacherError(teacher, f"cannot read X: {error.message}").changed(**error.data) from error


def find_columns(model: Any) -> Columns:
    """Return the columns that a file's metadata name; what does not fit the graph is ignored."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    names, kinds = (_texts(metadata.get(key)) for key in ("feature_names", "feature_kinds"))
    if names is not None and len(set(names)) < len(names):
        names = None
    if kinds is not None:
        used = sum(kind != "unused" for kind in kinds)
        fits = used == len(model.graph.input) and (names is None or len(names) == len(kinds))
        kinds = kinds if fits and _KINDS.issuperset(kinds) else None
    return Columns(names, kinds)


def is_ours(model: Any) -> bool:
    """Tell whether a file says that consilience wrote it."""
    return any(entry.key == "producer" and entry.value == "consilience" for entry in model.metadata_props)


def find_inputs(model: Any) -> tuple[Input, ...]:
    """Return the inputs of a graph that have no value of their own."""
    onnx = require("onnx", extra="onnx", purpose="An ONNX teacher")
    known = {tensor.name for tensor in model.graph.initializer}
    found = []
    for entry in model.graph.input:
        tensor = entry.type.tensor_type
        if entry.name in known:
            continue
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            word = "text" if dtype.kind == "O" else dtype.name
        except (KeyError, ValueError, TypeError):  # no tensor, or a type that onnx does not know
            word = "unknown"
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
        found.append(Input(entry.name, word, shape))
    return tuple(found)


def _texts(content: str | None) -> list[str] | None:
    found = None if content is None else parse_names(content)
    return found if found and all(isinstance(name, str) for name in found) else None

"""ONNX files as teachers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import take_rows
from consilience._words import shorten
from consilience.exceptions import TeacherError
from consilience.files.opener import file_sha256
from consilience.options import choice, option, takes
from consilience.teachers._feeds import cast, fixed_batch, pad, plain_values
from consilience.teachers._onnx_columns import find_columns, find_inputs, is_ours
from consilience.teachers._onnx_features import add_output, find_features, named_features
from consilience.teachers._onnx_graph import Graph, find_classes, find_scores
from consilience.teachers._onnx_safety import check_external_data
from consilience.teachers.base import (
    Adapter,
    Input,
    ModelOptions,
    check_embed_function,
    describe,
    open_source,
    own_or_given,
    summary,
)
from consilience.teachers.outputs import Output, pool
from consilience.teachers.sklearn import binary_logits

_PURPOSE = "An ONNX teacher"
_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}

_NAMELESS = "a file without a card, metadata or class labels"

Signature = tuple[tuple[int, ...], ...]


class OnnxOptions(ModelOptions):
    """What an ONNX file takes."""

    device: str = option(choice("cpu", "cuda"), "Where it runs.", default="cpu")


class Onnx(Adapter):
    """An ``.onnx`` file that onnxruntime runs; sessions are opened at the first prediction.

    Files that it refers to are checked first. Classes come from `classes`, the card next to the file, the
    file's metadata (``names``, ``class_names``, ``classes``), its ZipMap, its label output or its classifier,
    in this order. Its embedding is what enters its last layer (a Gemm, MatMul or LinearClassifier with k rows
    of constant weights), or the tensor that `embed` names.
    """

    _takes_arrays = True
    _session: Any = None
    _wide_session: Any = None  # with one more output, the embedding
    _digest: tuple[Signature, str] | None = None

    @takes(OnnxOptions)
    def __init__(
        self,
        path: str | os.PathLike[str],
        classes: ArrayLike | None = None,
        name: str | None = None,
        options: Any = None,
    ) -> None:
        given, shown, card = open_source(path, name, options)
        # links are followed once, here: "next to the model" must mean one folder for us and for onnxruntime
        self._source = source = given.resolve()
        model, self._external, self._signature = load_safely(source, shown)
        graph = Graph(model)
        self._found = find_scores(graph, shown, options.output)
        self.own_classes = find_classes(graph, self._found)  # that the file names; a card may name others
        found = own_or_given(
            self.own_classes if card is None else card.classes,
            classes,
            shown,
            binding=False,
            what=_NAMELESS,
        )
        output: Output = options.output if options.output != "auto" else self._found.kind or "auto"
        super().__init__(shown, found, options, output=output)
        self.columns, self._inputs, self.ours = find_columns(model), find_inputs(model), is_ours(model)
        self._batch_size, self._device = options.batch_size, options.device
        head = find_features(graph, self._found.output, len(found), source)
        self._seen = head if options.embed is None else None
        if isinstance(options.embed, str):
            self._seen = named_features(graph, options.embed, head, shown)
        else:
            check_embed_function(options.embed, shown, "the name of a tensor")
        last = head.tensor if head is not None else None
        taken = self._seen.tensor if self._seen is not None else options.embed
        # centres of another layer do not fit
        self._take_card(given, card if card is not None and taken == (card.embed or last) else None)

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        tensor = self._seen.tensor if features and self._seen is not None else None
        raw, seen = self._pass(X, rows, tensor) if scores or tensor is not None else (None, None)
        return raw, self._embed(X) if features and callable(self._embed) else seen

    def _embeddable(self) -> bool:
        return self._seen is not None or callable(self._embed)

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer, where it takes the embedding."""
        return None if self._seen is None else self._seen.weights

    def _pass(self, X: Any, rows: int, tensor: str | None) -> tuple[Any, Any]:
        """Run the model over all rows, once, and fetch a tensor on the way."""
        session = self._open(tensor)
        X = self.columns.in_order(X, self.name)
        inputs = session.get_inputs()
        fixed = fixed_batch(inputs)
        size = fixed or self._batch_size
        scores, features = [], []
        for start in range(0, rows, size):
            part = take_rows(X, slice(start, start + size)) if rows > size else X
            count = min(size, rows - start)
            feed = self._feed(part, inputs)
            if fixed and count < fixed:
                feed = {key: pad(value, fixed) for key, value in feed.items()}
            # a graph's input cannot be fetched, and need not be
            fetched = [self._found.output] + ([tensor] if tensor is not None and tensor not in feed else [])
            try:
                results = session.run(fetched, feed)
            except Exception as error:
                wants = ", ".join(f"{item.name} {item.type} {item.shape}" for item in inputs)
                raise TeacherError(
                    self.name, f"failed on {describe(part)}; it takes {wants}: {summary(error)}"
                ) from error
            scores.append(self._matrix(results[0])[:count] if fixed else self._matrix(results[0]))
            if tensor is not None:
                seen = results[1] if len(results) > 1 else feed[tensor]
                features.append(
                    pool(np.asarray(seen), channels_last=self.class_weights is not None or None)[:count]
                )
        return _joined(scores), _joined(features) if features else None

    def _matrix(self, result: Any) -> NDArray[Any]:
        """Return one run's scores as an array (n, k)."""
        if isinstance(result, list):
            keys = self._found.keys or self.classes.tolist()
            if not result or not isinstance(result[0], dict) or set(result[0]) != set(keys):
                raise TeacherError(self.name, "returned dictionaries whose keys are not its classes.")
            if len(keys) == 1:
                return np.array([[row[keys[0]]] for row in result])
            flat = chain.from_iterable(map(itemgetter(*keys), result))
            return np.fromiter(flat, np.float64, len(result) * len(keys)).reshape(len(result), len(keys))
        values = np.asarray(result)
        if self._found.margin and len(self.classes) == 2 and values.ndim == 2 and values.shape[1] == 1:
            return binary_logits(values)
        return values

    def _feed(self, X: Any, inputs: list[Any]) -> dict[str, NDArray[Any]]:
        """Return what the inputs of the model are fed."""
        values = self.columns.values(X, self.name)
        if values is None:
            return {item.name: self._column(X, item, len(inputs) > 1) for item in inputs}
        pairs = zip(inputs, values, strict=True)
        return {item.name: _cast(part, item, self.name) for item, part in pairs}

    def _column(self, X: Any, item: Any, several: bool) -> NDArray[Any]:
        """Return what one input of the model is fed."""
        if several:
            if not hasattr(X, "columns"):
                raise TeacherError(
                    self.name, "takes several named inputs. Give X as a data frame with a column for each."
                )
            if item.name not in X.columns:
                raise TeacherError(
                    self.name, f"takes the input {item.name!r}; X has the columns {shorten(X.columns)}."
                )
            X = X[item.name]
        return _cast(plain_values(X, item.shape), item, self.name)

    def _open(self, tensor: str | None) -> Any:
        """Open a session that also returns a tensor. If the file changed since its check, check it again."""
        wide = tensor is not None
        session = self._wide_session if wide else self._session
        if session is not None:
            return session
        onnxruntime = require("onnxruntime", extra="onnx", purpose=_PURPOSE)
        provider = _PROVIDERS[self._device]
        if provider not in onnxruntime.get_available_providers():
            raise TeacherError(self.name, f"cannot run on {self._device!r}: onnxruntime lacks {provider}.")
        if _signature(self._source, self._external) != self._signature:
            self._external, self._signature = load_safely(self._source, self.name)[1:]
        options = onnxruntime.SessionOptions()
        # errors only: skl2onnx declares shapes loosely, and each would be a warning on stderr
        options.log_severity_level = 3
        content: str | bytes = str(self._source)
        if tensor is not None:
            model, self._external, self._signature = load_safely(self._source, self.name)
            add_output(model, tensor)
            content = model.SerializeToString()
            # given bytes, onnxruntime would look for external data in the current folder, which was not
            # checked
            options.add_session_config_entry(_EXTERNAL_FOLDER, str(self._source.parent))
        try:
            # a fallback would run on another device than asked, and print so
            session = onnxruntime.InferenceSession(content, options, providers=[provider], enable_fallback=0)
        except Exception as error:
            raise TeacherError(
                self.name, f"cannot be opened by onnxruntime from {self._source.name}: {summary(error)}"
            ) from error
        if wide:
            self._wide_session = session
        else:
            self._session = session
        return session

    @property
    def session(self) -> Any:
        """The model in onnxruntime, after the check of what it may read."""
        return self._open(None)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the graph."""
        return self._inputs

    @property
    def column_kinds(self) -> Mapping[Any, str]:
        """What columns of a table hold: from the file's metadata, or from inputs that name columns."""
        names, kinds = self.columns.names, self.columns.kinds
        if kinds is not None:
            return dict(zip(range(len(kinds)) if names is None else names, kinds, strict=True))
        if len(self._inputs) < 2:
            return {}
        return {item.name: "text" if item.dtype == "text" else "number" for item in self._inputs}

    @property
    def width(self) -> int | None:
        """How many columns a table of rows has, if the rows are one."""
        if self.columns.kinds is not None:
            return len(self.columns.kinds)
        shapes = [item.shape for item in self._inputs]
        return shapes[0][1] if len(shapes) == 1 and len(shapes[0]) == 2 else None

    def release(self) -> None:
        """Close the sessions; the file is opened again when it is needed."""
        self._session = self._wide_session = None

    def _model_fingerprint(self) -> str | None:
        """Hash the file and the files next to it that it reads."""
        now = _signature(self._source, self._external)
        if now != self._signature:
            if self._session is not None or self._wide_session is not None:
                return None  # an open session still uses the old file
            self._external, self._signature = load_safely(self._source, self.name)[1:]
        if self._digest is None or self._digest[0] != self._signature:
            parts = [file_sha256(path) for path in [self._source, *self._external]]
            self._digest = self._signature, " ".join(parts)
        return self._digest[1]

    def __getstate__(self) -> dict[str, Any]:
        # a session cannot be sent to another process; the file can be opened there
        return {key: value for key, value in self.__dict__.items() if not key.endswith("session")}


def load_safely(source: Path, name: str) -> tuple[Any, list[Path], Signature]:
    """Parse a model without its external data, check what it may read, and remember the files checked."""
    onnx = require("onnx", extra="onnx", purpose=_PURPOSE)
    try:
        model = onnx.load(str(source), format="protobuf", load_external_data=False)
    except Exception as error:
        raise TeacherError(
            name, f"is no ONNX model: {source.name} cannot be parsed ({summary(error)})."
        ) from error
    # an empty file is a valid message, and other files may happen to parse
    if not model.ir_version or not model.graph.output or not model.graph.node:
        raise TeacherError(name, f"is no ONNX model: {source.name} holds no graph.")
    external = check_external_data(model, source)
    return model, external, _signature(source, external)


def _signature(source: Path, external: list[Path]) -> Signature:
    """Return what tells whether a file is still the one that was checked."""
    try:
        stats = [path.lstat() for path in [source, *external]]
    except OSError:  # gone: the check that follows raises the error
        return ()
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _cast(values: NDArray[Any], item: Any, name: str) -> NDArray[Any]:
    """Return values in the type that an input takes, unless that would change them."""
    if item.type != "tensor(string)" and item.type not in _DTYPES:
        raise TeacherError(name, f"takes {item.type} for {item.name!r}, which is not supported.")
    dtype = None if item.type == "tensor(string)" else np.dtype(_DTYPES[item.type])
    return cast(values, dtype, item.type, item.name, name)

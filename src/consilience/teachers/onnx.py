"""ONNX files as teachers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import take_rows
from consilience.exceptions import TeacherError
from consilience.files.disk import file_sha256
from consilience.options import choice, option, takes
from consilience.rows import join_rows
from consilience.teachers.base import (
    Adapter,
    Input,
    ModelOptions,
    check_embed_function,
    describe,
    foreign,
    open_source,
    own_or_given,
)
from consilience.teachers.feeds import KINDS, Columns, cast, fixed_batch, pad, plain_values
from consilience.teachers.onnx_files import PURPOSE, Signature, load_safely, signature_of
from consilience.teachers.onnx_graph import (
    Graph,
    dtype_of,
    find_classes,
    find_features,
    find_scores,
    named_features,
    parse_names,
)
from consilience.teachers.outputs import Output, pool
from consilience.teachers.sklearn import binary_logits

_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_NAMELESS = "a file without a card, metadata or class labels"


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
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        self.ours = metadata.get("producer") == "consilience"  # whether consilience wrote the file
        self._inputs = find_inputs(model)
        self.columns = find_columns(metadata, self._inputs)
        self._sessions: dict[str | None, Any] = {}  # by the tensor that is one more output
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
        fixed = fixed_batch(self._inputs)
        size = fixed or self._batch_size
        wants = ", ".join(f"{item.name} {item.dtype} {item.shape}" for item in self._inputs)
        scores, features = [], []
        for start in range(0, rows, size):
            part = take_rows(X, slice(start, start + size)) if rows > size else X
            feed = {
                item.name: pad(values, fixed) if fixed else values
                for item, values in zip(self._inputs, self._feed(part), strict=True)
            }
            # a graph's input cannot be fetched, and need not be
            fetched = [self._found.output, *({tensor} - {None, *feed})]
            with foreign(self.name, f"failed on {describe(part)}; it takes {wants}"):
                results = session.run(fetched, feed)
            count = min(size, rows - start)
            scores.append(self._matrix(results[0])[:count])
            if tensor is not None:
                seen = results[1] if len(results) > 1 else feed[tensor]
                last = self.class_weights is not None or None
                features.append(pool(np.asarray(seen), channels_last=last)[:count])
        return join_rows(scores), join_rows(features) if features else None

    def _matrix(self, result: Any) -> NDArray[Any]:
        """Return one run's scores as an array (n, k)."""
        if isinstance(result, list):
            keys = self._found.keys or self.classes.tolist()
            if not result or not isinstance(result[0], dict) or set(result[0]) != set(keys):
                raise TeacherError(self.name, "returned dictionaries whose keys are not its classes.")
            return np.array([[row[key] for key in keys] for row in result], dtype=np.float64)
        values = np.asarray(result)
        one_margin = self._found.margin and len(self.classes) == 2 and values.shape[1:] == (1,)
        return binary_logits(values) if one_margin else values

    def _feed(self, X: Any) -> list[NDArray[Any]]:
        """Return what the inputs of the model are fed."""
        given = self.columns.values(X, self.name)
        found = []
        for item, values in zip(self._inputs, given or [X], strict=True):
            text = item.dtype == "text"
            if not text and item.dtype == "unknown":
                raise TeacherError(self.name, f"takes a type for {item.name!r} that is not supported.")
            plain = plain_values(values, item.shape)
            dtype = None if text else np.dtype(item.dtype)
            found.append(cast(plain, dtype, item.dtype, item.name, self.name))
        return found

    def _open(self, tensor: str | None) -> Any:
        """Open a session that also returns a tensor. If the file changed since its check, check it again."""
        if tensor in self._sessions:
            return self._sessions[tensor]
        onnxruntime = require("onnxruntime", extra="onnx", purpose=PURPOSE)
        provider = _PROVIDERS[self._device]
        if provider not in onnxruntime.get_available_providers():
            raise TeacherError(self.name, f"cannot run on {self._device!r}: onnxruntime lacks {provider}.")
        options = onnxruntime.SessionOptions()
        # errors only: skl2onnx declares shapes loosely, and each would be a warning on stderr
        options.log_severity_level = 3
        content: str | bytes = str(self._source)
        if tensor is not None or signature_of(self._source, self._external) != self._signature:
            model, self._external, self._signature = load_safely(self._source, self.name)
            if tensor is not None:
                if tensor not in {value.name for value in [*model.graph.output, *model.graph.input]}:
                    model.graph.output.add().name = tensor  # onnxruntime infers its type
                content = model.SerializeToString()
                # given bytes, onnxruntime would look for external data in the current folder, which was not
                # checked
                options.add_session_config_entry(_EXTERNAL_FOLDER, str(self._source.parent))
        with foreign(self.name, f"cannot be opened by onnxruntime from {self._source.name}"):
            # a fallback would run on another device than asked, and print so
            session = onnxruntime.InferenceSession(content, options, providers=[provider], enable_fallback=0)
        self._sessions[tensor] = session
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
        names, kinds = self.columns.names, self.columns.kinds or []
        return dict(zip(range(len(kinds)) if names is None else names, kinds, strict=bool(kinds)))

    @property
    def width(self) -> int | None:
        """How many columns a table of rows has, if the rows are one."""
        if self.columns.kinds is not None:
            return len(self.columns.kinds)
        shape = self._inputs[0].shape
        return shape[1] if len(self._inputs) == 1 and len(shape) == 2 else None

    def release(self) -> None:
        """Close the sessions; the file is opened again when it is needed."""
        self._sessions = {}

    def _model_fingerprint(self) -> str | None:
        """Hash the file and the files next to it that it reads."""
        if signature_of(self._source, self._external) != self._signature:
            if self._sessions:
                return None  # an open session still uses the old file
            self._external, self._signature = load_safely(self._source, self.name)[1:]
        if self._digest is None or self._digest[0] != self._signature:
            parts = [file_sha256(path) for path in [self._source, *self._external]]
            self._digest = self._signature, " ".join(parts)
        return self._digest[1]

    def __getstate__(self) -> dict[str, Any]:
        # a session cannot be sent to another process; the file can be opened there
        return {**self.__dict__, "_sessions": {}}


def find_inputs(model: Any) -> tuple[Input, ...]:
    """Return the inputs of a graph that have no value of their own."""
    known = {tensor.name for tensor in model.graph.initializer}
    found = []
    for entry in model.graph.input:
        if entry.name not in known:
            dtype = dtype_of(entry)
            word = "unknown" if dtype is None else "text" if dtype.kind == "O" else dtype.name
            dims = entry.type.tensor_type.shape.dim
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
            found.append(Input(entry.name, word, shape))
    return tuple(found)


def find_columns(metadata: Mapping[str, str], inputs: tuple[Input, ...]) -> Columns:
    """Return the columns that a file's metadata name, or else its inputs; what does not fit is ignored."""
    names, kinds = (parse_names(metadata.get(key, "")) for key in ("feature_names", "feature_kinds"))
    if names is not None and (
        len(set(names)) < len(names) or not all(isinstance(name, str) for name in names)
    ):
        names = None
    if kinds is not None:
        fits = len(kinds) - kinds.count("unused") == len(inputs) and len(names or kinds) == len(kinds)
        kinds = kinds if fits and KINDS.issuperset(kinds) else None
    if kinds is None and len(inputs) > 1:  # columns that are no input are left alone
        words = ["text" if item.dtype == "text" else "number" for item in inputs]
        return Columns([item.name for item in inputs], words, others=True)
    return Columns(names, kinds)

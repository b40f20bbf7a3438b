"""ONNX files as teachers.

An ONNX tensor can name a file, an offset and a length instead of holding its values. A file from a stranger
could thus read anything that its user can read. Every such tensor is checked before onnxruntime opens the
model: it may read no other files than those next to it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import take_rows
from consilience.exceptions import UnsafeFileError
from consilience.options import choice, option, takes
from consilience.rows import join_rows
from consilience.teachers.base import (
    Adapter,
    KnownFiles,
    ModelOptions,
    check_embed_function,
    open_source,
    own_or_given,
)
from consilience.teachers.inputs import KINDS, Columns, Input, feed, fixed_batch, pad
from consilience.teachers.onnx_graph import (
    Graph,
    dtype_of,
    find_classes,
    find_features,
    find_scores,
    named_features,
    parse_names,
)
from consilience.teachers.outputs import describe, ensure, foreign, pool
from consilience.teachers.sklearn import binary_logits

PURPOSE = "An ONNX teacher"
_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_NAMELESS = "a file without a card, metadata or class labels"
_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL
_WHOLE = re.compile("[0-9]{1,19}")


class OnnxOptions(ModelOptions):
    """What an ONNX file takes."""

    device: str = option(choice("cpu", "cuda"), "Where it runs.", default="cpu")


class Onnx(Adapter):
    """An ``.onnx`` file that onnxruntime runs; sessions are opened at the first prediction.

    Files that it refers to are checked first. Classes come from `classes`, the card next to the file, the
    file's metadata (``names``, ``class_names``, ``classes``), its ZipMap, its label output or its classifier,
    in this order. Its embedding is what enters its last layer (a Gemm, MatMul or LinearClassifier with k rows
    of constant weights), or the tensor that `embed` names.

    Examples
    --------
    >>> Onnx("birds.onnx", device="cuda").classes.tolist()  # doctest: +SKIP
    ['duck', 'gull']
    """

    inputs: tuple[Input, ...]
    _takes_arrays = True
    _session: Any = None

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
        model = self._load(shown)
        with foreign(shown, "has a graph that cannot be read"):  # attributes may have any type
            graph = Graph(model)
            self._found = find_scores(graph, shown, options.output)
            self.own_classes = find_classes(graph, self._found)  # that the file names; a card may name others
            own = self.own_classes if card is None else card.classes
            found = own_or_given(own, classes, shown, binding=False, what=_NAMELESS)
            head = find_features(graph, self._found.output, len(found), source)
        kind = self._found.kind if options.output == "auto" else None
        super().__init__(shown, found, options, output=kind)
        self.ours = graph.metadata.get("producer") == "consilience"  # whether consilience wrote the file
        self.inputs = find_inputs(model)
        self.columns = columns = find_columns(graph.metadata, self.inputs)
        if columns.kinds is not None:
            names = columns.names or range(len(columns.kinds))
            self.column_kinds = dict(zip(names, columns.kinds, strict=True))
        self._batch_size, self._device = options.batch_size, options.device
        self._seen = head if options.embed is None else None
        if isinstance(options.embed, str):
            self._seen = named_features(graph, options.embed, head, shown)
        else:
            check_embed_function(options.embed, shown, "the name of a tensor")
        last = head.tensor if head is not None else None
        taken = self._seen.tensor if self._seen is not None else options.embed
        # centres of another layer do not fit
        self._take_card(given, card if card is not None and taken == (card.embed or last) else None)

    def _embeddable(self) -> bool:
        return self._seen is not None or callable(self._embed)

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer, where it takes the embedding."""
        return None if self._seen is None else self._seen.weights

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        """Run the model over all rows, once, and fetch a tensor on the way."""
        tensor = self._seen.tensor if features and self._seen is not None else None
        X, fixed = self.columns.in_order(X, self.name), fixed_batch(self.inputs, self.name)
        size = fixed or self._batch_size
        wants = ", ".join(f"{item.name} {item.dtype} {item.shape}" for item in self.inputs)
        last = self.class_weights is not None or None
        scores, seen = [], []
        for start in range(0, rows, size):
            part, count = X, min(size, rows - start)
            if rows > size:
                part = take_rows(X, slice(start, start + size))
            fed = feed(self.inputs, self.columns, part, self.name)
            if fixed:
                fed = {name: pad(values, fixed, self.name) for name, values in fed.items()}
            # a graph's input cannot be fetched, and need not be
            fetched = [self._found.output, *({tensor} - {None, *fed})]
            with foreign(self.name, f"failed on {describe(part)}; it takes {wants}"):
                results = self.session.run(fetched, fed)
            scores.append(self._matrix(results[0])[:count])
            if tensor is not None:
                inside = fed[tensor] if tensor in fed else results[1]
                seen.append(pool(np.asarray(inside), channels_last=last)[:count])
        return join_rows(scores), join_rows(seen) if seen else None

    def _matrix(self, result: Any) -> NDArray[Any]:
        """Return one run's scores as an array (n, k)."""
        values = np.asarray(result)
        one_margin = self._found.margin and len(self.classes) == 2 and values.shape[1:] == (1,)
        return binary_logits(values) if one_margin else values

    @property
    def session(self) -> Any:
        """The model in onnxruntime, after the check of what it may read."""
        if self._session is not None:
            return self._session
        onnxruntime = require("onnxruntime", extra="onnx", purpose=PURPOSE)
        provider = _PROVIDERS[self._device]
        ensure(
            provider in onnxruntime.get_available_providers(),
            self.name,
            f"cannot run on {self._device!r}: onnxruntime lacks {provider}.",
        )
        # what onnxruntime gets is what was checked, even if the file has changed since this was made
        model = self._load(self.name)
        known = {value.name for value in [*model.graph.output, *model.graph.input]}
        fetched = {self._found.output, self._seen.tensor if self._seen is not None else self._found.output}
        for tensor in fetched - known:
            model.graph.output.add().name = tensor  # onnxruntime infers its type
        options = onnxruntime.SessionOptions()
        # errors only: skl2onnx declares shapes loosely, and each would be a warning on stderr
        options.log_severity_level = 3
        # given bytes, onnxruntime would look for external data in the current folder, which was not checked
        options.add_session_config_entry(_EXTERNAL_FOLDER, str(self._source.parent))
        with foreign(self.name, f"cannot be opened by onnxruntime from {self._source.name}"):
            # a fallback would run on another device than asked, and print so
            self._session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=[provider], enable_fallback=0
            )
        return self._session

    @property
    def width(self) -> int | None:
        """How many columns a table of rows has, if the rows are one."""
        if self.columns.kinds is not None:
            return len(self.columns.kinds)
        shape = self.inputs[0].shape
        return shape[1] if len(self.inputs) == 1 and len(shape) == 2 else None

    def release(self) -> None:
        """Close the sessions; the file is opened again when it is needed."""
        self._session = None

    def _load(self, name: str) -> Any:
        model, external = load_safely(self._source, name)
        self._files = KnownFiles([self._source, *external])
        return model

    def _model_fingerprint(self) -> str | None:
        """Hash the file and the files next to it that it reads."""
        if self._files.changed and self._session is not None:
            return None  # an open session still uses the old file
        if self._files.changed:
            self._load(self.name)
        return self._files.digest

    def __getstate__(self) -> dict[str, Any]:
        # a session cannot be sent to another process; the file can be opened there
        return {**self.__dict__, "_session": None}


def find_inputs(model: Any) -> tuple[Input, ...]:
    """Return the inputs of a graph that have no value of their own."""
    known, found = {tensor.name for tensor in model.graph.initializer}, []
    for entry in model.graph.input:
        if entry.name not in known:
            dtype, dims = dtype_of(entry), entry.type.tensor_type.shape.dim
            word = "unknown" if dtype is None else dtype.name.replace("object", "text")
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
            found.append(Input(entry.name, word, shape))
    return tuple(found)


def find_columns(metadata: Mapping[str, str], inputs: tuple[Input, ...]) -> Columns:
    """Return the columns that a file's metadata name, or else its inputs; what does not fit is ignored."""
    names, kinds = (parse_names(metadata.get(key, "")) for key in ("feature_names", "feature_kinds"))
    if len({*(names or ())}) < len(names or ()) or not all(isinstance(name, str) for name in names or ()):
        names = None
    used = len(inputs) + (kinds or []).count("unused")
    if kinds is None or len(kinds) != used or len(names or kinds) != used or not KINDS.issuperset(kinds):
        kinds = None
    if kinds is None and len(inputs) > 1:  # columns that are no input are left alone
        words = ["text" if item.dtype == "text" else "number" for item in inputs]
        return Columns([item.name for item in inputs], words, others=True)
    return Columns(names, kinds)


def load_safely(source: Path, name: str) -> tuple[Any, list[Path]]:
    """Parse a model without its external data; return it and the files that it reads, which were checked."""
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    with foreign(name, f"is no ONNX model: {source.name} cannot be parsed"):
        model = onnx.load(str(source), format="protobuf", load_external_data=False)
    # an empty file is a valid message, and other files may happen to parse
    ensure(
        model.ir_version and model.graph.output and model.graph.node,
        name,
        f"is no ONNX model: {source.name} holds no graph.",
    )
    return model, check_external_data(model, source)


def check_external_data(model: Any, source: Path) -> list[Path]:
    """Raise unless all external data lie in regular files next to the model; return these files.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, loaded without external data.
    source : Path
        The model's file.
    """
    files = set[Path]()
    for tensor in tensors(model):
        if tensor.data_location != _EXTERNAL and not tensor.external_data:
            continue
        facts = {entry.key: entry.value for entry in tensor.external_data}
        problem = _problem(facts, source)
        if len(facts) < len(tensor.external_data):  # this check and onnxruntime might use different entries
            problem = "gives a key of its external data twice"
        if problem:
            raise UnsafeFileError(f"{source.name}: the tensor {tensor.name[:80]!r} {problem}.")
        files.add(source.parent / facts["location"])
    return sorted(files)


def tensors(message: Any) -> Iterator[Any]:
    """Yield every tensor of a model, or of a part of it, wherever it is.

    Walks all messages rather than a list of known places (initializers, sparse ones, attributes, subgraphs,
    functions, training graphs), so that places added to the format later are covered, too.
    """
    if message.DESCRIPTOR.full_name == "onnx.TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from tensors(part)


def _problem(facts: dict[str, str], source: Path) -> str:
    """Say why data are not in a regular file next to the model; an empty text where they are."""
    location = facts.get("location", "")
    kept = f"keeps its data in {location!r}"
    # Windows' rules on every system: they know both separators, and drives
    if PureWindowsPath(location).name != location or location in ("", "..") or "\0" in location:
        return f"{kept}. External data must be a file in the model's own folder, named without any path"
    try:
        status = (source.parent / location).lstat()
    except OSError as error:
        return f"{kept}, which cannot be read: {error.strerror}. Put the file next to the model"
    if not stat.S_ISREG(status.st_mode):
        return f"{kept}, which is a link, a folder or a device. Put the file itself next to the model"
    for key in ("offset", "length"):
        if not _WHOLE.fullmatch(facts.setdefault(key, "0")):
            return f"has {key} {facts[key][:40]!r}, which is no whole number"
    end = int(facts["offset"]) + int(facts["length"])  # without a length, onnxruntime looks at the shape
    beyond = f"wants the bytes {facts['offset']} to {end} of {location!r}, which has {status.st_size}"
    return beyond if end > status.st_size else ""

"""Teachers behind an HTTP endpoint: a client of the Open Inference Protocol, version 2."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._tables import is_table
from consilience._words import shorten
from consilience.exceptions import InvalidInputError, ScoringError, TeacherError
from consilience.files.preprocess import ImagePreprocess
from consilience.files.strict_json import parse_json
from consilience.teachers._base import Adapter, Input, Options, Teacher, check_embed_function, own_or_given
from consilience.teachers._feeds import cast, fixed_batch, pad, plain_values
from consilience.teachers._files import centres_of, open_source, with_preprocess
from consilience.teachers._onnx_columns import Columns
from consilience.teachers._onnx_graph import parse_names
from consilience.teachers._outputs import Output, choose_output
from consilience.teachers._remote_http import Answer, Call, Channel, Refusal, ServerFault
from consilience.teachers._remote_options import Address, RemoteOptions, parse_address, read_endpoint
from consilience.teachers._remote_tensors import (
    DATATYPES,
    FLOATS,
    Metadata,
    ProtocolError,
    Tensor,
    datatype_of,
    decode,
    encode,
    parse_object,
    read_metadata,
)

_LARGEST_ROW = 2**24  # numbers, in a row that is made up to learn the names of classes
FEWEST_ROWS = 64
"""A batch is not split into requests of fewer rows."""


class RemoteTeacher(Adapter):
    """A model on a server of the Open Inference Protocol."""

    _takes_arrays = True
    _address: Address
    _channel: Channel
    _metadata: Metadata
    _asked: RemoteOptions
    _batch_size: int
    _binary: bool
    _output: str | None  # None: the answer shows it
    _version_told: str | None = None  # by an answer, where neither address nor metadata tell

    def _scores(self, X: Any, rows: int) -> Any:
        feed = self._feed(X)
        fixed = fixed_batch(self.inputs or ())
        share = max(FEWEST_ROWS, -(-rows // self._asked.in_flight))
        size = fixed or min(self._batch_size, share)
        starts = range(0, rows, size)
        with self._worded(scoring=True):
            answers = self._channel.ask(self._call(feed, start, size, fixed) for start in starts)
            parts = [
                self._read(answer, min(size, rows - start), start, fixed)
                for start, answer in zip(starts, answers, strict=True)
            ]
            if any(answer.repeated for answer in answers) or self._version_told is None:
                self._check_unchanged()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _call(
        self, feed: Sequence[tuple[str, str, NDArray[Any]]], start: int, size: int, fixed: int | None
    ) -> Call:
        parts = [(name, kind, values[start : start + size]) for name, kind, values in feed]
        if fixed:
            parts = [(name, kind, pad(values, fixed)) for name, kind, values in parts]
        wanted: dict[str, Any] = {}
        if self._output is not None:
            options = {"parameters": {"binary_data": True}} if self._binary else {}
            wanted["outputs"] = [{"name": self._output, **options}]
        body, headers = encode(wanted, "inputs", parts, binary=self._binary)
        return Call(f"{self._address.url}/infer", body, headers)

    def _read(self, answer: Answer, rows: int, start: int, fixed: int | None) -> NDArray[Any]:
        """Return the scores (n, k) in an answer, or say what is wrong with it."""
        content, tensors = decode(answer.body, answer.header, "outputs")
        self._check_version(content.get("model_version"))
        output = self._output
        if output is None:
            output = _find_output([_described(name, values) for name, values in tensors.items()], self.name)
        if output not in tensors:
            raise ProtocolError(f"gave the outputs {shorten(tensors)} and not {output!r}")
        scores = tensors[output]
        if scores.dtype.kind != "f":
            raise ProtocolError(
                f"gave {output!r} as {datatype_of(scores)}: whole numbers instead of scores. Name "
                "the output of scores with RemoteOptions(output_name=...)"
            )
        if scores.shape[:1] != (fixed or rows,):
            raise ProtocolError(
                f"gave {output!r} of shape {list(scores.shape)} for {fixed or rows} rows of X"
            )
        scores = scores[:rows]
        wrong = np.isnan(scores.reshape(rows, -1)).any(axis=1)
        if wrong.any():
            raise TeacherError(
                self.name, "has a server that gave NaN in row {row}.", row=start + int(np.argmax(wrong))
            )
        return scores

    def _check_version(self, told: Any) -> None:
        """Raise if an answer comes from another version than those before."""
        if not isinstance(told, str) or not told:
            return
        known = self._version_told or _version(self._address, self._metadata)
        if known is not None and told != known:
            raise TeacherError(
                self.name,
                f"has a server that answered with version {told[:40]!r}, and before with {known[:40]!r}: the "
                "model has changed. Give the version in the address (.../versions/V), and make the teacher "
                "anew.",
            )
        self._version_told = told

    def _check_unchanged(self) -> None:
        """Raise if the server describes another model than before: nothing of this batch is kept then."""
        (answer,) = self._channel.ask([Call(self._address.url)])
        if read_metadata(parse_object(answer.body)) != self._metadata:
            raise TeacherError(
                self.name,
                "has a server whose metadata have changed: it may be another model now. Make the "
                "teacher anew.",
            )

    def _feed(self, X: Any) -> list[tuple[str, str, NDArray[Any]]]:
        """Return name, datatype and values of each input."""
        inputs = self._metadata.inputs
        if not inputs:  # some servers describe no inputs: take X as it is
            values = plain_values(X, (None,))
            kind = datatype_of(values)
            found = cast(values, None if kind == "BYTES" else np.dtype(DATATYPES[kind]), kind, "X", self.name)
            return [("input-0", kind, found)]
        if len(inputs) > 1:
            return self._feed_columns(X)
        (item,) = inputs
        names = item.parameters.get("feature_names")
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            X = Columns(names).in_order(X, self.name)
        values = plain_values(X, [None if length < 0 else length for length in item.shape])
        lengths = zip(item.shape[1:], values.shape[1:], strict=False)
        if values.ndim != len(item.shape) or any(a not in (-1, b) for a, b in lengths):
            raise TeacherError(
                self.name, f"takes {item.name!r} of shape {list(item.shape)}, and X has {list(values.shape)}."
            )
        return [(item.name, item.datatype, self._cast(values, item))]

    def _feed_columns(self, X: Any) -> list[tuple[str, str, NDArray[Any]]]:
        """Return what the inputs are fed where each is a column of a table."""
        inputs = self._metadata.inputs
        if is_table(X):
            missing = [item.name for item in inputs if item.name not in X.columns]
            if missing:
                raise TeacherError(
                    self.name, f"takes the input {missing[0]!r}; X has the columns {shorten(X.columns)}."
                )
            X = X[[item.name for item in inputs]]
        kinds = [self.column_kinds[item.name] for item in inputs]
        columns = Columns(None, kinds).values(X, self.name) or []
        return [
            (item.name, item.datatype, self._cast(values.reshape(_column_shape(item, len(values))), item))
            for item, values in zip(inputs, columns, strict=True)
        ]

    def _cast(self, values: NDArray[Any], item: Tensor) -> NDArray[Any]:
        dtype = None if item.datatype == "BYTES" else np.dtype(DATATYPES[item.datatype])
        return cast(values, dtype, item.datatype, item.name, self.name)

    @contextmanager
    def _worded(self, *, scoring: bool) -> Iterator[None]:
        """Turn faults of a server into our errors."""
        try:
            yield
        except ServerFault as fault:
            if not scoring:
                raise TeacherError(self.name, str(fault)) from None
            raise ScoringError(
                f"Teacher {self.name!r} {fault} With a cache, what it said is kept: run the same again."
            ) from None
        except Refusal as refusal:
            raise TeacherError(self.name, str(refusal)) from None
        except ProtocolError as error:
            raise TeacherError(self.name, f"has a server that {self._channel.masked(str(error))}.") from None

    @property
    def inputs(self) -> tuple[Input, ...] | None:
        """What the metadata say that it takes."""
        return tuple(
            Input(
                item.name,
                DATATYPES[item.datatype],
                tuple(None if length < 0 else length for length in item.shape),
            )
            for item in self._metadata.inputs
        )

    @property
    def column_kinds(self) -> Mapping[Any, str]:
        """What columns of a table hold, where there is an input for each."""
        if len(self._metadata.inputs) < 2:
            return {}
        return {item.name: _kind(item) for item in self._metadata.inputs}

    def _hash(self) -> str:
        """Return a hash of the address and of what the server says about the model."""
        item = self._metadata
        facts = [
            self._address.url,
            item.name,
            item.versions,
            item.platform,
            [[one.name, one.datatype, one.shape, dict(one.parameters)] for one in item.inputs],
            [[one.name, one.datatype, one.shape, dict(one.parameters)] for one in item.outputs],
            self._output,
        ]
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()

    def _model_fingerprint(self) -> str | None:
        """Return what identifies the model: nothing does, where the server tells no version."""
        return None if _version(self._address, self._metadata) is None else self.served


def remote_teacher(
    obj: str | os.PathLike[str],
    classes: ArrayLike | None,
    name: str | None,
    options: Options,
    own: Sequence[Any] | None = None,
) -> Teacher:
    """Make a teacher of an address; `own` are the classes on a card, if there is one."""
    address = parse_address(obj, name)
    asked = options.remote or RemoteOptions()
    shown = name or address.model
    check_embed_function(options.embed, shown)
    teacher = RemoteTeacher.__new__(RemoteTeacher)
    teacher.name, teacher._address, teacher._asked = shown, address, asked
    teacher._channel, teacher._batch_size = Channel(address, asked, shown), options.batch_size
    with teacher._worded(scoring=False):
        extensions = _extensions(teacher._channel, address)
        (answer,) = teacher._channel.ask([Call(address.url)])
        metadata = teacher._metadata = read_metadata(parse_object(answer.body))
        teacher._binary = "binary_tensor_data" in extensions
        output = asked.output_name
        if output is None and metadata.outputs:
            output = _find_output(metadata.outputs, shown, options.output)
        teacher._output = output
        teacher.served = teacher._hash()
        if own is None:
            own = _named_classes(metadata, output)
        if own is None and classes is None and "classification" in extensions:
            own = _classification(teacher)
    if own is None and classes is None:
        raise TeacherError(
            shown,
            "does not name its classes: its server's metadata have no parameters.classes. Give {remedy} one "
            "name per column.",
            remedy="classes",
        )
    found = own_or_given(own if own is not None else [], classes, shown, binding=False)
    if options.preprocess is None:
        options = replace(options, preprocess=_named_preprocess(metadata, shown))
    kind: Output = options.output
    if kind == "auto" and output is not None and "logit" in output.lower():
        kind = "logits"
    if options.fingerprint is not None:
        options = replace(options, fingerprint=f"{options.fingerprint} {teacher.served}")
    Adapter.__init__(teacher, shown, found, options, output=kind)
    return teacher


def endpoint_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of an endpoint file (TOML), with the classes on the card next to it, if there is one."""
    source, shown, options, card = open_source(path, name, options)
    options = with_preprocess(options, card)
    url, asked = read_endpoint(source, shown)
    if options.remote is not None:
        raise TeacherError(
            shown, f"is given as {source.name}, which has its options; drop {{argument}}.", argument="remote"
        )
    own = None if card is None else card.classes
    teacher = remote_teacher(url, classes, shown, replace(options, remote=asked), own)
    teacher.class_centres = centres_of(card)
    return teacher


def _extensions(channel: Channel, address: Address) -> list[str]:
    """Return the extensions that a server has; none if it does not describe itself."""
    try:
        (answer,) = channel.ask([Call(address.server)])
        found = parse_object(answer.body).get("extensions")
    except (Refusal, ProtocolError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _version(address: Address, metadata: Metadata) -> str | None:
    """Return the version that answers, if there is no doubt."""
    if address.version is not None:
        return address.version
    return metadata.versions[0] if len(metadata.versions) == 1 else None


def _find_output(outputs: Sequence[Tensor], name: str, wanted: str = "auto") -> str:
    scores = [item for item in outputs if item.datatype in FLOATS]
    if not scores:
        raise TeacherError(
            name,
            f"has a server that gives no scores: its outputs are {shorten(item.name for item in outputs)}. "
            "Name the output of scores, such as RemoteOptions(output_name='predict_proba') with MLServer.",
        )
    place = choose_output([item.name for item in scores], [len(item.shape) for item in scores], wanted)
    return scores[place].name


def _described(name: str, values: NDArray[Any]) -> Tensor:
    return Tensor(name, datatype_of(values), values.shape)


def _named_classes(metadata: Metadata, output: str | None) -> list[Any] | None:
    """Return the classes that an output's parameters name, as a list or as JSON."""
    for item in metadata.outputs:
        given = item.parameters.get("classes") if item.name == output else None
        if isinstance(given, str):
            given = parse_names(given)
        if isinstance(given, list) and given:
            return given
    return None


def _named_preprocess(metadata: Metadata, name: str) -> ImagePreprocess | None:
    """Return how images are prepared, if the parameters of the input say so (as JSON)."""
    given = metadata.inputs[0].parameters.get("preprocess") if len(metadata.inputs) == 1 else None
    if not isinstance(given, str):
        return None
    try:
        return ImagePreprocess.from_dict(parse_json(given))
    except (InvalidInputError, ValueError, RecursionError) as error:
        raise TeacherError(name, f"has a server whose metadata cannot be used: {error}") from None


def _classification(teacher: RemoteTeacher) -> list[Any] | None:
    """Return the names of the classes by Triton's extension: each cell is "score:place:name"."""
    width = next((item.shape[-1] for item in teacher._metadata.outputs if item.name == teacher._output), -1)
    inputs = teacher._metadata.inputs
    if width < 1 or not inputs or any(_row_size(item) > _LARGEST_ROW for item in inputs):
        return None
    feed = [(item.name, item.datatype, _made_up(item)) for item in inputs]
    wanted = {"name": teacher._output, "parameters": {"classification": width}}
    body, headers = encode({"outputs": [wanted]}, "inputs", feed, binary=False)
    (answer,) = teacher._channel.ask([Call(f"{teacher._address.url}/infer", body, headers)])
    tensors = decode(answer.body, answer.header, "outputs")[1]
    names = {}
    for cell in tensors.get(str(teacher._output), np.empty(0)).reshape(-1).tolist():
        parts = str(cell).split(":", 2)
        if len(parts) == 3 and parts[1].isdecimal():
            names[int(parts[1])] = parts[2]
    return [names[i] for i in range(width)] if sorted(names) == list(range(width)) else None


def _row_size(item: Tensor) -> int:
    """Return the numbers in one row of an input, with the shortest lengths that it allows."""
    return math.prod(max(length, 1) for length in item.shape[1:])


def _made_up(item: Tensor) -> NDArray[Any]:
    """Return one row of zeros, or of empty texts."""
    shape = [1 if length < 0 or place == 0 else length for place, length in enumerate(item.shape)]
    if item.datatype == "BYTES":
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, DATATYPES[item.datatype])


def _kind(item: Tensor) -> str:
    told = item.parameters.get("kind")
    if told in ("number", "truth", "time", "duration", "text"):
        return str(told)
    return {"BYTES": "text", "BOOL": "truth"}.get(item.datatype, "number")


def _column_shape(item: Tensor, rows: int) -> tuple[int, ...]:
    return (rows,) if len(item.shape) < 2 else (rows, 1)

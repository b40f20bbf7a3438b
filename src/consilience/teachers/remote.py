"""Teachers behind an HTTP endpoint: a client of the Open Inference Protocol, version 2."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._tables import is_table
from consilience._words import shorten
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.disk import read_bytes
from consilience.files.preprocess import ImagePreprocess
from consilience.files.strict_json import parse_json, record, text
from consilience.options import Check, anything, count, number, option, size, takes
from consilience.teachers._remote_http import Answer, Call, Channel
from consilience.teachers.address import is_address, parse_address
from consilience.teachers.base import (
    Adapter,
    Input,
    ModelOptions,
    check_embed_function,
    filled_text,
    open_source,
    own_or_given,
    teacher_name,
)
from consilience.teachers.feeds import Columns, cast, fixed_batch, pad, plain_values
from consilience.teachers.inference_protocol import (
    DATATYPES,
    FLOATS,
    ProtocolError,
    Tensor,
    datatype_of,
    decode,
    encode,
    parse_object,
    read_metadata,
)
from consilience.teachers.onnx_graph import parse_names
from consilience.teachers.outputs import choose_output

FEWEST_ROWS = 64
"""A batch is not split into requests of fewer rows."""
_MOST_BYTES = 2**20  # of an endpoint file
_URL = text(2000, like="https?://.*", says='an address "https://HOST/v2/models/NAME"')
_VARIABLE = text(
    like="CONSILIENCE_.+",
    says="a variable that begins with CONSILIENCE_, so that no file can send another secret away",
)
_LARGEST_ROW = 2**24  # numbers, in a row that is made up to learn the names of classes


class RemoteOptions(ModelOptions):
    """How a server is asked."""

    token_env: str | None = option(
        Check(filled_text, "str"),
        "The name of an environment variable that holds a bearer token. The token is read for each call, and "
        "is kept nowhere.",
        default=None,
    )
    connect_timeout: float = option(number(above=0), "Most seconds until a connection is open.", default=10.0)
    read_timeout: float = option(number(above=0), "Most seconds of silence.", default=60.0)
    timeout: float = option(number(above=0), "Most seconds of a request in all.", default=120.0)
    in_flight: int = option(count(at_most=256), "Most requests at a time.", default=4)
    max_bytes: Any = option(size(), "Most bytes of an answer, such as '64MB'.", default=64 * 2**20)
    retries: int = option(
        count(at_least=0, at_most=100),
        "Repeats of a request after 429, 5xx or a lost connection; after a time-out, once at most.",
        default=4,
    )
    ca_file: Any = option(anything("path"), "Certificates to trust instead of the system's.", default=None)
    output_name: str | None = option(
        Check(filled_text, "str"),
        "The output that holds the scores, where the server's metadata leave it open.",
        default=None,
    )


class Remote(Adapter):
    """A model on a server: ``https://HOST/v2/models/NAME`` (docs/remote.md), or a ``.toml`` file with that.

    A file holds the address as ``url``, and any of the options below by their names; its ca_file is relative
    to its folder. The variable of a token must begin with CONSILIENCE_ there.

    Examples
    --------
    >>> Remote("https://HOST/v2/models/birds", token_env="BIRDS_TOKEN")  # doctest: +SKIP
    Remote('birds', classes: duck, gull)
    """

    _takes_arrays = True
    _version_told: str | None = None  # by an answer, where neither address nor metadata tell

    @takes(RemoteOptions)
    def __init__(
        self,
        url: str | os.PathLike[str],
        classes: ArrayLike | None = None,
        name: str | None = None,
        options: Any = None,
    ) -> None:
        card, file = None, None
        if not is_address(url):
            file, name, card = open_source(url, name, options)
            url = _read_endpoint(file, name, options)
        self._address = parse_address(url, teacher_name(name, "") or None)
        self.name, self._asked = name or self._address.model, options
        check_embed_function(options.embed, self.name)
        self._channel = Channel(self.name, self._address, options)
        with self._told():
            extensions = self._extensions()
            (answer,) = self._channel.ask([Call(self._address.url)])
            self._metadata = metadata = read_metadata(answer.body)
            self._binary = "binary_tensor_data" in extensions
            self._output = options.output_name or self._scores_among(metadata.outputs, options.output)
            self._served_version = self._address.version
            if self._served_version is None and len(metadata.versions) == 1:
                self._served_version = metadata.versions[0]
            told = {item.name: item.parameters.get("classes") for item in metadata.outputs}
            own: Any = told.get(self._output or "")
            own = parse_names(own) if isinstance(own, str) else own if isinstance(own, list) else None
            own = card.classes if card is not None else own or None
            if own is None and classes is None and "classification" in extensions:
                own = self._classification()
        self.served = self._hash()
        what = "a model whose server has no parameters.classes"
        found = own_or_given(own, classes, self.name, binding=False, what=what)
        images = metadata.inputs[0].parameters.get("preprocess") if len(metadata.inputs) == 1 else None
        if options.preprocess is None and isinstance(images, str):
            try:
                options.preprocess = ImagePreprocess.from_dict(parse_json(images))
            except InvalidInputError as error:
                raise TeacherError(
                    self.name, f"has a server whose metadata cannot be used: {error}"
                ) from None
        if options.fingerprint is not None:
            options.fingerprint = f"{options.fingerprint} {self.served}"
        logits = options.output == "auto" and "logit" in (self._output or "").lower()
        super().__init__(self.name, found, options, output="logits" if logits else None)
        if file is not None:
            self._take_card(file, card)

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        return self._ask(X, rows) if scores else None, self._embed(X) if features else None

    def _ask(self, X: Any, rows: int) -> NDArray[Any]:
        feed = self._feed(X)
        fixed = fixed_batch(self.inputs)
        share = max(FEWEST_ROWS, -(-rows // self._asked.in_flight))
        size = fixed or min(self._asked.batch_size, share)
        starts = range(0, rows, size)
        with self._told():
            answers = self._channel.ask(self._call(feed, start, size, fixed) for start in starts)
            parts = [
                self._read(answer, min(size, rows - start), start, fixed)
                for start, answer in zip(starts, answers, strict=True)
            ]
            if any(answer.repeated for answer in answers) or self._version_told is None:
                # nothing of this batch is kept if the server describes another model than before
                (answer,) = self._channel.ask([Call(self._address.url)])
                if read_metadata(answer.body) != self._metadata:
                    raise ProtocolError(
                        "describes another model than before (metadata have changed). Make the teacher anew"
                    )
        return np.concatenate(parts)

    def _call(
        self, feed: Sequence[tuple[str, str, NDArray[Any]]], start: int, size: int, fixed: int | None
    ) -> Call:
        parts = [(name, kind, values[start : start + size]) for name, kind, values in feed]
        if fixed:
            parts = [(name, kind, pad(values, fixed)) for name, kind, values in parts]
        wanted: dict[str, Any] = {}
        if self._output is not None:
            asked = {"parameters": {"binary_data": True}} if self._binary else {}
            wanted["outputs"] = [{"name": self._output, **asked}]
        body, headers = encode(wanted, "inputs", parts, binary=self._binary)
        return Call(f"{self._address.url}/infer", body, headers)

    def _read(self, answer: Answer, rows: int, start: int, fixed: int | None) -> NDArray[Any]:
        """Return the scores (n, k) in an answer, or say what is wrong with it."""
        content, tensors = decode(answer.body, answer.header, "outputs")
        self._check_version(content.get("model_version"))
        described = [Tensor(name, datatype_of(values), values.shape) for name, values in tensors.items()]
        output = self._output or self._scores_among(described)
        if output not in tensors:
            raise ProtocolError(f"gave the outputs {shorten(tensors)} and not {output!r}")
        scores = tensors[str(output)]
        if scores.dtype.kind != "f":
            raise ProtocolError(
                f"gave {output!r} as {datatype_of(scores)}: whole numbers instead of scores. Name the output "
                "of scores with Remote(output_name=...)"
            )
        if scores.shape[:1] != (fixed or rows,):
            raise ProtocolError(
                f"gave {output!r} of shape {list(scores.shape)} for {fixed or rows} rows of X"
            )
        wrong = np.isnan(scores[:rows].reshape(rows, -1)).any(axis=1)
        if wrong.any():
            raise TeacherError(
                self.name, "has a server that gave NaN in row {row}.", row=start + int(np.argmax(wrong))
            )
        return scores[:rows]

    def _check_version(self, told: Any) -> None:
        """Raise if an answer comes from another version than those before."""
        if not isinstance(told, str) or not told:
            return
        known = self._version_told or self._served_version or told
        if told != known:
            raise ProtocolError(
                f"answered with version {told[:40]!r}, and before with {known[:40]!r}: the model has "
                "changed. Name the version in the address (.../versions/V), and make the teacher anew"
            )
        self._version_told = told

    def _feed(self, X: Any) -> list[tuple[str, str, NDArray[Any]]]:
        """Return name, datatype and values of each input."""
        inputs = self._metadata.inputs
        if not inputs:  # some servers describe no inputs: take X as it is
            values = plain_values(X, (None,))
            return [self._cast(values, Tensor("input-0", datatype_of(values), ()))]
        names = [item.name for item in inputs]
        if len(inputs) > 1:  # each is a column of a table, whose other columns do not matter
            lacking = [name for name in names if is_table(X) and name not in X.columns]
            if lacking:
                raise TeacherError(
                    self.name, f"takes the input {lacking[0]!r}; X has the columns {shorten(X.columns)}."
                )
            columns = Columns(None, [*self.column_kinds.values()])
            found = columns.values(X[names] if is_table(X) else X, self.name) or []
            return [
                self._cast(values.reshape((-1, 1)[: len(item.shape)]), item)
                for item, values in zip(inputs, found, strict=True)
            ]
        (item,) = inputs
        names = item.parameters.get("feature_names", [])
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            X = Columns(names).in_order(X, self.name)
        values = plain_values(X, [None if length < 0 else length for length in item.shape])
        lengths = zip(item.shape[1:], values.shape[1:], strict=False)
        if values.ndim != len(item.shape) or any(a not in (-1, b) for a, b in lengths):
            raise TeacherError(
                self.name, f"takes {item.name!r} of shape {list(item.shape)}, and X has {list(values.shape)}."
            )
        return [self._cast(values, item)]

    def _cast(self, values: NDArray[Any], item: Tensor) -> tuple[str, str, NDArray[Any]]:
        dtype = None if item.datatype == "BYTES" else np.dtype(DATATYPES[item.datatype])
        return item.name, item.datatype, cast(values, dtype, item.datatype, item.name, self.name)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what does not follow the protocol into our error."""
        try:
            yield
        except ProtocolError as error:
            raise TeacherError(self.name, f"has a server that {self._channel.masked(str(error))}.") from None

    def _extensions(self) -> Any:
        """Return the extensions that a server has; none if it does not describe itself."""
        try:
            (answer,) = self._channel.ask([Call(self._address.server)])
            found = parse_object(answer.body).get("extensions")
        except (TeacherError, ProtocolError):
            return ()
        return found if isinstance(found, list) else ()

    def _scores_among(self, outputs: Sequence[Tensor], wanted: str = "auto") -> str | None:
        """Return the output that holds the scores; None if there are no outputs."""
        scores = [item for item in outputs if item.datatype in FLOATS]
        if outputs and not scores:
            raise ProtocolError(
                f"gives no scores: its outputs are {shorten(item.name for item in outputs)}. Name the output "
                "of scores, such as Remote(output_name='predict_proba') with MLServer"
            )
        dims = [len(item.shape) for item in scores]
        names = [item.name for item in scores]
        return names[choose_output(names, dims, wanted)] if names else None

    def _classification(self) -> list[Any] | None:
        """Return the names of the classes by Triton's extension: each cell is "score:place:name"."""
        output = next((item for item in self._metadata.outputs if item.name == self._output), None)
        inputs = self._metadata.inputs
        sizes = [math.prod(max(length, 1) for length in item.shape[1:]) for item in inputs]
        if output is None or output.shape[-1:] <= (0,) or max(sizes, default=_LARGEST_ROW + 1) > _LARGEST_ROW:
            return None
        feed = []  # one row of zeros, or of empty texts
        for item in inputs:
            shape = [1 if length < 0 or place == 0 else length for place, length in enumerate(item.shape)]
            kind = "<U1" if item.datatype == "BYTES" else DATATYPES[item.datatype]
            feed.append((item.name, item.datatype, np.zeros(shape, kind)))
        wanted = {"name": output.name, "parameters": {"classification": output.shape[-1]}}
        body, headers = encode({"outputs": [wanted]}, "inputs", feed, binary=False)
        (answer,) = self._channel.ask([Call(f"{self._address.url}/infer", body, headers)])
        cells = decode(answer.body, answer.header, "outputs")[1].get(output.name, np.empty(0))
        parts = [str(cell).split(":", 2) for cell in cells.reshape(-1)]
        names = {int(part[1]): part[2] for part in parts if len(part) == 3 and part[1].isdecimal()}
        complete = sorted(names) == list(range(output.shape[-1]))
        return [names[i] for i in sorted(names)] if complete else None

    @property
    def inputs(self) -> tuple[Input, ...]:
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
        inputs = self._metadata.inputs
        return {item.name: _kind(item) for item in inputs} if len(inputs) > 1 else {}

    def _hash(self) -> str:
        """Return a hash of the address and of what the server says about the model."""
        facts = [self._address.url, asdict(self._metadata), self._output]
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()

    def _model_fingerprint(self) -> str | None:
        """Return what identifies the model: nothing does, where the server tells no version."""
        return None if self._served_version is None else self.served


def _read_endpoint(path: Path, name: str, options: RemoteOptions) -> str:
    """Return the address in an endpoint file (TOML), and set the options in it that the caller left open."""
    declared = RemoteOptions.declared()
    known = {key: _anything for key in declared if key not in ModelOptions.declared()}
    read = record({**known, "url": _URL, "token_env": _VARIABLE, "ca_file": text()}, needs=["url"])
    try:
        content = read_bytes(path, path.name, most=_MOST_BYTES, links=True).decode("utf-8-sig")
        found = read(tomllib.loads(content))
        if "ca_file" in found:
            found["ca_file"] = str(path.parent / found["ca_file"])
        url = str(found.pop("url"))
        for key, value in found.items():
            setattr(
                options,
                key,
                value if getattr(options, key) == declared[key].default else getattr(options, key),
            )
        options.check_options()
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise TeacherError(name, f"cannot be used: {path.name}: {reason}") from error
    return url


def _anything(value: Any) -> Any:
    """Read what is checked elsewhere."""
    return value


def _kind(item: Tensor) -> str:
    told = item.parameters.get("kind")
    if told in ("number", "truth", "time", "duration", "text"):
        return str(told)
    return {"BYTES": "text", "BOOL": "truth"}.get(item.datatype, "number")

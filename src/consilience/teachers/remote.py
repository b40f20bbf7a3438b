"""Teachers behind an HTTP endpoint: a client of the Open Inference Protocol, version 2."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._words import shorten
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.disk import read_bytes
from consilience.files.strict_json import parse_json, record, text
from consilience.options import Check, anything, count, number, option, size, takes
from consilience.rows.images import ImagePreprocess
from consilience.teachers.base import (
    Adapter,
    ModelOptions,
    check_embed_function,
    filled_text,
    open_source,
    own_or_given,
    teacher_name,
)
from consilience.teachers.inference_protocol import (
    DATATYPES,
    FLOATS,
    ProtocolError,
    Tensor,
    datatype_of,
    decode,
    encode,
    expect,
    parse_object,
    read_metadata,
)
from consilience.teachers.inputs import Columns, Input, feed, fixed_batch, pad, plain_values
from consilience.teachers.onnx_graph import parse_names
from consilience.teachers.outputs import choose_output, ensure, foreign, in_the_name_of
from consilience.teachers.remote_http import Answer, Call, Channel

FEWEST_ROWS = 64
"""A batch is not split into requests of fewer rows."""
_KINDS = ("number", "truth", "time", "duration", "text")  # of a column, as our server says them
_MOST_BYTES = 2**20  # of an endpoint file
_URL = text(2000, like="https?://.*", says='an address "https://HOST/v2/models/NAME"')
_VARIABLE = text(
    like="CONSILIENCE_.+",
    says="a variable that begins with CONSILIENCE_, so that no file can send another secret away",
)
_SCHEME = re.compile(r"(https?):/{1,2}(?=[^/])", re.IGNORECASE)  # a Path leaves one slash of two
_ADDRESS = re.compile(
    r"(?P<server>(?P<scheme>https?)://(?P<user>[^/?#]*@)?"
    r"(?P<host>\[[\da-f:.]+\]|[^/?#@:\[\]\s]+)(?::(?P<port>\d{1,5}))?(?:/[^?#\s]*)?/v2)"
    r"/models/(?P<model>[^/?#\s]+)(?:/versions/(?P<version>[^/?#\s]+))?/?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Address:
    """The parts of an endpoint's address.

    Attributes
    ----------
    server : str
        The address of the server's own metadata, which ends in ``/v2``.
    url : str
        The address of the model, with its version if one is given.
    model : str
    version : str or None
    plain : bool
        Whether what is sent could be read on its way: http to another machine.
    """

    server: str
    url: str
    model: str
    version: str | None
    plain: bool


def is_address(obj: object) -> bool:
    """Tell whether something is an address of HTTP, as a text or as a path.

    Examples
    --------
    >>> is_address("https://host/v2/models/birds"), is_address("birds.onnx")
    (True, False)
    """
    return isinstance(obj, str | os.PathLike) and _SCHEME.match(str(os.fspath(obj))) is not None


def parse_address(obj: str | os.PathLike[str], name: str | None = None) -> Address:
    """Return the parts of an address, or say what is wrong with it; the message has no host."""
    given = _SCHEME.sub(lambda found: f"{found[1].lower()}://", os.fspath(obj), count=1)
    found = _ADDRESS.fullmatch(given)
    if found is None or int(found["port"] or 0) >= 2**16:
        raise TeacherError(
            name or "endpoint",
            "has an address that is none of a model. Give https://HOST/v2/models/NAME, or "
            "https://HOST/v2/models/NAME/versions/VERSION.",
        )
    ensure(
        not found["user"],
        name or found["model"],
        "has a user or a password in its address. Take it out, and name a variable that holds a bearer "
        "token: Remote(token_env=...).",
    )
    try:
        loopback = ipaddress.ip_address(found["host"].strip("[]")).is_loopback
    except ValueError:
        loopback = found["host"].lower() == "localhost"
    plain = found["scheme"] == "http" and not loopback
    return Address(found["server"], given.rstrip("/"), found["model"], found["version"], plain)


def address_name(obj: str | os.PathLike[str]) -> str:
    """Return the name of the model in an address."""
    return parse_address(obj).model


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
    to its folder. The variable of a token must begin with `CONSILIENCE_` there.

    Examples
    --------
    >>> Remote("https://HOST/v2/models/birds", token_env="BIRDS_TOKEN")  # doctest: +SKIP
    Remote('birds', classes: duck, gull)
    """

    inputs: tuple[Input, ...]
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
        ensure(
            options.token_env is None or not self._address.plain,
            self.name,
            "has a token and an address that begins with http:, so anyone on the way could read the token. "
            "Give https:.",
        )
        self._channel = Channel(self.name, self._address.url, options)
        with self._told():
            self._binary = "binary_tensor_data" in self._extensions()
            self._metadata = told = read_metadata(self._channel.ask([])[1])
            self._output = options.output_name or self._scores_among(told.outputs, options.output)
            own = self._named_classes() if card is None else card.classes
            about = told.inputs[0].parameters if len(told.inputs) == 1 else {}
            images, names = about.get("preprocess"), about.get("feature_names")
            prepared = ImagePreprocess.from_dict(parse_json(images)) if isinstance(images, str) else None
        self.inputs = tuple(
            Input(one.name, DATATYPES[one.datatype], tuple(None if n < 0 else n for n in one.shape))
            for one in told.inputs
        )
        named = isinstance(names, list) and all(isinstance(name, str) for name in names)
        self._order = Columns(names if named and names else None)
        if len(told.inputs) > 1:  # each is a column of a table, whose other columns do not matter
            self.column_kinds = {one.name: _kind(one) for one in told.inputs}
            self._order = Columns(list(self.column_kinds), list(self.column_kinds.values()), others=True)
        self._served_version = self._address.version or (
            told.versions[0] if len(told.versions) == 1 else None
        )
        self.served = self._hash()
        what = "a model whose server has no parameters.classes"
        found = own_or_given(own, classes, self.name, binding=False, what=what)
        options.preprocess = options.preprocess or prepared
        if options.fingerprint is not None:
            options.fingerprint = f"{options.fingerprint} {self.served}"
        logits = options.output == "auto" and "logit" in (self._output or "").lower()
        super().__init__(self.name, found, options, output="logits" if logits else None)
        if file is not None:
            self._take_card(file, card)

    def _named_classes(self) -> Any:
        """Return the classes in the metadata of the scores, or None."""
        told = {item.name: item.parameters.get("classes") for item in self._metadata.outputs}
        own = told.get(self._output or "")
        return parse_names(own) if isinstance(own, str) else own if isinstance(own, list) and own else None

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        feed, fixed, total = self._feed(X), fixed_batch(self.inputs, self.name), rows
        share = max(FEWEST_ROWS, -(-rows // self._asked.in_flight))
        size = fixed or min(self._asked.batch_size, share)
        if fixed:
            total = -(-rows // fixed) * fixed
            feed = [(name, kind, pad(values, total, self.name)) for name, kind, values in feed]
        starts = range(0, total, size)
        with self._told():
            answers, about = self._channel.ask(
                self._call(feed, slice(start, start + size)) for start in starts
            )
            parts = [
                self._read(answer, min(size, total - start))
                for start, answer in zip(starts, answers, strict=True)
            ]
            expect(
                read_metadata(about) == self._metadata,
                "describes another model than before (metadata have changed). Make the teacher anew",
            )
        scores = np.concatenate(parts)[:rows]
        wrong = np.flatnonzero(np.isnan(scores.reshape(rows, -1)).any(axis=1))
        if len(wrong):
            raise TeacherError(self.name, "has a server that gave NaN in row {row}.", row=wrong[0])
        return scores, None

    def _call(self, feed: Sequence[Any], part: slice) -> Call:
        inputs = [(name, kind, values[part]) for name, kind, values in feed]
        asked = {"parameters": {"binary_data": True}} if self._binary else {}
        wanted = {} if self._output is None else {"outputs": [{"name": self._output, **asked}]}
        return Call(f"{self._address.url}/infer", *encode(wanted, "inputs", inputs, binary=self._binary))

    def _read(self, answer: Answer, rows: int) -> NDArray[Any]:
        """Return the scores (n, k) in an answer, or say what is wrong with it."""
        content, tensors = decode(answer.body, answer.header, "outputs")
        self._check_version(content.get("model_version"))
        described = [Tensor(name, datatype_of(values), values.shape) for name, values in tensors.items()]
        output = str(self._output or self._scores_among(described))
        expect(output in tensors, f"gave the outputs {shorten(tensors)} and not {output!r}")
        scores = tensors[output]
        expect(
            scores.dtype.kind == "f",
            f"gave {output!r} as {datatype_of(scores)}: whole numbers instead of scores. Name the output "
            "of scores with Remote(output_name=...)",
        )
        given = list(scores.shape)
        expect(given[:1] == [rows], f"gave {output!r} of shape {given} for {rows} rows of X")
        return scores

    def _check_version(self, told: Any) -> None:
        """Raise if an answer comes from another version than those before."""
        if isinstance(told, str) and told:
            known = self._version_told or self._served_version or told
            expect(
                told == known,
                f"answered with version {told[:40]!r}, and before with {known[:40]!r}: the model has "
                "changed. Name the version in the address (.../versions/V), and make the teacher anew",
            )
            self._version_told = told

    def _feed(self, X: Any) -> list[tuple[str, str, NDArray[Any]]]:
        """Return name, datatype and values of each input."""
        inputs = self._metadata.inputs
        if not inputs:  # some servers describe no inputs: take X as it is
            values = plain_values(X, (None,))
            return [("input-0", datatype_of(values), values)]
        fed = feed(self.inputs, self._order, self._order.in_order(X, self.name), self.name)
        for item in inputs:
            shapes = f"of shape {list(item.shape)}, and X has {list(fed[item.name].shape)}"
            ensure(item.takes(fed[item.name]), self.name, f"takes {item.name!r} {shapes}.")
        return [(item.name, item.datatype, fed[item.name]) for item in inputs]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what does not follow the protocol into our error."""
        try:
            yield
        except TeacherError:
            raise
        except (ProtocolError, InvalidInputError) as error:
            what = "" if isinstance(error, ProtocolError) else "gave an answer that cannot be used: "
            problem = self._channel.masked(str(error)).rstrip(".")
            raise TeacherError(self.name, f"has a server that {what}{problem}.") from None

    def _extensions(self) -> Any:
        """Return the extensions that a server has; none if it does not describe itself."""
        try:
            (answer,), _ = self._channel.ask([Call(self._address.server)])
            found = parse_object(answer.body).get("extensions")
        except (InvalidInputError, ProtocolError):
            return ()
        return found if isinstance(found, list) else ()

    def _scores_among(self, outputs: Sequence[Tensor], wanted: str = "auto") -> str | None:
        """Return the output that holds the scores; None if there are no outputs."""
        scores = [item for item in outputs if item.datatype in FLOATS]
        expect(
            scores or not outputs,
            f"gives no scores: its outputs are {shorten(item.name for item in outputs)}. Name the output "
            "of scores, such as Remote(output_name='predict_proba') with MLServer",
        )
        names = [item.name for item in scores]
        return names[choose_output(names, [len(item.shape) for item in scores], wanted)] if names else None

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
    known = RemoteOptions.declared()
    keys = {key: lambda value: value for key in known if key not in ModelOptions.declared()}
    read = record({**keys, "url": _URL, "token_env": _VARIABLE, "ca_file": text()}, needs=["url"])
    problem = f"cannot be used: {path.name}"
    with in_the_name_of(name, f"{problem}: "), foreign(name, problem):
        content = read_bytes(path, path.name, most=_MOST_BYTES, links=True).decode("utf-8-sig")
        found = read(tomllib.loads(content))
        if "ca_file" in found:
            found["ca_file"] = str(path.parent / found["ca_file"])
        url = str(found.pop("url"))
        for key, value in found.items():
            if getattr(options, key) == known[key].default:
                setattr(options, key, value)
        options.check_options()
    return url


def _kind(item: Tensor) -> str:
    told = item.parameters.get("kind")
    return told if told in _KINDS else {"BYTES": "text", "BOOL": "truth"}.get(item.datatype, "number")

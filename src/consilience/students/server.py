"""Serve a saved model by the Open Inference Protocol: from here to try it, or from servers of others.

`ModelServer` is made of the standard library's threading server: nothing to install, and enough for trying.
For real traffic `write_repository` writes a folder that Triton and MLServer read. Inside MLServer, the class
`OnnxRuntime` of this module runs the model.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from consilience._version import __version__
from consilience._words import size_text
from consilience.exceptions import ConsilienceError, InvalidInputError
from consilience.files.disk import file_sha256, replacing
from consilience.students.loaded import load
from consilience.teachers.inference_protocol import (
    CODES,
    DATATYPES,
    HEADER,
    ProtocolError,
    Tensor,
    datatype_of,
    decode,
    encode,
    expect,
    wanted_outputs,
)
from consilience.teachers.inputs import cast
from consilience.teachers.onnx import Onnx

__all__ = ["ModelServer", "ServedModel", "write_repository"]

MAX_BYTES = 64 * 2**20
"""Most bytes of a request."""
RUNTIME = "consilience.students.server.OnnxRuntime"
_PATIENCE = 60.0  # seconds of silence, after which a connection is closed
_MOST_ROWS = 1024  # that Triton puts into one batch


class ServedModel:
    """A saved model in the terms of the protocol.

    Parameters
    ----------
    path : path
        A file that `save` wrote.
    name : str, optional
        By default the file's name without its ending.

    Attributes
    ----------
    name : str
    version : str
        The beginning of the file's checksum: another model is another version.
    inputs, outputs : tuple of Tensor

    Examples
    --------
    >>> import tempfile
    >>> from consilience import SoftLabelClassifier
    >>> path = tempfile.mkdtemp() + "/model.onnx"
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["low", "low", "high", "high"]
    >>> _ = SoftLabelClassifier("logistic").fit(X, y).save(path)
    >>> ServedModel(path).metadata()["name"]
    'model'
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.model = load(path)
        self.name = name or self.model.teacher_.name
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise InvalidInputError(
                "{argument} must be a name of letters, digits, dots, dashes and underscores.",
                argument="name",
                value=self.name,
            )
        self.version = file_sha256(path)[:12]
        classes = self.model.classes_.tolist()
        self.inputs = self._find_inputs()
        self.outputs = (
            Tensor("probabilities", "FP32", (-1, len(classes)), {"classes": classes}),
            Tensor("label", datatype_of(np.asarray(classes)), (-1,)),
        )

    def _find_inputs(self) -> tuple[Tensor, ...]:
        teacher = self.model.teacher_
        if not isinstance(teacher, Onnx):
            return (Tensor("text", "BYTES", (-1,)),)
        kinds = [kind for kind in teacher.columns.kinds or () if kind != "unused"]
        found = []
        for place, item in enumerate(teacher.inputs):
            images = teacher.preprocess
            parameters = {
                "preprocess": None if images is None else json.dumps(images.to_dict()),
                "kind": kinds[place] if kinds else None,
                "feature_names": None if kinds else teacher.columns.names,
            }
            known = {key: value for key, value in parameters.items() if value is not None}
            shape = tuple(-1 if length is None else length for length in item.shape)
            found.append(Tensor(item.name, CODES[item.dtype], shape, known))
        return tuple(found)

    @property
    def addresses(self) -> tuple[str, str]:
        """The model's path on a server, without and with its version."""
        root = f"/v2/models/{self.name}"
        return root, f"{root}/versions/{self.version}"

    def metadata(self) -> dict[str, Any]:
        """Return what the protocol says about the model."""
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "consilience",
            "inputs": [_described(item) for item in self.inputs],
            "outputs": [_described(item) for item in self.outputs],
        }

    def infer(self, body: bytes, header: str | None = None) -> tuple[bytes, dict[str, str]]:
        """Return the answer to a request, and its headers; a `ProtocolError` if the request is wrong."""
        content, tensors = decode(body, header, "inputs")
        wanted = wanted_outputs(content)
        proba = self._predict(tensors)
        labels = self.model.classes_[proba.argmax(axis=1)]
        known = {"probabilities": proba.astype(np.float32), "label": labels}
        for name in wanted:
            expect(name in known, f"asks for the output {name!r}; there are probabilities and label")
        told = {"model_name": self.name, "model_version": self.version}
        told |= {"id": content["id"]} if isinstance(content.get("id"), str) else {}
        outputs = [(name, datatype_of(known[name]), known[name]) for name in wanted or known]
        return encode(told, "outputs", outputs, binary=any(wanted.values()))

    def _predict(self, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return the probabilities (n, L) of what a request holds."""
        feed = {}
        for item in self.inputs:
            expect(item.name in tensors, f"lacks the input {item.name!r}")
            values = tensors[item.name]
            shapes = f"of shape {list(values.shape)}; expected {list(item.shape)}"
            expect(item.takes(values), f"has {item.name!r} {shapes}")
            dtype = None if item.datatype == "BYTES" else np.dtype(DATATYPES[item.datatype])
            feed[item.name] = cast(values, dtype, item.datatype, item.name, self.name)
        expect(len({*map(len, feed.values())}) == 1, "has inputs that differ in their number of rows")
        teacher = self.model.teacher_
        if not isinstance(teacher, Onnx):
            return self.model.predict_proba(feed["text"])
        try:
            return np.asarray(teacher.session.run(["probabilities"], feed)[0])
        except Exception as error:  # onnxruntime raises almost any type
            raise ProtocolError(f"cannot be computed: {str(error).strip()[:200]}") from error


def _described(item: Tensor) -> dict[str, Any]:
    """Return a tensor as metadata write it."""
    about = {"name": item.name, "datatype": item.datatype, "shape": list(item.shape)}
    return about | ({"parameters": dict(item.parameters)} if item.parameters else {})


class ModelServer(ThreadingHTTPServer):
    """Serves one model: in this thread by `serve_forever`, or in another by `start`.

    Parameters
    ----------
    model : ServedModel
    host : str
        By default only this machine can reach it.
    port : int
        0 takes a free one.
    max_bytes : int
        Most bytes of a request.

    Examples
    --------
    >>> import tempfile
    >>> from consilience import SoftLabelClassifier, as_teacher
    >>> path = tempfile.mkdtemp() + "/model.onnx"
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["low", "low", "high", "high"]
    >>> _ = SoftLabelClassifier("logistic").fit(X, y).save(path)
    >>> with ModelServer(ServedModel(path)).start() as server:
    ...     as_teacher(server.url).classes.tolist()
    ['high', 'low']
    """

    daemon_threads = True
    _thread: threading.Thread | None = None
    block_on_close = False  # a client that keeps its connection must not hold us back

    def __init__(
        self, model: ServedModel, host: str = "127.0.0.1", port: int = 0, max_bytes: int = MAX_BYTES
    ) -> None:
        self.model, self.max_bytes = model, max_bytes
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError, TypeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            host_is_wrong = isinstance(error, socket.gaierror | TypeError | ValueError)
            raise InvalidInputError(
                f"The server cannot listen there: {reason}. Give another {{argument}}.",
                argument="host" if host_is_wrong else "port",
            ) from error

    @property
    def url(self) -> str:
        """The address of the model."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}{self.model.addresses[0]}"

    def start(self) -> Self:
        """Serve in a thread until the server is closed, as the end of a `with` block does."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def server_close(self) -> None:
        """Stop, and free the port."""
        if self._thread is not None:  # it would go round and round on a closed socket
            self.shutdown()
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that leave in the middle."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"consilience/{__version__}"
    sys_version = ""
    timeout = _PATIENCE
    wbufsize = -1  # an answer is one packet: the second of two waits for 40 ms
    server: ModelServer

    def log_message(self, *_: Any) -> None:
        """Write no log: rows and addresses of clients are nobody's business."""

    @property
    def place(self) -> str:
        """The path that is asked for."""
        return self.path.partition("?")[0].rstrip("/")

    def do_GET(self) -> None:  # the name that the library calls
        model = self.server.model
        about = {"name": "consilience", "version": __version__, "extensions": ["binary_tensor_data"]}
        pages = {"/v2": about, "/v2/health/live": {"live": True}, "/v2/health/ready": {"ready": True}}
        for root in model.addresses:
            pages |= {root: model.metadata(), f"{root}/ready": {"name": model.name, "ready": True}}
        if self.place in pages:
            self._send(200, json.dumps(pages[self.place]).encode(), {"Content-Type": "application/json"})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        length, most = self.headers.get("Content-Length", ""), self.server.max_bytes
        if not length.isdecimal() or len(length) > 18:
            return self.send_error(411, "The request must tell its length (Content-Length).")
        if int(length) > most:
            return self.send_error(413, f"The request is longer than {size_text(most)}. Send fewer rows.")
        body = self.rfile.read(int(length))
        if self.place not in [f"{root}/infer" for root in self.server.model.addresses]:
            return self.send_error(404)
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            return self.send_error(415, "The request is compressed. Send it as it is.")
        try:
            return self._send(200, *self.server.model.infer(body, self.headers.get(HEADER)))
        except ProtocolError as error:
            return self.send_error(400, f"The request {error}.")
        except ConsilienceError as error:
            return self.send_error(400, str(error))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with a sentence, as JSON; the library calls it, too, for requests that are no HTTP.

        The connection is closed: what follows may be the rest of a body.
        """
        model = self.server.model
        if code == HTTPStatus.NOT_FOUND:
            version = f"There is only the model {model.name} in version {model.version}"
            message = f"{version}. Send rows with POST to {model.addresses[0]}/infer."
        problem = {"error": message or HTTPStatus(code).phrase}
        headers = {"Content-Type": "application/json", "Connection": "close"}
        self._send(code, json.dumps(problem).encode(), headers)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def write_repository(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], name: str | None = None
) -> Path:
    """Write a model repository with one model for Triton and MLServer, and return the folder of the model.

    Parameters
    ----------
    path : path
        An ``.onnx`` file that `save` wrote.
    folder : path
        The repository. It must exist; a model of the same name in it is replaced, file by file.
    name : str, optional
        By default the file's name without its ending.
    """
    served = ServedModel(path, name)
    if not isinstance(served.model.teacher_, Onnx):
        raise InvalidInputError(
            f"{Path(path).name} is a model of texts, which only this library runs. Serve it without a folder."
        )
    if not Path(folder).is_dir():
        raise InvalidInputError(f"The folder {str(folder)!r} does not exist. Make it first.")
    root = Path(folder) / served.name
    (root / "1").mkdir(parents=True, exist_ok=True)
    about = {"uri": "./1/model.onnx", "version": served.version}
    settings = {**served.metadata(), "implementation": RUNTIME, "parameters": about}
    names = [" ".join(str(one).split()) for one in served.model.classes_.tolist()]
    files = {
        "1/model.onnx": Path(path).read_bytes(),
        "labels.txt": "".join(f"{line}\n" for line in names).encode(),
        "config.pbtxt": _triton_config(served).encode(),
        "model-settings.json": (json.dumps(settings, indent=1) + "\n").encode(),
    }
    for place, content in files.items():
        with replacing(root / place) as file:
            file.write(content)
    return root


def _triton_config(served: ServedModel) -> str:
    """Return the configuration for Triton.

    Triton adds the rows as first dimension. Its classification extension reads names from labels.txt.
    """
    classes = json.dumps(served.model.classes_.tolist())
    parts = [
        f"name: {json.dumps(served.name)}",
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {_MOST_ROWS}",
        *(_triton_tensor("input", item) for item in served.inputs),
        _triton_tensor("output", served.outputs[0], 'label_filename: "labels.txt"'),
        f'parameters {{ key: "classes" value: {{ string_value: {json.dumps(classes)} }} }}',
        f'parameters {{ key: "version" value: {{ string_value: "{served.version}" }} }}',
    ]
    return "\n".join(parts) + "\n"


def _triton_tensor(side: str, item: Tensor, more: str = "") -> str:
    kind = "STRING" if item.datatype == "BYTES" else item.datatype
    dims = ", ".join(str(length) for length in item.shape[1:])
    fields = f"name: {json.dumps(item.name)} data_type: TYPE_{kind} dims: [ {dims} ] {more}"
    return f"{side} [ {{ {fields.rstrip()} }} ]"


if "mlserver" in sys.modules:  # MLServer imports this module for the class that model-settings.json names
    mlserver, types, utils = map(importlib.import_module, ("mlserver", "mlserver.types", "mlserver.utils"))

    class OnnxRuntime(mlserver.MLModel):  # type: ignore[name-defined]
        """A model of consilience."""

        async def load(self) -> bool:
            """Open the file that the settings name."""
            self._served = ServedModel(await utils.get_model_uri(self._settings), self.name)
            return True

        async def predict(self, payload: Any) -> Any:
            """Answer a request."""
            answer, _ = self._served.infer(payload.model_dump_json(exclude_none=True).encode())
            return types.InferenceResponse(**json.loads(answer))

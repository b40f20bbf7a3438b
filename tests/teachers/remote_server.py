"""A server of the Open Inference Protocol for tests, which misbehaves when it is told to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from scipy.special import softmax

CLASSES = ["ant", "bee", "cow"]
X = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
WEIGHTS = np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]])


def proba_of(X: np.ndarray) -> np.ndarray:
    scores = np.exp(np.asarray(X, dtype=np.float64) @ WEIGHTS)
    return scores / scores.sum(axis=1, keepdims=True)


def check(teacher: Any, rows: np.ndarray = X) -> None:
    """Compare what a teacher says with the model of this file."""
    np.testing.assert_allclose(softmax(teacher.predict_logits(rows), axis=1), proba_of(rows), atol=1e-6)


def output(**changes: Any) -> dict[str, Any]:
    """Return an output of two rows as a server sends it, with some changes."""
    return {
        "name": "probabilities",
        "datatype": "FP32",
        "shape": [2, 3],
        "data": [0.2, 0.3, 0.5] * 2,
    } | changes


def replying(
    content: Any, status: int = 200, headers: dict[str, str] | None = None, *, always: bool = False
) -> Any:
    """Return a fault that answers requests for scores with this; with `always`, those for metadata, too."""

    def fault(handler: Any, request: Any) -> bool:
        if request is not None or always:
            handler.send(status, content, headers)
        return request is not None or always

    return fault


def binary(proba: np.ndarray, size: int | None = None) -> tuple[bytes, int, dict[str, str]]:
    """Return body, status and headers of an answer as bytes, of which it says that they are so many."""
    data = proba.astype("<f4").tobytes()
    out = output(shape=list(proba.shape), parameters={"binary_data_size": size or len(data)})
    del out["data"]
    told = json.dumps({"outputs": [out]}).encode()
    return told + data, 200, {"Inference-Header-Content-Length": str(len(told))}


class Server:
    """A model of two columns; `fault(handler, request)` may answer instead, and returns whether it did."""

    def __init__(self) -> None:
        self.model: dict[str, Any] = {
            "name": "zoo",
            "versions": ["1"],
            "platform": "test",
            "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [
                {"name": "label", "datatype": "INT64", "shape": [-1]},
                {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3],
                 "parameters": {"classes": CLASSES}},
            ],
        }  # fmt: skip
        self.extensions: list[str] = []
        self.version: str | None = "1"
        self.fault: Callable[[Any, dict[str, Any] | None], bool] = lambda handler, request: False
        self.infers = self.now = self.most = 0
        self.headers: list[dict[str, str]] = []
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        (given,) = request["inputs"]
        proba = proba_of(np.array(given["data"]).reshape(given["shape"]))
        told = {} if self.version is None else {"model_version": self.version}
        out = output(shape=list(proba.shape), data=proba.reshape(-1).tolist())
        return {"model_name": "zoo", **told, "outputs": [out]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        zoo: Server = self.server.zoo
        zoo.headers.append(dict(self.headers))
        if zoo.fault(self, None):
            return
        if self.path == "/v2":
            self.send(200, {"name": "test", "version": "1", "extensions": zoo.extensions})
        elif self.path in ("/v2/models/zoo", "/v2/models/zoo/versions/1"):
            self.send(200, zoo.model)
        else:
            self.send(404, {"error": "no such model"})

    def do_POST(self) -> None:
        zoo: Server = self.server.zoo
        body = self.rfile.read(int(self.headers["Content-Length"]))
        zoo.headers.append(dict(self.headers))
        request = (
            json.loads(body) if "Inference-Header-Content-Length" not in self.headers else {"body": body}
        )
        with zoo.lock:
            zoo.infers += 1
            zoo.now += 1
            zoo.most = max(zoo.most, zoo.now)
            zoo.requests.append(request)
        try:
            if not zoo.fault(self, request):
                self.send(200, zoo.answer(request))
        finally:
            with zoo.lock:
                zoo.now -= 1


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        pass  # clients that leave are part of the tests


@contextmanager
def serving(zoo: Server, port: int = 0) -> Iterator[str]:
    """Run a server on this machine, and yield its address."""
    with _Quiet(("127.0.0.1", port), _Handler) as running:
        running.zoo = zoo  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}/v2/models/zoo"
        finally:
            running.shutdown()
            thread.join()

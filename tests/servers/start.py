"""Start servers that others wrote, each in a virtual environment of its own: KServe's SDK and MLServer.

``python tests/servers/start.py install FOLDER`` makes the environments (some minutes, once). Then
``CONSILIENCE_SERVERS=FOLDER pytest tests/servers`` runs the client against both.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PACKAGES = {
    "mlserver": ["mlserver", "mlserver-sklearn", "onnx", "onnxruntime", "numba", "threadpoolctl", "pandas"],
    "kserve": ["kserve", "scikit-learn"],
}
FIT = """
import joblib, sklearn.datasets, sklearn.linear_model
X, y = sklearn.datasets.load_iris(return_X_y=True)
joblib.dump(sklearn.linear_model.LogisticRegression(max_iter=1000).fit(X, y), "model.joblib")
"""
KSERVE = """
import sys, joblib, numpy as np
from kserve import InferOutput, InferResponse, Model, ModelServer

class Iris(Model):
    def load(self):
        self.model, self.ready = joblib.load("model.joblib"), True

    def predict(self, payload, headers=None):
        proba = self.model.predict_proba(payload.inputs[0].as_numpy())
        output = InferOutput("probabilities", list(proba.shape), "FP64")
        output.set_data_from_numpy(proba, binary_data=False)
        return InferResponse(payload.id or "0", "iris", [output])

iris = Iris("iris")
iris.load()
ModelServer(http_port=int(sys.argv[1]), enable_grpc=False).start([iris])
"""


def install(folder: Path) -> None:
    """Make the environments."""
    for name, packages in PACKAGES.items():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        subprocess.run([folder / name / "bin" / "pip", "install", "-q", *packages], check=True)


def python_of(folder: Path, name: str) -> Path:
    """Return the interpreter of an environment."""
    return folder / name / "bin" / "python"


def fit(folder: Path, name: str, work: Path) -> None:
    """Fit a model of iris in the server's own environment, since it reads it there."""
    subprocess.run([python_of(folder, name), "-c", FIT], cwd=work, check=True, timeout=120)


@contextmanager
def running(command: list[str], work: Path, url: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server until the block ends; yield the model's address when it is ready."""
    log = work / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=work, stdout=out, stderr=out, env={**os.environ, **(env or {})}
        )
        try:
            for _ in range(240):
                if server.poll() is not None:
                    raise RuntimeError(f"The server ended: {log.read_text()[-2000:]}")
                try:
                    with urllib.request.urlopen(f"{url}/ready", timeout=2):  # noqa: S310  # our own
                        break
                except OSError:
                    time.sleep(0.25)
            else:
                raise RuntimeError(f"The server is not ready: {log.read_text()[-2000:]}")
            yield url
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(10)


@contextmanager
def mlserver(folder: Path, work: Path, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run MLServer on the models in a folder; yield its port."""
    ports = [free_port() for _ in range(3)]
    settings = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
    (work / "settings.json").write_text(json.dumps({"host": "127.0.0.1", "parallel_workers": 0, **settings}))
    names = [json.loads(file.read_text())["name"] for file in work.rglob("model-settings.json")]
    url = f"http://127.0.0.1:{ports[0]}/v2/models/{names[0]}"
    with running([str(folder / "mlserver" / "bin" / "mlserver"), "start", "."], work, url, env):
        yield ports[0]


@contextmanager
def kserve(folder: Path, work: Path) -> Iterator[str]:
    """Run KServe's server with a model of iris; yield the model's address."""
    fit(folder, "kserve", work)
    port = free_port()
    url = f"http://127.0.0.1:{port}/v2/models/iris"
    with running([str(python_of(folder, "kserve")), "-c", KSERVE, str(port)], work, url):
        yield url


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "install":
        raise SystemExit(__doc__)
    install(Path(sys.argv[2]))

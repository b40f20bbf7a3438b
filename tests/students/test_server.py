"""A saved model behind the small server is a teacher again; bad requests get a sentence."""

import asyncio
import http.client
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from consilience import Run, SoftLabelClassifier, Unifier, as_teacher, load
from consilience.exceptions import InvalidInputError
from consilience.students import server as server_module
from consilience.students.ngrams import Ngrams
from consilience.students.server import ModelServer, ServedModel, write_repository
from consilience.students.verify import verify_model

pytest.importorskip("httpx")
pytest.importorskip("onnxruntime")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(90, 3))
Y = np.array(["ant", "bee", "cow"])[X.argmax(axis=1)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("served") / "zoo.onnx"
    SoftLabelClassifier("logistic", random_state=0).fit(X, Y).save(file)
    return file


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[ModelServer]:
    with ModelServer(ServedModel(path), max_bytes=10_000).start() as running:
        yield running


def ask(server: ModelServer, method: str, place: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    host, port = server.server_address[:2]
    line = http.client.HTTPConnection(str(host), int(port), timeout=5)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    line.request(method, place, data, headers)
    answer = line.getresponse()
    content = answer.status, json.loads(answer.read())
    line.close()
    return content


def given(values: Any = X[:9], **changes: Any) -> dict[str, Any]:
    """Return a request of rows as JSON, with some changes of its tensor."""
    values = np.asarray(values)
    tensor = {"name": "X", "datatype": "FP64", "shape": list(values.shape), "data": values.ravel().tolist()}
    return {"inputs": [tensor | changes]}


def test_the_model_is_a_teacher_again(path: Path, server: ModelServer) -> None:
    teacher, expected = as_teacher(server.url), load(path).predict_proba(X)
    assert teacher.classes.tolist() == load(path).classes_.tolist()
    np.testing.assert_allclose(softmax(teacher.predict_logits(X), axis=1), expected, atol=2e-6)
    assert as_teacher(server.url, output="probabilities").fingerprint is not None
    status, answer = ask(server, "POST", "/v2/models/zoo/infer", {"id": "7", **given()})
    assert (status, answer["id"], answer["model_version"]) == (200, "7", server.model.version)
    proba, label = answer["outputs"]
    np.testing.assert_allclose(np.reshape(proba["data"], (9, 3)), expected[:9], atol=1e-7)
    assert label["data"] == load(path).predict(X[:9]).tolist()
    asked = {**given(), "outputs": [{"name": "label"}]}
    (label,) = ask(server, "POST", "/v2/models/zoo/infer", asked)[1]["outputs"]
    assert label["data"] == load(path).predict(X[:9]).tolist()


def check_served(path: Path, rows: Any, sent: Any) -> None:
    """Compare what a served model says of the rows that are sent with what its file says."""
    with ModelServer(ServedModel(path)).start() as server:
        found = softmax(as_teacher(server.url).predict_logits(sent), axis=1)
    np.testing.assert_allclose(found, load(path).predict_proba(rows), atol=2e-6)
    assert not server._thread.is_alive()  # it would go round and round on a closed socket


def test_a_mixed_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "age": np.where(RANDOM.random(90) < 0.1, np.nan, RANDOM.normal(50, 9, 90)),
            "ward": RANDOM.choice(["north", "south"], 90),
            "admitted": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(np.arange(90), "D"),
        }
    )
    y = np.where(frame["ward"] == "south", "a", "b")
    SoftLabelClassifier("logistic", random_state=0).fit(frame, y).save(tmp_path / "wards.onnx")
    frame.loc[3, "ward"] = None
    check_served(tmp_path / "wards.onnx", frame, frame[["ward", "admitted", "age"]])


def test_texts(tmp_path: Path) -> None:
    texts = [f"{label} {i % 7}" for i, label in enumerate(Y)]
    Ngrams(n_buckets=200, dim=4, max_iter=2, random_state=0).fit(texts, Y).save(tmp_path / "words.npz")
    check_served(tmp_path / "words.npz", texts, texts)
    with pytest.raises(InvalidInputError, match="only this library runs"):
        write_repository(tmp_path / "words.npz", tmp_path)


def test_health_and_metadata(server: ModelServer) -> None:
    version = server.model.version
    places = ("/v2/health/live", "/v2/health/ready", "/v2/models/zoo/ready")
    assert [ask(server, "GET", place)[0] for place in places] == [200] * 3
    assert ask(server, "GET", "/v2")[1]["extensions"] == ["binary_tensor_data"]
    told = ask(server, "GET", f"/v2/models/zoo/versions/{version}")[1]
    assert told["versions"] == [version]
    assert told["outputs"][0]["parameters"]["classes"] == ["ant", "bee", "cow"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "The message is not JSON"),
        ({}, "must be an object with inputs"),
        (given(name="Y"), "lacks the input 'X'"),
        (given([1.0, 2.0, 3.0]), "expected [-1, 3]"),
        (given(data=["a"] * 27), "something else"),
        ({**given(), "outputs": [{"name": "logits"}]}, "there are probabilities and label"),
        ({**given(), "outputs": [{}]}, "must be an object with name"),
        # whole numbers that do not fit are refused, and not wrapped round
        (given([[1, 2, 300]], datatype="UINT8"), "'X' as UINT8 with 300, which it cannot hold"),
        (given([[1, 2, -1]], datatype="UINT8"), "'X' as UINT8 with -1, which it cannot hold"),
    ],
)
def test_bad_requests_get_a_sentence(server: ModelServer, body: Any, words: str) -> None:
    status, answer = ask(server, "POST", "/v2/models/zoo/infer", body)
    assert status == 400
    assert words in answer["error"]


def test_mlserver_finds_its_class(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside MLServer the module has a class more; here, three modules stand for MLServer."""

    async def uri(settings: Any) -> str:
        return str(path)

    model = type("MLModel", (), {"name": "zoo", "_settings": None})
    monkeypatch.setitem(sys.modules, "mlserver", SimpleNamespace(MLModel=model))
    monkeypatch.setitem(sys.modules, "mlserver.types", SimpleNamespace(InferenceResponse=dict))
    monkeypatch.setitem(sys.modules, "mlserver.utils", SimpleNamespace(get_model_uri=uri))
    runtime = runpy.run_path(server_module.__file__)["OnnxRuntime"]()
    assert asyncio.run(runtime.load())
    payload = SimpleNamespace(model_dump_json=lambda exclude_none: json.dumps(given()))
    answer = asyncio.run(runtime.predict(payload))
    assert answer["outputs"][1]["data"] == load(path).predict(X[:9]).tolist()


def test_other_places_and_limits(path: Path, server: ModelServer) -> None:
    infer, gzip = "/v2/models/zoo/infer", {"Content-Encoding": "gzip"}
    for place in ("/v2/models/other", "/v2/models/zoo/versions/9", infer):
        status, answer = ask(server, "GET", place)
        assert status == 404
        assert "There is only the model zoo" in answer["error"]
    asked = [("/v2/models/zoo", b"{}", {}), (infer, b" " * 10_001, {}), (infer, b"x", gzip)]
    assert [ask(server, "POST", place, body, **more)[0] for place, body, more in asked] == [404, 413, 415]
    for request, status in ((b"POST /v2/models/zoo/infer HTTP/1.1", 411), (b"BREW /v2 HTTP/1.1", 501)):
        with socket.create_connection(server.server_address[:2], timeout=5) as line:
            line.sendall(request + b"\r\nHost: x\r\n\r\n")
            answer = line.makefile("rb").read()  # until the server closes the connection
        assert f" {status} ".encode() in answer
        assert b'{"error": "' in answer
    taken = int(server.server_address[1])
    for host, port in (("127.0.0.1", taken), ("\0", 0), ("a..b", 0), ("é" * 70, 0)):
        with pytest.raises(InvalidInputError, match=r"cannot listen there.*" + "another host=" * (not port)):
            ModelServer(ServedModel(path), host, port)


def test_cards_of_models_from_servers_hold_no_host(path: Path, tmp_path: Path) -> None:
    with ModelServer(ServedModel(path)).start() as server:
        unified = Unifier([as_teacher(server.url)], "logistic", run=Run(cache=tmp_path / "cache")).fit(X)
        unified.save(tmp_path / "unified.onnx")
        card = (tmp_path / "unified.card.json").read_text()
        assert "127.0.0.1" not in card
        (teacher,) = json.loads(card)["details"]["made"]["teachers"]
        assert teacher["served"] == as_teacher(server.url).served
        assert verify_model(tmp_path / "unified.onnx", teachers=[server.url]).passed
        server.model.version = "other"
        assert not verify_model(tmp_path / "unified.onnx", teachers=[server.url]).passed


def test_the_folder_for_other_servers(path: Path, tmp_path: Path) -> None:
    root = write_repository(path, tmp_path)
    found = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    assert found == ["1/model.onnx", "config.pbtxt", "labels.txt", "model-settings.json"]
    assert (root / "1" / "model.onnx").read_bytes() == path.read_bytes()
    assert (root / "labels.txt").read_text() == "ant\nbee\ncow\n"
    settings = json.loads((root / "model-settings.json").read_text())
    assert settings["outputs"][0]["parameters"] == {"classes": ["ant", "bee", "cow"]}
    config = (root / "config.pbtxt").read_text()
    assert 'input [ { name: "X" data_type: TYPE_FP64 dims: [ 3 ] } ]' in config
    assert 'key: "classes"' in config
    assert str(tmp_path) not in config + json.dumps(settings)
    with pytest.raises(InvalidInputError, match="does not exist"):
        write_repository(path, tmp_path / "none")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_the_command(path: Path) -> None:
    code = "from consilience.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(path), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        url = running.stdout.readline().split()[4].rstrip(".")
        assert as_teacher(url).classes.tolist() == ["ant", "bee", "cow"]
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 0

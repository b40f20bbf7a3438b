"""Teachers behind an address, against a server that lies and fails."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from tests.teachers.remote_server import CLASSES, Server, proba_of, serving

from consilience.exceptions import InvalidInputError, ScoringError, TeacherError
from consilience.files.card import Card, write_card
from consilience.teachers import RemoteOptions, as_teacher
from consilience.teachers import _remote as remote
from consilience.teachers import _remote_http as http
from consilience.teachers.scoring.engine import observe
from consilience.teachers.scoring.files import write_scores

pytest.importorskip("httpx")

X = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
QUICK = RemoteOptions(retries=0, timeout=5)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)


@pytest.fixture
def zoo() -> Server:
    return Server()


@pytest.fixture
def url(zoo: Server) -> Iterator[str]:
    with serving(zoo) as address:
        yield address


def check(teacher: Any, rows: np.ndarray = X) -> None:
    np.testing.assert_allclose(softmax(teacher.predict_logits(rows), axis=1), proba_of(rows), atol=1e-6)


class TestAsking:
    def test_names_classes_and_probabilities(self, url: str) -> None:
        teacher = as_teacher(url)
        assert (teacher.name, teacher.classes.tolist(), teacher.file) == ("zoo", CLASSES, None)
        assert [(item.name, item.dtype, item.shape) for item in teacher.inputs] == [
            ("X", "float32", (None, 2))
        ]
        check(teacher)

    def test_a_version_and_a_path_object(self, url: str, zoo: Server) -> None:
        check(as_teacher(f"{url}/versions/1"))
        check(as_teacher(Path(url)))  # a Path leaves one slash of two

    def test_given_classes_rename(self, url: str) -> None:
        assert as_teacher(url, ["x", "y", "z"]).classes.tolist() == ["x", "y", "z"]

    def test_requests_have_at_most_batch_size_rows(self, url: str, zoo: Server) -> None:
        check(as_teacher(url, batch_size=50))
        assert [request["inputs"][0]["shape"][0] for request in zoo.requests] == [50] * 6

    def test_never_more_requests_in_flight_than_allowed(self, url: str, zoo: Server) -> None:
        def slow(handler: Any, request: Any) -> bool:
            time.sleep(0.02)
            return False

        zoo.fault = slow
        check(as_teacher(url, batch_size=10, remote=RemoteOptions(in_flight=3)))
        assert zoo.infers == 30
        assert zoo.most == 3

    def test_a_loop_that_runs_already(self, url: str) -> None:
        async def inside() -> None:
            check(as_teacher(url))

        asyncio.run(inside())

    def test_the_classification_extension_names_classes(self, url: str, zoo: Server) -> None:
        del zoo.model["outputs"][1]["parameters"]
        with pytest.raises(TeacherError, match="does not name its classes"):
            as_teacher(url)
        zoo.extensions = ["classification"]

        def classify(handler: Any, request: Any) -> bool:
            wanted = (request or {}).get("outputs", [{}])[0].get("parameters", {})
            if wanted.get("classification") != 3:
                return False
            cells = ["0.5:1:bee", "0.3:0:ant", "0.2:2:cow"]
            output = {"name": "probabilities", "datatype": "BYTES", "shape": [1, 3], "data": cells}
            handler.send(200, {"outputs": [output]})
            return True

        zoo.fault = classify
        teacher = as_teacher(url)
        assert teacher.classes.tolist() == CLASSES
        check(teacher)

    def test_classes_as_json_text(self, url: str, zoo: Server) -> None:
        zoo.model["outputs"][1]["parameters"]["classes"] = json.dumps(CLASSES)
        assert as_teacher(url).classes.tolist() == CLASSES

    def test_binary_tensors_where_the_server_has_them(self, url: str, zoo: Server) -> None:
        zoo.extensions = ["binary_tensor_data"]

        def binary(handler: Any, request: Any) -> bool:
            if request is None:
                return False
            length = int(handler.headers["Inference-Header-Content-Length"])
            head, rest = json.loads(request["body"][:length]), request["body"][length:]
            rows = np.frombuffer(rest, "<f4").reshape(head["inputs"][0]["shape"])
            assert head["outputs"][0]["parameters"] == {"binary_data": True}
            data = proba_of(rows).astype("<f4").tobytes()
            output = {"name": "probabilities", "datatype": "FP32", "shape": [len(rows), 3],
                      "parameters": {"binary_data_size": len(data)}}  # fmt: skip
            told = json.dumps({"outputs": [output]}).encode()
            handler.send(200, told + data, {"Inference-Header-Content-Length": str(len(told))})
            return True

        zoo.fault = binary
        check(as_teacher(url))

    def test_metadata_without_inputs_and_outputs(self, url: str, zoo: Server) -> None:
        zoo.model["inputs"], zoo.model["outputs"] = [], []
        check(as_teacher(url, CLASSES))

    def test_a_column_per_input(self, url: str, zoo: Server) -> None:
        pandas = pytest.importorskip("pandas")
        zoo.model["inputs"] = [
            {"name": "age", "datatype": "FP64", "shape": [-1, 1]},
            {"name": "ward", "datatype": "BYTES", "shape": [-1, 1]},
        ]

        def columns(handler: Any, request: Any) -> bool:
            if request is None:
                return False
            parts = {item["name"]: item["data"] for item in request["inputs"]}
            rows = np.column_stack([parts["age"], [float(word == "south") for word in parts["ward"]]])
            request["inputs"] = [{"data": rows.tolist(), "shape": rows.shape}]
            return False

        zoo.fault = columns
        frame = pandas.DataFrame({"id": [7, 8], "ward": ["south", None], "age": [0.5, 2.0]})
        found = as_teacher(url).predict_logits(frame)
        np.testing.assert_allclose(softmax(found, axis=1), proba_of([[0.5, 1.0], [2.0, 0.0]]), atol=1e-6)
        with pytest.raises(TeacherError, match="takes the input 'age'; X has the columns ward"):
            as_teacher(url).predict_logits(frame[["ward"]])

    def test_texts(self, url: str, zoo: Server) -> None:
        zoo.model["inputs"] = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]

        def texts(handler: Any, request: Any) -> bool:
            if request is not None:
                rows = [[float(len(text)), 0.0] for text in request["inputs"][0]["data"]]
                request["inputs"] = [{"data": rows, "shape": [len(rows), 2]}]
            return False

        zoo.fault = texts
        found = as_teacher(url).predict_logits(["a", "bee"])
        np.testing.assert_allclose(softmax(found, axis=1), proba_of([[1, 0], [3, 0]]), atol=1e-6)

    def test_rows_of_another_shape_and_gaps(self, url: str) -> None:
        with pytest.raises(TeacherError, match=r"takes 'X' of shape \[-1, 2\], and X has \[4, 3\]"):
            as_teacher(url).predict_logits(np.zeros((4, 3)))
        with pytest.raises(TeacherError, match="JSON, which has no NaN"):
            as_teacher(url).predict_logits(np.array([[np.nan, 0.0]]))


def output(**changes: Any) -> dict[str, Any]:
    return {
        "name": "probabilities",
        "datatype": "FP32",
        "shape": [2, 3],
        "data": [0.2, 0.3, 0.5] * 2,
    } | changes


LIES: dict[str, tuple[Any, str]] = {
    "half the rows": (output(shape=[1, 3], data=[0.2, 0.3, 0.5]), r"shape \[1, 3\] for 2 rows"),
    "extra rows": (output(shape=[3, 3], data=[0.2, 0.3, 0.5] * 3), r"shape \[3, 3\] for 2 rows"),
    "a column too many": (output(shape=[2, 4], data=[0.25] * 8), "returned 4 columns for 3 classes"),
    "fewer numbers than its shape": (output(data=[0.1] * 5), r"5 values of 'probabilities' for shape"),
    "a negative shape": (output(shape=[-2, 3]), "without a known datatype and a shape"),
    "a huge shape": (output(shape=[10**12, 10**12]), "6 values of 'probabilities' for shape"),
    "no shape": (output(shape=None), "without a known datatype and a shape"),
    "an unknown datatype": (output(datatype="FP128"), "without a known datatype"),
    "whole numbers": (output(datatype="INT64", data=[1] * 6), "instead of scores"),
    "texts": (output(data=["a"] * 6), "cells that are something else"),
    "null": (output(data=[None] * 6), "cells that are something else"),
    "ragged lists": (output(data=[[0.1, 0.2], [0.3]]), "lists of different lengths"),
    "infinity": (output(data=[1e999] * 6), "gave inf in row 0|is not JSON"),
    "another output": (output(name="other"), "gave the outputs other and not 'probabilities'"),
    "65 dimensions": (output(shape=[2, 3] + [1] * 63), "without a known datatype and a shape"),
    "parameters that are no object": (output(parameters=[1], data=None), "'probabilities' without data"),
    "binary size that is no number": (
        {key: value for key, value in output(parameters={"binary_data_size": "6"}).items() if key != "data"},
        "shorter than it says",
    ),
    "no probabilities": (output(data=[0.9, 0.9, 0.9] * 2), "sum to 2.7"),
}


class TestLies:
    @pytest.mark.parametrize("kind", LIES)
    def test_one_sentence(self, url: str, zoo: Server, kind: str) -> None:
        lie, words = LIES[kind]

        def fault(handler: Any, request: Any) -> bool:
            if request is not None:
                handler.send(200, {"outputs": [lie]})
            return request is not None

        zoo.fault = fault
        with pytest.raises(TeacherError, match=words) as caught:
            as_teacher(url, remote=QUICK, output="probabilities").predict_logits(X[:2])
        assert "127.0.0.1" not in str(caught.value)
        assert str(caught.value).startswith("Teacher 'zoo' ")

    BODIES = {  # noqa: RUF012
        "no JSON": (b"<html>", "no valid JSON"),
        "NaN": (b'{"outputs": [{"name": "probabilities", "data": [NaN]}]}', "NaN is not JSON"),
        "a list": (b"[]", "a JSON list instead of an object"),
        "deep": (b"[" * 100_000, "no valid JSON"),
        "an error under 200": (b'{"error": "out of memory"}', "answered with an error: out of memory"),
        "an escape": (rb'{"error": "\u001b[2J"}', r"error: \\x1b\[2J"),
        "the host": (b'{"error": "I am 127.0.0.1:80, 127.0.0.1."}', r"error: I am \*\*\*:80, \*\*\*\."),
        "nothing": (b"{}", "gave no outputs"),
    }

    @pytest.mark.parametrize("kind", BODIES)
    def test_bodies(self, url: str, zoo: Server, kind: str) -> None:
        body, words = self.BODIES[kind]
        teacher = as_teacher(url, remote=QUICK)
        zoo.fault = lambda handler, request: handler.send(200, body) or True
        with pytest.raises(TeacherError, match=words):
            teacher.predict_logits(X[:2])

    def test_binary_nan_and_short_tensors(self, url: str, zoo: Server) -> None:
        zoo.extensions = ["binary_tensor_data"]
        teacher = as_teacher(url, remote=QUICK)
        sent = {"data": np.full((2, 3), np.nan, "<f4").tobytes(), "size": 24}

        def fault(handler: Any, request: Any) -> bool:
            out = output(parameters={"binary_data_size": sent["size"]})
            del out["data"]
            told = json.dumps({"outputs": [out]}).encode()
            handler.send(200, told + sent["data"], {"Inference-Header-Content-Length": str(len(told))})
            return True

        zoo.fault = fault
        with pytest.raises(TeacherError, match="gave NaN in row 0"):
            teacher.predict_logits(X[:2])
        sent["size"] = 99
        with pytest.raises(TeacherError, match="shorter than it says"):
            teacher.predict_logits(X[:2])

    def test_answers_are_limited(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url, remote=RemoteOptions(max_bytes="20kB", retries=0, timeout=5))
        sent = 0

        def endless(handler: Any, request: Any) -> bool:
            nonlocal sent
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            for _ in range(20_000):
                handler.wfile.write(b" " * 4096)
                sent += 4096
            return True

        zoo.fault = endless
        with pytest.raises(TeacherError, match="longer than 20 kB"):
            teacher.predict_logits(X[:2])
        assert sent < 60e6  # it stopped early
        zoo.fault = lambda handler, request: handler.send(200, b" " * 30_000) or True
        with pytest.raises(TeacherError, match="longer than 20 kB"):
            teacher.predict_logits(X[:2])

    def test_compressed_answers_are_refused(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url, remote=QUICK)
        zoo.fault = lambda handler, request: handler.send(200, b"x", {"Content-Encoding": "gzip"}) or True
        with pytest.raises(TeacherError, match="compressed"):
            teacher.predict_logits(X[:2])
        assert zoo.headers[-1]["Accept-Encoding"] == "identity"

    def test_redirects_are_not_followed(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url, remote=QUICK)
        elsewhere = {"Location": f"{url}/infer"}
        zoo.fault = lambda handler, request: handler.send(307, b"", elsewhere) or True
        with pytest.raises(TeacherError, match="307 and points elsewhere"):
            teacher.predict_logits(X[:2])
        assert zoo.infers == 1

    @pytest.mark.parametrize("place", ["another host", "file:///etc/passwd", "ftp://127.0.0.1/x"])
    def test_nobody_else_is_asked(self, url: str, zoo: Server, place: str) -> None:
        other = Server()
        with serving(other) as elsewhere:
            teacher = as_teacher(url, remote=QUICK)
            location = f"{elsewhere}/infer" if place == "another host" else place
            for status in (301, 302, 303, 307, 308):
                told = {"Location": location}
                zoo.fault = lambda handler, _, status=status, told=told: (
                    handler.send(status, b"", told) or True
                )
                with pytest.raises(TeacherError, match="points elsewhere") as caught:
                    teacher.predict_logits(X[:2])
                assert location not in str(caught.value)
                with pytest.raises(TeacherError, match="points elsewhere"):
                    as_teacher(url, remote=QUICK)
        assert other.headers == []

    def test_a_huge_row_is_not_made_up(self, url: str, zoo: Server) -> None:
        del zoo.model["outputs"][1]["parameters"]
        zoo.extensions = ["classification"]
        zoo.model["inputs"][0]["shape"] = [-1, 10**12]
        with pytest.raises(TeacherError, match="does not name its classes"):
            as_teacher(url, remote=QUICK)

    def test_another_version_in_an_answer(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url)
        check(teacher)
        zoo.version = "2"
        with pytest.raises(TeacherError, match="answered with version '2', and before with '1'"):
            teacher.predict_logits(X)

    def test_metadata_that_change(self, url: str, zoo: Server) -> None:
        zoo.version = None  # answers do not tell, so the metadata are read again
        teacher = as_teacher(url)
        check(teacher)
        zoo.model["versions"] = ["2"]
        with pytest.raises(TeacherError, match="metadata have changed"):
            teacher.predict_logits(X)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"inputs": [{"name": "X"}]}, "inputs lack a name"),
            ({"outputs": "none"}, "outputs lack a name"),
            ({"name": None}, "without a name"),
            ({"outputs": [{"name": "label", "datatype": "INT64", "shape": [-1]}]}, "gives no scores"),
        ],
    )
    def test_metadata_that_are_wrong(self, url: str, zoo: Server, change: Any, words: str) -> None:
        zoo.model |= change
        with pytest.raises(TeacherError, match=words):
            as_teacher(url, CLASSES)


class TestFaults:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_busy_servers_are_asked_again(self, url: str, zoo: Server, status: int) -> None:
        teacher = as_teacher(url)
        left = [3]

        def busy(handler: Any, request: Any) -> bool:
            left[0] -= 1
            if left[0] >= 0:
                handler.send(status, {"error": "busy"})
            return left[0] >= 0

        zoo.fault = busy
        check(teacher, X[:5])
        assert zoo.infers == 4

    def test_a_server_that_stays_busy(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url, remote=RemoteOptions(retries=2))
        zoo.fault = lambda handler, request: handler.send(503, {"error": "full"}) or True
        with pytest.raises(ScoringError, match=r"answers 503 \(.*full.*\) \(asked 3 times\). With a cache"):
            teacher.predict_logits(X[:5])

    def test_waits_grow_and_differ(self, url: str, zoo: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        teacher, waits = as_teacher(url, remote=RemoteOptions(retries=6, in_flight=1)), []
        sleep = asyncio.sleep

        async def noted(seconds: float) -> None:
            waits.append(seconds)
            await sleep(0)

        monkeypatch.setattr(http, "FIRST_WAIT", 1.0)
        monkeypatch.setattr(http.asyncio, "sleep", noted)
        zoo.fault = lambda handler, request: handler.send(503, b"") or True
        with pytest.raises(ScoringError, match="asked 7 times"):
            teacher.predict_logits(X[:5])
        waits = [wait for wait in waits if wait > 0]
        assert len(waits) == 6
        for attempt, wait in enumerate(waits):
            assert min(2**attempt / 2, http.LONGEST_WAIT) <= wait <= min(2**attempt, http.LONGEST_WAIT)
        shares = {round(wait / 2**attempt, 9) for attempt, wait in enumerate(waits[:5])}
        assert len(shares) > 1  # so that clients who failed together do not come back together

    def test_a_request_is_made_up_only_when_it_can_be_sent(
        self, url: str, zoo: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        teacher = as_teacher(url, batch_size=10, remote=RemoteOptions(in_flight=2))
        made, ahead = [0], []
        encode = remote.encode

        def counting(*given: Any, **options: Any) -> Any:
            made[0] += 1
            return encode(*given, **options)

        def slow(handler: Any, request: Any) -> bool:
            ahead.append(made[0] - zoo.infers)
            time.sleep(0.01)
            return False

        zoo.fault = slow
        monkeypatch.setattr(remote, "encode", counting)
        check(teacher)
        assert made[0] == 30
        assert max(ahead) <= 1  # the other one in flight

    def test_retry_after_is_obeyed(self, url: str, zoo: Server) -> None:
        teacher, times = as_teacher(url), []

        def busy(handler: Any, request: Any) -> bool:
            times.append(time.monotonic())
            if len(times) == 1:
                handler.send(429, b"", {"Retry-After": "1"})
            return len(times) == 1

        zoo.fault = busy
        check(teacher, X[:5])
        assert times[1] - times[0] >= 0.95

    def test_a_refusal_is_final(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url)
        zoo.fault = lambda handler, request: handler.send(400, {"error": "bad shape"}) or True
        with pytest.raises(TeacherError, match=r"answers 400 .*bad shape"):
            teacher.predict_logits(X[:5])
        assert zoo.infers == 1

    @pytest.mark.parametrize("stage", ["headers", "body", "drip"])
    def test_slow_answers(self, url: str, zoo: Server, stage: str) -> None:
        teacher = as_teacher(url, remote=RemoteOptions(timeout=0.4, retries=3))

        def slow(handler: Any, request: Any) -> bool:
            start = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + (b"\r\n" if stage == "body" else b"")
            for i in range(100):
                if stage == "drip" or i == 0:
                    handler.wfile.write(start[i : i + 1] if stage == "drip" else start)
                    handler.wfile.flush()
                time.sleep(0.05)
                if zoo.infers > 1 and i > 12:
                    break
            return True

        zoo.fault = slow
        start = time.monotonic()
        with pytest.raises(ScoringError, match="did not answer in time"):
            teacher.predict_logits(X[:2])
        assert time.monotonic() - start < 3
        assert zoo.infers == 2  # a time-out is repeated once

    def test_a_lost_connection(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url)

        def cut(handler: Any, request: Any) -> bool:
            if zoo.infers > 2:
                return False
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            handler.close_connection = True
            return True

        zoo.fault = cut
        check(teacher, X[:5])

    def test_nobody_there(self) -> None:
        with serving(Server()) as url:
            pass
        with pytest.raises(TeacherError, match="cannot be reached") as caught:
            as_teacher(url, remote=RemoteOptions(retries=1))
        assert "127.0.0.1" not in str(caught.value)

    def test_a_run_goes_on_after_the_server_came_back(self, tmp_path: Path) -> None:
        zoo = Server()
        rows = np.random.default_rng(1).normal(size=(2000, 2)).astype(np.float32)
        with serving(zoo) as url:
            teacher = as_teacher(url, remote=RemoteOptions(retries=1))
            zoo.fault = lambda handler, request: zoo.infers > 24 and (handler.send(503, b"") or True)
            with pytest.raises(ScoringError, match="run the same again"):
                observe(teacher, rows, batch_size=256, store=tmp_path / "cache", embeddings=False)
        again = Server()
        with serving(again, int(url.split(":")[2].split("/")[0])) as url:
            found = observe(as_teacher(url), rows, store=tmp_path / "cache", embeddings=False).logits
        np.testing.assert_allclose(softmax(found, axis=1), proba_of(rows), atol=1e-6)
        repeated = sum(request["inputs"][0]["shape"][0] for request in again.requests)
        assert 0 < repeated < 1500
        for file in (tmp_path / "cache").rglob("*"):
            if file.is_file():
                assert b"127.0.0.1" not in file.read_bytes()

    def test_a_restart_with_another_model_is_seen(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url)

        def restart(handler: Any, request: Any) -> bool:
            if request is None or zoo.infers > 1:
                return False
            zoo.model["platform"] = "other"
            handler.send(503, b"")
            return True

        zoo.fault = restart
        with pytest.raises(TeacherError, match="metadata have changed"):
            teacher.predict_logits(X[:5])


class TestFingerprint:
    def test_it_depends_on_what_the_server_says(self, url: str, zoo: Server) -> None:
        def of(**options: Any) -> str | None:
            teacher = as_teacher(url, output="probabilities", **options)
            return teacher.fingerprint

        first = of()
        assert first is not None
        assert of() == first
        assert of(fingerprint="mine") not in (None, first)
        zoo.model["versions"] = ["2"]
        assert of() not in (None, first)
        zoo.model["versions"] = []
        assert of() is None  # nothing tells when the model changes
        assert of(fingerprint="mine") is not None
        zoo.model["versions"] = ["1", "2"]
        assert of() is None  # which of the two?

    def test_two_hosts_are_two_models(self, url: str) -> None:
        with serving(Server()) as other:
            found = {as_teacher(one, output="logits").fingerprint for one in (url, other)}
        assert len(found) == 2


class TestSecrets:
    TOKEN = "s3cr3t-t0k3n"  # noqa: S105

    @pytest.fixture(autouse=True)
    def _token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONSILIENCE_ZOO", self.TOKEN)

    def test_the_token_is_sent_and_shown_nowhere(
        self, url: str, zoo: Server, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        caplog.set_level(logging.DEBUG)
        teacher = as_teacher(url, remote=RemoteOptions(token_env="CONSILIENCE_ZOO", retries=0))  # noqa: S106
        write_scores(tmp_path / "s.npz", teacher, X, store=tmp_path / "cache")
        assert {seen.get("Authorization") for seen in zoo.headers} == {f"Bearer {self.TOKEN}"}
        echo = {"error": f"who is {self.TOKEN}?"}
        zoo.fault = lambda handler, request: handler.send(400, echo) or True
        with pytest.raises(TeacherError, match=r"who is \*\*\*") as caught:
            teacher.predict_logits(X)
        texts = [repr(teacher), repr(teacher.__dict__), str(caught.value), caplog.text]
        assert not any(self.TOKEN in text for text in texts)
        assert self.TOKEN.encode() not in pickle.dumps(teacher)
        assert not any("127.0.0.1" in text for text in (repr(teacher), str(caught.value), caplog.text))
        for file in tmp_path.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                assert self.TOKEN.encode() not in content
                assert b"127.0.0.1" not in content

    @pytest.mark.parametrize("place", ["classes", "version", "error", "output"])
    def test_a_server_that_repeats_the_token_is_refused(self, url: str, zoo: Server, place: str) -> None:
        options = RemoteOptions(token_env="CONSILIENCE_ZOO", retries=0)  # noqa: S106
        if place == "classes":
            zoo.model["outputs"][1]["parameters"]["classes"] = ["a", "b", f"Bearer {self.TOKEN}"]
        elif place == "version":
            zoo.version = self.TOKEN
        else:
            told = {"error": self.TOKEN} if place == "error" else {"outputs": [output(name=self.TOKEN)]}
            zoo.fault = lambda handler, request: request is not None and (handler.send(200, told) or True)
        with pytest.raises(TeacherError, match="repeats the token in its answer") as caught:
            as_teacher(url, remote=options).predict_logits(X[:2])
        assert self.TOKEN not in str(caught.value)

    def test_lines_of_others_are_still_logged(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        import httpx

        caplog.set_level(logging.INFO)
        as_teacher(url)
        assert not caplog.records
        httpx.get(url, trust_env=False)
        assert "HTTP Request" in caplog.text

    def test_variables_that_are_not_fit(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        options = RemoteOptions(token_env="CONSILIENCE_ZOO")  # noqa: S106
        for value, words in {"": "is empty or not set", "a b": "unfit", "a\tb": "unfit"}.items():
            monkeypatch.setenv("CONSILIENCE_ZOO", value)
            with pytest.raises(TeacherError, match=words):
                as_teacher(url, remote=options)

    def test_no_token_over_plain_http_to_others(self) -> None:
        options = RemoteOptions(token_env="CONSILIENCE_ZOO")  # noqa: S106
        with pytest.raises(TeacherError, match="Give https:"):
            as_teacher("http://192.0.2.1/v2/models/zoo", remote=options)

    def test_unauthorised(self, url: str, zoo: Server) -> None:
        zoo.fault = lambda handler, request: handler.send(401, b"") or True
        with pytest.raises(TeacherError, match=r"refused by its server \(401\).*token_env"):
            as_teacher(url)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://user:word@host/v2/models/m", "user or a password"),
        ("https://host/models/m", "none of a model"),
        ("https://host/v2/models/m?x=1", "none of a model"),
        ("https://host:port/v2/models/m", "none of a model"),
        ("file:///v2/models/m", "ends in"),
        ("ftp://host/v2/models/m", "ends in"),
    ],
)
def test_addresses_that_are_refused(address: str, words: str) -> None:
    with pytest.raises(TeacherError, match=words):
        as_teacher(address)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"in_flight": 0}, {"retries": -1}, {"max_bytes": "x"}, {"token_env": ""}]
)
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        RemoteOptions(**options)


def test_options_are_for_addresses(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="for an address"):
        as_teacher([[0.1, 0.9]], classes=["a", "b"], remote=RemoteOptions())


class TestEndpointFile:
    def test_address_options_and_card(self, url: str, zoo: Server, tmp_path: Path) -> None:
        file = tmp_path / "beasts.toml"
        file.write_text(f'url = "{url}"\nin_flight = 2\n')
        teacher = as_teacher(file)
        assert (teacher.name, teacher.classes.tolist(), teacher.file) == ("beasts", CLASSES, file)
        check(teacher)
        write_card(tmp_path / "beasts.card.json", Card("ours", ["x", "y", "z"], "probabilities"))
        teacher = as_teacher(file)
        assert (teacher.name, teacher.classes.tolist()) == ("ours", ["x", "y", "z"])

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("", "needs an address"),
            ('url = "birds.onnx"', "needs an address"),
            ("url = ", "not TOML"),
            ('url = "http://127.0.0.1/v2/models/m"\ncolour = 1', "'colour' in it.toml"),
            ('url = "http://127.0.0.1/v2/models/m"\ntoken_env = "HOME"', "must begin with CONSILIENCE_"),
            ('url = "http://127.0.0.1/v2/models/m"\ntimeout = "long"', "cannot be used: timeout"),
        ],
    )
    def test_what_is_wrong(self, tmp_path: Path, content: str, words: str) -> None:
        (tmp_path / "it.toml").write_text(content)
        with pytest.raises(TeacherError, match=words):
            as_teacher(tmp_path / "it.toml")

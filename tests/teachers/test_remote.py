"""Teachers behind an address: how they are asked, and servers that lie."""

import asyncio
import json
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from tests.teachers.remote_server import (
    CLASSES,
    Server,
    X,
    binary,
    check,
    output,
    proba_of,
    replying,
    serving,
)

from consilience.exceptions import LabelSpaceError, TeacherError
from consilience.labels import class_list
from consilience.teachers import Remote, as_teacher
from consilience.teachers.inference_protocol import ProtocolError, decode
from consilience.teachers.inputs import pad
from consilience.teachers.remote import address_name, parse_address

pytest.importorskip("httpx")

QUICK: Any = {"retries": 0, "timeout": 5}
INPUT: Any = {"name": "X", "datatype": "FP32", "shape": [-1, 2]}


class TestAsking:
    def test_names_classes_and_probabilities(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url)
        assert (teacher.name, teacher.classes.tolist(), teacher.file) == ("zoo", CLASSES, None)
        (item,) = teacher.inputs
        assert (item.name, item.dtype, item.shape) == ("X", "float32", (None, 2))
        check(teacher)
        zoo.model["outputs"][1]["parameters"]["classes"] = json.dumps(CLASSES)  # as a text
        for address in (f"{url}/versions/1", Path(url)):  # a Path leaves one slash of two
            check(as_teacher(address), X[:5])

    @pytest.mark.parametrize(("size", "flight", "requests"), [(50, 4, [50] * 6), (30, 3, [30] * 10)])
    def test_how_many_rows_and_requests(
        self, url: str, zoo: Server, size: int, flight: int, requests: list[int]
    ) -> None:
        zoo.fault = lambda handler, request: time.sleep(0.005) or False
        check(Remote(url, batch_size=size, in_flight=flight))
        assert [request["inputs"][0]["shape"][0] for request in zoo.requests] == requests
        assert zoo.most == flight

    def test_a_server_that_takes_seven_rows_at_a_time(self, url: str, zoo: Server) -> None:
        zoo.model["inputs"] = [{**INPUT, "shape": [7, 2]}]
        check(as_teacher(url), X[:17])  # and the last request is filled up
        assert [request["inputs"][0]["shape"] for request in zoo.requests] == [[7, 2]] * 3

    def test_a_loop_that_runs_already(self, url: str) -> None:
        async def inside() -> None:
            check(as_teacher(url))

        asyncio.run(inside())

    def test_binary_tensors_where_the_server_has_them(self, url: str, zoo: Server) -> None:
        zoo.extensions = ["binary_tensor_data"]

        def fault(handler: Any, request: Any) -> bool:
            if request is None:
                return False
            length = int(handler.headers["Inference-Header-Content-Length"])
            head, rest = json.loads(request["body"][:length]), request["body"][length:]
            rows = np.frombuffer(rest, "<f4").reshape(head["inputs"][0]["shape"])
            assert head["outputs"][0]["parameters"] == {"binary_data": True}
            return replying(*binary(proba_of(rows)))(handler, request)

        zoo.fault = fault
        check(as_teacher(url))

    def test_metadata_without_inputs_and_outputs(self, url: str, zoo: Server) -> None:
        zoo.model["inputs"], zoo.model["outputs"] = [], []
        check(as_teacher(url, CLASSES))

    def test_columns_and_texts(self, url: str, zoo: Server) -> None:
        pandas = pytest.importorskip("pandas")

        def numbers(handler: Any, request: Any) -> bool:
            """Make the rows that the model of the server takes of what was sent."""
            if request is not None:
                parts = {item["name"]: item["data"] for item in request["inputs"]}
                texts = parts.get("text", ["", ""])
                ages, wards = parts.get("age", map(len, texts)), parts.get("ward", texts)
                rows = [[float(a), float(b == "south")] for a, b in zip(ages, wards, strict=True)]
                request["inputs"] = [{"data": rows, "shape": [len(rows), 2]}]
            return False

        zoo.fault = numbers
        age = {"name": "age", "datatype": "FP64", "shape": [-1, 1]}
        ward = {"name": "ward", "datatype": "BYTES", "shape": [-1, 1]}
        text = {"name": "text", "datatype": "BYTES", "shape": [-1]}
        frame = pandas.DataFrame({"id": [7, 8], "ward": ["south", None], "age": [0.5, 2.0]})
        for inputs, rows, seen in (
            ([text], ["a", "bee"], [[1, 0], [3, 0]]),
            ([age, ward], frame, [[0.5, 1.0], [2.0, 0.0]]),
        ):
            zoo.model["inputs"] = inputs
            found = as_teacher(url).predict_logits(rows)
            np.testing.assert_allclose(softmax(found, axis=1), proba_of(seen), atol=1e-6)
        with pytest.raises(TeacherError, match="it lacks the column 'age'"):
            as_teacher(url).predict_logits(frame[["ward"]])

    def test_rows_of_another_shape_and_gaps(self, url: str) -> None:
        teacher = as_teacher(url)
        with pytest.raises(TeacherError, match=r"takes 'X' of shape \[-1, 2\], and X has \[4, 3\]"):
            teacher.predict_logits(np.zeros((4, 3)))
        with pytest.raises(TeacherError, match="JSON, which has no NaN"):
            teacher.predict_logits(np.array([[np.nan, 0.0]]))


LIES: dict[str, tuple[Any, str]] = {
    "half the rows": (output(shape=[1, 3], data=[0.2, 0.3, 0.5]), r"shape \[1, 3\] for 2 rows"),
    "extra rows": (output(shape=[3, 3], data=[0.2, 0.3, 0.5] * 3), r"shape \[3, 3\] for 2 rows"),
    "a column too many": (output(shape=[2, 4], data=[0.25] * 8), "returned 4 columns for 3 classes"),
    "fewer numbers than its shape": (output(data=[0.1] * 5), r"5 values of 'probabilities' for shape"),
    "a negative shape": (output(shape=[-2, 3]), r"\[0\].shape\[0\] must be a whole number"),
    "a huge shape": (output(shape=[10**12, 10**12]), "6 values of 'probabilities' for shape"),
    # no value, but numpy refuses the other sides
    "an impossible shape": (output(shape=[0, 2**53, 2**53], data=[]), "impossible shape"),
    "no shape": (output(shape=None), r"\[0\].shape must be a list"),
    "an unknown datatype": (output(datatype="FP128"), r"\[0\].datatype must be a datatype of the protocol"),
    "whole numbers": (output(datatype="INT64", data=[1] * 6), "instead of scores"),
    "texts": (output(data=["a"] * 6), "cells that are something else"),
    "null": (output(data=[None] * 6), "cells that are something else"),
    "ragged lists": (output(data=[[0.1, 0.2], [0.3]]), "lists of different lengths"),
    "infinity": (output(data=[1e999] * 6), "have inf in row 0|is not JSON"),
    "another output": (output(name="other"), "gave the outputs other and not 'probabilities'"),
    "65 dimensions": (output(shape=[2, 3] + [1] * 63), "must be a list of 0 to 32"),
    "parameters that are no object": (
        output(parameters=[1], data=None),
        r"\[0\].parameters must be an object",
    ),
    "binary size that is no number": (
        {key: value for key, value in output(parameters={"binary_data_size": "6"}).items() if key != "data"},
        "shorter than it says",
    ),
    "no probabilities": (output(data=[0.9, 0.9, 0.9] * 2), "sum to 2.7"),
}
BODIES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"<html>", "The message is not JSON"),
    "NaN": (b'{"outputs": [{"name": "probabilities", "data": [NaN]}]}', "NaN is no number of JSON"),
    "a list": (b"[]", "It must be an object"),
    "deep": (b"[" * 100_000, "The message is not JSON"),
    "an error under 200": (b'{"error": "out of memory"}', "answered with an error: out of memory"),
    "an escape": (rb'{"error": "\u001b[2J"}', r"error: \\x1b\[2J"),
    "the host": (b'{"error": "I am 127.0.0.1:80, 127.0.0.1."}', r"error: I am \*\*\*:80, \*\*\*\."),
    "nothing": (b"{}", "must be an object with outputs"),
}


@pytest.fixture(scope="module")
def liar() -> Iterator[tuple[Server, Remote]]:
    """One server for all lies, and a teacher of it."""
    zoo = Server()
    with serving(zoo) as url:
        yield zoo, Remote(url, **QUICK, output="probabilities")


class TestLies:
    @pytest.mark.parametrize("kind", [*LIES, *BODIES])
    def test_one_sentence(self, liar: Any, kind: str) -> None:
        zoo, teacher = liar
        content, words = BODIES.get(kind) or ({"outputs": [LIES[kind][0]]}, LIES[kind][1])
        zoo.fault = replying(content)
        with pytest.raises(TeacherError, match=rf"(?s)^Teacher 'zoo' .*({words})") as caught:
            teacher.predict_logits(X[:2])
        assert "127.0.0.1" not in str(caught.value)

    def test_a_long_text_makes_no_wide_array(self) -> None:
        body = json.dumps({"outputs": [output(data=["x" * 10**5, *["y"] * 1000])]}).encode()
        tracemalloc.start()
        with pytest.raises(ProtocolError, match="something else"):
            decode(body, None, "outputs")
        assert tracemalloc.get_traced_memory()[1] < 10**7
        tracemalloc.stop()

    @pytest.mark.parametrize("rows", [2**16 + 1, 10**9, 2**53])
    def test_the_server_does_not_decide_how_much_is_allocated(self, rows: int, url: str, zoo: Server) -> None:
        zoo.model["inputs"] = [{**INPUT, "shape": [rows, 2]}]
        with pytest.raises(TeacherError, match=f"takes {rows} rows at a time; expected at most 65536"):
            Remote(url, **QUICK).predict_logits(X[:2])
        with pytest.raises(TeacherError, match=r"than fit in 1\.07 GB"):
            pad(np.zeros((1, 10**6)), 2**16, "zoo")
        with pytest.raises(LabelSpaceError, match="one of 100000 characters"):
            class_list(["x" * 10**5, *map(str, range(1000))])

    @pytest.mark.parametrize(("size", "words"), [(24, "gave NaN in row 0"), (99, "shorter than it says")])
    def test_binary_nan_and_short_tensors(self, liar: Any, size: int, words: str) -> None:
        zoo, teacher = liar
        zoo.fault = replying(*binary(np.full((2, 3), np.nan), size))
        with pytest.raises(TeacherError, match=words):
            teacher.predict_logits(X[:2])

    def test_answers_are_limited(self, url: str, zoo: Server) -> None:
        teacher = Remote(url, max_bytes="20kB", **QUICK)
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

        for fault in (endless, replying(b" " * 30_000)):
            zoo.fault = fault
            with pytest.raises(TeacherError, match="longer than 20 kB"):
                teacher.predict_logits(X[:2])
        assert 0 < sent < 60e6  # it stopped early

    def test_compressed_answers_are_refused(self, liar: Any) -> None:
        zoo, teacher = liar
        zoo.fault = replying(b"x", 200, {"Content-Encoding": "gzip"})
        with pytest.raises(TeacherError, match="compressed"):
            teacher.predict_logits(X[:2])
        assert zoo.headers[-1]["Accept-Encoding"] == "identity"

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_nobody_else_is_asked(self, url: str, zoo: Server, status: int) -> None:
        other = Server()
        with serving(other) as elsewhere:
            teacher = Remote(url, **QUICK)
            for location in (f"{elsewhere}/infer", "file:///etc/passwd", "ftp://127.0.0.1/x"):
                zoo.fault = replying(b"", status, {"Location": location}, always=True)
                with pytest.raises(TeacherError, match="points elsewhere") as caught:
                    teacher.predict_logits(X[:2])
                assert location not in str(caught.value)
            with pytest.raises(TeacherError, match="points elsewhere"):
                Remote(url, **QUICK)
        assert other.headers == []

    @pytest.mark.parametrize("told", ["1", None])
    def test_another_version(self, url: str, zoo: Server, told: str | None) -> None:
        zoo.version = told  # None: answers do not tell, so the metadata are read again
        teacher = as_teacher(url)
        check(teacher, X[:5])
        zoo.version, zoo.model["versions"] = told and "2", ["2"]
        words = "answered with version '2', and before with '1'" if told else "metadata have changed"
        with pytest.raises(TeacherError, match=words):
            teacher.predict_logits(X[:5])

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"inputs": [{"name": "X"}]}, r"inputs\[0\] must be an object with name"),
            ({"outputs": "none"}, "outputs must be a list"),
            ({"name": None}, "name must be a text"),
            (
                {"inputs": [{**INPUT, "parameters": {"preprocess": '{"size": "big"}'}}]},
                "gave an answer that cannot be used: size='big'",
            ),
            ({"outputs": [{"name": "label", "datatype": "INT64", "shape": [-1]}]}, "gives no scores"),
        ],
    )
    def test_metadata_that_are_wrong(self, url: str, zoo: Server, change: Any, words: str) -> None:
        zoo.model |= change
        with pytest.raises(TeacherError, match=words):
            as_teacher(url, CLASSES)


class TestFingerprint:
    def test_it_depends_on_what_the_server_says(self, url: str, zoo: Server) -> None:
        def of(address: str = url, **options: Any) -> str | None:
            return Remote(address, output="probabilities", **options).fingerprint

        first = of()
        with serving(Server()) as other:  # two hosts are two models
            assert None not in (first, of(other))
            assert of() == first != of(other)
        assert of(fingerprint="mine") not in (None, first)
        zoo.model["versions"] = ["2"]
        assert of() not in (None, first)
        for versions in ([], ["1", "2"]):  # nothing tells when the model changes; which of the two?
            zoo.model["versions"] = versions
            assert of() is None
        assert of(fingerprint="mine") is not None

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"platform": "other"}, None),
            ({"platform": "other"}, "1"),  # under the same version
            ({"versions": ["2"]}, "2"),
            ({"inputs": [{**INPUT, "parameters": {"trained": "later"}}]}, None),
        ],
    )
    def test_a_server_that_restarts_with_another_model(self, change: Any, told: str | None) -> None:
        first, second = Server(), Server()
        second.model |= change
        first.version, second.version = told and "1", told
        with serving(first) as url:
            teacher = Remote(url, output="probabilities", **QUICK)
            check(teacher, X[:5])
            mark = teacher.fingerprint
        with serving(second, int(url.split(":")[2].partition("/")[0])) as again:
            assert again == url
            with pytest.raises(TeacherError, match=r"metadata have changed|the model has changed"):
                teacher.predict_logits(X[:5])  # answered, but not kept
            assert second.infers == 1
            other = Remote(url, output="probabilities", **QUICK)
            check(other, X[:5])
        assert len({None, mark, other.fingerprint}) == 3

    def test_a_restart_between_two_tries_of_a_request(self, url: str, zoo: Server) -> None:
        teacher = as_teacher(url)

        def restart(handler: Any, request: Any) -> bool:
            if request is None or zoo.infers > 1:
                return False
            zoo.model["platform"] = "other"  # under the same version
            return replying(b"", 503)(handler, request)

        zoo.fault = restart
        with pytest.raises(TeacherError, match="metadata have changed"):
            teacher.predict_logits(X[:5])
        assert zoo.infers == 2


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://user:word@host/v2/models/m", "user or a password"),
        ("https://host/models/m", "none of a model"),
        ("https://host/v2/models/m?x=1", "none of a model"),
        ("https://host:port/v2/models/m", "none of a model"),
        ("https://host:65536/v2/models/m", "none of a model"),
        ("https://host/v2/models/m\n", "none of a model"),
        ("file:///v2/models/m", "ends in"),
        ("ftp://host/v2/models/m", "ends in"),
    ],
)
def test_addresses_that_are_refused(address: str, words: str) -> None:
    with pytest.raises(TeacherError, match=words) as caught:
        as_teacher(address)
    assert "host/" not in str(caught.value) or words == "ends in"


def test_parts() -> None:
    found = parse_address("HTTPS://host:8443/zoo/v2/models/birds/versions/3/")
    server = "https://host:8443/zoo/v2"
    assert (found.server, found.url) == (server, f"{server}/models/birds/versions/3")
    assert (found.model, found.version, found.plain) == ("birds", "3", False)
    assert address_name("http://host/v2/models/birds") == "birds"
    plain = {
        host: parse_address(f"http://{host}/v2/models/m").plain for host in ("host", "[::1]", "127.0.0.9")
    }
    assert plain == {"host": True, "[::1]": False, "127.0.0.9": False}

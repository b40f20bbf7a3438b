"""Teachers behind an address: servers that fail, and secrets that stay secret."""

import asyncio
import logging
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from tests.scoring.ask import observe
from tests.teachers.remote_server import Server, X, check, output, proba_of, replying, serving

from consilience.exceptions import ScoringError, TeacherError
from consilience.teachers import Remote, as_teacher, remote
from consilience.teachers import remote_http as http

pytest.importorskip("httpx")


def fails(times: int, *answer: Any) -> Any:
    """Return a fault: so many requests for scores get this answer, and the next ones a right one."""
    left = [times]

    def fault(handler: Any, request: Any) -> bool:
        left[0] -= request is not None
        return left[0] >= 0 and replying(*answer)(handler, request)

    return fault


class TestFaults:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_busy_servers_are_asked_again(self, url: str, zoo: Server, status: int) -> None:
        zoo.fault = fails(3, {"error": "busy"}, status)
        check(as_teacher(url), X[:5])
        assert zoo.infers == 4

    @pytest.mark.parametrize(
        ("status", "times", "kind", "words"),
        [
            (503, 3, ScoringError, r"answers 503 \(.*full.*\) \(asked 3 times\). With a cache"),
            (400, 1, TeacherError, r"answers 400 .*full"),
            (501, 1, TeacherError, r"answers 501 .*full"),
            (401, 1, TeacherError, r"refused by its server \(401\).*token_env"),
        ],
    )
    def test_servers_that_refuse(
        self, url: str, zoo: Server, status: int, times: int, kind: Any, words: str
    ) -> None:
        zoo.fault = replying({"error": "full"}, status)
        with pytest.raises(kind, match=words):
            Remote(url, retries=2).predict_logits(X[:5])
        assert zoo.infers == times

    def test_waits_grow_and_differ(self, url: str, zoo: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        teacher, waits = Remote(url, retries=6, in_flight=1), []
        sleep = asyncio.sleep

        async def noted(seconds: float) -> None:
            waits.append(seconds)
            await sleep(0)

        monkeypatch.setattr(http, "FIRST_WAIT", 1.0)
        monkeypatch.setattr(http.asyncio, "sleep", noted)
        zoo.fault = replying(b"", 503)
        with pytest.raises(ScoringError, match="asked 7 times"):
            teacher.predict_logits(X[:5])
        least = 2.0 ** np.arange(6)
        shares = np.array([wait for wait in waits if wait > 0]) - np.minimum(least, http.LONGEST_WAIT)
        assert np.all((shares >= 0) & (shares <= np.clip(http.LONGEST_WAIT - least, 0, 1)))
        assert np.ptp(shares[:5]) > 1e-9  # so that clients who failed together do not come back together

    def test_a_request_is_made_up_only_when_it_can_be_sent(
        self, url: str, zoo: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        teacher = Remote(url, batch_size=10, in_flight=2)
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
        check(teacher, X[:120])
        assert made[0] == 12
        assert max(ahead) <= 1  # the other one in flight

    def test_retry_after_is_obeyed(self, url: str, zoo: Server) -> None:
        zoo.fault, start = fails(1, b"", 429, {"Retry-After": "1"}), time.monotonic()
        check(as_teacher(url), X[:5])
        assert time.monotonic() - start >= 0.95

    @pytest.mark.parametrize("stage", ["headers", "body", "drip"])
    def test_slow_answers(self, url: str, zoo: Server, stage: str) -> None:
        teacher = Remote(url, timeout=0.25, retries=3)

        def slow(handler: Any, request: Any) -> bool:
            start = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + (b"\r\n" if stage == "body" else b"")
            for i in range(60):
                if stage == "drip" or i == 0:
                    handler.wfile.write(start[i : i + 1] if stage == "drip" else start)
                    handler.wfile.flush()
                time.sleep(0.05)
                if zoo.infers > 1 and i > 8:
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
        with pytest.raises(ScoringError, match="cannot be reached") as caught:
            Remote(url, retries=1)
        assert "127.0.0.1" not in str(caught.value)

    def test_a_run_goes_on_after_the_server_came_back(self, tmp_path: Path) -> None:
        zoo = Server()
        rows = np.random.default_rng(1).normal(size=(2000, 2)).astype(np.float32)
        with serving(zoo) as url:
            teacher = Remote(url, retries=1)
            zoo.fault = lambda handler, request: zoo.infers > 24 and replying(b"", 503)(handler, request)
            with pytest.raises(ScoringError, match="run the same again"):
                observe(teacher, rows, batch_size=256, store=tmp_path / "cache", embeddings=False)
        again = Server()
        with serving(again, int(url.split(":")[2].split("/")[0])) as url:
            found = observe(as_teacher(url), rows, store=tmp_path / "cache", embeddings=False).logits
        np.testing.assert_allclose(softmax(found, axis=1), proba_of(rows), atol=1e-6)
        repeated = sum(request["inputs"][0]["shape"][0] for request in again.requests)
        assert 0 < repeated < 1500


class TestSecrets:
    TOKEN = "s3cr3t-t0k3n"  # noqa: S105
    OPTIONS: Any = {"token_env": "CONSILIENCE_ZOO", "retries": 0}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONSILIENCE_ZOO", self.TOKEN)

    def test_the_token_is_sent_and_shown_nowhere(
        self, url: str, zoo: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        teacher = Remote(url, **self.OPTIONS)
        check(teacher)
        assert {seen.get("Authorization") for seen in zoo.headers} == {f"Bearer {self.TOKEN}"}
        zoo.fault = replying({"error": f"who is {self.TOKEN}?"}, 400)
        with pytest.raises(TeacherError, match=r"who is \*\*\*") as caught:
            teacher.predict_logits(X)
        shown = repr(teacher) + str(caught.value) + caplog.text
        assert self.TOKEN not in shown + repr(teacher.__dict__)
        assert self.TOKEN.encode() not in pickle.dumps(teacher)
        assert "127.0.0.1" not in shown

    @pytest.mark.parametrize("place", ["classes", "version", "error", "output"])
    def test_a_server_that_repeats_the_token_is_refused(self, url: str, zoo: Server, place: str) -> None:
        if place == "classes":
            zoo.model["outputs"][1]["parameters"]["classes"] = ["a", "b", f"Bearer {self.TOKEN}"]
        elif place == "version":
            zoo.version = self.TOKEN
        else:
            told = {"error": self.TOKEN} if place == "error" else {"outputs": [output(name=self.TOKEN)]}
            zoo.fault = replying(told)
        with pytest.raises(TeacherError, match="repeats the token in its answer") as caught:
            Remote(url, **self.OPTIONS).predict_logits(X[:2])
        assert self.TOKEN not in str(caught.value)

    def test_lines_of_others_are_still_logged(self, url: str, caplog: pytest.LogCaptureFixture) -> None:
        import httpx

        caplog.set_level(logging.INFO)
        as_teacher(url)
        assert not caplog.records
        httpx.get(url, trust_env=False)
        assert "HTTP Request" in caplog.text

    def test_variables_that_are_not_fit(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        others = "http://192.0.2.1/v2/models/zoo"  # no token goes there over plain HTTP
        for address, value, words in (
            (others, self.TOKEN, "Give https:"),
            (url, "", "is empty or not set"),
            (url, "a b", "unfit"),
            (url, "a\tb", "unfit"),
        ):
            monkeypatch.setenv("CONSILIENCE_ZOO", value)
            with pytest.raises(TeacherError, match=words):
                Remote(address, **self.OPTIONS)

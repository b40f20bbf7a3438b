"""HTTP for remote teachers: limits, time-outs, repeated requests, and silence about hosts and tokens."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from consilience._optional import require
from consilience._version import __version__
from consilience._words import parse_size, size_text
from consilience.exceptions import ScoringError, TeacherError, visible
from consilience.teachers.inference_protocol import HEADER
from consilience.teachers.outputs import ensure, foreign

FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "stamina")
_PURPOSE = "A teacher behind an address"
_SHORTEST_TOKEN = 8  # a shorter one may be in an answer by chance
_NEVER_LATER = (501, 505)  # of 5xx, those that say "I cannot do this at all"
_ours: ContextVar[bool] = ContextVar("_ours", default=False)


class Call(NamedTuple):
    """A request; `body` None means GET."""

    url: str
    body: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    """What came back: its body, and the length of its JSON part if it has others."""

    body: bytes
    header: str | None


class _Fleeting(Exception):  # noqa: N818
    """A fault that may pass, as a clause after the teacher's name; and how long the server asks to wait."""

    def __init__(self, text: str, wait: float | None = None, *, late: bool = False) -> None:
        super().__init__(text)
        self.wait, self.late = wait, late


class Channel:
    """Asks one server.

    Each call opens connections of its own and closes them: nothing is left open between two batches, and
    nothing has to be sent to other processes.
    """

    def __init__(self, name: str, url: str, limits: Any) -> None:
        self._name, self._url, self._limits = name, url, limits
        self._token()  # a variable that is not set is an error now, and not in an hour
        self._trust()

    def _token(self) -> str:
        """Return the token, or an empty text; no message ever holds it."""
        variable = self._limits.token_env
        if variable is None:
            return ""
        token = os.environ.get(variable, "").strip()
        fit = token.isascii() and token.isprintable() and " " not in token
        problem = "has unfit characters" if token else "is empty or not set"
        ensure(token and fit, self._name, f"needs a token, and the variable {variable} {problem}.")
        return token

    def masked(self, text: str) -> str:
        """Return a server's words without the token and the host, which some servers repeat."""
        parts = urlsplit(self._url)
        hosts = "|".join(map(re.escape, (parts.netloc, parts.hostname or "")))
        text = text.replace(self._token() or "\0", "***")
        return re.sub(rf"(?<![\w.-])(?:{hosts})(?![\w-])", "***", text, flags=re.IGNORECASE)

    def _trust(self) -> ssl.SSLContext:
        """Return the certificates to trust."""
        with foreign(self._name, "has a ca_file that holds no certificates"):
            return _certificates(self._limits.ca_file)

    def ask(self, calls: Iterable[Call]) -> tuple[list[Answer], bytes]:
        """Return the answers in order, and what the server then says about the model.

        A call is only made up when it can be sent. Answers are waited for in a thread, since this one may
        have a loop already, as in a notebook.
        """
        portals = require("anyio.from_thread", extra="remote", purpose=_PURPOSE)
        with portals.start_blocking_portal() as portal:
            found: tuple[list[Answer], bytes] = portal.call(self._ask, calls)
            return found

    async def _ask(self, calls: Iterable[Call]) -> tuple[list[Answer], bytes]:
        httpx = require("httpx", extra="remote", purpose=_PURPOSE)
        _ours.set(True)
        for name in _LOGGERS:  # httpx logs hosts
            logging.getLogger(name).addFilter(_is_of_others)  # adding it twice changes nothing
        headers = {"Accept-Encoding": "identity", "User-Agent": f"consilience/{__version__}"}
        if self._token():
            headers["Authorization"] = f"Bearer {self._token()}"
        patience = httpx.Timeout(self._limits.read_timeout, connect=self._limits.connect_timeout)
        answers: dict[int, Answer] = {}
        numbered = enumerate(calls)

        async def work(client: Any) -> None:
            for number, call in numbered:  # shared: whoever is free takes the next
                answers[number] = await self._insist(httpx, client, call)

        async with httpx.AsyncClient(
            headers=headers, timeout=patience, verify=self._trust(), trust_env=False
        ) as client:
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(self._limits.in_flight):
                        workers.create_task(work(client))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            about = await self._insist(httpx, client, Call(self._url))
        return [answers[number] for number in sorted(answers)], about.body

    async def _insist(self, httpx: Any, client: Any, call: Call) -> Answer:
        """Send a request until it is answered, or there is no hope; a time-out is repeated once."""
        stamina = require("stamina", extra="remote", purpose=_PURPOSE)
        faults: list[_Fleeting] = []

        def again(error: Exception) -> bool | float:
            if not isinstance(error, _Fleeting):
                return False
            faults.append(error)
            few = sum(fault.late for fault in faults) < 2
            return few and (error.wait is None or min(max(error.wait, FIRST_WAIT), LONGEST_WAIT))

        tries = stamina.retry_context(
            on=again,
            attempts=self._limits.retries + 1,
            timeout=None,
            wait_initial=FIRST_WAIT,
            wait_max=LONGEST_WAIT,
            wait_jitter=FIRST_WAIT,
        )
        try:
            async for attempt in tries:
                with attempt:
                    answer = await self._send(httpx, client, call)
        except _Fleeting as fault:
            asked = "once" if len(faults) == 1 else f"{len(faults)} times"
            raise ScoringError(
                f"Teacher {self._name!r} {fault} (asked {asked}). With a cache, what it said is kept: run "
                "the same again."
            ) from None
        return answer

    async def _send(self, httpx: Any, client: Any, call: Call) -> Answer:
        method = "GET" if call.body is None else "POST"
        try:
            async with (
                asyncio.timeout(self._limits.timeout),
                client.stream(method, call.url, content=call.body, headers=call.headers) as response,
            ):
                body = await self._read(response)
                self._judge(response, body)
                return Answer(body, response.headers.get(HEADER))
        except (TimeoutError, httpx.TimeoutException) as error:
            done = "open a connection" if isinstance(error, httpx.ConnectTimeout) else "answer"
            raise _Fleeting(
                f"has a server that did not {done} in time. Raise its time-outs, or ask for fewer rows at a "
                "time: batch_size=",
                late=True,
            ) from None
        except httpx.TransportError as error:
            ensure(
                "CERTIFICATE" not in str(error),
                self._name,
                "has a server whose certificate is not trusted. Give Remote(ca_file=...) if it is signed by "
                "your own authority.",
            )
            lost = "closed the connection before its answer ended"
            problem = "cannot be reached" if isinstance(error, httpx.ConnectError) else lost
            raise _Fleeting(f"has a server that {problem}") from None

    async def _read(self, response: Any) -> bytes:
        """Return the body, and stop as soon as it is too long."""
        ensure(
            response.headers.get("Content-Encoding", "identity").lower() == "identity",
            self._name,
            "has a server that sends compressed answers though none were asked for.",
        )
        most, body = parse_size("max_bytes", self._limits.max_bytes), bytearray()
        async for part in response.aiter_raw():
            body += part
            ensure(
                len(body) <= most,
                self._name,
                f"has a server whose answer is longer than {size_text(most)}. Ask for fewer rows at a time "
                "(batch_size=), or raise Remote(max_bytes=...).",
            )
        return bytes(body)

    def _judge(self, response: Any, body: bytes) -> None:
        """Raise unless an answer is one."""
        status, token = response.status_code, self._token()
        if status == 200:
            ensure(
                len(token) < _SHORTEST_TOKEN or token.encode() not in body,
                self._name,
                "has a server that repeats the token in its answer, so it could end up in a file. Nothing of "
                "the answer is used. Tell its owner, and get another token.",
            )
            return
        words = visible(self.masked(" ".join(body[:2000].decode("utf-8", "replace").split())))[:200]
        problem = f"has a server that answers {status} ({words})".removesuffix(" ()")
        if status == 429 or (status >= 500 and status not in _NEVER_LATER):
            asked = response.headers.get("Retry-After", "").strip()[:9]
            raise _Fleeting(problem, float(asked) if asked.isdecimal() else None)
        if 300 <= status < 400:
            problem = (
                f"has a server that answers {status} and points elsewhere. Redirects are not followed: give "
                "the address of the model itself"
            )
        elif status in (401, 403):
            problem = (
                f"is refused by its server ({status}). Name the variable that holds its token: "
                "Remote(token_env=...)"
            )
        raise TeacherError(self._name, f"{problem}.")


def _is_of_others(record: logging.LogRecord) -> bool:
    return not _ours.get()


@lru_cache(maxsize=8)
def _certificates(ca_file: Any) -> ssl.SSLContext:
    # reading the system's takes longer than asking a server of this machine
    return ssl.create_default_context(cafile=ca_file)

"""HTTP for remote teachers: limits, time-outs, repeated requests, and silence about hosts and tokens."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import ssl
import time
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from consilience._optional import require
from consilience._sizes import size_text
from consilience._version import __version__
from consilience.exceptions import TeacherError
from consilience.teachers._remote_options import Address, RemoteOptions, read_token

FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy")
_SHORTEST_TOKEN = 8  # a shorter one may be in an answer by chance
_NEVER_LATER = (501, 505)  # of 5xx, those that say "I cannot do this at all"
_ours: ContextVar[bool] = ContextVar("_ours", default=False)
Result = TypeVar("Result")


class ServerFault(Exception):  # noqa: N818  # not an error by itself: the teacher words it
    """A server that cannot be used now; its text is a clause after the teacher's name."""


class Refusal(Exception):  # noqa: N818
    """An answer that will not change: its text is a clause after the teacher's name."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Call:
    """A request; `body` None means GET."""

    url: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came back: its body, the length of its JSON part if it has others, and whether it took repeats."""

    body: bytes
    header: str | None
    repeated: bool


class _Fleeting(Exception):  # noqa: N818
    """A fault that may pass: why, how long the server asks to wait, and whether it was a time-out."""

    def __init__(self, text: str, wait: float | None = None, *, late: bool = False) -> None:
        super().__init__(text)
        self.wait, self.late = wait, late


class Channel:
    """Asks one server.

    Each call opens connections of its own and closes them: nothing is left open between two batches, and
    nothing has to be sent to other processes.
    """

    def __init__(self, address: Address, options: RemoteOptions, name: str) -> None:
        self._address, self._options, self._name = address, options, name
        if options.token_env is not None and address.plain:
            raise TeacherError(
                name,
                "has a token and an address that begins with http:, so anyone on the way could read the "
                "token. Give https:.",
            )
        read_token(options, name)  # a variable that is not set is an error now, and not in an hour
        self._trust()

    def masked(self, text: str) -> str:
        """Return a server's words without the token and the host, which some servers repeat."""
        token = read_token(self._options, self._name)
        if token is not None:
            text = text.replace(token, "***")
        parts = urlsplit(self._address.url)
        for host in (parts.netloc, parts.hostname or ""):
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "***", text, flags=re.IGNORECASE)
        return text

    def _trust(self) -> ssl.SSLContext | bool:
        """Return the certificates to trust."""
        if not self._address.url.startswith("https:"):
            return True
        given = self._options.ca_file
        try:
            return ssl.create_default_context(cafile=None if given is None else str(given))
        except (OSError, ValueError) as error:
            raise TeacherError(self._name, "has a ca_file that holds no certificates.") from error

    def ask(self, calls: Iterable[Call]) -> list[Answer]:
        """Return the answers in order; a call is only made up when it can be sent."""
        with _unlogged():
            return _run(self._ask(iter(calls)))

    async def _ask(self, calls: Iterator[Call]) -> list[Answer]:
        httpx = require("httpx", extra="remote", purpose="A teacher behind an address")
        options, token = self._options, read_token(self._options, self._name)
        headers = {"Accept-Encoding": "identity", "User-Agent": f"consilience/{__version__}"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        limits = httpx.Limits(max_connections=options.in_flight)
        patience = httpx.Timeout(options.read_timeout, connect=options.connect_timeout)
        answers: dict[int, Answer] = {}
        numbered = enumerate(calls)

        async def work(client: Any) -> None:
            for number, call in numbered:  # shared: whoever is free takes the next
                answers[number] = await self._insist(httpx, client, call)

        async with httpx.AsyncClient(
            headers=headers, limits=limits, timeout=patience, verify=self._trust(), trust_env=False
        ) as client:
            workers = [asyncio.ensure_future(work(client)) for _ in range(options.in_flight)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        return [answers[number] for number in sorted(answers)]

    async def _insist(self, httpx: Any, client: Any, call: Call) -> Answer:
        """Send a request until it is answered, or there is no hope."""
        late = 0
        for attempt in range(self._options.retries + 1):
            try:
                body, header = await self._send(httpx, client, call)
                return Answer(body, header, attempt > 0)
            except _Fleeting as fault:
                late += fault.late
                if attempt == self._options.retries or late > 1:
                    tries = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ServerFault(f"{fault} (asked {tries}).") from None
                wait = FIRST_WAIT * 2**attempt * random.uniform(0.5, 1)  # noqa: S311  # not a secret
                await asyncio.sleep(min(max(wait, fault.wait or 0), LONGEST_WAIT))
        raise ServerFault("was not asked.")  # the loop always ends before

    async def _send(self, httpx: Any, client: Any, call: Call) -> tuple[bytes, str | None]:
        options = self._options
        try:
            async with (
                asyncio.timeout(options.timeout),
                client.stream(
                    "GET" if call.body is None else "POST", call.url, content=call.body, headers=call.headers
                ) as response,
            ):
                body = await _read(response, options.most_bytes)
                self._judge(response, body)
                return body, response.headers.get("Inference-Header-Content-Length")
        except (TimeoutError, httpx.TimeoutException) as error:
            what = (
                "did not open a connection" if isinstance(error, httpx.ConnectTimeout) else "did not answer"
            )
            raise _Fleeting(
                f"has a server that {what} in time. Raise the time-outs of RemoteOptions, or ask for fewer "
                "rows at a time: batch_size=",
                late=True,
            ) from None
        except httpx.ConnectError as error:
            if _is_certificate(error):
                raise Refusal(
                    "has a server whose certificate is not trusted. Give RemoteOptions(ca_file=...) if it is "
                    "signed by your own authority."
                ) from None
            raise _Fleeting("has a server that cannot be reached") from None
        except httpx.TransportError:
            raise _Fleeting("has a server that closed the connection before its answer ended") from None

    def _judge(self, response: Any, body: bytes) -> None:
        """Raise unless an answer is one."""
        status = response.status_code
        if status == 200:
            token = read_token(self._options, self._name)
            if token is not None and len(token) >= _SHORTEST_TOKEN and token.encode() in body:
                raise Refusal(
                    "has a server that repeats the token in its answer, so it could end up in a file. "
                    "Nothing of the answer is used. Tell its owner, and get another token."
                )
            return
        words = self._words(body)
        if status == 429 or (status >= 500 and status not in _NEVER_LATER):
            raise _Fleeting(f"has a server that answers {status}{words}", _wait(response))
        if 300 <= status < 400:
            raise Refusal(
                f"has a server that answers {status} and points elsewhere. Redirects are not followed: give "
                "the address of the model itself.",
                status,
            )
        if status in (401, 403):
            raise Refusal(
                f"is refused by its server ({status}). Name the variable that holds its token: "
                "RemoteOptions(token_env=...).",
                status,
            )
        raise Refusal(f"has a server that answers {status}{words}.", status)

    def _words(self, body: bytes) -> str:
        """Return the beginning of a server's own words, for a message."""
        text = self.masked(" ".join(body[:2000].decode("utf-8", "replace").split()))
        text = "".join(letter for letter in text if letter.isprintable())[:200]
        return f" ({text})" if text else ""


async def _read(response: Any, most: int) -> bytes:
    """Return the body, and stop as soon as it is too long."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Refusal("has a server that sends compressed answers though none were asked for.")
    too_long = Refusal(
        f"has a server whose answer is longer than {size_text(most)}. Ask for fewer rows at a time "
        "(batch_size=), or raise RemoteOptions(max_bytes=...)."
    )
    promised = response.headers.get("Content-Length", "0")
    if promised.isdecimal() and int(promised[:20]) > most:
        raise too_long
    parts, size = [], 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > most:
            raise too_long
        parts.append(part)
    return b"".join(parts)


def _wait(response: Any) -> float | None:
    """Return the seconds that a server asks to wait."""
    asked = response.headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return float(asked[:9])
    try:
        return parsedate_to_datetime(asked).timestamp() - time.time()
    except (ValueError, TypeError):
        return None


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run until done; in a thread of its own where this one has a loop already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)

    def there() -> Result:
        with _unlogged():
            return asyncio.run(work)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(there).result()


class _Silence(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _ours.get()


_SILENCE = _Silence()


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep httpx from logging our requests: its lines name hosts. Those of others are left alone."""
    mark = _ours.set(True)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_SILENCE)  # adding it twice changes nothing
    try:
        yield
    finally:
        _ours.reset(mark)

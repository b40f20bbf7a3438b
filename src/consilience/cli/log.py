"""What a run says on stderr: plain lines for people, or a JSON object on each line for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from consilience._words import visible

FORMATS = ("text", "json")


class Log:
    """What one run of the command says on stderr. It also keeps the warnings, which ``--json`` prints.

    Attributes
    ----------
    format : str
        "text" or "json".
    warnings : list of dict
        The category and the message of each warning so far.
    command : str or None
        The name of the command, as soon as it is known.
    """

    def __init__(self) -> None:
        self.format = "text"
        self.warnings: list[dict[str, str]] = []
        self.command: str | None = None
        self._begin: float | None = None

    @property
    def is_json(self) -> bool:
        return self.format == "json"

    def start(self) -> None:
        """Note that the command begins its work."""
        from consilience import __version__

        self._begin = time.monotonic()
        self.line("info", "started", f"consilience {self.command} begins.", version=__version__)

    def finish(self, exit_code: int) -> None:
        """Note how the command ended, if it had begun."""
        if self._begin is not None:
            seconds = round(time.monotonic() - self._begin, 3)
            message = f"consilience {self.command} ended with exit code {exit_code}."
            self.line("info", "finished", message, exit_code=exit_code, seconds=seconds)

    def warn(self, message: str, category: str) -> None:
        """Show a warning of the library, and keep it."""
        line = " ".join(message.split())
        self.warnings.append({"category": category, "message": line})
        if self.is_json:
            self.line("warning", "warning", line, category=category)
        else:
            from consilience.cli.console import show_warning

            show_warning(line)

    def fail(self, message: str, **data: Any) -> None:
        """Show why the run ends here."""
        if self.is_json:
            self.line("error", "error", message, **data)
        else:
            from consilience.cli.console import show_error

            show_error(message)

    def say(self, event: str, message: str, **data: Any) -> None:
        """Show a remark."""
        if self.is_json:
            self.line("info", event, message, **data)
        else:
            print(visible(message), file=sys.stderr, flush=True)

    def line(self, level: str, event: str, message: str, **data: Any) -> None:
        """Write an event as one line of JSON; nothing if the log is text.

        Parameters
        ----------
        level : str
            "info", "warning" or "error".
        event : str
            What kind of event this is, in one word.
        message : str
            The same for people.
        **data
            What machines read besides.
        """
        if not self.is_json:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"time": now, "level": level, "event": event, "command": self.command}
        # ASCII: whatever the encoding of stderr is, a line stays valid JSON
        print(json.dumps({**head, "message": message, **data}), file=sys.stderr, flush=True)


_CURRENT: ContextVar[Log] = ContextVar("log")


def current() -> Log:
    """Return the log of the command that runs here, or a new one in text if none does."""
    return _CURRENT.get(None) or Log()


@contextmanager
def new_log() -> Iterator[Log]:
    """Give the code in this block a log of its own."""
    log = Log()
    token = _CURRENT.set(log)
    try:
        yield log
    finally:
        _CURRENT.reset(token)

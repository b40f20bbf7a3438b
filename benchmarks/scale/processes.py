"""Run a command in a process of its own, and see how much memory it and its children take."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL = 1.0
"""Seconds between two looks at the memory."""


@dataclass(frozen=True)
class Ended:
    """A process that has ended.

    Attributes
    ----------
    exit_code : int
        Negative: the signal that ended it.
    seconds : float
    cpu_seconds : float
        Of it and all its children that it waited for.
    peak_bytes : int
        Of it and all its children at one time. What several share counts once.
    killed : bool
        Whether it was killed here.
    output : str
        Its stdout.
    log : str
        The end of its stderr.
    """

    exit_code: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    killed: bool
    output: str
    log: str


def run(
    command: Sequence[str],
    *,
    data_limit: int | None = None,
    environment: dict[str, str] | None = None,
    kill_when: Callable[[str], bool] | None = None,
) -> Ended:
    """Run a command to its end, or kill it.

    Parameters
    ----------
    command : sequence of str
    data_limit : int, optional
        Most bytes of memory of its own (RLIMIT_DATA). Address space that is only reserved does not count, as
        it would for ``ulimit -v``: torch and onnxruntime reserve several times what they use.
    environment : dict, optional
        Added to that of this process.
    kill_when : callable, optional
        Is given each line of stderr. When it returns True, the process gets a SIGKILL.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        preexec_fn=None if data_limit is None else lambda: _set_limit(data_limit),
    )
    watch = _Watch(process.pid)
    lines: list[str] = []
    killed = threading.Event()

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line)
            del lines[:-40]
            if kill_when is not None and not killed.is_set() and kill_when(line):
                killed.set()
                process.send_signal(signal.SIGKILL)

    reader = threading.Thread(target=read)
    reader.start()
    output = process.stdout.read() if process.stdout else ""
    process.wait()
    seconds = time.perf_counter() - start
    reader.join()
    watch.stop()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(process.returncode, seconds, cpu, watch.peak, killed.is_set(), output, "".join(lines))


def _set_limit(n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))


class _Watch(threading.Thread):
    """Looks at the memory of a process and its children, again and again."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._over = pid, threading.Event()
        self.peak = 0
        self.start()

    def run(self) -> None:
        while not self._over.wait(POLL):
            self.peak = max(self.peak, memory_of(self._pid))

    def stop(self) -> None:
        self._over.set()
        self.join()


def memory_of(pid: int) -> int:
    """Return the bytes that a process and all its children take now; shared pages count once, in parts."""
    return sum(_proportional(one) for one in [pid, *_children(pid)])


def _children(pid: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it has ended
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                below.setdefault(parent, []).append(int(entry.name))
    found, new = [], [pid]
    while new:
        new = [child for one in new for child in below.get(one, [])]
        found += new
    return found


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0

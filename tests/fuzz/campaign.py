"""The campaign: a worker runs calls that are drawn from a seed, with limits of memory and of time."""

import dataclasses
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz import calls
from tests.fuzz.odd import damaged

from consilience import ConsilienceError
from consilience.students.server import ModelServer

SECONDS, BYTES = 60, 3 * 2**30  # of one call; more than the worker has before the first
READERS = ("consilience ", "a shelf.", "load", "Repository")
DISTRIBUTIONS = (
    "predict_proba",
    "estimate",
    "estimate_soft_labels",
    "load",
    "Unifier",
    "Distiller",
    "Classifier",
)
WITH_NAN = (
    "as_teacher",
    "evaluate",
    "compare",
    "rank_teachers",
    "search",
)  # abstentions, and what cannot be measured


class WrongAnswerError(Exception):
    """An answer that is neither right nor an error of ours."""


def try_call(seed: int, number: int) -> str | None:
    """Run a call in a folder of its own; return what is wrong with its answer, if anything is."""
    random, files = np.random.default_rng([seed, number]), Path.cwd()
    name, call = list(calls.CALLS.items())[random.integers(len(calls.CALLS))]
    given = calls.drawn(call, random)
    odd = {key: value for key, value in given.items() if value is not call.valid[key]}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        shutil.copytree(files, folder, symlinks=True, dirs_exist_ok=True)
        os.chdir(folder)
        os.mkfifo("pipe")
        if name.startswith(READERS) and random.random() < 0.3:
            broken = random.choice(sorted(path for path in Path().rglob("*") if path.is_file()))
            broken.write_bytes(damaged(broken.read_bytes(), random))
        try:
            check_answer(name, call.function(**given), caught)
        except ConsilienceError as error:
            text = str(error)
            return None if text.isprintable() and 0 < len(text) < 3000 else f"{name} says {text[:300]!r}"
        except BaseException as error:  # whatever comes out is wrong, a panic too
            frames = "".join(traceback.format_tb(error.__traceback__)[-3:])
            return f"{name}: {type(error).__name__}: {str(error)[:200]!r} with {str(odd)[:300]}\n{frames}"
        finally:
            os.chdir(files)
    return None


def check_answer(name: str, answer: Any, warned: Any) -> None:
    """Raise unless an answer is without NaN, or with a warning, and its rows are on the simplex."""
    if not (warned or name.endswith(WITH_NAN)) and any(np.isnan(array).any() for array in _arrays(answer)):
        raise WrongAnswerError("NaN without a word")
    if name.endswith(DISTRIBUTIONS):
        rows = np.asarray(answer)
        if rows.ndim == 2 and not (np.all(rows >= 0) and np.allclose(rows.sum(axis=1), 1, atol=1e-5)):
            raise WrongAnswerError("rows off the simplex")


def _arrays(answer: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the numbers in an answer."""
    if isinstance(answer, np.ndarray | float):
        yield from [np.asarray(answer)] if np.asarray(answer).dtype.kind == "f" else []
    parts = vars(answer) if dataclasses.is_dataclass(answer) else answer
    parts = list(parts.values()) if isinstance(parts, Mapping) else parts
    for part in parts if depth and isinstance(parts, list | tuple) else []:
        yield from _arrays(part, depth - 1)


def work(pipe: Any, folder: str) -> None:
    """Answer calls, in a folder with the files that they read, and with a limit of memory."""
    os.chdir(folder)
    calls.make_files()
    ModelServer.serve_forever = lambda *_: None  # type: ignore[method-assign]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    pipe.send("ready")
    while True:
        pipe.send(try_call(*pipe.recv()))


@contextmanager
def worker() -> Iterator[Any]:
    """Start a process that answers calls; yield the pipe to it."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        process = context.Process(target=work, args=(other, folder), daemon=True)
        process.start()
        other.close()
        try:
            pipe.recv()
            yield pipe
        finally:
            process.kill()
            process.join()


def campaign(seed: int, n_calls: int, seconds: float = float("inf"), first: int = 0) -> tuple[int, list[str]]:
    """Make calls, until there are as many or so much time has passed: return how many, and wrong answers."""
    wrong: list[str] = []
    number, last, end = first, first + n_calls, float("inf")
    while number < last and time.monotonic() < end:
        with worker() as pipe:
            end = min(end, time.monotonic() + seconds)
            answered = True
            while answered and number < last and time.monotonic() < end:
                pipe.send((seed, number))
                problem, answered = "no answer", False
                with suppress(EOFError, ConnectionError):  # the worker died
                    answered = pipe.poll(SECONDS)
                    problem = pipe.recv() if answered else problem
                answered = answered and problem != "no answer"
                if problem is not None:
                    wrong.append(f"seed {seed}, call {number}: {problem}")
                    print(wrong[-1], flush=True)
                number += 1
    return number - first, wrong

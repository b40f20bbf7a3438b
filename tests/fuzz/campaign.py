"""The campaign: a worker runs calls that are drawn from a seed, within a limit of memory; its parent keeps the time."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any, Self

import numpy as np
from tests.fuzz.odd import Random, damaged

SECONDS, BYTES = 60, 3 * 2**30  # of one call; more than the worker has before the first
DISTRIBUTIONS = (
    "predict_proba",
    "estimate",
    "estimate_soft_labels",
    "load",
    "Unifier",
    "Distiller",
    "Classifier",
)
WITH_NAN = ("as_teacher", "evaluate", "compare", "rank_teachers")  # abstentions, and what cannot be measured
READERS = ("consilience ", "a shelf.", "load", "Repository")


class WrongAnswerError(Exception):
    """An answer that is neither right nor an error of ours."""


def make_folder() -> None:
    """Make the files that calls read."""
    from tests.fuzz import calls

    unified = calls.FITTED["a unifier"].save("unified.onnx")
    np.save("X.npy", calls.X)
    np.save("y.npy", calls.Y)
    np.savetxt("X.csv", calls.X, delimiter=",", header="a,b,c", comments="")
    shelf = calls.consilience.Repository("shelf")
    shelf.set_reference(calls.X)
    shelf.add(unified, name="unified")
    Path("empty").touch()
    Path("loop").symlink_to("loop")


def try_call(files: Path, seed: int, number: int, show: bool = False) -> str | None:
    """Run a call in a folder of its own; return what is wrong with its answer, if anything is."""
    from tests.fuzz import calls

    random = np.random.default_rng([seed, number])
    name = list(calls.CALLS)[random.integers(len(calls.CALLS))]
    call = calls.CALLS[name]
    given = calls.drawn(call, random)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(files, folder, symlinks=True, dirs_exist_ok=True)
        os.chdir(folder)
        os.mkfifo("pipe")
        if name.startswith(READERS) and random.random() < 0.3:
            _damage(random)
        if show:
            print(name, {key: value for key, value in given.items() if value is not call.valid[key]})
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                check_answer(name, call.function(**given), bool(caught))
        except calls.consilience.ConsilienceError as error:
            text = str(error)
            return None if text.isprintable() and 0 < len(text) < 2000 else f"{name}: said {text[:300]!r}"
        except BaseException as error:  # whatever comes out is a finding, panics too
            if show:
                traceback.print_exc()
            places = [
                one for one in traceback.extract_tb(error.__traceback__) if "consilience" in one.filename
            ]
            place = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else "nowhere"
            return f"{name}: {type(error).__name__} at {place}: {str(error)[:200]!r}"
        finally:
            os.chdir(files)
    return None


def _damage(random: Random) -> None:
    paths = sorted(path for path in Path().rglob("*") if path.is_file())
    path = paths[random.integers(len(paths))]
    path.write_bytes(damaged(path.read_bytes(), random))


def check_answer(name: str, answer: Any, warned: bool) -> None:
    """Raise unless an answer is without NaN, or with a warning, and its rows are on the simplex."""
    arrays = [] if name.endswith(WITH_NAN) else list(_arrays(answer))
    if not warned and any(np.isnan(array).any() for array in arrays):
        raise WrongAnswerError("NaN without a word")
    if name.endswith(DISTRIBUTIONS):
        rows = np.asarray(answer)
        if rows.ndim == 2 and not (np.all(rows >= 0) and np.allclose(rows.sum(axis=1), 1, atol=1e-5)):
            raise WrongAnswerError("rows off the simplex")


def _arrays(answer: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the numbers in an answer."""
    if isinstance(answer, np.ndarray | float) and np.asarray(answer).dtype.kind == "f":
        yield np.asarray(answer)
    parts = dict(vars(answer)) if dataclasses.is_dataclass(answer) else answer
    parts = parts.values() if isinstance(parts, Mapping) else parts
    if depth and isinstance(parts, list | tuple | type({}.values())):
        for part in parts:
            yield from _arrays(part, depth - 1)


def work(pipe: Any, files: Path) -> None:
    """Answer calls until the parent ends."""
    from consilience.students.server import ModelServer

    ModelServer.serve_forever = lambda *_: None  # type: ignore[method-assign]
    os.chdir(files)
    make_folder()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    while True:
        pipe.send(try_call(files, *pipe.recv()))


class Worker:
    """A process that answers calls, and is replaced where it takes too long or dies."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, Path(self.folder.name)), daemon=True)
        self.process.start()
        other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self.folder.cleanup()

    def ask(self, seed: int, number: int) -> str | None:
        """Return what is wrong with the answer to a call."""
        self.pipe.send((seed, number))
        try:
            answered = self.pipe.poll(SECONDS + 60 * (number == 0))  # the first one waits for imports
            problem: str | None = self.pipe.recv() if answered else f"no answer in {SECONDS} s"
        except EOFError:
            answered, problem = False, "the worker died"
        if not answered:
            self.__exit__()
            self.__init__()  # type: ignore[misc]
        return problem


def campaign(seed: int, n_calls: int, seconds: float = float("inf")) -> tuple[int, dict[str, list[int]]]:
    """Make calls, until there are as many or so much time has passed.

    Returns how many were made, and for each kind of wrong answer the numbers of the calls.
    """
    found: dict[str, list[int]] = {}
    with Worker() as worker:
        end = time.monotonic() + seconds
        for number in range(n_calls):
            if time.monotonic() > end:
                return number, found
            problem = worker.ask(seed, number)
            if problem is not None:
                found.setdefault(problem, []).append(number)
                print(f"seed {seed}, call {number}: {problem}", flush=True)
    return n_calls, found

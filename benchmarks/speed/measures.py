"""The measurements: each function compares us with a peer or with a stated limit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.speed import peers
from benchmarks.speed.problem import TEMPERATURE, Problem, best_of, make_problem
from consilience import methods
from consilience.kernels.unify.cross_entropy import ce_logits, ce_objective
from consilience.kernels.unify.factorisation import mf_lf_logits, mf_lv_logits, mf_p_probabilities
from consilience.soft_labels.estimate import estimate_soft_labels

# a setting of gradient descent -> a function that returns its seconds
Descents = dict[str, Callable[[], float | None]]


@dataclass(frozen=True)
class Result:
    """One measurement. The goal applies to `value`: a ratio, seconds or a share."""

    name: str
    value: float
    unit: str  # "x", "s", "rows/s", "MB" or "%"
    goal: float | None = None
    at_least: bool = True
    ours: float | None = None  # seconds
    peer: float | None = None  # seconds
    note: str = ""
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met, or None without a goal."""
        if self.goal is None:
            return None
        return bool(self.value >= self.goal if self.at_least else self.value <= self.goal)


@dataclass(frozen=True)
class Options:
    """How long to measure, and from which seed."""

    quick: bool
    seed: int
    repeats: int


def best_descent(
    settings_for: Callable[[Problem, float], Descents], problem: Problem, row_values: Any, kind: str
) -> tuple[str, float]:
    """Tune gradient descent on the first rows, then return the best setting and its seconds for all rows.

    `row_values` (n,) are the objectives that we reach in each row. The peer must come within 1e-6 of their
    sum.
    """
    rows = min(1000, len(row_values))
    timed = [
        (seconds, name)
        for name, descend in settings_for(problem.head(rows), float(row_values[:rows].sum())).items()
        if name.startswith(kind) and (seconds := descend()) is not None
    ]
    if not timed:
        return "no setting reached the target", float("inf")
    name = min(timed)[1]
    # the best of three, since ours is the best of several
    runs = [settings_for(problem, float(row_values.sum()))[name]() for _ in range(3)]
    seconds = min((run for run in runs if run is not None), default=float("inf"))
    return f"{name}, tuned on {rows} rows", seconds


def paper_problem(options: Options) -> Problem:
    """Return the setting of Table 1: 35 classes, 15 teachers of 5 to 15 classes."""
    return make_problem(2_000 if options.quick else 20_000, 35, 15, (5, 16), options.seed)


def cross_entropy(options: Options) -> Iterator[Result]:
    """Compare ce with gradient descent in torch and with scipy row by row."""
    problem = paper_problem(options)
    logits, layout = problem.logits, problem.layout

    def solve() -> Any:
        return ce_logits(logits, layout, TEMPERATURE, 1e-8, 200)

    ours = best_of(options.repeats, solve)
    U, norms, _ = solve()
    assert (norms <= 1e-8).all()
    minima = ce_objective(U, logits, layout, TEMPERATURE)
    # the goal is for torch's optimisers; a hand-written gradient is halfway to a solver
    for kind, goal in (("autograd", 30.0), ("by hand", None)):
        setting, seconds = best_descent(peers.ce_descents, problem, minima, kind)
        yield Result(
            f"ce vs torch gradient descent, {kind}", seconds / ours, "x", goal, True, ours, seconds,
            f"{setting}; ours to a gradient of 1e-8, theirs to 1e-6 of our objective", problem.sizes,
        )  # fmt: skip
    rows = 20 if options.quick else 100
    seconds = peers.ce_by_scipy(problem, rows) * len(logits) / rows
    note = f"{rows} rows timed, scaled up"
    yield Result("ce vs scipy L-BFGS-B", seconds / ours, "x", 300.0, True, ours, seconds, note, problem.sizes)


def closed_form(options: Options) -> Iterator[Result]:
    """Compare mf-lf with the paper's gradient descent."""
    problem = paper_problem(options)

    def solve() -> Any:
        return mf_lf_logits(problem.logits, problem.layout, TEMPERATURE)

    ours = best_of(options.repeats, solve)
    minima = _mf_lf_objective(problem, solve())
    for kind, goal in (("as printed", 100.0), ("reduced", None)):
        setting, seconds = best_descent(peers.mf_lf_descents, problem, minima, kind)
        yield Result(
            f"mf-lf vs torch gradient descent, {kind}", seconds / ours, "x", goal, True, ours, seconds,
            f"{setting}; to 1e-6 of our objective", problem.sizes,
        )  # fmt: skip


def _mf_lf_objective(problem: Problem, U: Any) -> Any:
    total = np.zeros(len(U))
    for i in range(problem.space.n_teachers):
        block = problem.space.block(i)
        residual = problem.logits[:, block] / TEMPERATURE - U[:, problem.space.columns[block]]
        total += ((residual - residual.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return total


def alternating(options: Options) -> Iterator[Result]:
    """Compare mf-p and mf-lv with the same algorithms in vectorised numpy."""
    problem = paper_problem(options)
    logits, layout = problem.logits, problem.layout
    repeats = 1 if options.quick else 2
    ours = best_of(options.repeats, lambda: mf_p_probabilities(logits, layout, TEMPERATURE, 1e-3, 3000))
    seconds = best_of(repeats, lambda: peers.alternate_by_numpy(problem, False, 0.0, 1e-3, 3000))
    ours_u = mf_p_probabilities(logits, layout, TEMPERATURE, 1e-3, 3000)[0]
    assert np.allclose(ours_u, peers.alternate_by_numpy(problem, False, 0.0, 1e-3, 3000), atol=1e-6)
    note = "same stopping rule, same result"
    yield Result("mf-p vs numpy", seconds / ours, "x", 10.0, True, ours, seconds, note, problem.sizes)
    ours = best_of(options.repeats, lambda: mf_lv_logits(logits, layout, TEMPERATURE, 0.01, 1e-3, 3000))
    seconds = best_of(repeats, lambda: peers.alternate_by_numpy(problem, True, 0.01, 1e-3, 3000))
    ours_u = mf_lv_logits(logits, layout, TEMPERATURE, 0.01, 1e-3, 3000)[0]
    assert np.allclose(ours_u, peers.alternate_by_numpy(problem, True, 0.01, 1e-3, 3000), atol=1e-6)
    yield Result("mf-lv vs numpy", seconds / ours, "x", 10.0, True, ours, seconds, note, problem.sizes)


def many_classes(options: Options) -> Iterator[Result]:
    """Solve ce for a thousand classes, and measure how memory grows with the rows."""
    n = 200 if options.quick else 2_000
    problem = make_problem(n, 1000, 30, (100, 201), options.seed)

    def solve(rows: int) -> Any:
        return estimate_soft_labels(problem.logits[:rows], problem.space, methods.CE(temperature=TEMPERATURE))

    seconds = best_of(1 if options.quick else 3, lambda: solve(n))
    yield Result("ce, 1000 classes", n / seconds, "rows/s", ours=seconds, sizes=problem.sizes)
    peaks = []
    for rows in (n // 2, n):
        tracemalloc.start()
        solve(rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # the method needs arrays of n by L and n by m; L by L per row would show as a thousand
    row_bytes = 8 * (problem.space.n_classes + problem.space.n_columns)
    yield Result(
        "ce, 1000 classes: extra memory per row, in rows of n (L + m) numbers",
        (peaks[1] - peaks[0]) / (n - n // 2) / row_bytes, "x", 4.0, False,
        note=f"peak {peaks[1] / 1e6:.0f} MB", sizes=problem.sizes,
    )  # fmt: skip


_TIME_IMPORT = "import time; t = time.perf_counter(); import consilience; print(time.perf_counter() - t)"
_TIME_KERNEL = """
import time
import numpy as np
from consilience.labels import LabelSpace
from consilience.soft_labels.estimate import estimate_soft_labels
space = LabelSpace([[0, 1], [1, 2]])
t = time.perf_counter()
estimate_soft_labels(np.zeros((2, 4)), space, "ce")
print(time.perf_counter() - t)
"""


def start_up(options: Options) -> Iterator[Result]:
    """Time the import, and the first call of a kernel with an empty and with a filled cache."""
    seconds = min(_in_new_process(_TIME_IMPORT) for _ in range(options.repeats))
    yield Result("import consilience", seconds, "s", 1.0, False, ours=seconds)
    with tempfile.TemporaryDirectory() as cache:
        first = _in_new_process(_TIME_KERNEL, NUMBA_CACHE_DIR=cache)
        second = min(_in_new_process(_TIME_KERNEL, NUMBA_CACHE_DIR=cache) for _ in range(options.repeats))
    yield Result("first ce call, empty cache", first, "s", ours=first, note="once per installation")
    yield Result("first ce call, filled cache", second, "s", 1.0, False, ours=second)


def _in_new_process(code: str, **environment: str) -> float:
    command = [sys.executable, "-c", code]
    return float(subprocess.check_output(command, env={**os.environ, **environment}, text=True))


class _Stopwatch:
    """Wall time inside teachers and student. Nested calls are not counted twice."""

    def __init__(self) -> None:
        self.total = 0.0
        self._running = threading.local()

    @contextmanager
    def running(self) -> Iterator[None]:
        if getattr(self._running, "now", False):
            yield
            return
        self._running.now = True
        start = time.perf_counter()
        try:
            yield
        finally:
            self._running.now = False
            self.total += time.perf_counter() - start


def unifier_overhead(options: Options) -> Iterator[Result]:
    """Measure the time of `Unifier.fit` beyond its teachers' predictions and its student's training."""
    from sklearn.datasets import make_classification
    from sklearn.neural_network import MLPClassifier

    from consilience.unify.unifier import Unifier

    n = 2_000 if options.quick else 10_000
    X, y = make_classification(
        n, 40, n_informative=20, n_classes=12, n_clusters_per_class=1, random_state=options.seed
    )
    watch = _Stopwatch()

    class TimedMLP(MLPClassifier):
        def predict_proba(self, X: Any) -> Any:
            with watch.running():
                return super().predict_proba(X)

        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            with watch.running():
                return super().fit(X, y, sample_weight)

    rng = np.random.default_rng(options.seed)
    teachers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks may stop early
        for _ in range(8):
            known = np.isin(y, rng.choice(12, 6, replace=False))
            network = TimedMLP((100,), max_iter=5, random_state=options.seed)
            teachers.append(network.fit(X[known], y[known]))
        student = TimedMLP((100,), max_iter=5, random_state=options.seed)
        shares = []
        for _ in range(options.repeats):
            watch.total = 0.0
            start = time.perf_counter()
            Unifier(teachers, student=student, random_state=options.seed).fit(X)
            whole = time.perf_counter() - start
            shares.append((100.0 * (1.0 - watch.total / whole), whole))
    share, whole = min(shares)
    sizes = {"n": n, "L": 12, "N": len(teachers)}
    note = f"{whole:.2f} s in all, student of 5 epochs"
    name = "Unifier.fit beyond teachers and student"
    yield Result(name, share, "%", 10.0, False, ours=whole, note=note, sizes=sizes)


MEASURES = {
    "ce": cross_entropy,
    "mf-lf": closed_form,
    "als": alternating,
    "many-classes": many_classes,
    "start-up": start_up,
    "unifier": unifier_overhead,
}

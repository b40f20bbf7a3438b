"""Ranking: metrics against plain versions, the transport metric against a logistic regression, many teachers.

The size is that of a small repository: 5000 rows, 512 features, 100 classes. The plain versions follow the
published code. LogME uses a singular value decomposition of the Gram matrix and a loop over classes. LEEP
uses a loop over rows.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.speed.measures import Options, Result
from benchmarks.speed.problem import best_of
from consilience import Teacher, as_teacher, rank_teachers
from consilience.rank import LEEP, LogME, Transport
from consilience.rank.metrics import SCORES, Case
from consilience.rows import as_rows
from consilience.run import Run
from consilience.teachers import Observed

Floats = NDArray[np.float64]


class Outputs:
    """A teacher with ready outputs, so only the metric is timed."""

    batched = False

    def __init__(self, name: str, logits: Floats, embeddings: NDArray[np.float32], weights: Floats) -> None:
        self.name, self.classes = name, np.arange(logits.shape[1])
        self._logits, self._embeddings, self.class_weights = logits, embeddings, weights

    def predict_logits(self, X: Any) -> Floats:
        """Return the logits, whatever X is."""
        return self._logits

    def embed(self, X: Any) -> NDArray[np.float32]:
        """Return the embeddings, whatever X is."""
        return self._embeddings


class Cached:
    """A teacher that can be cached: it computes its outputs from the rows, and runs only once."""

    def __init__(self, seed: int, d: int, width: int, classes: int) -> None:
        rng = np.random.default_rng(seed)
        self.name, self.fingerprint = f"teacher {seed}", f"{seed:040x}"
        self.classes = np.arange(classes)
        self._hidden = rng.normal(size=(d, width)).astype(np.float32) / np.sqrt(d)
        self.class_weights = rng.normal(size=(classes, width))

    def embed(self, X: Any) -> NDArray[np.float32]:
        """Return the embeddings of rows."""
        return np.maximum(X @ self._hidden, 0)

    def predict_logits(self, X: Any) -> Floats:
        """Return the logits of rows."""
        return self.embed(X) @ self.class_weights.T


def problem(
    n: int, d: int, n_classes: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.intp], Teacher]:
    """Draw features like those of a network: not negative, a decaying spectrum, overlapping classes."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
    scale = np.arange(1, d + 1) ** -0.5
    F = 0.5 * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d))
    F = np.maximum((F + 0.3) * scale, 0).astype(np.float32)
    F *= 10 / np.linalg.norm(F, axis=1).mean()
    weights = rng.normal(size=(n_classes, d)) * scale
    drawn = Outputs("drawn", F @ weights.T.astype(np.float32).astype(np.float64), F, weights)
    return F, y, as_teacher(drawn)


def plain_logme(F: Floats, y: NDArray[np.intp], tol: float) -> float:
    """LogME as published: Gram SVD, then a fixed point for each class in turn."""
    n, d = F.shape
    _, s, vh = np.linalg.svd(F.T @ F)
    evidences = []
    for c in range(y.max() + 1):
        target = (y == c).astype(np.float64)
        projected = vh @ (F.T @ target)
        alpha = beta = 1.0
        for _ in range(200):
            ratio = alpha / beta
            gamma = (s / (s + ratio)).sum()
            m = vh.T @ (projected * beta / (alpha + beta * s))
            alpha = gamma / (m @ m)
            error = ((F @ m - target) ** 2).sum()
            beta = (n - gamma) / error
            if abs(alpha / beta - ratio) / ratio < tol:
                break
        m = vh.T @ (projected * beta / (alpha + beta * s))
        error = ((F @ m - target) ** 2).sum()
        evidence = d / 2 * np.log(alpha) + n / 2 * np.log(beta) - n / 2 * np.log(2 * np.pi)
        evidence -= beta / 2 * error + alpha / 2 * (m @ m) + 0.5 * np.log(alpha + beta * s).sum()
        evidences.append(evidence / n)
    return float(np.mean(evidences))


def plain_leep(theta: Floats, y: NDArray[np.intp]) -> float:
    """LEEP as published: the joint distribution row by row, then the likelihood row by row."""
    n, m = theta.shape
    joint = np.zeros((y.max() + 1, m))
    for i in range(n):
        joint[y[i]] += theta[i]
    joint /= n
    conditional = (joint / joint.sum(axis=0)).T
    total = 0.0
    for i in range(n):
        total += np.log(theta[i] @ conditional[:, y[i]])
    return total / n


def metrics(options: Options) -> Iterator[Result]:
    """Compare logme and leep with plain versions, and the transport metric with a logistic regression."""
    n, d, K = (1000, 128, 20) if options.quick else (5000, 512, 100)
    F, y, teacher = problem(n, d, K, options.seed)
    sizes = {"n": n, "d": d, "K": K}
    F64 = F.astype(np.float64)
    tol = 1e-2  # the published stopping rule; ours goes on to 1e-6
    assert abs(LogME().score(F64, y) - plain_logme(F64, y, 1e-6)) < 1e-6
    logme = best_of(options.repeats, lambda: LogME().score(F64, y))
    plain = best_of(2, lambda: plain_logme(F64, y, tol))
    note = "equal to 1e-6; theirs stops at 1e-2"
    yield Result("logme vs published algorithm", plain / logme, "x", 3.0, True, logme, plain, note, sizes)
    theta = np.exp(teacher.predict_logits(None))
    theta /= theta.sum(axis=1, keepdims=True)
    assert abs(LEEP().score(theta, y) - plain_leep(theta, y)) < 1e-9
    ours = best_of(options.repeats, lambda: LEEP().score(theta, y))
    plain = best_of(2, lambda: plain_leep(theta, y))
    yield Result("leep vs plain loops", plain / ours, "x", 3.0, True, ours, plain, "equal to 1e-9", sizes)
    yield from transport(F, y, teacher, options, logme)


def transport(
    F: NDArray[np.float32], y: NDArray[np.intp], teacher: Teacher, options: Options, logme: float
) -> Iterator[Result]:
    """Time the whole transport metric for given features: centres, probe and transport."""
    sizes = {"n": len(F), "d": F.shape[1], "K": int(y.max()) + 1}
    peer = best_of(min(options.repeats, 3), lambda: LogisticRegression(max_iter=2000).fit(F, y))
    observed = Observed(teacher.predict_logits(None), F)

    def assess(score: str, temperature: float) -> None:
        metric = Transport(score=score, temperature=temperature)
        # a case keeps what it computes, so each run needs a new one
        SCORES[Transport](Case(teacher, as_rows(F), np.arange(len(F)), y, y, sizes["K"], observed), metric)

    for label, score, temperature in (("", "likelihood", 1.0), (", eq. (24) by Sinkhorn", "distance", 3.0)):
        ours = best_of(min(options.repeats, 3), lambda s=score, t=temperature: assess(s, t))
        note = "features given; scikit-learn's float32 LogisticRegression alone, C=1"
        yield Result(
            f"transport metric{label} vs logistic regression",
            ours / peer,
            "x",
            1.5,
            False,
            ours,
            peer,
            note,
            sizes,
        )
        note = "the paper's Table 13: 1.76 x"
        yield Result(
            f"transport metric{label} vs our logme", ours / logme, "x", None, False, ours, logme, note, sizes
        )


def many_teachers(options: Options) -> Iterator[Result]:
    """Rank many teachers over cached outputs: where the time goes, and how memory grows."""
    few, many = (2, 6) if options.quick else (10, 100)
    n, d, width, K = 1000, 64, 128, 20
    rng = np.random.default_rng(options.seed)
    X, y = rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % K
    teachers = [Cached(seed, d, width, K) for seed in range(many)]
    sizes = {"n": n, "d": width, "K": K, "teachers": many}
    with tempfile.TemporaryDirectory() as folder:
        rank_teachers(teachers, X, y, metric="nce", run=Run(cache=folder), confidence=None)  # fills the cache
        peaks = []
        for count in (few, many):
            tracemalloc.start()
            rank_teachers(teachers[:count], X, y, run=Run(cache=folder))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        start = time.perf_counter()
        rank_teachers(teachers, X, y, run=Run(cache=folder))
        whole = time.perf_counter() - start
        start = time.perf_counter()
        rank_teachers(teachers, X, y, metric="nce", run=Run(cache=folder))  # all but probes and centres
        rest = time.perf_counter() - start
    share = 100 * (1 - rest / whole)
    note = "by comparison with nce, which needs neither probe nor centres"
    yield Result(
        f"ranking of {many} teachers from the cache: share of probes",
        share,
        "%",
        50.0,
        True,
        whole,
        rest,
        note,
        sizes,
    )
    note = f"peak {peaks[1] / 1e6:.0f} MB against {peaks[0] / 1e6:.0f} MB with {few} teachers"
    yield Result(
        f"memory of ranking {many} teachers", peaks[1] / peaks[0], "x", 1.2, False, note=note, sizes=sizes
    )


MEASURES = {"assessment": metrics, "many-teachers": many_teachers}

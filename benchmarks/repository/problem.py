"""Repositories of models, and tasks to find one for.

The classes of a data set are put in a random order (those of CLINC150 by domain). A model knows a window of
them. So does a task, except that a third of its classes are drawn from all others: no model knows just the
classes of a task. Models are logistic regressions, forests and small networks. Half of them are sound.
The others learnt from wrong labels, from few rows, or are of no use at all.

Nobody shares rows: each class has rows for the models, for the repository's reference, for tasks and for
tests. Models see all columns. Students see random projections to `seen` columns and few labels, so that a
good teacher can help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.papers.sources import Source, load
from benchmarks.papers.windows import student_view, train_network

Floats = NDArray[np.float32]
Codes = NDArray[np.intp]
# a row of each class's labels is wrong with one of these probabilities
NOISE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
KINDS = ("logistic", "forest", "network")
QUALITIES = ("sound", "noisy", "tiny", "permuted", "random weights", "random answers")
# of the models, in the order of QUALITIES
SHARES = (0.5, 0.2, 0.15, 0.05, 0.05, 0.05)
TINY_ROWS = 3


@dataclass(frozen=True)
class Protocol:
    """Sizes: classes of a model and of a task, and rows of each class for everybody."""

    known: int
    wanted: int
    model_rows: int
    reference_rows: int
    labels: int
    unlabelled: int
    test_rows: int
    seen: int


PROTOCOLS = {
    "digits": Protocol(4, 4, 50, 20, 5, 25, 70, 8),
    "cifar100 lite0": Protocol(20, 12, 100, 10, 5, 40, 200, 32),
    "cifar100 rn50": Protocol(20, 12, 100, 10, 5, 40, 200, 32),
    "cub": Protocol(50, 30, 20, 5, 5, 10, 18, 24),
    "clinc": Protocol(30, 15, 50, 7, 3, 25, 45, 8),
}
VIEWS = 3  # students per model and task, each with a projection of its own
HIDDEN = 64


@dataclass(frozen=True)
class Task:
    """Rows of a task, with -1 for no label, and rows to test students on."""

    X: Floats
    y: Codes
    X_test: Floats
    y_test: Codes


@dataclass(frozen=True)
class Model:
    """A model, and how it was made."""

    name: str
    kind: str
    quality: str
    noise: float
    classes: Codes  # the names that it gives to its columns
    answer: Callable[[Floats], tuple[Floats, Floats | None]]  # to logits (n, k) and embeddings (n, d) or None


@dataclass(frozen=True)
class Problem:
    """A repository, its reference rows and their classes, some tasks, and what students see (d, s)."""

    models: list[Model]
    reference: Floats
    reference_y: Codes
    tasks: list[Task]
    views: list[Floats]


def make_problem(data: str, folder: str | None, n_models: int, n_tasks: int, seed: int) -> Problem:
    """Draw tasks and train models; the first models are the same whatever their number."""
    source = _load(data, folder)
    sizes = PROTOCOLS[data]
    rng = np.random.RandomState(seed)
    X, y = source.X / source.X.std(), source.y
    order = np.unique(y) if data == "clinc" else rng.permutation(np.unique(y))
    by_class = {c: rng.permutation(np.flatnonzero(y == c)) for c in order}
    views = [student_view(X.shape[1], sizes.seen, rng) for _ in range(VIEWS)]
    reference = np.concatenate([by_class[c][sizes.model_rows :][: sizes.reference_rows] for c in order])
    wanted = [_mixed_window(order, sizes.wanted, rng) for _ in range(n_tasks)]
    tasks = [_task(X, y, by_class, classes, sizes, rng) for classes in wanted]
    models = [_model(X, by_class, order, sizes, 10_000 * seed + place, place) for place in range(n_models)]
    reference = rng.permutation(reference)
    return Problem(models, X[reference], y[reference], tasks, views)


def _load(data: str, folder: str | None) -> Source:
    """Return all rows of a data set as X and y; of CIFAR-100 the features of one network."""
    name, _, network = data.partition(" ")
    source = load(name, folder)
    X, y = source.X, source.y
    if source.X_test is not None and source.y_test is not None:
        X, y = np.concatenate([X, source.X_test]), np.concatenate([y, source.y_test])
    if network:
        X = X[:, source.views[("lite0", "rn50").index(network)]]
    return Source(np.ascontiguousarray(X), y, None, None, (), "", 0.0, 0.0)


def _window(order: Codes, size: int, rng: np.random.RandomState) -> Codes:
    """Return a window of the classes, which goes on at the beginning."""
    return np.roll(order, -rng.randint(len(order)))[:size]


def _mixed_window(order: Codes, size: int, rng: np.random.RandomState) -> Codes:
    """Return two thirds of a window, and as many others as it takes."""
    own = _window(order, size, rng)[: -(-2 * size // 3)]
    others = np.setdiff1d(order, own)
    return np.sort(np.concatenate([own, rng.permutation(others)[: size - len(own)]]))


def _task(
    X: Floats,
    y: Codes,
    by_class: dict[int, Codes],
    wanted: Codes,
    sizes: Protocol,
    rng: np.random.RandomState,
) -> Task:
    labelled, unlabelled, test = [], [], []
    for c in wanted:
        rows = by_class[c][sizes.model_rows + sizes.reference_rows :]
        test.append(rows[-sizes.test_rows :])
        own = rng.permutation(rows[: -sizes.test_rows])
        labelled.append(own[: sizes.labels])
        unlabelled.append(own[sizes.labels :][: sizes.unlabelled])
    few, more, tested = map(np.concatenate, (labelled, unlabelled, test))
    rows = np.concatenate([few, rng.permutation(more)])
    labels = np.where(np.arange(len(rows)) < len(few), y[rows], -1)
    return Task(X[rows], labels, X[tested], y[tested])


def _model(
    X: Floats, by_class: dict[int, Codes], order: Codes, sizes: Protocol, seed: int, place: int
) -> Model:
    rng = np.random.RandomState(seed)
    kind, quality = rng.choice(KINDS), rng.choice(QUALITIES, p=SHARES)
    classes = np.sort(_window(order, sizes.known, rng))
    most = TINY_ROWS if quality == "tiny" else sizes.model_rows
    rows = np.concatenate([by_class[c][: sizes.model_rows][:most] for c in classes])
    codes = np.repeat(np.arange(len(classes)), [min(most, len(by_class[c])) for c in classes])
    noise = float(rng.choice(NOISE)) if quality == "noisy" else 0.0
    wrong = rng.uniform(size=len(codes)) < noise
    codes = np.where(wrong, rng.randint(len(classes), size=len(codes)), codes)
    if quality == "random weights":
        codes, kind = rng.permutation(codes), "network"
    answer = _learn(kind, X[rows], codes, seed, 0 if quality == "random weights" else 200)
    if quality == "random answers":
        answer = _random_answers(len(classes), seed)
    names = rng.permutation(classes) if quality == "permuted" else classes
    return Model(f"model {place}", str(kind), str(quality), noise, names, answer)


def _learn(kind: str, X: Floats, codes: Codes, seed: int, steps: int) -> Callable[[Floats], Any]:
    """Train a model; return its logits and embeddings as a function of rows."""
    if kind == "network":
        network = train_network(X, codes, (HIDDEN,), steps, seed)

        def answer(rows: Floats) -> tuple[Floats, Floats | None]:
            with torch.no_grad():
                hidden = network[:-1](torch.as_tensor(rows))
                return network[-1](hidden).numpy(), hidden.numpy()

        return answer
    if kind == "logistic":
        linear = LogisticRegression(C=0.1, max_iter=60, tol=1e-2).fit(X, codes)
        return lambda rows: (linear.decision_function(rows), rows)
    forest = RandomForestClassifier(30, min_samples_leaf=2, random_state=seed).fit(X, codes)
    return lambda rows: (np.log(np.maximum(forest.predict_proba(rows), 1e-3)).astype(np.float32), None)


def _random_answers(n_classes: int, seed: int) -> Callable[[Floats], Any]:
    """Return answers that are sure of themselves and have nothing to do with the rows."""

    def answer(rows: Floats) -> tuple[Floats, Floats | None]:
        rng = np.random.RandomState(seed)
        return (4.0 * rng.randn(len(rows), n_classes)).astype(np.float32), None

    return answer

"""The double sliding window protocol of "Selective Cross-Task Distillation" (SCTD, Sec. 6.2.1), scaled down.

The classes are put in a random order, and each teacher and each student gets a window of them. The paper
trains networks on images; here they are small networks on features. Teachers see all features. Students see a
random projection of them and a few rows of each class, so a teacher can help.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.papers.sources import Source
from consilience import Teacher, as_teacher, cost_matrix
from consilience.nn import SinkhornLoss

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Window:
    """How classes are windowed, and how much everybody learns."""

    window: int
    step: int
    per_class: int
    lam: float
    seen: int  # columns that a student sees; 0 for all
    networks: tuple[tuple[int, ...], ...]  # hidden layers of each kind of teacher
    hidden: int = 32  # of a student
    students: int = 4  # per teacher, from different weights
    steps: int = 150
    teacher_steps: int = 300
    temperature: float = 3.0


class Rows(NamedTuple):
    """Labelled rows, and to whom each belongs."""

    X: Floats
    y: NDArray[np.intp]
    ours: NDArray[np.intp]  # indices of the teachers' rows
    theirs: NDArray[np.intp]  # indices of the rows that students may see
    X_test: Floats
    y_test: NDArray[np.intp]


@dataclass(frozen=True)
class Task:
    """A student's classes: few rows to learn from, and rows to test on."""

    X: Floats
    y: NDArray[np.intp]
    codes: NDArray[np.intp]
    seen: Floats
    X_test: Floats  # as the student sees them
    codes_test: NDArray[np.intp]


@dataclass(frozen=True)
class Students:
    """The results of students with one teacher, or without any."""

    accuracy: float  # on test rows, the mean over students
    logits: Floats  # (students, n, K) on the rows of their task
    seconds: float  # to train them, all together


@dataclass(frozen=True)
class Repository:
    """Teachers by name, and the tasks to rank them for."""

    teachers: dict[str, Teacher]
    tasks: list[Task]


def make_repository(source: Source, window: Window, seed: int) -> Repository:
    """Train the teachers on one half of the rows, and draw the tasks from the other half."""
    rng = np.random.RandomState(seed)
    rows = split_rows(source, rng)
    view = student_view(rows.X.shape[1], window.seen, rng)
    windows = list(class_windows(np.unique(rows.y), window, rng))
    teachers = {}
    for hidden in window.networks:
        for place, classes in enumerate(windows):
            own = rows.ours[np.isin(rows.y[rows.ours], classes)]
            codes = np.searchsorted(classes, rows.y[own])
            network = train_network(rows.X[own], codes, hidden, window.teacher_steps, 100 * seed + place)
            teachers[f"{'x'.join(map(str, hidden))} on window {place + 1}"] = as_teacher(network, classes)
    return Repository(teachers, [make_task(rows, classes, window.per_class, view) for classes in windows])


def split_rows(source: Source, rng: np.random.RandomState) -> Rows:
    """Scale the features to a standard deviation of 1, and split the rows at random."""
    X, y = source.X / source.X.std(), source.y
    order = rng.permutation(len(y))
    if source.X_test is None or source.y_test is None:
        ours, theirs, test = np.split(order, [2 * len(y) // 5, 2 * len(y) // 3])
        return Rows(X, y, ours, theirs, X[test], y[test])
    ours, theirs = np.split(order, [len(y) // 2])
    return Rows(X, y, ours, theirs, source.X_test / source.X.std(), source.y_test)


def student_view(width: int, seen: int, rng: np.random.RandomState) -> Floats:
    """Return a random projection to `seen` columns, or the identity if `seen` is 0."""
    if not seen:
        return np.eye(width, dtype=np.float32)
    return (rng.randn(width, seen) / np.sqrt(width)).astype(np.float32)


def make_task(rows: Rows, classes: NDArray[Any], per_class: int, view: Floats) -> Task:
    """Draw a student's rows of each class from those that no teacher has seen."""
    X, y = rows.X, rows.y
    few = np.concatenate([rows.theirs[y[rows.theirs] == c][:per_class] for c in classes])
    own = np.isin(rows.y_test, classes)
    codes, codes_test = np.searchsorted(classes, y[few]), np.searchsorted(classes, rows.y_test[own])
    return Task(X[few], y[few], codes, X[few] @ view, rows.X_test[own] @ view, codes_test)


def class_windows(
    classes: NDArray[Any], window: Window, rng: np.random.RandomState
) -> Iterator[NDArray[Any]]:
    """Put the classes in a random order and yield each window of them, sorted."""
    order = rng.permutation(classes)
    for start in range(0, len(order) - window.window + 1, window.step):
        yield np.sort(order[start : start + window.window])


def train_network(
    X: Floats, codes: NDArray[np.intp], hidden: tuple[int, ...], steps: int, seed: int
) -> nn.Sequential:
    """Train a multi-layer perceptron with Adam."""
    torch.manual_seed(seed)
    sizes, layers = (X.shape[1], *hidden), []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(sizes[-1], int(codes.max()) + 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-4)
    inputs, targets = torch.as_tensor(X), torch.as_tensor(codes)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (256,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs[rows]), targets[rows]).backward()
        optimiser.step()
    return network.eval()


def train_students(task: Task, window: Window, seed: int, teacher: Teacher | None = None) -> Students:
    """Train students with the loss (11), or only on labels if there is no teacher."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    K, count = int(task.codes.max()) + 1, window.students
    sizes = ((task.seen.shape[1], window.hidden), (window.hidden, K))
    weights = [torch.randn(count, i, o) * np.sqrt(2 / i) for i, o in sizes]
    weights[1] *= 0.5
    biases = [torch.zeros(count, 1, o) for _, o in sizes]
    parameters = [parameter.requires_grad_() for parameter in weights + biases]
    optimiser = torch.optim.Adam(parameters, lr=5e-3, weight_decay=1e-3)

    def logits(inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits (students, n, K) of all students at once."""
        return torch.relu(inputs @ weights[0] + biases[0]) @ weights[1] + biases[1]

    distance, says = None, torch.empty(0)
    if teacher is not None:
        costs = cost_matrix(teacher, task.X, task.y)
        distance = SinkhornLoss(costs, temperature=window.temperature, tol=1e-4)
        says = torch.as_tensor(teacher.predict_logits(task.X), dtype=torch.float32)
    inputs, targets = torch.as_tensor(task.seen), torch.as_tensor(task.codes)
    for _ in range(window.steps):
        rows = torch.randint(len(inputs), (min(128, len(inputs)),))
        predicted = logits(inputs[rows])
        # sums over the students, so that each has the gradient of its own mean
        loss = nn.functional.cross_entropy(predicted.flatten(0, 1), targets[rows].repeat(count)) * count
        if distance is not None:
            loss = loss + window.lam * distance(predicted.flatten(0, 1), says[rows].repeat(count, 1)) * count
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        guesses = logits(torch.as_tensor(task.X_test)).argmax(dim=2).numpy()
        own = logits(inputs).numpy()
    return Students(float((guesses == task.codes_test).mean()), own, seconds)

"""The double sliding window protocol of "Selective Cross-Task Distillation" (SCTD, Sec. 6.2.1), scaled down.

Classes in a random order, a window of them for each teacher and each student. The paper's networks on images
are small networks on features here: teachers see all features, students a random projection of them and a few
rows of each class, so that there is something for a teacher to give.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    """What students of one teacher, or of none, came to."""

    accuracy: float  # on test rows, the mean over students
    logits: Floats  # (students, n, K) on the rows of their task
    seconds: float  # to train them, all together


@dataclass(frozen=True)
class Repository:
    """Teachers by name, and the tasks to rank them for."""

    teachers: dict[str, Teacher]
    tasks: list[Task]


def make_repository(source: Source, window: Window, seed: int) -> Repository:
    """Train the teachers on one half of the rows, and draw the tasks from the other."""
    rng = np.random.RandomState(seed)
    X, y = source.X / source.X.std(), source.y
    order = rng.permutation(len(y))
    if source.X_test is None or source.y_test is None:
        ours, theirs, test = np.split(order, [2 * len(y) // 5, 2 * len(y) // 3])
        X_test, y_test = X[test], y[test]
    else:
        ours, theirs = np.split(order, [len(y) // 2])
        X_test, y_test = source.X_test / source.X.std(), source.y_test
    view = np.eye(X.shape[1], dtype=np.float32)
    if window.seen:
        view = (rng.randn(X.shape[1], window.seen) / np.sqrt(X.shape[1])).astype(np.float32)
    windows = list(class_windows(np.unique(y), window, rng))
    teachers = {}
    for hidden in window.networks:
        for place, classes in enumerate(windows):
            rows = ours[np.isin(y[ours], classes)]
            codes = np.searchsorted(classes, y[rows])
            network = train_network(X[rows], codes, hidden, window.teacher_steps, 100 * seed + place)
            teachers[f"{'x'.join(map(str, hidden))} on window {place + 1}"] = as_teacher(network, classes)
    tasks = []
    for classes in windows:
        rows = np.concatenate([theirs[y[theirs] == c][: window.per_class] for c in classes])
        own = np.isin(y_test, classes)
        codes, codes_test = np.searchsorted(classes, y[rows]), np.searchsorted(classes, y_test[own])
        tasks.append(Task(X[rows], y[rows], codes, X[rows] @ view, X_test[own] @ view, codes_test))
    return Repository(teachers, tasks)


def class_windows(
    classes: NDArray[Any], window: Window, rng: np.random.RandomState
) -> Iterator[NDArray[Any]]:
    """Yield the classes of each window, sorted, of a random order of all."""
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
    """Train students with the loss (11), or without a teacher on labels alone."""
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

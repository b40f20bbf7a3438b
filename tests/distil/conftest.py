"""Digits with few labels, and two networks to learn from."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier


class Digits(NamedTuple):
    """A network that knows all digits, one that knows 0 to 5, and a task with five labels a class."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    all_ten: Any
    first_six: Any


@pytest.fixture(scope="session")
def digits() -> Digits:
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    order = np.random.RandomState(0).permutation(len(X))
    train, rest = order[:800], order[800:]
    task = np.concatenate([rest[y[rest] == digit][:5] for digit in range(10)])
    test = np.setdiff1d(rest, task)
    six = train[y[train] < 6]
    teachers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged, and good enough
        for rows in (train, six):
            network = MLPClassifier((128, 64), max_iter=25, random_state=0)
            teachers.append(network.fit(X[rows], y[rows]))
    return Digits(X[task], y[task], X[test], y[test], *teachers)

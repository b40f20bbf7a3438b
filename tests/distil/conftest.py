"""Digits with few labels, and two networks to learn from."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier


@pytest.fixture(scope="session")
def digits() -> SimpleNamespace:
    """A network that knows all digits, one that knows 0 to 5, and a task with five labels a class."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    order = np.random.RandomState(0).permutation(len(X))
    train, rest = order[:800], order[800:]
    task = np.concatenate([rest[y[rest] == digit][:5] for digit in range(10)])
    test = np.setdiff1d(rest, task)
    made = SimpleNamespace(X=X[task], y=y[task], X_test=X[test], y_test=y[test])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged, and good enough
        for name, rows in (("all_ten", train), ("first_six", train[y[train] < 6])):
            network = MLPClassifier((128, 64), max_iter=25, random_state=0)
            setattr(made, name, network.fit(X[rows], y[rows]))
    return made

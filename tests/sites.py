"""Sites that several rooms of tests share: three classifiers that each know some of the digits."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from consilience import Unifier

SETS = {"low": [0, 1, 2, 3], "middle": [3, 4, 5, 6], "high": [6, 7, 8, 9, 0]}
NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


@pytest.fixture(scope="session")
def sites() -> dict[str, Any]:
    """Three teachers, rows to unify them on, and labelled rows that nobody has seen."""
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    teachers = {}
    for i, (name, classes) in enumerate(SETS.items()):
        part = slice(120 * i, 120 * (i + 1))
        rows = np.isin(y[part], classes)
        teachers[name] = LogisticRegression(max_iter=1000).fit(X[part][rows], NAMES[y[part][rows]])
    return {
        "teachers": teachers,
        "X": X[360:1000],
        "y": NAMES[y[360:1000]],
        "X_test": X[1000:1500],
        "y_test": NAMES[y[1000:1500]],
    }


@pytest.fixture(scope="session")
def unified(sites: Any) -> Any:
    """A model of these sites."""
    return Unifier(sites["teachers"], "logistic", random_state=0).fit(sites["X"])

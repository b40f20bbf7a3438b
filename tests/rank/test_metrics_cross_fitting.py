"""Cross-fitted metrics in a ranking: random teachers do not come first, and what happens at the edges."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from consilience import as_teacher, rank_teachers
from consilience.rank import LEEP, NCE, NLEEP, OTCE, HScore, TransRate

X, Y = load_digits(return_X_y=True)
X = X / 16
CROSS_FITTED = ("transport", "nce", "leep", "h_score", "transrate")
DRAWS = 6


def random_teacher(n: int, n_classes: int, width: int, seed: int) -> Any:
    """Return a teacher whose outputs and embeddings have nothing to do with the rows."""
    rng = np.random.default_rng(seed)
    logits = 9.0 * np.eye(n_classes)[rng.integers(n_classes, size=n)]
    F = rng.normal(size=(n, width))
    return as_teacher(logits, range(n_classes), "random", output="logits", embed=F)


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    """Models of three kinds. One knows all digits of the task, one half of them, one none."""
    train = np.arange(len(X)) % 2 == 0
    kinds = {
        "all": (MLPClassifier(32, max_iter=200, tol=5e-3, random_state=0), Y >= 6),
        "half": (RandomForestClassifier(20, random_state=0), (Y >= 4) & (Y < 8)),
        "none": (LogisticRegression(max_iter=300), Y < 4),
    }
    return {name: model.fit(X[train & known], Y[train & known]) for name, (model, known) in kinds.items()}


def task(seed: int, per_class: int = 4) -> np.ndarray:
    """Return some rows of the digits from six to nine that no teacher has seen."""
    odd = np.random.default_rng(seed).permutation(np.arange(1, len(X), 2))
    return np.concatenate([odd[Y[odd] == digit][:per_class] for digit in range(6, 10)])


def test_a_random_teacher_comes_first_only_in_sample(honest: dict[str, Any]) -> None:
    first = {1: dict.fromkeys(CROSS_FITTED, 0), 2: dict.fromkeys(CROSS_FITTED, 0)}
    for seed in range(DRAWS):
        rows = task(seed)
        teachers = {**honest, "random": random_teacher(len(rows), 1000, 512, seed)}
        for folds, found in first.items():
            ranking = rank_teachers(
                teachers,
                X[rows],
                Y[rows],
                metric=CROSS_FITTED,
                folds=folds,
                confidence=None,
                random_state=seed,
            )
            for metric in CROSS_FITTED:
                best = max(row.scores[metric] for row in ranking if row.name != "random")
                (noise,) = (row.scores[metric] for row in ranking if row.name == "random")
                found[metric] += noise >= best - 1e-6
    assert first[2] == dict.fromkeys(CROSS_FITTED, 0)
    assert min(first[1].values()) >= DRAWS / 2, first[1]


@pytest.mark.parametrize("metric", ["nce", "leep", "h_score", "n_leep", "otce", "transrate"])
@pytest.mark.parametrize("seed", [0, 1])
def test_cross_fitted_scores_are_those_of_the_plain_functions(
    honest: dict[str, Any], metric: str, seed: int
) -> None:
    rows, model = task(seed, 12), honest["none"]
    proba, F = softmax(model.decision_function(X[rows]), axis=1), X[rows]
    unit = F / np.linalg.norm(F, axis=1, keepdims=True)
    centres = model.coef_ / np.linalg.norm(model.coef_, axis=1, keepdims=True)
    options: dict[str, Any] = {"folds": 3, "random_state": seed}
    expected: dict[str, Callable[[], float]] = {
        "nce": lambda: NCE().score(proba, Y[rows], **options),
        "leep": lambda: LEEP().score(proba, Y[rows], **options),
        "h_score": lambda: HScore().score(F, Y[rows], **options),
        "n_leep": lambda: NLEEP().score(F, Y[rows], **options),
        "otce": lambda: OTCE().score(
            centres, np.arange(4), unit, Y[rows], source_weight=proba.mean(axis=0), **options
        ),
        "transrate": lambda: TransRate().score(F, Y[rows], **options),
    }
    row = rank_teachers([model], X[rows], Y[rows], metric=metric, folds=3, random_state=seed).rows[0]
    assert row.score == pytest.approx(expected[metric](), abs=1e-4)
    assert row.interval[0] < row.score < row.interval[1]
    published = rank_teachers([model], X[rows], Y[rows], metric=metric, folds=1).rows[0].score
    assert published > row.score + 0.01


def test_metrics_without_folds_do_not_change(honest: dict[str, Any]) -> None:
    rows = task(0)
    for metric in ("logme", "gbc"):
        scores = [
            rank_teachers(honest, X[rows], Y[rows], metric=metric, folds=folds, confidence=None)[0].score
            for folds in (1, 2)
        ]
        assert scores[0] == scores[1]

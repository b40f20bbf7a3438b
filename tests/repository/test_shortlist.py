"""The shortlist finds the model that a task needs, without running any."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor

from consilience import as_teacher
from consilience.exceptions import ConsilienceError
from consilience.repository import shortlist as module
from consilience.repository.description import Description, describe
from consilience.repository.shortlist import METHODS, RIDGE, Search, comparable_rows, shortlist

X, y = load_digits(return_X_y=True)
X = X / 16
BY_INPUTS = sorted(set(METHODS) - {"names", "otce", "kernel-means", "logme", "h_score"})


@cache
def planted(seed: int) -> tuple[dict[str, Description], np.ndarray, np.ndarray, np.ndarray]:
    """Return descriptions of one model that knows the task, others that do not, and poisoned ones."""
    rng = np.random.RandomState(seed)
    order = rng.permutation(len(y))
    train, reference, own = order[:900], X[order[900:1200]], order[1200:1400]
    digits = rng.permutation(10)
    wanted = np.isin(y[own], digits[:4])

    def learn(classes: np.ndarray, labels: np.ndarray) -> LogisticRegression:
        rows = train[np.isin(y[train], classes)]
        return LogisticRegression(max_iter=300).fit(X[rows], labels[rows])

    models: dict[str, Any] = {
        "right": learn(digits[:4], y),
        "half": learn(digits[2:6], y),
        "wrong": learn(digits[6:], y),
        "shuffled labels": learn(digits[:4], np.where(np.isin(y, digits[:4]), rng.permutation(y), y)),
    }
    answers = {name: describe(model, reference) for name, model in models.items()}
    noise = as_teacher(4 * rng.randn(300, 4), digits[:4], "random answers", output="logits")
    answers["random answers"] = describe(noise, reference)
    answers["constant"] = describe(as_teacher(np.eye(4)[[0] * 300], digits[:4], output="logits"), reference)
    return answers, reference, X[own][wanted], y[own][wanted]


@pytest.mark.parametrize("method", BY_INPUTS)
@pytest.mark.parametrize("seed", range(3))
def test_the_right_model_comes_first_and_poisoned_ones_do_not(method: str, seed: int) -> None:
    found = list(shortlist(*planted(seed), method=method))
    assert found[0] == "right"
    assert not {"random answers", "constant"} & set(found[:2])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_scores_every_model_best_first(method: str) -> None:
    kept, *task = planted(0)
    found = shortlist(kept, *task, method=method)
    assert sorted(found) == sorted(kept)
    scores = list(found.values())
    assert scores == sorted(scores, reverse=True)
    assert not np.isnan(scores).any()


@pytest.mark.parametrize("method", METHODS)
def test_neither_the_order_of_models_nor_of_classes_matters(method: str) -> None:
    kept, *task = planted(1)
    turned = {name: _turned(kept[name]) for name in reversed(kept)}
    before, after = (shortlist(one, *task, method=method) for one in (kept, turned))
    for name, score in before.items():
        assert after[name] == pytest.approx(score, rel=1e-3, abs=1e-3)


def _turned(kept: Description) -> Description:
    """Return the same description with its classes in reverse order."""
    changed: Mapping[str, Any] = {"classes": kept.classes[::-1], "answers": kept.answers[:, ::-1]}
    return Description(**{**kept.arrays, **changed})


def test_rows_without_a_label_are_left_out() -> None:
    kept, reference, rows, labels = planted(2)
    with_more = np.concatenate([rows, X[:50]]), [*labels.tolist(), *[None] * 50]
    assert shortlist(kept, reference, *with_more) == shortlist(kept, reference, rows, labels)


def test_names_of_classes_count_for_one_method_only() -> None:
    kept, reference, rows, labels = planted(0)
    hidden = {
        name: Description(**{**one.arrays, "classes": np.array([f"c{i}" for i in range(len(one.classes))])})
        for name, one in kept.items()
    }
    assert shortlist(hidden, reference, rows, labels) == shortlist(kept, reference, rows, labels)
    named = shortlist(kept, reference, rows, labels, method="names")
    assert shortlist(hidden, reference, rows, labels, method="names") != named


def test_the_regression_is_kernel_ridge_and_the_neighbours_are_those_of_scikit_learn() -> None:
    kept, reference, rows, labels = planted(0)
    search = _search(kept, reference, rows, labels)
    values = np.random.RandomState(0).randn(len(reference), 3)
    oracle = KernelRidge(alpha=RIDGE * len(reference), kernel="rbf", gamma=1 / search.width)
    oracle.fit(search.reference, values)
    np.testing.assert_allclose(search.ridge @ values, oracle.predict(search.rows), atol=1e-8)
    nearest = KNeighborsRegressor(module.NEIGHBOURS).fit(search.reference, values)
    np.testing.assert_allclose(search.neighbours @ values, nearest.predict(search.rows), atol=1e-12)


def test_a_stand_in_that_knows_the_rows_says_what_the_model_said() -> None:
    kept, reference, _, _ = planted(0)
    search = _search(kept, reference, reference, np.arange(len(reference)) % 2)
    exact = module.stand_ins(search, np.eye(len(reference)))["0"]
    answers = kept["right"].answers.astype(float)
    said = exact.predict_logits(reference)
    said = said - np.log(np.exp(said).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(np.exp(said), np.exp(answers), atol=2e-3)


def _search(kept: Mapping[str, Description], reference: Any, rows: Any, labels: Any) -> Search:
    known, new = comparable_rows(reference, rows)
    classes, codes = np.unique(labels, return_inverse=True)
    return Search(list(kept.values()), known, new, new, classes, codes, 0)


def test_texts_are_compared_by_their_letters() -> None:
    texts = [f"{animal} number {i}" for i in range(30) for animal in ("goldfish", "penguin")]
    sure, unsure = np.tile(4 * np.eye(2), (30, 1)), np.random.RandomState(0).randn(60, 2)
    kept = {
        name: describe(as_teacher(logits, ["fish", "bird"], output="logits"), texts)
        for name, logits in {"random": unsure, "animals": sure}.items()
    }
    task = [f"a {animal}, {i}" for i in range(10) for animal in ("goldfish", "penguin")]
    found = shortlist(kept, texts, task, ["swims", "walks"] * 10)
    assert list(found) == ["animals", "random"]


def test_missing_numbers_count_as_the_mean() -> None:
    reference, rows = np.array([[0.0, np.nan], [2.0, 4.0]]), np.array([[np.nan, 4.0], [np.inf, np.nan]])
    known, new = comparable_rows(reference, rows)
    assert np.isfinite(known).all()
    np.testing.assert_array_equal(new, np.zeros((2, 2)))


def test_an_empty_repository_gives_an_empty_list() -> None:
    assert shortlist({}, X[:5], X[:5], y[:5]) == {}


def test_says_what_is_wrong() -> None:
    kept, reference, rows, labels = planted(0)
    given: dict[str, tuple[Any, Any, Any]] = {
        r"'right'. is of 300 reference rows, and there are 299": (kept, reference[:-1], rows),
        "X has 63 columns and the reference has 64": (kept, reference, rows[:, 1:]),
        "give a mapping": ([1], reference, rows),
        "what describe returned": ({"a": 1}, reference, rows),
        "Encode columns of words first": (kept, [[object()] * 64] * 300, rows),
        "no finite number": (kept, np.full((300, 64), np.nan), rows),
    }
    for says, arguments in given.items():
        with pytest.raises(ConsilienceError, match=says):
            shortlist(*arguments, labels)
    with pytest.raises(ConsilienceError, match=r"method='leap' is unknown.*Did you mean 'leep'"):
        shortlist(kept, reference, rows, labels, method="leap")

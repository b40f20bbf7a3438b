from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import cohen_kappa_score
from sklearn.neighbors import NearestNeighbors

from consilience import InvalidInputError, Run, Unifier, as_teacher, methods, students
from consilience.rows import as_rows
from consilience.soft_labels import estimate as solver
from consilience.soft_labels import neighbours
from consilience.soft_labels.neighbours import average_over_neighbours

K = 4


def blobs(seed: int, n: int = 240) -> tuple[Any, Any]:
    """Return rows in four groups, and soft labels that are right in most of them."""
    X, y = make_blobs(n, 5, centers=K, cluster_std=2.0, random_state=seed)
    random = np.random.default_rng(seed)
    Q = np.full((n, K), 0.1) + random.uniform(0, 0.2, size=(n, K))
    Q[np.arange(n), np.where(random.uniform(size=n) < 0.8, y, random.integers(K, size=n))] += 1.0
    return X, Q / Q.sum(axis=1, keepdims=True)


def nearest(X: Any, k: int = 7) -> Any:
    return NearestNeighbors(n_neighbors=k + 1).fit(X).kneighbors(X, return_distance=False)[:, 1:]


def pairs(Q: Any, near: Any) -> tuple[Any, Any]:
    """Return the decisions of each row, repeated, and those of its neighbours."""
    decisions = Q.argmax(axis=1)
    return np.repeat(decisions, near.shape[1]), decisions[near].ravel()


def average(X: Any, Q: Any, k: int, *, required: bool = True) -> tuple[Any, float]:
    """Return soft labels mixed with those of neighbours, and the weight of these."""
    mixed = np.array(Q)
    return mixed, average_over_neighbours(as_rows(X), mixed, np.ones(len(Q), bool), k, required=required)


@pytest.mark.parametrize("block_rows", [2**14, 16])
@pytest.mark.parametrize("seed", range(3))
def test_labels_are_mixed_with_the_mean_of_the_nearest_rows(
    seed: int, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", block_rows)
    X, Q = blobs(seed)
    near = max((nearest(X), nearest(X / X.std(axis=0))), key=lambda near: np.equal(*pairs(Q, near)).mean())
    found, weight = average(X, Q, 7)
    assert 0 < weight <= 0.5
    np.testing.assert_allclose(found, (1 - weight) * Q + weight * Q[near].mean(axis=1), rtol=1e-9)


def test_of_many_rows_some_are_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MOST_ROWS", 100)
    X, Q = blobs(0)
    some = solver.rows_to_compare(len(X), 5)
    found, weight = average(X, Q, 7)
    assert weight > 0.3
    plain, own = (
        NearestNeighbors(n_neighbors=8).fit(Z[some]).kneighbors(Z, return_distance=False)
        for Z in (X, X / X[some].std(axis=0))
    )
    means = []
    for near in (plain, own):
        itself = some[near[:, 0]] == np.arange(len(X))
        means.append(np.where(itself[:, None], Q[some[near[:, 1:]]].mean(1), Q[some[near[:, :7]]].mean(1)))
    expected = [(1 - weight) * Q + weight * mean for mean in means]
    assert any(np.allclose(found, one) for one in expected)


def test_rows_with_holes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Q = blobs(0)
    monkeypatch.setattr(solver, "MOST_ROWS", 100)
    hole = np.setdiff1d(np.arange(len(X)), solver.rows_to_compare(len(X), 5))[0]
    X[hole] = np.nan
    found, weight = average(X, Q, 7)
    assert weight > 0
    np.testing.assert_array_equal(found[hole], Q[hole])


@pytest.mark.parametrize("seed", range(4))
def test_the_agreement_is_cohens_kappa(seed: int) -> None:
    X, Q = blobs(seed, 120)
    # neighbours that are a permutation: then both sides have the same shares, which Cohen's chance assumes
    near = np.random.default_rng(seed).permutation(len(X))[:, None].astype(np.int32)
    assert neighbours._agreement(Q, near) == pytest.approx(cohen_kappa_score(*pairs(Q, near)))


@pytest.mark.parametrize("seed", range(4))
def test_rows_without_structure_are_left_alone(seed: int) -> None:
    _, Q = blobs(seed)
    noise = np.random.default_rng(seed).normal(size=(len(Q), 5))
    found, weight = average(noise, Q, 7)
    assert weight == 0
    np.testing.assert_array_equal(found, Q)


def test_labels_that_all_decide_alike_are_left_alone() -> None:
    X, _ = blobs(0)
    Q = np.tile([0.7, 0.1, 0.1, 0.1], (len(X), 1))
    assert average(X, Q, 7)[1] == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_column_in_small_units_does_not_decide_who_is_near(seed: int) -> None:
    X, Q = blobs(seed)
    noise = 1e4 * np.random.default_rng(seed).normal(size=(len(X), 1))
    plain = average(X, Q, 7)[1]
    assert average(np.hstack([X, noise]), Q, 7)[1] > 0.8 * plain > 0


def test_a_class_of_few_rows_has_few_neighbours() -> None:
    X, Q = blobs(2, 12)  # three rows a class, so two others
    found, weight = average(X, Q, 10)
    assert weight > 0
    np.testing.assert_array_equal(found, average(X, Q, 2)[0])
    assert average(X[:4], Q[:4], 10)[1] == 0


WITHOUT_DISTANCES: dict[str, Any] = {
    "texts": ["a", "b", "c"] * 80,
    "words": np.array([["a", "b"]] * 240),
    "sparse": csr_array(np.eye(240)),
    "missing": np.where(np.eye(240, 3), np.nan, 1.0),
    "infinite": np.where(np.eye(240, 3), np.inf, 1.0),
    "ragged": [[1.0], [1.0, 2.0]] * 120,
    "one column": np.arange(240.0),
}


@pytest.mark.parametrize("name", WITHOUT_DISTANCES)
def test_rows_without_distances_are_left_alone_or_refused(name: str) -> None:
    X, Q = WITHOUT_DISTANCES[name], blobs(0)[1]
    found, weight = average(X, Q, 7, required=False)
    assert weight == 0
    np.testing.assert_array_equal(found, Q)
    with pytest.raises(InvalidInputError, match=r"n_neighbors=7 compares rows by distance.*n_neighbors=0"):
        average(X, Q, 7)


@pytest.fixture(scope="module")
def two_sites() -> tuple[Any, Any, Any]:
    """Return rows and two teachers that share one class; labels to measure with."""
    X, y = make_blobs(400, 5, centers=K, cluster_std=2.5, random_state=5)
    low, high = (
        LogisticRegression().fit(X[i], y[i]) for i in (y[:200] < 3, y[:200] > 1) for i in (np.flatnonzero(i),)
    )
    return X, y, [low, high]


def test_a_unifier_averages_by_default_and_says_so(two_sites: Any) -> None:
    X, _, teachers = two_sites
    unified = Unifier(teachers, "logistic", random_state=0).fit(X)
    assert unified.neighbor_weight_ > 0.3
    plain = Unifier(teachers, "logistic", random_state=0, method=methods.Auto(n_neighbors=0)).fit(X)
    assert plain.neighbor_weight_ == 0
    expected, weight = average(X, plain.soft_labels_, 10)
    assert unified.neighbor_weight_ == weight
    np.testing.assert_array_equal(unified.soft_labels_, expected)
    np.testing.assert_array_equal(unified.estimate(X), unified.soft_labels_)


@pytest.mark.parametrize(
    ("method", "student", "wanted"),
    [
        ("auto", None, True),
        ("auto", "mlp", True),
        ("auto", lambda: None, True),  # a factory of networks
        ("auto", "forest", False),
        ("auto", LogisticRegression(), False),  # one that we have not measured
        ("ce", "logistic", False),
        ("ranks", "logistic", False),
    ],
)
def test_the_default_is_for_what_was_measured(
    method: Any, student: Any, wanted: bool, two_sites: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, teachers = two_sites
    for memory in (None, "20KB"):  # it does not hang on how much fits
        unifier = Unifier(teachers, student, method, run=Run(memory=memory))
        assert (unifier.make_estimate(X).neighbor_weight > 0) == wanted


def test_rows_on_which_nobody_answers_take_no_part() -> None:
    X, Q = blobs(4)
    silent = np.arange(len(X)) % 5 == 0
    logits = np.where(silent[:, None], np.nan, np.log(Q))
    teacher = as_teacher(logits, list("abcd"), output="logits")
    with pytest.warns(match="Every teacher abstains on 48 of 240 rows"):
        found = Unifier([teacher], "logistic", balance=False).estimate(X)
    np.testing.assert_allclose(found[silent], 0.25)
    one = Unifier([as_teacher(logits[~silent], list("abcd"), output="logits")], "logistic")
    np.testing.assert_allclose(found[~silent], one.estimate(X[~silent]))


def test_what_cannot_be_averaged_is_refused(two_sites: Any) -> None:
    X, _, teachers = two_sites
    with pytest.raises(InvalidInputError, match=r"n_neighbors=3 needs soft labels; use train='estimate'"):
        Unifier(teachers, method=methods.Auto(n_neighbors=3), student=students.Network(train="backprop")).fit(
            X
        )
    with pytest.raises(InvalidInputError, match="n_neighbors"):
        Unifier(teachers, method=methods.Auto(n_neighbors=-1)).fit(X)

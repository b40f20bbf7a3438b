"""CollisionClustering as a user meets it."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import softmax
from sklearn.datasets import load_digits, make_blobs
from sklearn.linear_model import LogisticRegression

from consilience import (
    CollisionClassifier,
    CollisionClustering,
    ConvergenceWarning,
    CoverageWarning,
    InvalidInputError,
    Run,
    clustering_accuracy,
)
from consilience.cluster import MI, Collision, Linear, Own
from consilience.cluster.losses import Problem, clustering_loss
from consilience.cluster.options import LOSSES
from consilience.cluster.starts import sample
from consilience.kernels.neighbours import mean_of_neighbours, nearest_neighbours

X, Y = make_blobs(300, 5, centers=4, cluster_std=1.0, random_state=0)


@pytest.mark.parametrize("init", ["graph", "k-means++"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_finds_plain_clusters(loss, init):
    model = CollisionClustering(4, loss=loss, n_init=3, init=init, random_state=0).fit(X)
    assert clustering_accuracy(Y, model.labels_) > 0.98
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    np.testing.assert_array_equal(model.labels_, model.predict_proba(X).argmax(axis=1))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.objective_ == model.objective_history_[-1] < model.objective_history_[0]
    assert len(model.objective_history_) == model.n_iter_ + 1
    assert np.isfinite(model.objective_history_).all()


def test_the_paper_s_protocol_runs_and_learns():
    options = {"protocol": "paper", "random_state": 0}
    model = CollisionClustering(4, model=Linear(max_iter=200), **options).fit(X)
    assert model.objective_history_[-1] < model.objective_history_[0]
    assert clustering_accuracy(Y, model.labels_) > 0.8
    assert len(CollisionClustering(4, **options).fit(X).objective_history_) == 10


def test_more_starts_never_end_higher_and_threads_change_nothing():
    X = load_digits().data[:400]
    options = {"init": "k-means++", "random_state": 3}
    one = CollisionClustering(10, n_init=1, **options).fit(X)
    some = CollisionClustering(10, n_init=4, **options).fit(X)
    threads = CollisionClustering(10, n_init=4, run=Run(n_jobs=2), **options).fit(X)
    np.testing.assert_array_equal(some.coef_, threads.coef_)
    assert some.objective_ <= one.objective_


def test_without_a_graph_or_with_labels_starts_are_random_rows():
    """The graph of neighbours is used where it is asked for, there are neighbours, and there is no label."""
    some = np.where((np.arange(300) < 9) & (Y < 2), Y, -1)
    for options, labels, same in (({}, None, False), ({"n_neighbors": 0}, None, True), ({}, some, True)):
        graph, random = (
            CollisionClustering(4, n_init=2, init=init, random_state=0, **options).fit(X, labels).coef_
            for init in ("graph", "k-means++")
        )
        assert np.array_equal(graph, random) == same


def test_many_rows_start_from_a_sample_and_end_with_all(monkeypatch):
    """Take 300 rows for many: the model of the sample goes on with the others, and is no worse for it."""
    X, y = load_digits(return_X_y=True)
    whole = CollisionClustering(10, n_init=3, random_state=0).fit(X)
    monkeypatch.setattr("consilience.cluster.rounds._SAMPLE_ROWS", 300)
    tasks = []
    options = {"n_init": 3, "random_state": 0}
    model = CollisionClustering(10, **options, run=Run(progress=lambda *what: tasks.append(what))).fit(X)
    assert {task for task, _, _ in tasks} == {"neighbours", "clustering", "all rows"}
    assert model.n_iter_ <= 10
    assert model.objective_ < whole.objective_ + 0.1
    assert clustering_accuracy(y, model.labels_) > 0.8
    np.testing.assert_array_equal(model.labels_, CollisionClustering(10, **options).fit_predict(X))
    labels = np.where(np.arange(len(y)) < 60, y, -1)
    assert np.mean(CollisionClustering(10, **options).fit_predict(X, labels) == y) > 0.85


def test_a_sample_has_labelled_rows_up_to_half():
    few, many = np.full(50, -1), np.zeros(50, dtype=np.intp)
    few[[3, 40]] = 1
    assert {3, 40} < set(sample(few, 10, 0).tolist())
    some = np.where(np.arange(50) < 20, 1, -1)
    assert 5 <= (sample(some, 10, 0) < 20).sum() < 10  # labelled ones fill half, and random rows the rest
    for fixed in (few, many, some):
        rows = sample(fixed, 10, 0)
        assert len(np.unique(rows)) == 10
        assert rows.max() < 50


@pytest.mark.parametrize("per_blob", [1, 3, 4])
def test_few_rows_have_few_neighbours(per_blob):
    """Ten neighbours of nine rows would make all rows alike."""
    X, y = make_blobs(3 * per_blob, 2, centers=[[0, 0], [20, 0], [0, 20]], random_state=0)
    assert clustering_accuracy(y, CollisionClustering(3, random_state=0).fit_predict(X)) == 1.0


def test_scale_shift_and_precision_do_not_matter():
    labels = CollisionClustering(4, n_init=2, random_state=0).fit_predict(X)
    for other in (1e3 * X + 7.0, 1e-3 * X, X.astype(np.float32)):
        same = CollisionClustering(4, n_init=2, random_state=0).fit_predict(other)
        assert clustering_accuracy(labels, same) > 0.99


def test_shares_follow_the_prior_or_the_data():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [480, 120])
    X = rng.normal(size=(600, 3)) + 1.7 * y[:, None]
    told = CollisionClustering(2, prior=[0.8, 0.2], n_init=3, random_state=0).fit(X)
    forced = CollisionClustering(2, n_init=3, random_state=0).fit(X)
    # classes that overlap leave no gap in the graph of neighbours, which is then cut in halves
    free = CollisionClustering(2, Collision(lam=0.1), n_init=3, init="k-means++", random_state=0).fit(X)
    share = [np.bincount(model.labels_, minlength=2).min() / len(X) for model in (told, forced, free)]
    assert share[0] == pytest.approx(0.2, abs=0.05)
    assert share[1] > 0.35
    assert share[2] < share[1] - 0.05
    assert clustering_accuracy(y, told.labels_) > clustering_accuracy(y, forced.labels_) + 0.1


def test_labelled_rows_name_their_clusters():
    partial = np.full(len(Y), -1)
    for c in (1, 3):
        partial[np.flatnonzero(c == Y)[:3]] = c
    model = CollisionClustering(4, n_init=3, random_state=0).fit(X, partial)
    for c in (1, 3):
        assert (model.labels_[c == Y] == c).mean() > 0.95
    assert clustering_accuracy(Y, model.labels_) > 0.97


def test_names_number_the_clusters_in_sorted_order():
    few = np.arange(len(Y)) < 40
    names = np.array(["ant", "bee", "cat", "dog"], dtype=object)[Y]
    expected = CollisionClustering(4, n_init=3, random_state=0).fit(X, np.where(few, Y, -1)).labels_
    for some in (np.where(few, names, None), np.ma.array(Y, mask=~few), np.where(few, Y, np.nan)):
        model = CollisionClustering(4, n_init=3, random_state=0).fit(X, some)
        np.testing.assert_array_equal(model.labels_, expected)


@pytest.mark.parametrize("loss", LOSSES)
def test_few_labels_beat_none_and_themselves(loss):
    X, y = load_digits(return_X_y=True)
    X, y = X[:900], y[:900]
    known = np.random.default_rng(0).permutation(len(X))[:45]
    partial = np.full(len(y), -1)
    partial[known] = y[known]
    both = CollisionClustering(10, loss=loss, random_state=0).fit(X, partial)
    hidden = partial < 0
    only_seeds = (
        LogisticRegression(max_iter=1000).fit(X[known] / 16, y[known]).score(X[hidden] / 16, y[hidden])
    )
    # clusters are classes: no match is needed
    assert (both.labels_ == y)[hidden].mean() > only_seeds + 0.03


def test_wrong_arguments_are_refused_in_one_sentence():
    for options, words in (
        ({"n_clusters": 0}, "n_clusters=0 must be"),
        ({"loss": "colision"}, "Did you mean 'collision'"),
        ({"model": "forest"}, "model='forest' is unknown"),
        ({"loss": Collision(lam=-1.0)}, "lam=-1.0 must be"),
        ({"prior": [0.5, 0.5]}, r"shape \(2,\); expected numbers \(4,\)"),
        ({"prior": "uniform"}, "prior has shape"),
        ({"prior": [1, 0, 1, 1]}, r"prior is \[1, 0, 1, 1\]; expected a positive share"),
        ({"init": "k-means"}, r"init='k-means' is unknown; .*Did you mean 'k-means\+\+'"),
        ({"loss": "iic", "prior": [1, 1, 1, 2]}, "The loss IIC takes no prior"),
        ({"loss": Collision(solver="foo")}, "solver='foo' is unknown"),
        ({"protocol": "sgd"}, "protocol='sgd' is unknown"),
        ({"n_clusters": 301}, "fewer than n_clusters=301"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            CollisionClustering(**{"n_clusters": 4, **options}).fit(X)
    for wrong, words in (
        (Y + 1, "labels from 1 to 4"),
        (Y[:10], "y has 10 labels and X has 300 rows"),
        (Y + 0.5, "Unknown label type: continuous. y has the label 0.5; give numbers of clusters"),
        (np.where(Y == 0, np.inf, Y), "y has inf in row"),
        ([*"abcde", *[None] * 295], "or at most 4 names .*They name 5 classes"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            CollisionClustering(4).fit(X, wrong)


def test_clusters_that_have_not_settled_are_reported():
    X = load_digits().data[:300]
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1, with .*% of rows changing"):
        CollisionClustering(10, n_init=1, init="k-means++", model=Linear(max_iter=1), random_state=0).fit(X)


def test_fewer_clusters_than_asked_for_are_reported():
    X = np.repeat([[0.0, 0.0], [9.0, 9.0]], 30, axis=0)  # two points cannot make three clusters
    with pytest.warns(CoverageWarning, match=r"Only [12] of 3 clusters have rows. Raise lam"):
        CollisionClustering(3, n_init=1, random_state=0).fit(X)


def test_clusters_that_died_are_reported_with_their_sizes():
    """Two far rows with a label of their own are a cluster of 2 rows of 302, where a share is 60."""
    wide = np.concatenate([X, [[90.0] * 5, [91.0] * 5]])
    labels = np.append(np.where(np.arange(300) % 10 == 0, Y, -1), [4, 4])
    words = r"^1 of 5 clusters have under 5% of their share of 302 rows: 4 \(2\). Raise lam or n_init,"
    with pytest.warns(CoverageWarning, match=words):
        CollisionClustering(5, Collision(lam=0.01), random_state=0).fit(wide, labels)
    # no warning: that is the share asked for
    CollisionClustering(5, Collision(lam=0.01), prior=[75, 75, 75, 75, 2], random_state=0).fit(wide, labels)


def test_progress_counts_up_to_the_end_whether_or_not_starts_end_early():
    for init, total in (("graph", 4 + 2 + 1), ("k-means++", 4)):
        calls = []
        CollisionClustering(
            4,
            init=init,
            n_init=4,
            random_state=0,
            run=Run(progress=lambda *what: calls.append(what)),  # noqa: B023
        ).fit(X)
        assert calls[:2] == [("neighbours", 0, 1), ("neighbours", 1, 1)]
        assert {task for task, _, _ in calls[2:]} == {"clustering"}
        done = [done for _, done, _ in calls[2:]]
        assert done == sorted(done)
        assert calls[2][1:] == (1, total)
        assert calls[-1][1:] == (total, total)
        assert len(calls) == 2 + total


def test_labels_that_are_not_exact_are_reported_with_a_remedy_that_the_estimator_has():
    options = {"model": Linear(max_iter=1, tol=1.0), "n_init": 1, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="iterations of em. Use solver='interior-point', or lower"):
        CollisionClustering(4, Collision(solver="em", lam=1e4), **options).fit(X[:60])
    with pytest.warns(ConvergenceWarning, match=r"iterations of interior-point. Lower lam.$"):
        CollisionClustering(4, Collision(lam=1e12), **options).fit(X[:60])


@pytest.mark.filterwarnings("ignore:Clustering stopped:consilience.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.* clusters have:consilience.CoverageWarning")
def test_options_reach_the_training():
    partial = np.where(np.arange(120) % 20 == 0, (Y[:120] + 1) % 4, -1)  # labels against the data

    def coefficients(loss="collision", weight_decay=5e-4, **options):
        model = Linear(weight_decay=weight_decay, max_iter=2, tol=0.0)
        options = {"n_init": 1, "random_state": 0, **options}
        return CollisionClustering(4, loss, model, **options).fit(X[:120], partial).coef_

    paper = {"protocol": "paper"}
    for one, other, same in (
        ({"n_neighbors": 3, **paper}, paper, True),  # it has no neighbours
        ({"loss": Collision(label_weight=9.0)}, {}, False),
        ({"loss": Collision(label_weight=2.0)}, {}, True),
        ({"n_neighbors": 3}, {}, False),
        ({"weight_decay": 0.1}, {}, False),
        ({"loss": Collision(lam=1.0)}, {}, False),
        ({"loss": Collision(lam=100.0)}, {}, True),
    ):
        assert np.array_equal(coefficients(**one), coefficients(**other)) == same, one


def test_odd_rows():
    with pytest.warns(CoverageWarning, match="Only 1 of 2"):
        same = CollisionClustering(2, n_init=1, random_state=0).fit(np.ones((6, 2)))
    assert len(set(same.labels_)) == 1
    assert (CollisionClustering(1, n_init=1, random_state=0).fit(X).labels_ == 0).all()
    each = CollisionClustering(4, n_init=2, n_neighbors=0, random_state=0).fit(4.0 * np.eye(4))
    assert sorted(each.labels_) == [0, 1, 2, 3]


def mutual_information_of_means(proba, mean_proba):
    """A user's loss: what loss="mi" minimises with lam=3 and four clusters, up to the constant 3 ln 4."""
    share = mean_proba.mean(axis=0)
    log_rows, log_share = np.log(mean_proba + 1e-200), np.log(share + 1e-200)
    value = 3 * share @ log_share - (mean_proba * log_rows).sum() / len(proba)
    return value, 0.0, (3 * (log_share + 1) - log_rows - 1) / len(proba)


@pytest.mark.parametrize("protocol", ["full-batch", "paper"])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.filterwarnings("ignore:Only 3 of 4 clusters:consilience.CoverageWarning")  # ten epochs are few
def test_an_own_loss_does_what_the_built_in_one_does(protocol, labelled):
    partial = np.where(np.arange(len(Y)) % 30 == 0, Y, -1) if labelled else None
    options = {"n_init": 2, "random_state": 0, "protocol": protocol}
    own = CollisionClustering(4, loss=mutual_information_of_means, **options).fit(X, partial)
    ours = CollisionClustering(4, loss=MI(lam=3.0), **options).fit(X, partial)
    np.testing.assert_allclose(own.predict_proba(X), ours.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(
        own.objective_history_ + 3 * np.log(4), ours.objective_history_, rtol=1e-4, atol=1e-6
    )


def test_an_own_loss_may_depend_on_a_row_and_on_its_neighbours():
    """The gradient by each of the two counts: a loss of one alone, or of both, has the slope it says."""
    near = nearest_neighbours(X[:40], 3, 0)
    target = np.random.default_rng(0).random((40, 4))

    def own(S, A):
        return float((target * S * A).sum()), target * A, target * S

    problem = Problem(Own(own), np.full(4, 0.25), np.full(40, -1), near)
    z = np.random.default_rng(1).normal(size=(40, 4))
    S = softmax(z, axis=1)
    loss, value = clustering_loss(problem)(S, mean_of_neighbours(S, near))
    assert value == pytest.approx(loss(z)[0])
    slope = approx_fprime(z.ravel(), lambda flat: loss(flat.reshape(z.shape))[0], 1e-7)
    np.testing.assert_allclose(loss(z)[1].ravel(), slope, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "options", "words"),
    [
        (lambda S, A: 1.0, {}, "The loss returned a float; expected three"),
        (lambda S, A: (np.nan, 0.0, A), {}, "value nan"),
        (lambda S, A: (1.0, 0.0, np.log(0 * A)), {}, "not finite"),
        (lambda S, A: (1.0, 0.0, A[:2]), {}, r"each \(300, 4\)"),
        (lambda S, A: ("low", 0.0, A), {}, "could not convert string"),
        (mutual_information_of_means, {"prior": [1, 1, 1, 2]}, "The loss Own takes no prior"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_wrong_own_losses_are_refused_in_one_sentence(loss, options, words):
    with pytest.raises(InvalidInputError, match=words):
        CollisionClustering(4, loss=loss, n_init=1, random_state=0, **options).fit(X)


@pytest.mark.parametrize("estimator", [CollisionClustering(2), CollisionClassifier()])
def test_numbers_too_large_to_be_squared_are_refused(estimator):
    huge = np.array(X, dtype=np.float64)
    huge[0, 0] = 1e307
    with pytest.raises(InvalidInputError, match=r"X reaches 1e\+307 in size"):
        estimator.fit(huge, np.arange(len(X)) % 2)

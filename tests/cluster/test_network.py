"""CollisionClustering with a network."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits, make_blobs  # noqa: E402
from torch import nn  # noqa: E402

from consilience import (  # noqa: E402
    CollisionClustering,
    ConvergenceWarning,
    InvalidInputError,
    Run,
    clustering_accuracy,
    students,
)
from consilience.cluster import Linear, Network, Own  # noqa: E402
from consilience.cluster.losses import Problem, clustering_loss  # noqa: E402
from consilience.cluster.network import BatchLoss, RoundLoss, warm_up_epochs  # noqa: E402
from consilience.cluster.options import LOSSES  # noqa: E402
from consilience.kernels.neighbours import nearest_neighbours  # noqa: E402

# networks that train for an epoch or two need not find every cluster
pytestmark = pytest.mark.filterwarnings("ignore:.* clusters have:consilience.CoverageWarning")

DIGITS = load_digits()
IMAGES = (DIGITS.images[:, None] / 16).astype(np.float32)


def small(n_features, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(n_features, 32), nn.ReLU(), nn.Linear(32, n_classes))


def convolutional(n_classes):
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, n_classes),
    )


def fitted(X, y=None, *, n_clusters=4, settled=True, **options):
    own = {key: options.pop(key) for key in ("augment", "max_iter", "tol") if key in options}
    options = {"model": small, "n_init": 2, "random_state": 0, **options}
    options["model"] = Network(options["model"], **own)
    with warnings.catch_warnings():
        if not settled:  # few epochs are enough for what is tested
            warnings.filterwarnings("ignore", message="Clustering stopped", category=ConvergenceWarning)
        return CollisionClustering(n_clusters, **options).fit(X, y)


X, Y = make_blobs(400, 5, centers=4, cluster_std=1.0, random_state=0)


def test_a_convolutional_network_clusters_digits_better_than_k_means():
    model = fitted(IMAGES, n_clusters=10, model=convolutional, augment="images", max_iter=15, settled=False)
    # k-means has about 79 %
    assert clustering_accuracy(DIGITS.target, model.labels_) > 0.84
    assert len(model.objective_history_) == model.n_iter_ + 1
    assert model.objective_ == model.objective_history_[-1] < model.objective_history_[0]
    assert not model.module_.training
    # the network itself, without what augmented its input
    assert isinstance(model.module_, nn.Sequential)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("protocol", ["full-batch", "paper"])
def test_every_loss_trains_a_network(loss, protocol):
    model = students.Network(small, lr=3e-3, batch_size=100, max_iter=40)
    made = fitted(X, model=model, loss=loss, protocol=protocol, augment="rows", settled=False)
    assert made.objective_history_[-1] < made.objective_history_[0]
    assert clustering_accuracy(Y, made.labels_) > (0.9 if protocol == "full-batch" else 0.7)


def test_predictions_are_those_of_the_module_also_for_new_rows():
    model = fitted(X[:300], max_iter=10, settled=False)
    np.testing.assert_array_equal(model.labels_, model.predict(X[:300]))
    proba = model.predict_proba(X[300:])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(X[300:]))
    both = np.concatenate([model.labels_, model.predict(X[300:])])
    assert clustering_accuracy(Y, both) > 0.95
    assert model.n_features_in_ == 5


def test_a_seed_repeats_the_result_and_the_module_given_is_left_alone():
    module = small(5, 4)
    before = copy.deepcopy(module.state_dict())
    options = {"model": module, "augment": "rows", "max_iter": 3, "settled": False}
    state = torch.random.get_rng_state()
    one, two = (fitted(X, **options) for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert not np.array_equal(one.predict_proba(X), fitted(X, random_state=1, **options).predict_proba(X))
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert one.get_params()["model"].module is module


def test_a_network_starts_from_the_linear_model_or_without_neighbours_from_itself():
    lazy = students.Network(small, lr=1e-12, max_iter=1, batch_size=100)  # it stays as it was made
    itself = fitted(X, model=lazy, n_neighbors=0, settled=False)
    assert itself.n_iter_ == 1
    taught = fitted(X, model=lazy.set_params(lr=1e-2), settled=False, tol=1.0)
    # the steps towards the linear model's labels come before the first round
    assert taught.n_iter_ == 1
    assert clustering_accuracy(Y, taught.labels_) > 0.95 > clustering_accuracy(Y, itself.labels_)
    assert warm_up_epochs(400, 100) == 13
    assert warm_up_epochs(100_000, 250) == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_batches_sample_the_gradient_of_the_whole_loss(loss):
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(60, 3)), 60
    fixed = np.where(rng.uniform(size=n) < 0.2, rng.integers(4, size=n), -1)
    made = LOSSES[loss]() if loss == "sela" else LOSSES[loss](lam=2.0)
    problem = Problem(made, np.full(4, 0.25), fixed, nearest_neighbours(X, 5, 0))
    logits = rng.normal(size=(n, 4))
    S = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    whole = clustering_loss(problem)(S, S).loss
    value, gradient = whole(logits)
    criterion = RoundLoss()
    criterion.loss, criterion.logits = whole, logits.copy()
    parts = []
    for rows in np.arange(n).reshape(3, 20):
        z = torch.tensor(logits[rows], requires_grad=True)
        out = criterion(z, torch.tensor(rows, dtype=torch.float32)[:, None])
        assert out.item() == pytest.approx(value)
        out.backward()
        parts.append(z.grad.numpy())
    np.testing.assert_allclose(np.concatenate(parts) / 3, gradient, atol=1e-12)


def test_rows_outside_the_batch_move_with_it():
    criterion = RoundLoss()
    criterion.logits = np.zeros((4, 2))
    criterion.loss = lambda logits: (0.0, np.zeros_like(logits))
    criterion(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0], [1.0]]))
    np.testing.assert_array_equal(criterion.logits, [[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [2.0, 0.0]])


def test_views_of_a_row_are_averaged_in_the_paper_s_protocol():
    seen = {}

    def loss(S, A):
        seen["S"], seen["A"] = S, A
        return 0.5, 0.0, np.arange(12.0).reshape(6, 2)

    fixed = np.full(10, -1)
    criterion = BatchLoss()
    criterion.problem = Problem(Own(loss), np.full(2, 0.5), fixed, np.empty((10, 0), np.int32))
    z = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    rows = torch.tensor([[4.0], [2.0], [9.0]])
    out = criterion(z, rows)
    out.backward()
    assert out.item() == 0.5
    np.testing.assert_allclose(seen["A"][:3], (seen["S"][:3] + seen["S"][3:]) / 2)
    np.testing.assert_allclose(seen["A"][:3], seen["A"][3:])
    # by the chain rule both views of a row get the mean of the two gradients by their means
    by_S = np.tile((np.arange(12.0).reshape(6, 2)[:3] + np.arange(12.0).reshape(6, 2)[3:]) / 2, (2, 1))
    S = seen["S"]
    np.testing.assert_allclose(z.grad, S * (by_S - (S * by_S).sum(axis=1, keepdims=True)), rtol=1e-5)
    # row 9 is labelled: its two views, and no other, get the cross-entropy's gradient
    fixed[9] = 1
    before, z.grad = z.grad.clone(), None
    criterion(z, rows).backward()
    np.testing.assert_array_equal((z.grad != before).any(dim=1), [False, False, True, False, False, True])


@pytest.mark.parametrize("protocol", ["full-batch", "paper"])
def test_a_callback_of_the_student_may_end_the_training(protocol):
    student = students.Network(
        small, max_iter=30, batch_size=100, callbacks=[lambda trainer: len(trainer.history) == 3]
    )
    model = fitted(X, model=student, n_neighbors=0, protocol=protocol)  # no warning: it was asked for
    assert model.n_iter_ < 5
    assert len(model.objective_history_) == model.n_iter_ + (protocol == "full-batch")


def test_an_interrupt_by_the_user_is_raised():
    def interrupt(trainer):
        raise KeyboardInterrupt

    student = students.Network(small, max_iter=3, batch_size=100, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        fitted(X, model=student, n_neighbors=0)


def test_options_reach_the_training():
    calls = []
    fitted(
        X,
        protocol="paper",
        max_iter=3,
        run=Run(progress=lambda task, done, total: calls.append((task, done, total))),
    )
    assert calls == [("training", 1, 3), ("training", 2, 3), ("training", 3, 3)]
    default = CollisionClustering(4, model=small)._student(0, 10_000)
    assert (default.lr, default.batch_size, default.max_iter) == (1e-3, 250, 50)
    assert CollisionClustering(4, model=small)._student(0, 400).batch_size == 40
    student = students.Network(small, lr=0.5, weight_decay=0.1)
    own = CollisionClustering(4, model=Network(student, batch_size=7))._student(0, 400)
    assert (own.lr, own.weight_decay, own.batch_size) == (0.5, 0.1, 7)
    paper = CollisionClustering(4, model=small, protocol="paper")._student(0, 400)
    assert (paper.lr, paper.batch_size) == (1e-4, 250)


def test_wrong_arguments_are_refused_in_one_sentence():
    for options, words in (
        ({"model": 3}, "model=3 is unknown"),
        ({"model": Linear(tol=-1)}, "tol=-1 must be"),
        ({"model": small(5, 3)}, r"gave shape \(2, 3\).*expected logits of shape \(2, 4\)"),
        ({"model": Network(small, augment="image")}, "augment='image' is unknown"),
        ({"model": Network(small, augment="images")}, r"shape \(40, 5\).*augment='rows'"),
        ({"prior": [0.5, 0.5]}, r"shape \(2,\)"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            CollisionClustering(4, **{"model": small, "n_init": 2, **options}).fit(X)
    model = fitted(X, max_iter=1, settled=False)
    with pytest.raises(ValueError, match="4 features"):
        model.predict(X[:, :4])

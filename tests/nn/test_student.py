"""Network: what it learns, what it does not change, and its errors."""

from __future__ import annotations

import copy
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skorch")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from skorch.callbacks import Callback  # noqa: E402
from torch import nn  # noqa: E402

from consilience.exceptions import InvalidInputError, MissingDependencyError, NotFittedError  # noqa: E402
from consilience.labels import LabelSpace  # noqa: E402
from consilience.nn import CEBPLoss, SoftCrossEntropy  # noqa: E402
from consilience.students import Network  # noqa: E402
from consilience.students.modules import Standardize, default_module  # noqa: E402


def blobs(n=200, d=5, k=3, seed=0):
    """Return rows, soft labels and the class of each row; easy to learn."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    X = rng.normal(size=(n, d)) + 6 * rng.normal(size=(k, d))[y]
    return X, 0.9 * np.eye(k)[y] + 0.1 / k, y


def fitted(module=None, *, X=None, Q=None, progress=None, **options):
    if X is None:
        X, Q, _ = blobs()
    options = {"max_iter": 3, "random_state": 0, **options}
    more = {} if progress is None else {"progress": progress}
    student = Network(module, **options)
    return student.fit(X, Q, n_classes=Q.shape[1], criterion=SoftCrossEntropy(), **more)


def weights(student):
    return torch.cat([p.detach().flatten() for p in student.module_.parameters()])


def test_learns_digits_in_few_epochs():
    X, y = load_digits(return_X_y=True)
    Q = 0.9 * np.eye(10)[y] + 0.01
    student = Network(random_state=0).fit(
        X[:1000], Q[:1000], n_classes=10, criterion=SoftCrossEntropy(temperature=2.0)
    )
    logits = student.predict_logits(X[1000:])
    assert logits.dtype == np.float64
    assert logits.shape == (797, 10)
    assert (logits.argmax(axis=1) == y[1000:]).mean() > 0.9
    assert student.n_iter_ < 100
    assert not student.module_.training


def test_learns_classes_from_teachers_that_know_some_each():
    X, _, y = blobs(300)
    space = LabelSpace([[0, 1], [1, 2]])
    packed = np.where(y[:, None] == space.classes[space.columns], 6.0, 0.0)
    packed[y == 2, :2] = np.nan  # the first teacher abstains on what it does not know
    packed[y == 0, 2:] = np.nan
    student = Network(random_state=0, max_iter=40, lr=0.01)
    student.fit(X, packed, n_classes=3, criterion=CEBPLoss(space, temperature=1.0))
    assert (student.predict_logits(X).argmax(axis=1) == y).mean() > 0.95


def test_early_stopping_keeps_the_best_weights():
    X = blobs(120)[0]
    noise = np.random.default_rng(1).dirichlet(np.ones(3), size=120)
    student = fitted(X=X, Q=noise, max_iter=200, patience=4, lr=0.01, validation_fraction=0.3)
    losses = [row["valid_loss"] for row in student.history_]
    assert len(losses) < 200
    assert np.argmin(losses) < len(losses) - 1
    # the history of a run that ends at the best epoch has the weights that were kept
    again = fitted(
        X=X, Q=noise, max_iter=student.n_iter_ - 4, patience=None, lr=0.01, validation_fraction=0.3
    )
    torch.testing.assert_close(weights(student), weights(again))


def test_tensors_are_arrays():
    X, Q, _ = blobs(30)
    tensors = Network(max_iter=2, random_state=0).fit(
        torch.tensor(X), torch.tensor(Q), n_classes=3, criterion=SoftCrossEntropy()
    )
    assert torch.equal(weights(tensors), weights(fitted(X=X, Q=Q, max_iter=2)))


def test_without_patience_all_epochs_run():
    assert fitted(patience=None, max_iter=5).n_iter_ == 5


def test_few_rows_are_not_split():
    X, Q, _ = blobs(24)
    assert "valid_loss" in fitted(X=X, Q=Q).history_[-1]
    assert "valid_loss" not in fitted(X=X[:19], Q=Q[:19]).history_[-1]
    assert "valid_loss" not in fitted(X=X, Q=Q, validation_fraction=0).history_[-1]
    assert fitted(X=X[:1], Q=Q[:1]).predict_logits(X[:1]).shape == (1, 3)


@pytest.mark.parametrize("module", [None, lambda n_features, n_classes: nn.Linear(n_features, n_classes)])
def test_seed_decides_everything_and_leaves_the_global_state(module):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = fitted(module)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    np.random.default_rng().random()
    second = fitted(module)
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(fitted(module, random_state=1)))


def test_order_of_rows_is_seeded():
    net = nn.Linear(5, 3)
    assert torch.equal(weights(fitted(net)), weights(fitted(net)))
    assert not torch.equal(
        weights(fitted(net, validation_fraction=0)),
        weights(fitted(net, random_state=1, validation_fraction=0)),
    )


def test_given_module_is_not_changed():
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).train()
    state = copy.deepcopy(net.state_dict())
    student = fitted(net)
    assert net.training
    assert all(torch.equal(net.state_dict()[name], value) for name, value in state.items())
    assert not torch.equal(student.module_[0].weight, net[0].weight)


@pytest.mark.parametrize(
    "factory",
    [
        lambda: nn.Linear(5, 3),
        lambda n_features, n_classes: nn.Linear(n_features, n_classes),
        lambda width, out: nn.Linear(width, out),
        lambda n_classes, bias=True: nn.Linear(5, n_classes, bias=bias),
        lambda *, n_features=1, n_classes=1: nn.Linear(n_features, n_classes),
        lambda: nn.LazyLinear(3),
    ],
)
def test_factories(factory):
    assert fitted(factory).module_.weight.shape == (3, 5)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Linear(5, 4), r"gave shape \(2, 4\) for 2 rows; expected logits of shape \(2, 3\)"),
        (nn.Linear(6, 3), r"failed on rows of shape \(2, 5\)"),
        (lambda: "net", "returned a str"),
        (lambda: nn.LSTM(5, 3), "gave a tuple"),
        ("mlp", "module is a str"),
    ],
)
def test_wrong_modules_are_named(module, words):
    with pytest.raises(InvalidInputError, match=words):
        fitted(module)


def test_images_and_integers():
    rng = np.random.default_rng(0)
    images, Q = rng.normal(size=(30, 1, 6, 6)), np.eye(2)[rng.integers(2, size=30)]
    cnn = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    assert fitted(cnn, X=images, Q=Q).predict_logits(images).shape == (30, 2)
    assert fitted(X=images, Q=Q).predict_logits(torch.tensor(images)).shape == (30, 2)
    tokens = rng.integers(9, size=(30, 4)).astype(np.uint8)
    bag = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2))
    assert fitted(bag, X=tokens, Q=Q).predict_logits(tokens).shape == (30, 2)
    assert fitted(X=tokens, Q=Q).predict_logits(tokens).shape == (30, 2)
    with pytest.raises(InvalidInputError, match="Integer X stays int64"):
        fitted(nn.Linear(4, 2), X=tokens, Q=Q)


def test_batches_do_not_matter_for_prediction():
    student = fitted(batch_size=7)
    X = blobs()[0]
    one_by_one = np.concatenate([student.predict_logits(row[None]) for row in X[:20]])
    np.testing.assert_allclose(student.predict_logits(X[:20]), one_by_one, atol=1e-5)
    assert student.predict_logits(X[:0]).shape == (0, 3)


def test_a_last_batch_of_one_row_does_not_break_batch_normalisation():
    X, Q, _ = blobs(33)
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    assert fitted(net, X=X, Q=Q, validation_fraction=0, batch_size=32).n_iter_ == 3


def test_progress_and_callbacks_see_every_epoch():
    class Count(Callback):
        epochs = 0

        def on_epoch_end(self, net, **_):
            self.epochs += 1

    seen, count = [], Count()
    student = fitted(callbacks=[count], max_iter=4, progress=lambda *report: seen.append(report))
    assert seen == [("training", epoch, 4) for epoch in (1, 2, 3, 4)]
    assert count.epochs == student.n_iter_ == 4


def test_a_keyboard_interrupt_is_not_taken_for_early_stopping():
    class Interrupt(Callback):
        def on_batch_begin(self, net, **_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(callbacks=[Interrupt()])
    # nor is Ctrl-C between two epochs, when callbacks stop the training, too
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fitted(max_iter=4, progress=lambda *_: signal.raise_signal(signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", torch.optim.RMSprop])
def test_optimisers(optimizer):
    first, last = (
        fitted(optimizer=optimizer, max_iter=15, lr=0.01, weight_decay=1e-4).history_[i]["train_loss"]
        for i in (0, -1)
    )
    assert last < first


def test_weight_decay_is_used():
    assert weights(fitted(weight_decay=10.0)).norm() < weights(fitted()).norm()


def test_diverging_training_says_so():
    with pytest.raises(InvalidInputError, match=r"loss became (nan|inf) in epoch .* Lower lr \(now 1e\+20\)"):
        fitted(lr=1e20, max_iter=20)


def test_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted(max_iter=30, patience=2)
    assert not list(tmp_path.iterdir())


def test_is_a_scikit_learn_estimator():
    student = Network(nn.Linear(5, 3), lr=0.1, callbacks=[])
    copied = clone(student)
    assert copied.get_params()["lr"] == 0.1
    assert copied.module is not student.module
    assert student.set_params(lr=0.2).lr == 0.2
    with pytest.raises(NotFittedError):
        student.predict_logits(np.zeros((1, 5)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "adan"}, "Did you mean 'adam'"),
        ({"optimizer": 3}, "optimizer=3"),
        ({"lr": 0}, "lr=0 must be"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"patience": 0}, "patience=0"),
        ({"validation_fraction": 1}, "validation_fraction=1 must be below 1"),
        ({"weight_decay": -1}, "weight_decay=-1"),
        ({"standardize": "yes"}, "standardize='yes'"),
    ],
)
def test_wrong_parameters_are_named(options, words):
    with pytest.raises(InvalidInputError, match=words):
        fitted(**options)


def test_wrong_data_is_named():
    from scipy.sparse import csr_array

    X, Q, _ = blobs(30)
    with pytest.raises(InvalidInputError, match=r"targets have shape \(29, 3\) for 30 rows"):
        fitted(X=X, Q=Q[:29])
    with pytest.raises(InvalidInputError, match="X has no rows"):
        fitted(X=X[:0], Q=Q[:0])
    with pytest.raises(InvalidInputError, match="two dimensions or more"):
        fitted(X=X[:, 0], Q=Q)
    with pytest.raises(InvalidInputError, match="sparse"):
        fitted(X=csr_array(X), Q=Q)
    with pytest.raises(InvalidInputError, match="needs numbers"):
        fitted(X=X.astype(str), Q=Q)
    X[3, 1] = np.nan
    with pytest.raises(InvalidInputError, match=r"not finite in row 3 \(1 such row\)"):
        fitted(X=X, Q=Q)
    with pytest.raises(InvalidInputError, match=r"X has shape \(2, 4\); the student was fitted on \(n, 5\)"):
        fitted().predict_logits(np.zeros((2, 4)))


def test_skorch_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skorch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'consilience\[torch\]'"):
        fitted()


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, 1e-9])
@pytest.mark.parametrize("n", [2, 150, 10_000])
def test_standardize_only_centres_a_constant_column(n, value):
    layer = Standardize.of(torch.full((n, 1), value, dtype=torch.float64))
    assert layer.scale.item() == 1.0


def test_standardize():
    X = np.random.default_rng(0).normal(loc=1e3, scale=[1.0, 50.0, 0.0], size=(500, 3)).astype(np.float32)
    out = Standardize.of(torch.tensor(X))(torch.tensor(X)).numpy()
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(out.std(axis=0), [1, 1, 0], atol=1e-3)
    assert Standardize.of(torch.ones(4, 2, 3, 3)).mean.shape == (2, 1, 1)
    Q = np.eye(2)[np.arange(500) % 2]
    assert isinstance(fitted(X=X, Q=Q).module_[0], Standardize)
    assert not isinstance(fitted(X=X, Q=Q, standardize=False).module_[0], Standardize)
    assert isinstance(fitted(nn.Linear(3, 2), X=X, Q=Q, standardize=True).module_[0], Standardize)
    assert isinstance(fitted(nn.Linear(3, 2), X=X, Q=Q).module_, nn.Linear)


def test_default_module_widths():
    net = default_module(np.zeros((2, 4), dtype=np.float32), 3, hidden=(7,), dropout=0.0)
    assert [tuple(p.shape) for p in net.parameters()] == [(7, 4), (7,), (3, 7), (3,)]

"""Network: what it learns, what it does not change, and its errors."""

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy.sparse import csr_array  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from torch import nn  # noqa: E402

from consilience import CollisionClassifier, CrossTaskDistiller, SoftLabelClassifier, Unifier  # noqa: E402
from consilience.exceptions import ConsilienceError, InvalidInputError, NotFittedError  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.run import Run  # noqa: E402
from consilience.students import Network  # noqa: E402
from consilience.students.modules import Standardize  # noqa: E402


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
    student = Network(module, **options)
    return student.fit(X, Q, n_classes=Q.shape[1], criterion=SoftCrossEntropy(), run=Run(progress=progress))


def weights(student):
    return torch.cat([p.detach().flatten() for p in student.module_.parameters()])


def test_learns_digits_in_few_epochs():
    X, y = load_digits(return_X_y=True)
    student = Network(random_state=0).fit(
        X[:1000], 0.9 * np.eye(10)[y[:1000]] + 0.01, n_classes=10, criterion=SoftCrossEntropy(temperature=2.0)
    )
    logits = student.predict_logits(X[1000:])
    assert (logits.dtype, logits.shape) == (np.float64, (797, 10))
    assert (logits.argmax(axis=1) == y[1000:]).mean() > 0.9
    assert student.n_iter_ < 100
    assert not student.module_.training


def test_early_stopping_keeps_the_best_weights():
    noise = np.random.default_rng(1).dirichlet(np.ones(3), size=120)
    options = {"X": blobs(120)[0], "Q": noise, "lr": 0.01, "validation_fraction": 0.3}
    student = fitted(max_iter=200, patience=4, **options)
    losses = [row["valid_loss"] for row in student.history_]
    assert np.argmin(losses) < len(losses) - 1 < 199
    # the history of a run that ends at the best epoch has the weights that were kept
    again = fitted(max_iter=student.n_iter_ - 4, patience=None, **options)
    torch.testing.assert_close(weights(student), weights(again))


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
    tokens = rng.integers(9, size=(30, 4)).astype(np.uint8)
    bag = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2))
    for module, X in ((cnn, images), (None, images), (bag, tokens), (None, tokens)):
        student = fitted(module, X=X, Q=Q)
        np.testing.assert_array_equal(student.predict_logits(torch.tensor(X)), student.predict_logits(X))
    with pytest.raises(InvalidInputError, match="Integer X stays int64"):
        fitted(nn.Linear(4, 2), X=tokens, Q=Q)


def test_batches_do_not_matter_for_prediction():
    student = fitted(batch_size=7)
    X = blobs()[0]
    one_by_one = np.concatenate([student.predict_logits(row[None]) for row in X[:20]])
    np.testing.assert_allclose(student.predict_logits(X[:20]), one_by_one, atol=1e-5)
    assert student.predict_logits(X[:0]).shape == (0, 3)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", torch.optim.RMSprop])
def test_optimisers(optimizer):
    first, last = (
        fitted(optimizer=optimizer, max_iter=15, lr=0.01, weight_decay=1e-4).history_[i]["train_loss"]
        for i in (0, -1)
    )
    assert last < first


def test_diverging_training_says_so():
    with pytest.raises(InvalidInputError, match=r"loss became (nan|inf) in epoch .* Lower lr \(now 1e\+20\)"):
        fitted(lr=1e20, max_iter=20)


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


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (np.zeros((29, 5)), r"targets have shape \(200, 3\) for 29 rows"),
        (np.zeros(200), "two dimensions or more"),
        (csr_array((200, 5)), "sparse"),
        (np.full((200, 5), "a"), "needs numbers"),
        (np.where(np.arange(200)[:, None] == 3, np.nan, np.zeros((200, 5))), r"not finite in row 3 \(1 such"),
    ],
)
def test_wrong_data_is_named(X, says):
    with pytest.raises(InvalidInputError, match=says):
        fitted(X=X, Q=blobs()[1])


def test_wrong_use_is_named():
    with pytest.raises(InvalidInputError, match="X has no rows"):
        fitted(X=np.zeros((0, 5)), Q=np.zeros((0, 3)))
    with pytest.raises(InvalidInputError, match=r"X has shape \(2, 4\); the student was fitted on \(n, 5\)"):
        fitted().predict_logits(np.zeros((2, 4)))
    with pytest.raises(NotFittedError):
        Network().predict_logits(np.zeros((1, 5)))


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


# Labelled rows that a network is measured on
NAMES = np.array(["ant", "bee", "cat"])
rng = np.random.default_rng(0)
CODES = rng.integers(3, size=200)
ROWS = rng.normal(size=(200, 4)) + 2 * rng.normal(size=(3, 4))[CODES]
X_val, y_val = ROWS[150:], CODES[150:]


def measured(**options: Any) -> Network:
    options = {"max_iter": 3, "random_state": 0, "validation": (X_val, y_val), **options}
    return Network(**options).fit(
        ROWS[:150], np.eye(3)[CODES[:150]], n_classes=3, criterion=SoftCrossEntropy()
    )


def test_the_history_has_loss_and_accuracy_of_the_labels() -> None:
    student = measured(patience=None)
    last, logits = student.history_[-1], student.predict_logits(X_val)
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert last["valid_loss"] == pytest.approx(log_loss(y_val, proba), rel=1e-5)
    assert last["valid_accuracy"] == np.mean(logits.argmax(axis=1) == y_val)


def test_measuring_changes_nothing() -> None:
    found = measured(patience=None).predict_logits(ROWS)
    plain = measured(patience=None, validation=None, validation_fraction=0.0).predict_logits(ROWS)
    np.testing.assert_array_equal(found, plain)


def test_labels_are_names_of_classes_and_aliases() -> None:
    teachers = [LogisticRegression().fit(ROWS[k != CODES], NAMES[CODES[k != CODES]]) for k in (0, 2)]
    labels = ["kitty" if name == "cat" else name for name in NAMES[y_val]]
    labels[0] = None
    unified = Unifier(
        teachers,
        Network(max_iter=5, patience=None, validation=(X_val, labels)),
        aliases={"kitty": "cat"},
        random_state=0,
    ).fit(ROWS[:150])
    accuracy = unified.student_.history_[-1]["valid_accuracy"]
    assert accuracy == pytest.approx(unified.score(X_val[1:], labels[1:]))
    student = Network(validation=(X_val, ["dog"] * 50))
    with pytest.raises(ConsilienceError, match=r"y of validation.*dog"):
        Unifier([as_never, as_never], student).fit(ROWS)


class Never:
    """A teacher that must not be asked."""

    classes_ = NAMES

    def predict_proba(self, X: Any) -> Any:
        raise AssertionError("a fault is found before teachers are asked")


as_never = Never()


@pytest.mark.parametrize(
    "make",
    [
        lambda student: SoftLabelClassifier(student),
        lambda student: CollisionClassifier(model=student, noise=0.1),
        lambda student: CrossTaskDistiller(None, student, loss="none"),
    ],
)
def test_other_estimators_take_names_too(make: Any) -> None:
    student = Network(max_iter=4, patience=None, validation=(X_val, NAMES[y_val]), random_state=0)
    model = make(student).fit(ROWS[:150], NAMES[CODES[:150]])
    assert model.student_.history_[-1]["valid_accuracy"] == model.score(X_val, NAMES[y_val])


def test_columns_of_a_table_are_put_in_order() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abcd")).assign(kind=np.where(CODES == 0, "red", "blue"))
    val = frame[150:][["kind", "d", "b", "a", "c"]]
    student = Network(max_iter=3, patience=None, validation=(val, NAMES[y_val]), random_state=0)
    model = SoftLabelClassifier(student).fit(frame[:150], NAMES[CODES[:150]])
    assert model.student_.history_[-1]["valid_accuracy"] == model.score(val, NAMES[y_val])


@pytest.mark.parametrize(
    ("validation", "says"),
    [
        (X_val, "validation is a ndarray; give a pair"),
        ((X_val, y_val[:3]), "50 rows and 3 labels"),
        ((X_val[:, :2], y_val), r"rows of validation have shape \(50, 2\)"),
        ((X_val, y_val + 1), "the label 3; expected 0 to 2"),
        ((X_val, 0 * y_val - 1), "no row with a label"),
        ((X_val, y_val * 1.0), "expected .n,. whole numbers from 0 to 2"),
    ],
)
def test_wrong_pairs_are_named(validation: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        measured(validation=validation)

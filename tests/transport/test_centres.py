"""Class centres, cost matrices of every kind, and the nearest-class-mean check."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from tests.scoring.ask import observe

from consilience import (
    Card,
    ConsilienceWarning,
    InvalidInputError,
    TeacherError,
    as_teacher,
    class_centres,
    cost_matrix,
)
from consilience.files.card import write_card
from consilience.kernels.transport.centres import nearest_other_mean, unit_rows
from consilience.teachers import Observed
from consilience.transport import Embedding, Random, Superclass
from consilience.transport.centres import NcmAccuracy, class_points, features, ncm_accuracy, teacher_centres

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS / 16
OLD, NEW = LABELS < 6, LABELS >= 4  # the teacher's classes and the student's; 4 and 5 are both


@pytest.fixture(scope="module")
def network() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MLPClassifier(64, max_iter=60, random_state=0).fit(DIGITS[OLD], LABELS[OLD])


@pytest.fixture(scope="module")
def forest() -> Any:
    return RandomForestClassifier(30, random_state=0).fit(DIGITS[OLD], LABELS[OLD])


X, Y = DIGITS[NEW], LABELS[NEW]


def test_centres_are_means_of_embeddings_in_the_order_of_the_classes(network: Any) -> None:
    teacher = as_teacher(network)
    found = class_centres(network, X, Y)
    embedded = teacher.embed(X)
    expected = np.stack([embedded[k == Y].mean(axis=0) for k in range(4, 10)])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    order = [9, 4, 5, 6, 8, 7]
    np.testing.assert_allclose(class_centres(network, X, Y, classes=order), expected[np.array(order) - 4])


def test_rows_without_a_label_are_left_out(network: Any) -> None:
    known = np.arange(len(Y)) % 2 == 0
    partial = np.where(known, Y, -1)
    np.testing.assert_allclose(
        class_centres(network, X, partial), class_centres(network, X[known], Y[known]), atol=1e-6
    )
    every, some = ncm_accuracy(network, X, Y), ncm_accuracy(network, X, partial)
    assert some.n_rows == np.isin(Y[known], network.classes_).sum() < every.n_rows


def test_a_cost_is_the_distance_of_a_row_of_weights_from_a_centre(network: Any) -> None:
    source, target = unit_rows(network.coefs_[-1].T), class_centres(network, X, Y)
    for normalize, centres in ((True, unit_rows(target)), (False, target)):
        cost = cost_matrix(network, X, Y, cost=Embedding(normalize=normalize))
        np.testing.assert_allclose(cost, np.linalg.norm(source[:, None] - centres[None], axis=2))


def test_what_was_observed_is_not_asked_for_again(network: Any) -> None:
    teacher = as_teacher(network)
    seen = observe(teacher, X)

    class Silent:
        name, classes, class_weights = teacher.name, teacher.classes, teacher.class_weights

        def predict_logits(self, rows: Any) -> Any:
            raise AssertionError("asked again")

    for find in (cost_matrix, class_centres):
        np.testing.assert_allclose(find(Silent(), X, Y, observed=seen), find(teacher, X, Y))
    assert ncm_accuracy(Silent(), X, observed=seen) == ncm_accuracy(teacher, X)


def test_a_teacher_without_an_embedding_gets_hellingers(forest: Any) -> None:
    proba = softmax(as_teacher(forest).predict_logits(X), axis=1)
    np.testing.assert_allclose(features(observe(as_teacher(forest), X)), np.sqrt(proba), rtol=1e-6)
    means = np.stack([np.sqrt(proba[k == Y]).mean(axis=0) for k in range(4, 10)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    expected = np.linalg.norm(np.eye(6)[:, None] - means[None], axis=2)
    np.testing.assert_allclose(cost_matrix(forest, X, Y), expected, atol=1e-12)


def test_centres_on_a_card_come_first(tmp_path: Path, network: Any) -> None:
    path = tmp_path / "old.npz"
    embedded = as_teacher(network).embed(X)
    np.savez(path, proba=network.predict_proba(X), classes=np.arange(6), embeddings=embedded)
    true = class_centres(network, DIGITS[OLD], LABELS[OLD])
    write_card(tmp_path / "old.card.json", Card("old", range(6), centres=true))
    teacher = as_teacher(path)
    np.testing.assert_array_equal(teacher.class_centres, true)
    target = class_centres(teacher, X, Y)
    for centres in ("auto", "card"):
        cost = cost_matrix(teacher, X, Y, cost=Embedding(centres=centres, normalize=False))
        np.testing.assert_allclose(cost[2, 3], np.linalg.norm(true[2] - target[3]))
    write_card(tmp_path / "old.card.json", Card("old", range(6), centres=true[:, :5]))
    with pytest.raises(
        TeacherError, match=r"'old' has centres on its card of shape \(6, 5\) and embeddings of 64"
    ):
        cost_matrix(as_teacher(path), X, Y, cost=Embedding(centres="card"))
    with pytest.warns(ConsilienceWarning, match="card of teacher 'old' have 5 columns .* has 64, so they"):
        found = cost_matrix(as_teacher(path), X, Y)
    np.testing.assert_array_equal(
        found, cost_matrix(as_teacher(path), X, Y, cost=Embedding(centres="predictions"))
    )


def test_without_weights_or_card_the_teachers_own_predictions_give_centres(network: Any) -> None:
    hidden = as_teacher(network).embed
    teacher = as_teacher(network, embed=hidden)
    assert teacher.class_weights is None
    proba, embedded = network.predict_proba(X), hidden(X)
    expected = proba.T @ embedded / proba.sum(axis=0)[:, None]
    for centres in ("auto", "predictions"):
        found = teacher_centres(teacher, X, observe(teacher, X), centres)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)  # probabilities have a floor
    for centres in ("weights", "card"):
        with pytest.raises(TeacherError, match=r"has no .*Use centres='auto'"):
            teacher_centres(teacher, X, observe(teacher, X), centres)


def test_constant_and_superclass_costs(network: Any) -> None:
    constant = cost_matrix(network, X, Y, cost="constant")
    expected = np.ones((6, 6))
    expected[4, 0] = expected[5, 1] = 0
    np.testing.assert_array_equal(constant, expected)
    np.testing.assert_array_equal(cost_matrix(network, cost="constant", classes=range(4, 10)), expected)
    parity = {k: k % 2 for k in range(10)}
    cost = cost_matrix(network, X, Y, cost=Superclass(parity))
    np.testing.assert_array_equal(cost, (np.arange(6)[:, None] + np.arange(4, 10)) % 2)


@pytest.mark.parametrize("model", ["network", "forest"])
def test_a_random_cost_depends_on_the_seed_alone(model: str, request: pytest.FixtureRequest) -> None:
    teacher = request.getfixturevalue(model)
    first = cost_matrix(teacher, X, Y, cost="random", random_state=0)
    np.testing.assert_array_equal(first, cost_matrix(teacher, X, Y, cost="random", random_state=0))
    assert np.abs(first - cost_matrix(teacher, X, Y, cost="random", random_state=1)).max() > 0.01
    assert first.shape == (6, 6)
    assert ((first > 0) & (first < 2)).all()
    own, _ = class_points(as_teacher(teacher), X, Random(), random_state=0)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1.0)


def test_a_random_cost_of_a_torch_module_is_that_of_random_weights() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
    teacher = as_teacher(module, range(6))
    cost = cost_matrix(teacher, X, Y, cost="random", random_state=0)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    np.testing.assert_allclose(
        cost, cost_matrix(teacher.randomised(seed), X, Y, cost=Embedding(centres="weights")), atol=1e-6
    )


def test_the_head_of_a_torch_module_is_found_when_all_outputs_are_known() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    # two layers with k outputs: only a pass tells which is the head
    module = torch.nn.Sequential(torch.nn.Linear(64, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6, bias=False))
    seen = observe(as_teacher(module, range(6)), X)
    fresh = as_teacher(module, range(6))
    assert fresh.class_weights is None
    found = teacher_centres(fresh, X, seen, "weights")
    weights = module[2].weight.detach().numpy()
    np.testing.assert_allclose(found, weights / np.linalg.norm(weights, axis=1, keepdims=True), atol=1e-6)


def test_another_models_embedding(network: Any) -> None:
    other = LogisticRegression(max_iter=300).fit(DIGITS, LABELS)  # knows all ten classes
    cost = cost_matrix(network, X, Y, cost=Embedding(other=other))
    np.testing.assert_allclose(cost, cost_matrix(other, X, Y)[:6])
    few = LogisticRegression(max_iter=300).fit(DIGITS[NEW], LABELS[NEW])
    with pytest.raises(
        InvalidInputError, match=r"does not know the classes 0, 1, 2, 3 of teacher 'MLPClassifier'"
    ):
        cost_matrix(network, X, Y, cost=Embedding(other=few))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cost": "embeding"}, "cost='embeding' is unknown.*Did you mean 'embedding'"),
        ({"cost": Embedding(centres="weigths")}, "centres='weigths' is unknown"),
        ({"cost": Embedding(normalize="yes")}, "normalize='yes' is unknown"),
        (
            {"cost": Superclass({k: 0 for k in range(1, 10) if k != 7})},
            "superclasses lacks 0, 7; give",
        ),
        ({"cost": Superclass([1, 2])}, "superclasses is a list; give a mapping"),
        ({"classes": [4, 5, 6, 7, 8, 9, 99]}, "The centre of 99 is unknown"),
        ({"classes": [4, 5]}, r"y has \d in row \d+ \(\d+ such rows\), which is none of the classes 4, 5"),
        ({"classes": [4, 4]}, "more than once"),
        ({"cost": "random", "random_state": "a"}, "random_state='a' must be a whole number"),
        (
            {"observed": Observed(np.zeros((len(X), 5)), None)},
            r"logits of shape \(\d+, 5\); expected \(\d+, 6\)",
        ),
        ({"observed": Observed(np.zeros((3, 6)), None)}, r"logits of shape \(3, 6\)"),
        ({"y": Y[:-1]}, "y has .* labels and X has"),
        ({"y": None}, "y is a NoneType; expected a list of labels, one per row"),
        ({"y": np.column_stack([Y, Y])}, r"y has shape .*, 2\); expected a list of labels, one per row"),
        ({"y": "text"}, "y is a str"),
        ({"y": np.where(Y == 4, np.inf, Y)}, "y has inf in row 0"),
        ({"y": [4, "x", *Y[2:].tolist()]}, "text"),
        ({"y": [{}, *Y[1:].tolist()]}, "labels are text, or finite numbers"),
    ],
)
def test_what_cannot_be_is_one_sentence(network: Any, options: dict[str, Any], says: str) -> None:
    arguments = {"y": Y, **options}
    with pytest.raises(InvalidInputError, match=says):
        cost_matrix(network, X, arguments.pop("y"), **arguments)


def seeing(logits: np.ndarray, embeddings: np.ndarray) -> Any:
    return as_teacher(logits, ["a", "b"], output="logits", embed=embeddings)


@pytest.mark.parametrize("lacks", ["logits", "embeddings"])
def test_a_row_that_lacks_logits_or_features_tells_nothing(lacks: str) -> None:
    rng = np.random.default_rng(0)
    rows, labels = np.zeros((8, 1)), np.array(["x", "y"] * 4)
    embeddings, logits = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    broken = {"logits": logits.copy(), "embeddings": embeddings.copy()}
    broken[lacks][0] = np.nan
    teacher, rest = seeing(**broken), seeing(logits[1:], embeddings[1:])
    others = rows[1:], labels[1:]
    np.testing.assert_allclose(class_centres(teacher, rows, labels), class_centres(rest, *others))
    np.testing.assert_allclose(cost_matrix(teacher, rows, labels), cost_matrix(rest, *others))
    assert ncm_accuracy(teacher, rows) == ncm_accuracy(rest, others[0])


def test_nearest_class_means_of_a_network_do_nearly_as_well_as_the_network(network: Any) -> None:
    check = ncm_accuracy(network, DIGITS, LABELS)
    assert (check.labelled, check.n_rows) == (True, int(OLD.sum()))
    assert check.model == pytest.approx(network.score(DIGITS[OLD], LABELS[OLD]))
    embedded, old = as_teacher(network).embed(DIGITS[OLD]), LABELS[OLD]
    unit = embedded / np.linalg.norm(embedded, axis=1, keepdims=True)
    assert check.true_centres == pytest.approx((nearest_other_mean(embedded, old, 6, True) == old).mean())
    weights = network.coefs_[-1] / np.linalg.norm(network.coefs_[-1], axis=0)
    assert check.weight_centres == pytest.approx(np.mean((unit @ weights).argmax(axis=1) == LABELS[OLD]))
    assert check.trustworthy
    assert "The weights can replace the class centres." in str(check)


@pytest.mark.parametrize(
    ("model", "true_centres", "weights", "labelled", "trustworthy"),
    [
        (0.95, 0.70, 0.70, True, False),  # as good as the centres, and 0.25 worse than the model
        (0.70, 0.95, 0.65, True, True),  # 0.3 worse than the centres, and 0.05 worse than the model
        (0.75, 0.0, 0.66, True, True),
        (0.75, 0.0, 0.64, True, False),
        (0.5, 0.5, None, True, False),
        (1.0, 0.9, 0.5, False, True),  # without labels, agreement with the model counts by itself
        (1.0, 0.1, 0.49, False, False),
    ],
)
def test_weights_are_compared_with_the_model_and_not_with_the_true_centres(
    model: float, true_centres: float, weights: float | None, labelled: bool, trustworthy: bool
) -> None:
    assert NcmAccuracy(model, true_centres, weights, 100, labelled).trustworthy == trustworthy


def test_without_labels_the_models_own_predictions_are_the_measure(network: Any, forest: Any) -> None:
    check = ncm_accuracy(network, X)
    assert (check.model, check.labelled, check.n_rows) == (1.0, False, len(X))
    assert check.weight_centres > 0.5
    assert ncm_accuracy(forest, X).weight_centres is None
    assert "no weights" in str(ncm_accuracy(forest, X))


def test_weights_far_from_the_centres_are_passed_over_with_a_warning() -> None:
    model = LogisticRegression(max_iter=300).fit(DIGITS[OLD], LABELS[OLD])
    sound = cost_matrix(model, X, Y)
    far = np.full(64, 30.0)  # the same model of rows that were moved away from the origin
    model.intercept_ = model.intercept_ - model.coef_ @ far
    assert not ncm_accuracy(model, X + far).trustworthy
    with pytest.warns(ConsilienceWarning, match="'LogisticRegression' agree with its .*instead"):
        cost = cost_matrix(model, X + far, Y)
    np.testing.assert_allclose(cost, cost_matrix(model, X + far, Y, cost=Embedding(centres="predictions")))
    assert (cost[4].argmin(), cost[5].argmin()) == (0, 1)
    assert (
        cost_matrix(model, X + far, Y, cost=Embedding(centres="weights")).std() < sound.std()
    )  # no warning: it was chosen


def test_a_row_alone_in_its_class_is_nearest_to_another() -> None:
    points, codes = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]), np.array([0, 0, 1])
    for normalize in (True, False):
        assert nearest_other_mean(points, codes, 3, normalize).tolist() == [0, 0, 0]
        assert nearest_other_mean(points[:1], codes[:1], 3, normalize).tolist() == [-1]


def test_no_row_of_a_class_that_the_teacher_knows(network: Any) -> None:
    with pytest.raises(
        InvalidInputError, match="No row of X belongs to a class that teacher 'MLPClassifier' knows"
    ):
        ncm_accuracy(network, X, ["new"] * len(X))

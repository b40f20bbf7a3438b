"""CrossTaskDistiller: equation, students, several teachers, poisoned ones, bad input, files."""

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from consilience import ConsilienceWarning, CoverageWarning, CrossTaskDistiller, InvalidInputError, as_teacher
from consilience.distil.losses import Sinkhorn
from consilience.distil.teacher_check import score_weights
from consilience.run import Run
from consilience.students import Classifier
from consilience.transport import Superclass

torch = pytest.importorskip("torch")

from consilience.students import Network  # noqa: E402

LOSSES = ("sinkhorn", "kd", "rkd", "fitnet", "refilled", "none")


def small(n_features: int, n_classes: int) -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, 32), torch.nn.ReLU(), torch.nn.Linear(32, n_classes)
    )


def quick(epochs: int = 40) -> Network:
    return Network(small, max_iter=epochs, batch_size=16, patience=None, validation_fraction=0.0)


class Watching(LogisticRegression):
    """Keeps what it was fitted on."""

    seen: ClassVar[list[tuple[Any, Any, Any]]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.seen.append((X, y, sample_weight))
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_a_network(digits: Any, loss: str) -> None:
    model = CrossTaskDistiller(digits.all_ten, quick(), loss=loss, random_state=0).fit(digits.X, digits.y)
    assert model.score(digits.X_test, digits.y_test) > 0.5
    np.testing.assert_allclose(model.predict_proba(digits.X_test).sum(axis=1), 1, rtol=1e-6)
    assert model.history_[-1]["train_loss"] < model.history_[0]["train_loss"]
    assert model.classes_.tolist() == list(range(10))
    assert set(model.seconds_) == {"observing", "training"}


def test_the_teachers_part_is_the_sinkhorn_loss_of_eq_11(digits: Any) -> None:
    """One step of gradient descent from known weights, taken by hand."""
    from consilience import cost_matrix
    from consilience.nn import SinkhornLoss

    start = small(64, 10)
    student = Network(
        start, optimizer="sgd", lr=0.5, max_iter=1, batch_size=50, patience=None, validation_fraction=0.0
    )
    model = CrossTaskDistiller(
        digits.first_six,
        student,
        Sinkhorn(temperature=2.0, epsilon=0.2, match_shares=False),
        7.0,
        check=False,
        random_state=0,
    ).fit(digits.X, digits.y)
    cost = cost_matrix(digits.first_six, digits.X, digits.y)
    np.testing.assert_allclose(model.costs_[0], cost)
    logits = torch.tensor(as_teacher(digits.first_six).predict_logits(digits.X), dtype=torch.float32)
    z = start(torch.tensor(digits.X))
    loss = torch.nn.functional.cross_entropy(z, torch.tensor(digits.y))
    loss = loss + 7.0 * SinkhornLoss(cost, 0.2, 2.0)(z, logits)
    loss.backward()
    expected = start[0].weight - 0.5 * start[0].weight.grad
    np.testing.assert_allclose(
        model.student_.module_[0].weight.detach(), expected.detach(), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("student", ["logistic", DecisionTreeClassifier(), MLPClassifier((16,), max_iter=5)])
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_any_scikit_learn_student_learns_transported_labels(digits: Any, student: Any) -> None:
    model = CrossTaskDistiller(digits.first_six, student, teacher_weight=10.0, random_state=0).fit(
        digits.X, digits.y
    )
    assert model.teacher_weights_.tolist() == [1.0]
    assert model.predict_proba(digits.X_test).shape == (len(digits.X_test), 10)
    assert model.student_.columns_.tolist() == list(range(10))


def test_the_soft_label_of_a_scikit_learn_student_mixes_y_and_the_transported_label(digits: Any) -> None:
    Watching.seen.clear()
    cost = np.where(np.eye(10) > 0, 0.0, 1.0)
    CrossTaskDistiller(
        digits.all_ten,
        Classifier(Watching(), min_label=0.0),
        Sinkhorn(temperature=1.0, epsilon=0.25, match_shares=False),
        4.0,
        check=False,
        cost=cost,
    ).fit(digits.X, digits.y)
    X, labels, weights = Watching.seen[0]
    plan = np.exp(-cost / 0.25)
    q = digits.all_ten.predict_proba(digits.X[:1]) @ (plan / plan.sum(axis=1, keepdims=True))
    expected = (np.eye(10)[digits.y[0]] + q[0]) / 2  # teacher_weight * epsilon = 1
    first = (digits.X[0] == X).all(axis=1)
    order = np.argsort(labels[first])
    np.testing.assert_allclose(weights[first][order], expected, atol=1e-3)


def test_a_teachers_labels_are_only_names(digits: Any) -> None:
    order = np.array([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    straight = as_teacher(digits.all_ten.predict_proba, range(10), output="probabilities")
    shuffled = as_teacher(
        lambda X: digits.all_ten.predict_proba(X)[:, order], list("abcdefghij"), output="probabilities"
    )
    first, second = (
        CrossTaskDistiller(teacher, "logistic", random_state=0).fit(digits.X, digits.y)
        for teacher in (straight, shuffled)
    )
    np.testing.assert_allclose(first.costs_[0][order], second.costs_[0])
    np.testing.assert_allclose(first.predict_proba(digits.X), second.predict_proba(digits.X), atol=1e-3)


def poisoned(kind: str, digits: Any) -> Any:
    """A teacher that carries no information, or false."""
    teacher = as_teacher(digits.all_ten)

    def nasty(X: Any) -> Any:
        right = teacher.predict_logits(X).argmax(axis=1)
        # another wrong class for every row, but the same whenever it is asked
        shift = np.array([1 + int(np.frombuffer(row.tobytes(), np.uint8).sum()) % 9 for row in X])
        return 10.0 * np.eye(10)[(right + shift) % 10]

    if kind == "shuffled":
        X, y = load_digits(return_X_y=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mixed = np.random.RandomState(0).permutation(y[:800])
            return MLPClassifier((128, 64), max_iter=25, random_state=0).fit(X[:800] / 16, mixed)
    functions = {"constant": lambda X: np.tile(np.eye(10)[3] * 9, (len(X), 1)), "nasty": nasty}
    return as_teacher(functions[kind], range(10), kind, output="logits")


@pytest.mark.parametrize("kind", ["shuffled", "constant", "nasty"])
@pytest.mark.parametrize("student", ["logistic", "network"])
def test_a_poisoned_teacher_is_dropped(digits: Any, kind: str, student: str) -> None:
    def make() -> Any:
        return quick(10) if student == "network" else student

    teacher = poisoned(kind, digits)
    with pytest.warns(ConsilienceWarning, match=r"was dropped because it knows no more about .* nats"):
        model = CrossTaskDistiller(teacher, make(), random_state=0).fit(digits.X, digits.y)
    labels_only = CrossTaskDistiller(teacher, make(), loss="none", random_state=0).fit(digits.X, digits.y)
    assert model.teacher_weights_.tolist() == [0.0]
    assert not model.checks_[0].used
    np.testing.assert_array_equal(model.predict(digits.X_test), labels_only.predict(digits.X_test))


def test_among_several_teachers_the_good_one_counts_and_the_nasty_one_does_not(digits: Any) -> None:
    teacher = as_teacher(digits.all_ten)
    softer = as_teacher(lambda X: 0.3 * teacher.predict_logits(X), range(10), "softer", output="logits")
    teachers = {"softer": softer, "nasty": poisoned("nasty", digits), "ten": digits.all_ten}
    with pytest.warns(ConsilienceWarning, match="'nasty' was dropped"):
        model = CrossTaskDistiller(teachers, quick(), random_state=0).fit(digits.X, digits.y)
    softer_weight, nasty, ten = model.teacher_weights_
    assert nasty == 0
    assert 0 < softer_weight < 1
    assert 0 < ten < 1
    assert [check.name for check in model.checks_] == ["softer", "nasty", "ten"]
    reliability = np.array([check.reliability for check in model.checks_])
    gains = [check.gain if check.used else np.nan for check in model.checks_]
    np.testing.assert_allclose(model.teacher_weights_, reliability * score_weights(gains, 1.0))
    assert [cost.shape for cost in model.costs_] == [(10, 10), (10, 10), (10, 10)]
    assert model.score(digits.X_test, digits.y_test) > 0.6


@pytest.mark.parametrize("check", ["auto", False])
def test_a_teacher_that_fails_is_dropped_while_another_is_left(digits: Any, check: Any) -> None:
    def broken(X: Any) -> Any:
        raise RuntimeError("out of memory")

    bad = as_teacher(broken, range(4), "bad", output="logits")
    teachers = [bad, digits.all_ten]
    with pytest.warns(ConsilienceWarning, match=r"'bad' was dropped because it .*out of memory"):
        model = CrossTaskDistiller(teachers, "logistic", check=check, random_state=0).fit(digits.X, digits.y)
    assert model.teacher_weights_[0] == 0
    assert model.teacher_weights_[1] > 0
    assert "out of memory" in model.checks_[0].reason
    assert [cost.shape for cost in model.costs_] == [(4, 10), (10, 10)]
    only = CrossTaskDistiller(digits.all_ten, "logistic", check=check, random_state=0)
    np.testing.assert_array_equal(
        model.predict(digits.X_test), only.fit(digits.X, digits.y).predict(digits.X_test)
    )
    with pytest.raises(InvalidInputError, match=r"'bad' \(1 of 2\).*out of memory"):
        CrossTaskDistiller([bad, bad], "logistic").fit(digits.X, digits.y)


def test_a_ranking_gives_the_weights(digits: Any) -> None:
    from consilience import rank_teachers

    teachers = {"six": digits.first_six, "ten": digits.all_ten}
    ranking = rank_teachers(teachers, digits.X, digits.y, random_state=0)
    ratios = []
    for sharpness in (1.0, 2.0):
        loss = Sinkhorn(sharpness=sharpness)
        model = CrossTaskDistiller(ranking, "logistic", loss, check=False).fit(digits.X, digits.y)
        scores = [row.score for row in ranking.rows]
        np.testing.assert_allclose(model.teacher_weights_, score_weights(scores, sharpness))
        ratios.append(np.log(model.teacher_weights_[0] / model.teacher_weights_[1]))
    assert [teacher.name for teacher in model.teachers_] == [row.name for row in ranking.rows]
    assert ratios[1] == pytest.approx(2 * ratios[0])


def test_the_exact_form_of_a_ranking_trains_a_distiller_with_each_teacher(digits: Any) -> None:
    from consilience import rank_teachers
    from consilience.rank import Transport

    teachers = {"six": digits.first_six, "ten": digits.all_ten}

    def make(teacher: Any) -> Any:
        return CrossTaskDistiller(teacher, "logistic", check=False, random_state=0)

    by_parameter, by_factory = (
        rank_teachers(teachers, digits.X, digits.y, metric=Transport(student=student), confidence=None)
        for student in (make(None), make)
    )
    assert [row.name for row in by_parameter] == ["ten", "six"]
    assert [row.score for row in by_parameter] == [row.score for row in by_factory]


def test_a_number_is_used_as_it_is_on_all_rows_and_for_every_teacher(digits: Any) -> None:
    Watching.seen.clear()
    X = np.concatenate([digits.X, digits.X_test[:30]])
    y = np.concatenate([digits.y, np.full(30, -1)])
    nasty = poisoned("nasty", digits)
    model = CrossTaskDistiller(nasty, Watching(), teacher_weight=30.0, random_state=0).fit(X, y)
    assert (model.teacher_weights_.tolist(), model.checks_) == ([1.0], [])
    # c = 30 * 0.3 / 9 = 1: labelled rows weigh two, unlabelled ones one, in units of the largest
    assert Watching.seen[0][2].sum() == pytest.approx(50 + 30 / 2)
    model = CrossTaskDistiller(nasty, Watching(), teacher_weight=30.0, check=True, random_state=0)
    with pytest.warns(ConsilienceWarning) as told:
        model.fit(X, y)
    assert "'nasty' was dropped" in str(told[0].message)
    # earned: a third of the weight on labelled rows
    model = CrossTaskDistiller(digits.all_ten, Watching(), random_state=0).fit(X, y)
    c = 100 * model.checks_[0].reliability * 0.3 / 9
    assert c > 0
    assert Watching.seen[-1][2].sum() == pytest.approx((50 * (1 + c / 3) + 30 * c) / max(1 + c / 3, c))


def test_unlabelled_rows_are_left_to_teachers_who_know_more_than_the_labels(digits: Any) -> None:
    X = np.concatenate([digits.X, digits.X_test[:50]])
    y = np.concatenate([digits.y, np.full(50, -1)])
    with pytest.warns(ConsilienceWarning) as told:
        partial = CrossTaskDistiller(digits.first_six, quick(2), random_state=0).fit(X, y)
    assert [warning.category for warning in told] == [ConsilienceWarning, CoverageWarning]
    assert "50 rows without a label are not used" in str(told[1].message)
    assert not partial.checks_[0].knows_more
    whole = CrossTaskDistiller(digits.all_ten, quick(2), random_state=0).fit(X, y)
    assert whole.checks_[0].used
    assert (partial.n_labels_, whole.n_labels_) == (50, 50)


def test_rows_on_which_the_teacher_abstains_learn_from_their_labels(digits: Any) -> None:
    teacher = as_teacher(digits.all_ten)

    def shy(X: Any) -> Any:
        logits = teacher.predict_logits(X)
        logits[::3] = np.nan
        return logits

    source = as_teacher(shy, range(10), output="logits")
    for student in (quick(120), "logistic"):
        model = CrossTaskDistiller(source, student, random_state=0).fit(digits.X, digits.y)
        assert model.score(digits.X_test, digits.y_test) > 0.6
    silent = as_teacher(lambda X: np.full((len(X), 10), np.nan), range(10), "mute", output="logits")
    with pytest.raises(InvalidInputError, match=r"'mute'.*abstains on every labelled row"):
        CrossTaskDistiller(silent, "logistic").fit(digits.X, digits.y)


def test_a_fit_that_fails_leaves_the_one_before_as_it_was(digits: Any) -> None:
    class Moody(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            if len(np.unique(y)) < 10:
                raise RuntimeError("not today")
            return super().fit(X, y, sample_weight)

    model = CrossTaskDistiller(digits.all_ten, Moody(), check=False, random_state=0).fit(digits.X, digits.y)
    before = {name: getattr(model, name) for name in vars(model) if name.endswith("_")}
    answers = model.predict_proba(digits.X_test)
    few = digits.y < 3
    with pytest.raises(InvalidInputError, match="not today"):
        model.fit(digits.X[few], digits.y[few])
    assert all(getattr(model, name) is value for name, value in before.items())
    np.testing.assert_array_equal(model.predict_proba(digits.X_test), answers)


def test_labels_only_need_no_teacher_and_say_nothing_of_any(digits: Any) -> None:
    X = np.concatenate([digits.X, digits.X_test[:50]])
    y = np.concatenate([digits.y, np.full(50, -1)])

    def never(X: Any) -> Any:
        raise AssertionError

    teacher = as_teacher(never, range(10), output="logits")
    for options in ({"loss": "none"}, {"teacher_weight": 0}):
        model = CrossTaskDistiller(None, "logistic", random_state=0, **options).fit(X, y)
        assert model.teachers_ == []
        given = CrossTaskDistiller(teacher, "logistic", random_state=0, **options).fit(X, y)
        assert (given.teacher_weights_.tolist(), given.costs_) == ([0.0], [])
        np.testing.assert_array_equal(model.predict(digits.X_test), given.predict(digits.X_test))
    with pytest.raises(InvalidInputError, match="NoneType"):
        CrossTaskDistiller(None, "logistic").fit(X, y)


def test_progress_is_reported(digits: Any) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def progress(task: str, done: int, total: int) -> None:
        seen[task] = (done, total)

    teachers = [digits.all_ten, digits.first_six]
    CrossTaskDistiller(
        teachers, quick(3), teacher_weight=10.0, run=Run(progress=progress), random_state=0
    ).fit(digits.X, digits.y)
    assert seen == {"scoring": (100, 100), "training": (3, 3)}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"teacher_weight": -1}, "teacher_weight=-1 must be a finite number of at least 0"),
    ({"teacher_weight": "much"}, "teacher_weight='much' is unknown; use 'auto'"),
    ({"cost": "euclid"}, "cost='euclid' is unknown"),
    ({"cost": np.zeros((3, 3))}, r"cost has shape \(3, 3\); expected \(10, 10\)"),
    ({"cost": [np.zeros((10, 10))] * 2}, "cost has 2 matrices for 1 teachers"),
    ({"cost": Superclass({0: "even"})}, "superclasses lacks"),
    ({"check": "maybe"}, "check='maybe' is unknown"),
    ({"run": Run(rows_per_call=0)}, "rows_per_call=0 must be"),
    ({"student": "mlpp"}, "student='mlpp' is unknown"),
    ({"student": Perceptron()}, "has no predict_proba"),
    ({"student": 3}, "student is a int"),
    ({"teachers": []}, "teachers is empty"),
    ({"teachers": [LogisticRegression()]}, r"\(1 of 1\)"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[str(options)[:40] for options, _ in BAD])
def test_bad_options_are_told_in_one_sentence(digits: Any, options: dict[str, Any], message: str) -> None:
    given = {"teachers": digits.all_ten, "student": "logistic", **options}
    with pytest.raises(InvalidInputError, match=message):
        CrossTaskDistiller(**given).fit(digits.X, digits.y)


def test_kd_matches_classes_by_name_and_wants_the_same_ones(digits: Any) -> None:
    for student in (quick(2), "logistic"):
        with pytest.raises(InvalidInputError, match=r"do not share 6, 7, 8, 9\. Use loss='sinkhorn'"):
            CrossTaskDistiller(digits.first_six, student, "kd", 10.0).fit(digits.X, digits.y)
    order = np.array([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    turned = as_teacher(lambda X: digits.all_ten.predict_proba(X)[:, order], order, output="probabilities")
    straight, other = (
        CrossTaskDistiller(teacher, "logistic", loss="kd", check=False, random_state=0).fit(
            digits.X, digits.y
        )
        for teacher in (digits.all_ten, turned)
    )
    np.testing.assert_allclose(other.predict_proba(digits.X), straight.predict_proba(digits.X), atol=1e-4)

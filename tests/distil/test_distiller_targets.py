"""What students learn: labels and the signals of teachers, mixed or side by side."""

from typing import Any

import numpy as np
import pytest

from consilience import as_teacher
from consilience.distil.distiller import Follower, Targets
from consilience.distil.losses import LOSSES, Sinkhorn
from consilience.distil.teacher_signal import Task, make_signal
from consilience.run import Run
from consilience.scoring.blocks import observe
from consilience.transport.costs import Embedding

X = np.random.RandomState(0).normal(size=(8, 3)).astype(np.float32)
TASK = Task(X, np.array(["a", "b", "c"]), np.array([0, 1, 2, 0, 1, 2, -1, -1]), X)
ONEHOT = np.vstack([np.eye(3), np.eye(3), np.zeros((2, 3))])
FOLLOWED = np.array([True, True, False, True, True, True, False, True])


def answers(rows: Any) -> Any:
    """Abstain outside `FOLLOWED`."""
    known = (rows[:, None] == X[FOLLOWED][None]).all(axis=2).any(axis=1)
    return np.where(known[:, None], rows[:, :2], np.nan)


def signal(loss: Any = None, *, abstains: bool = False) -> Any:
    teacher = as_teacher(answers if abstains else lambda rows: rows[:, :2], ["u", "v"], "t", output="logits")
    loss = Sinkhorn(temperature=2.0) if loss is None else loss
    return make_signal(teacher, observe(teacher, X, Run()), TASK, loss, Embedding(), 0)


def test_mixed_labels_follow_a_teacher_in_its_rows_only() -> None:
    own = signal(abstains=True)
    sums = Targets.of(3, [Follower(0, own, 5.0)], "probabilities").columns(TASK.codes, {0: own.observed})
    c = 5.0 * 0.3 / 2.0**2  # with an automatic epsilon, teacher_weight counts 0.3; the temperature is 2
    q = np.nan_to_num(own.transported_labels()) ** 2
    q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-300)
    np.testing.assert_allclose(sums, ONEHOT + c * q * FOLLOWED[:, None])
    for labelled in (True, False):
        rows = Follower(0, own, 5.0, labelled).rows(TASK.codes, own.observed)
        np.testing.assert_array_equal(rows, FOLLOWED & ((TASK.codes >= 0) == labelled))
    # a given epsilon is taken as it is
    given = signal(Sinkhorn(temperature=2.0, epsilon=0.4))
    sums = Targets.of(3, [Follower(0, given, 5.0)], "probabilities").columns(TASK.codes, {0: given.observed})
    np.testing.assert_allclose(sums[2].sum(), 1 + 5.0 * 0.4 / 2.0**2)


@pytest.mark.parametrize("name", ["sinkhorn", "rkd", "fitnet", "refilled"])
def test_targets_of_parts_are_those_of_the_whole(name: str) -> None:
    """Rows that are read block by block get what they would get at once."""
    pytest.importorskip("torch")
    own = signal(LOSSES[name](), abstains=True)
    targets = Targets.of(3, [Follower(0, own, 5.0)], "logits")
    whole = targets.columns(TASK.codes, {0: own.observed})
    parts = [
        targets.columns(TASK.codes[rows], {0: own.observed.take(rows)}) for rows in (slice(0, 3), slice(3, 8))
    ]
    assert whole.shape == (8, targets.n_columns)
    np.testing.assert_array_equal(np.vstack(parts), whole)
    assert np.isnan(whole[~FOLLOWED, 3:]).all()
    assert not np.isnan(whole[FOLLOWED]).any()


def test_the_weight_of_a_transported_label_is_the_curvature_of_the_term_of_eq_11() -> None:
    """By finite differences of the logits, around a student that matches the teacher."""
    torch = pytest.importorskip("torch")
    from consilience.nn import SinkhornLoss

    own = signal(Sinkhorn(temperature=2.0, epsilon=0.4))
    q = own.student_labels(own.transported_labels()[:1])
    z, step = np.log(q), 1e-2 * np.array([[1.0, -2.0, 1.0]])
    distance = SinkhornLoss(own.shifted_cost(), 0.4, 2.0, tol=1e-12, max_iter=100_000).double()

    def term(logits: Any) -> float:
        return float(distance(torch.tensor(logits), torch.tensor(own.observed.logits[:1])))

    def cross_entropy(logits: Any) -> float:
        return float(-(q * (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))).sum())

    term_curve, label_curve = (f(z + step) - 2 * f(z) + f(z - step) for f in (term, cross_entropy))
    assert 5.0 * term_curve == pytest.approx(own.label_weight(5.0) * label_curve, rel=0.5)
    assert abs(term(z + step) - term(z - step)) < 0.1 * term_curve  # the least value is at q


def test_columns_beside_the_labels_hide_a_teacher_outside_its_rows() -> None:
    pytest.importorskip("torch")
    own, other = signal(abstains=True), signal(Sinkhorn(temperature=2.0, epsilon=0.4))
    targets = Targets.of(3, [Follower(0, own, 5.0), Follower(1, other, 2.0)], "logits")
    columns = targets.columns(TASK.codes, {0: own.observed, 1: other.observed})
    assert columns.shape == (8, 3 + 2 + 2)
    np.testing.assert_array_equal(columns[:, :3], ONEHOT)
    np.testing.assert_array_equal(np.isnan(columns[:, 3]), ~FOLLOWED)
    np.testing.assert_array_equal(columns[FOLLOWED, 3:5], own.observed.logits[FOLLOWED])
    np.testing.assert_array_equal(columns[:, 5:], other.observed.logits)
    criterion = targets.criterion(0.75)
    places, weights, _ = zip(*criterion.parts, strict=True)
    assert places == (slice(3, 5), slice(5, 7))
    assert (weights, criterion.labelled) == (pytest.approx((5.0 * 0.3 / own.epsilon, 2.0)), 0.75)

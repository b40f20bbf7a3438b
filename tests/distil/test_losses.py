"""What students learn from: labels and the signals of teachers, mixed or side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience import as_teacher
from consilience.distil.losses import LOSSES, MixedLabels, StackedTargets, WeightedSignal, find_loss, some_of
from consilience.distil.teacher_signal import SignalOptions, Task, make_signal
from consilience.scoring.engine import observe

X = np.random.RandomState(0).normal(size=(8, 3)).astype(np.float32)
TASK = Task(X, np.array(["a", "b", "c"]), np.array([0, 1, 2, 0, 1, 2, -1, -1]))
FOLLOWED = np.array([True, True, False, True, True, True, False, True])
HALVES = (slice(0, 3), slice(3, 8))


def answers(rows: Any) -> Any:
    """Abstain outside `FOLLOWED`."""
    known = (rows[:, None] == X[FOLLOWED][None]).all(axis=2).any(axis=1)
    return np.where(known[:, None], rows[:, :2], np.nan)


def signal(epsilon: Any = "auto", *, abstains: bool = False) -> Any:
    teacher = as_teacher(answers if abstains else lambda rows: rows[:, :2], ["u", "v"], "t", output="logits")
    options = SignalOptions("embedding", 2.0, epsilon, True, True, None, 0)
    return make_signal(teacher, observe(teacher, X), TASK, options)


def test_mixed_labels_follow_a_teacher_in_its_rows_only() -> None:
    own = signal(abstains=True)
    labels, mass = MixedLabels.of(TASK, [WeightedSignal(own, 5.0)], LOSSES["sinkhorn"]).mix(
        TASK.codes, [own.observed]
    )
    c = 5.0 * 0.3 / 2.0**2  # with an automatic epsilon, teacher_weight counts 0.3; the temperature is 2
    q, onehot = (
        np.nan_to_num(own.transported_labels()) ** 2,
        np.vstack([np.eye(3), np.eye(3), np.zeros((2, 3))]),
    )
    q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-300)
    expected = np.array([1.0] * 6 + [0.0] * 2) + c * FOLLOWED
    np.testing.assert_allclose(mass, expected)
    used = mass > 0
    np.testing.assert_allclose(labels[used], (onehot + c * q)[used] / mass[used, None])
    # a given epsilon is taken as it is
    given = signal(0.4)
    _, mass = MixedLabels.of(TASK, [WeightedSignal(given, 5.0)], LOSSES["sinkhorn"]).mix(
        TASK.codes, [given.observed]
    )
    np.testing.assert_allclose(mass[2], 1 + 5.0 * 0.4 / 2.0**2)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_teacher_is_followed_on_rows_with_or_without_a_label(labelled: bool) -> None:
    own = signal(abstains=True)
    rows = WeightedSignal(own, 5.0, labelled).rows(TASK.codes, own.observed)
    np.testing.assert_array_equal(rows, FOLLOWED & ((TASK.codes >= 0) == labelled))


@pytest.mark.parametrize("name", ["sinkhorn", "rkd", "fitnet", "refilled"])
def test_targets_of_parts_are_those_of_the_whole(name: str) -> None:
    """Rows that are read block by block get what they would get in memory."""
    pytest.importorskip("torch")
    own = signal(abstains=True)
    stacked = StackedTargets.of(TASK, [WeightedSignal(own, 5.0)], LOSSES[name], "entropy")
    whole = stacked.stack(TASK.codes, [own.observed])
    parts = [stacked.stack(TASK.codes[rows], [some_of(own.observed, rows)]) for rows in HALVES]
    assert whole.shape == (8, stacked.n_columns)
    np.testing.assert_array_equal(np.vstack(parts), whole)
    assert np.isnan(whole[~FOLLOWED, 3:]).all()
    assert not np.isnan(whole[FOLLOWED]).any()


def test_the_weight_of_a_transported_label_is_the_curvature_of_the_term_of_eq_11() -> None:
    """By finite differences of the logits, around a student that matches the teacher."""
    torch = pytest.importorskip("torch")
    from consilience.nn import SinkhornLoss

    own = signal(0.4)
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


def test_stacked_targets_hide_a_teacher_outside_its_rows() -> None:
    pytest.importorskip("torch")
    own, other = signal(abstains=True), signal(0.4)
    pair = [WeightedSignal(own, 5.0), WeightedSignal(other, 2.0)]
    stacked = StackedTargets.of(TASK, pair, LOSSES["sinkhorn"], "entropy")
    targets = stacked.stack(TASK.codes, [own.observed, other.observed])
    assert targets.shape == (8, 3 + 2 + 2)
    np.testing.assert_array_equal(targets[:6, :3], np.vstack([np.eye(3), np.eye(3)]))
    assert (targets[6:, :3] == 0).all()
    np.testing.assert_array_equal(np.isnan(targets[:, 3]), ~FOLLOWED)
    np.testing.assert_array_equal(targets[FOLLOWED, 3:5], own.observed.logits[FOLLOWED])
    np.testing.assert_array_equal(targets[:, 5:], other.observed.logits)
    criterion = stacked.criterion(0.75)
    weights = [weight for _, weight, _ in criterion.parts]
    assert weights == pytest.approx([5.0 * 0.3 / own.epsilon, 2.0])
    assert criterion.labelled == 0.75


def test_every_loss_is_in_the_table() -> None:
    assert list(LOSSES) == ["sinkhorn", "kd", "rkd", "fitnet", "refilled", "none"]
    assert [name for name in LOSSES if LOSSES[name].torch_only] == ["rkd", "fitnet", "refilled"]
    assert [name for name in LOSSES if LOSSES[name].checked] == ["sinkhorn", "kd"]
    own = find_loss(lambda student_logits, teacher_logits, **_: 0)
    assert own.checked
    assert own.torch_only

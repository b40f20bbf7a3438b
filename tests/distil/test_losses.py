"""What students learn from: labels and the signals of teachers, mixed or side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience import as_teacher
from consilience.distil.losses import LOSSES, WeightedSignal, find_loss, mixed_labels
from consilience.distil.teacher_signal import SignalOptions, Task, make_signal
from consilience.teachers.scoring.engine import observe

X = np.random.RandomState(0).normal(size=(8, 3)).astype(np.float32)
TASK = Task(X, np.array(["a", "b", "c"]), np.array([0, 1, 2, 0, 1, 2, -1, -1]))
FOLLOWED = np.array([True, True, False, True, True, True, False, True])


def signal(epsilon: Any = "auto") -> Any:
    teacher = as_teacher(lambda rows: rows[:, :2], ["u", "v"], "t", output="logits")
    options = SignalOptions("embedding", 2.0, epsilon, True, True, None, 0)
    return make_signal(teacher, observe(teacher, X), TASK, options)


def test_mixed_labels_follow_a_teacher_in_its_rows_only() -> None:
    own = signal()
    labels, weights, power = mixed_labels(TASK, [WeightedSignal(own, 5.0, FOLLOWED)], LOSSES["sinkhorn"], 2.0)
    c = 5.0 * 0.3  # with an automatic epsilon, teacher_weight counts 0.3
    q, onehot = own.transported_labels(), np.vstack([np.eye(3), np.eye(3), np.zeros((2, 3))])
    mass = np.array([1.0] * 6 + [0.0] * 2) + c * FOLLOWED
    expected = (onehot + c * FOLLOWED[:, None] * q)[mass > 0] / mass[mass > 0, None]
    np.testing.assert_allclose(labels[mass > 0], expected)
    np.testing.assert_allclose(weights, mass / mass.max())
    assert power == pytest.approx(1 + c * 6 / (6 + c * 6))
    # a given epsilon is taken as it is
    given = signal(0.4)
    _, weights, _ = mixed_labels(TASK, [WeightedSignal(given, 5.0, FOLLOWED)], LOSSES["sinkhorn"], 2.0)
    np.testing.assert_allclose(weights[2], 1 / (1 + 5.0 * 0.4))


def test_stacked_targets_hide_a_teacher_outside_its_rows() -> None:
    pytest.importorskip("torch")
    from consilience.distil.losses import stacked_targets

    own, other = signal(), signal(0.4)
    used = np.ones(8, dtype=bool)
    pair = [WeightedSignal(own, 5.0, FOLLOWED), WeightedSignal(other, 2.0, used)]
    targets, criterion = stacked_targets(TASK, pair, LOSSES["sinkhorn"], "entropy", used)
    assert targets.shape == (8, 3 + 2 + 2)
    np.testing.assert_array_equal(targets[:6, :3], np.vstack([np.eye(3), np.eye(3)]))
    assert (targets[6:, :3] == 0).all()
    np.testing.assert_array_equal(np.isnan(targets[:, 3]), ~FOLLOWED)
    np.testing.assert_array_equal(targets[FOLLOWED, 3:5], own.observed.logits[FOLLOWED])
    np.testing.assert_array_equal(targets[:, 5:], other.observed.logits)
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

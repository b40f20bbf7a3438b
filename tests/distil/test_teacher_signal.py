"""A teacher's signal: transported labels, and those of held-out rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError, as_teacher, cost_matrix
from consilience.distil.losses import Sinkhorn
from consilience.distil.teacher_signal import Task, make_signal, out_of_fold_labels, plans_by_fold
from consilience.run import Run
from consilience.scoring.blocks import observe
from consilience.transport.costs import Embedding
from consilience.transport.distance import class_share_shift, conditional_plan

RANDOM = np.random.RandomState(0)
CODES = np.arange(24) % 3
X = (RANDOM.normal(size=(24, 2)) + 2 * CODES[:, None]).astype(np.float32)
FOLD = np.arange(24) // 3 % 4
FOLD[0] = -1
SILENT = 5


def logits(rows: Any) -> Any:
    scores = np.column_stack([rows[:, 0], -rows[:, 0], rows[:, 1], 0.3 * rows[:, 0] - rows[:, 1]])
    scores[(rows == X[SILENT]).all(axis=1)] = np.nan
    return scores


TASK = Task(X, np.arange(3), CODES, X)


def signal_of(task: Task = TASK, cost: Any = None, answer: Any = logits, **options: Any) -> Any:
    teacher = as_teacher(answer, list("abcd"), "t", output="logits")
    loss, cost = Sinkhorn(temperature=2.0, **options), Embedding() if cost is None else cost
    return make_signal(teacher, observe(teacher, X, Run()), task, loss, cost, 0)


@pytest.mark.parametrize("match_shares", [True, False])
def test_labels_of_held_out_rows_are_made_with_the_costs_of_other_folds(match_shares: bool) -> None:
    signal = signal_of(match_shares=match_shares)
    found = out_of_fold_labels(signal, FOLD, plans_by_fold(signal, FOLD))
    assert np.flatnonzero(np.isnan(found[:, 0])).tolist() == [0, SILENT]
    answered = np.arange(24) != SILENT
    proba = np.exp(logits(X) / 2) / np.exp(logits(X) / 2).sum(axis=1, keepdims=True)
    for fold in range(4):
        others = answered & (fold != FOLD)
        cost = cost_matrix(signal.teacher, X[others], CODES[others])
        shift = None
        if match_shares:
            shift = class_share_shift(proba[others], np.full(3, 1 / 3), cost, signal.epsilon)
        expected = proba @ conditional_plan(cost, signal.epsilon, shift)
        rows = answered & (fold == FOLD)
        np.testing.assert_allclose(found[rows], expected[rows], atol=1e-6)
    # the costs of all rows would give other labels
    assert np.nanmax(np.abs(found - signal.transported_labels())) > 1e-4


def test_a_label_has_no_part_in_the_transported_label_of_its_own_row() -> None:
    signal = signal_of()
    flipped = CODES.copy()
    flipped[[7, 8]] = flipped[[8, 7]]  # the same shares of classes, both in one fold
    assert FOLD[7] == FOLD[8]
    other = Task(X, np.arange(3), flipped, X)
    twin = replace(signal_of(other), epsilon=signal.epsilon)
    before, after = (out_of_fold_labels(own, FOLD, plans_by_fold(own, FOLD)) for own in (signal, twin))
    rows = FOLD[7] == FOLD
    np.testing.assert_allclose(after[rows], before[rows], atol=1e-12)
    assert np.nanmax(np.abs(after[~rows] - before[~rows])) > 1e-4


def test_transported_labels_have_the_class_shares_of_the_labels() -> None:
    """Five further labels of each class make the shares of few labels less extreme."""
    codes = np.repeat(np.arange(3), [14, 6, 4])
    task = Task(X, np.arange(3), codes, X)
    shifted, plain = (
        signal_of(task, answer=lambda rows: np.nan_to_num(logits(rows)), match_shares=match)
        for match in (True, False)
    )
    np.testing.assert_allclose(
        shifted.transported_labels().mean(axis=0), [19 / 39, 11 / 39, 9 / 39], atol=1e-5
    )
    assert np.abs(plain.transported_labels().mean(axis=0) - task.shares(5)).max() > 0.05


def test_shifted_costs_keep_the_least_entry() -> None:
    signal = signal_of()
    assert np.ptp(signal.shift) > 0
    assert signal.shifted_cost().min() == pytest.approx(signal.cost.min())
    np.testing.assert_allclose(
        np.diff(signal.shifted_cost(), axis=1), np.diff(signal.cost - signal.shift, axis=1), atol=1e-12
    )


def test_an_automatic_epsilon_makes_the_weight_independent_of_the_units_of_the_cost() -> None:
    cost = RANDOM.uniform(size=(4, 3))
    small, large = (signal_of(cost=factor * cost) for factor in (1.0, 1000.0))
    assert small.strength * small.epsilon == pytest.approx(large.strength * large.epsilon)
    assert signal_of(cost=cost, epsilon=0.2).strength == 1.0


def test_an_epsilon_too_small_for_the_costs_is_told() -> None:
    with pytest.raises(InvalidInputError, match="Raise epsilon, or divide the cost"):
        signal_of(epsilon=1e-300, match_shares=False)

"""What is known about rows before a student learns from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.labels import LabelSpace
from consilience.rows import HeldRows
from consilience.unify.answers import Answers, with_labels_as_teacher

N = 20
ROWS = np.arange(float(N))[:, None]
SPACE = LabelSpace([["a", "b"], ["b", "c"]])
LOGITS = np.column_stack([ROWS, -ROWS, 2 * ROWS, -2 * ROWS]).astype(np.float32)


def answers(temperatures: Any, smoothing: Any) -> Answers:
    nobody, covered = np.full(N, -1), np.ones(N, bool)
    teachers = np.zeros(2, dtype=int)
    return Answers([], SPACE, HeldRows(ROWS), LOGITS, nobody, covered, teachers, temperatures, smoothing)


def test_logits_are_divided_by_temperatures_and_smoothed() -> None:
    heated = answers(np.array([2.0, 4.0]), np.zeros(2))
    assert heated.logits(slice(1, 2)).tolist() == [[0.5, -0.5, 0.5, -0.5]]
    smooth = answers(np.ones(2), np.array([0.1, 0.0])).logits(slice(19, 20))
    np.testing.assert_allclose(np.exp(smooth[0, :2]), [1.0, 0.05])
    assert smooth[0, 2:].tolist() == LOGITS[19, 2:].tolist()  # the other teacher has none


def test_known_labels_are_one_more_teacher() -> None:
    labels = np.full(N, -1)
    labels[7] = 2
    for rows, answered in ((slice(6, 9), [False, True, False]), (slice(12, 16), [False] * 4)):
        space, packed = with_labels_as_teacher(SPACE, LOGITS[rows], labels[rows])
        assert space.n_teachers == 3
        assert packed.shape[1] == space.n_columns
        expected = np.where(np.array(answered)[:, None], np.nan, LOGITS[rows])  # the label is the last word
        np.testing.assert_array_equal(packed[:, :4], expected)
        assert (~np.isnan(packed[:, 4:]).any(axis=1)).tolist() == answered
        assert packed[answered, 4:].argmax(axis=1).tolist() == [2] * sum(answered)

"""Rows that are sorted are learnt from in a random order, whatever fits in the buffer."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from consilience import ConsilienceWarning
from consilience._progress import silent
from consilience.rows import rearranged
from consilience.rows.rearranged import Rearranged, in_random_order, is_sorted
from consilience.rows.targets import ArrayTargets, TargetRows
from consilience.students.expansion import Classifier
from consilience.students.partial_fit import fit_by_partial_fit

N, L = 6000, 5
random = np.random.default_rng(0)
y = random.integers(L, size=N)
X = (np.eye(L)[y] * 2 + random.normal(size=(N, L))).astype(np.float32)
Q = (np.eye(L)[y] * 0.8 + 0.2 / L).astype(np.float32)
SORTED = np.argsort(y, kind="stable")


def rows(order: Any = slice(None), weights: Any = None) -> ArrayTargets:
    return ArrayTargets(X[order], Q[order], weights, block_rows=500)


def everything(found: TargetRows) -> list[Any]:
    parts = [found.read(block) for stretch in found.stretches for block in stretch]
    return [np.concatenate([part[i] for part in parts]) for i in range(3 if parts[0][2] is not None else 2)]


def test_sorted_rows_are_found() -> None:
    assert is_sorted(rows(SORTED), 0)
    assert not is_sorted(rows(), 0)
    drift = np.argsort(y + 8 * random.normal(size=N))  # half of a percent of the variance
    assert not is_sorted(rows(drift), 0)


def test_every_row_is_there_once_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rearranged, "BLOCK_ROWS", 128)
    given = rows(SORTED, np.arange(N))
    found = Rearranged(given, 7, seed=0)
    moved, targets, weights = everything(found)
    places = weights.astype(int)
    assert sorted(places.tolist()) == list(range(N))
    np.testing.assert_array_equal(moved, X[SORTED][places])
    np.testing.assert_array_equal(targets, Q[SORTED][places])
    assert found.n_rows == sum(found.rows_in(block) for stretch in found.stretches for block in stretch)
    for block in (0, 11):
        part = found.read(block)
        assert found.row_number(block, 5) == part[2][5]
        assert len(part[1]) == found.rows_in(block)
    for stretch in found.stretches:  # each part is a sample of all rows
        mean = np.concatenate([found.read(block)[1] for block in stretch]).mean(axis=0)
        np.testing.assert_allclose(mean, Q.mean(axis=0), atol=0.06)


def test_copies_are_made_only_where_they_help() -> None:
    size = N * rows().row_bytes
    for given, n_bytes in ((rows(), size / 9), (rows(SORTED), size)):
        assert in_random_order(given, n_bytes, 0) is given
    assert isinstance(in_random_order(rows(SORTED), size / 9, 0), Rearranged)
    texts = ArrayTargets([str(i) for i in range(N)], Q[SORTED], block_rows=500)
    with pytest.warns(ConsilienceWarning, match=r"are sorted.*only arrays of numbers.*Shuffle the files"):
        assert in_random_order(texts, 1000, 0) is texts


def test_a_disk_that_is_too_small_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(rearranged.shutil, "disk_usage", lambda folder: Usage)
    given = rows(SORTED)
    with pytest.warns(ConsilienceWarning, match="does not fit on the disk"):
        assert in_random_order(given, 1000, 0) is given


@pytest.mark.parametrize("kind", ["torch", "mlp"])
def test_students_learn_sorted_rows_as_well(kind: str) -> None:
    def accuracy(order: Any) -> float:
        given, memory = rows(order), int(4 * 0.1 * N * rows().row_bytes)  # the buffer has a tenth of the rows
        if kind == "torch":
            torch_student = pytest.importorskip("consilience.students").Network
            criterion = pytest.importorskip("consilience.nn").SoftCrossEntropy()
            student = torch_student(max_iter=3, lr=0.01, patience=None, random_state=0)
            student.fit_by_passes(given, n_classes=L, criterion=criterion, memory=memory)
            scores = student.predict_logits(X)
        else:
            student = Classifier(MLPClassifier((16,), max_iter=3, learning_rate_init=0.01), random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit_by_partial_fit(student, given, np.ones(L), progress=silent, memory=memory)
            scores = student.estimator_.predict_proba(X)
        return float((scores.argmax(axis=1) == y).mean())

    assert accuracy(SORTED) > accuracy(random.permutation(N)) - 0.02

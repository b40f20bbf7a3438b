"""Which students learn from rows read block by block, and what the others need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from tests.rows.rows import target_rows

from consilience.exceptions import InvalidInputError
from consilience.students import Ngrams
from consilience.students.make import make_student
from consilience.students.passes import check_student_streams
from consilience.students.training import fit_student, fit_student_by_passes

L = 3


def problem(n: int = 200) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(L, size=n)
    X = rng.normal(size=(n, 4)) + 3 * rng.normal(size=(L, 4))[y]
    return X, 0.2 / L + 0.8 * np.eye(L)[y], y


def made(student: Any, **options: Any) -> Any:
    return make_student(student, random_state=0, **options)


@pytest.mark.parametrize("student", ["mlp", "logistic", GaussianNB(), Ngrams()])
def test_these_learn_from_any_number_of_rows(student: Any) -> None:
    check_student_streams(made(student), 10**8, 10**11, 30, 2**30)


def test_networks_learn_from_any_number_of_rows() -> None:
    pytest.importorskip("torch")
    check_student_streams(made("torch"), 10**8, 10**11, 30, 2**30)


@pytest.mark.parametrize("student", ["forest", "boosting", LogisticRegression()])
def test_the_others_say_how_many_rows_they_take(student: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"student='torch'.* or 'mlp'") as raised:
        check_student_streams(made(student), 10**7, 4 * 10**9, 30, 2**32)
    most = int(str(raised.value).split("it can learn from about ")[1].split(".")[0].replace(",", ""))
    assert 10**4 < most < 10**7
    check_student_streams(made(student), most, 400 * most, 30, 2**32)
    with pytest.raises(InvalidInputError):
        check_student_streams(made(student), most + most // 100, 404 * most, 30, 2**32)


@pytest.mark.parametrize("student", ["forest", "boosting", LogisticRegression()])
def test_what_fits_in_memory_is_learnt_as_ever(student: Any) -> None:
    X, Q, _ = problem()
    Q = Q.astype(np.float32).astype(np.float64)
    by_row = np.linspace(0.5, 1.5, len(X)).astype(np.float32)
    inside, outside = made(student), made(student)
    options: dict[str, Any] = {"loss": "cross-entropy", "temperature": 1.0, "progress": None}
    fit_student(inside, X, Q, np.ones(L), by_row.astype(np.float64), **options)
    rows = target_rows(X, Q, by_row, block_rows=64)
    fit_student_by_passes(outside, rows, np.ones(L), memory=2**30, **options)
    np.testing.assert_allclose(inside.predict_all(X, L), outside.predict_all(X, L), rtol=1e-12)


@pytest.mark.parametrize("loss", ["cross-entropy", "collision"])
def test_a_network_learns_by_passes(loss: Any) -> None:
    pytest.importorskip("torch")
    X, Q, y = problem()
    by_row = np.ones(len(X))
    for weights in (None, by_row):
        student = made("torch")
        fit_student_by_passes(
            student,
            target_rows(X, Q, weights, block_rows=64),
            np.ones(L),
            loss=loss,
            temperature=2.0,
            progress=None,
            memory=2**20,
        )
        assert (student.predict_logits(X).argmax(axis=1) == y).mean() > 0.9


@pytest.mark.parametrize("loss", ["cross-entropy", "collision"])
def test_texts_are_learnt_by_passes(loss: Any) -> None:
    _, Q, y = problem()
    texts = [f"{('ant', 'bee', 'cat')[label]} {i}" for i, label in enumerate(y)]
    student = made(Ngrams(n_buckets=500, dim=8), loss=loss)
    calls: list[Any] = []
    fit_student_by_passes(
        student,
        target_rows(texts, Q, block_rows=32),
        np.ones(L),
        loss=loss,
        temperature=1.0,
        progress=lambda *call: calls.append(call),
        memory=2**14,
    )
    assert calls[-1] == ("training", 10, 10)
    assert (student.predict_all(texts, L).argmax(axis=1) == y).mean() > 0.95

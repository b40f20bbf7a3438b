"""Texts from end to end: teachers of texts, a student that learns soft labels by itself, its file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from consilience import InvalidInputError, Unifier, as_teacher, load
from consilience.files.card import card_path, read_card
from consilience.run import Run
from consilience.students import Ngrams, Student

SYLLABLES = {"a": ["ka", "to", "mi", "re"], "b": ["ka", "lo", "mi", "se"], "c": ["ka", "lo", "vu", "re"]}


def language(n: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice(sorted(SYLLABLES), n)
    return [" ".join("".join(rng.choice(SYLLABLES[label], 3)) for _ in range(3)) for label in y], y


def student(**options: Any) -> Ngrams:
    return Ngrams(**{"n_buckets": 2048, "dim": 16, **options})


TEXTS, LABELS = language(500)
TEST = language(300, seed=1)


@pytest.fixture(scope="module")
def teachers() -> list[Any]:
    """Two that know two of three languages each."""
    return [
        as_teacher(
            student(random_state=0).fit(np.array(TEXTS)[unknown != LABELS], LABELS[unknown != LABELS]),
            name=f"not {unknown}",
        )
        for unknown in "ac"
    ]


@pytest.fixture(scope="module")
def unified(teachers: list[Any]) -> Unifier:
    return Unifier(teachers, student(), random_state=0).fit(TEXTS)


def test_two_teachers_of_two_languages_make_one_of_three(unified: Unifier, teachers: list[Any]) -> None:
    texts, y = TEST
    single = [np.mean(one.classes[one.predict_logits(texts).argmax(axis=1)] == y) for one in teachers]
    assert unified.score(*TEST) > max(single) + 0.1
    assert isinstance(unified.student_, Ngrams)
    assert unified.n_iter_ == 10
    np.testing.assert_allclose(unified.predict_proba(TEST[0]).sum(axis=1), 1.0)


def test_the_student_learns_the_soft_labels_not_the_decisions(teachers: list[Any]) -> None:
    given: dict[str, Any] = {}

    class Spy(Student):
        """The least that a student of one's own must be able to do."""

        learns_from = "texts"

        def learn_rows(self, rows: Any, class_weights: Any, run: Any, key: str) -> None:
            X, Q, _ = rows.everything()
            given.update(X=X, Q=Q, class_weights=class_weights)

        def predict_all(self, X: Any, n_classes: int) -> Any:
            return np.full((len(X), n_classes), 1 / n_classes)

    unified = Unifier(teachers, Spy(), balance=True).fit(TEXTS)
    np.testing.assert_array_equal(given["Q"], unified.soft_labels_)
    assert given["X"] == TEXTS
    assert unified.class_weights_ is not None
    np.testing.assert_allclose(given["class_weights"], unified.class_weights_ / 3)


@pytest.mark.parametrize("options", [{"self_label": True}, {"loss": "collision"}, {}])
def test_every_way_to_train_it(teachers: list[Any], options: dict[str, Any]) -> None:
    told: list[tuple[str, int, int]] = []
    run = Run(progress=lambda *args: told.append(args))
    learner = student(max_iter=5, **options)
    unified = Unifier(teachers, learner, balance=bool(options), random_state=0, run=run).fit(TEXTS)
    assert unified.score(*TEST) > 0.8
    times = 2 if "self_label" in options else 1
    assert [entry for entry in told if entry[0] == "training"] == [
        ("training", i, 5) for i in range(1, 6)
    ] * times


def test_collision_trains_a_student_that_is_surer(teachers: list[Any], unified: Unifier) -> None:
    collision = Unifier(teachers, student(loss="collision"), random_state=0).fit(TEXTS)
    entropy = [
        -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1).mean()
        for p in (collision.predict_proba(TEST[0]), unified.predict_proba(TEST[0]))
    ]
    assert entropy[0] < entropy[1]


@pytest.mark.parametrize("name", ["logistic", "forest", "boosting", "mlp", "torch"])
def test_students_of_numbers_are_refused_before_anybody_is_asked(name: str) -> None:
    def ask(X: list[str]) -> np.ndarray:
        pytest.fail("a teacher was asked")

    teacher = as_teacher(ask, ["a", "b"], output="logits")
    with pytest.raises(
        InvalidInputError, match=f"student='{name}' learns from numbers.* student='ngrams', or"
    ):
        Unifier([teacher, teacher], name).fit(TEXTS)


def test_one_seed_reproduces_the_whole(teachers: list[Any]) -> None:
    first, again = (
        Unifier(teachers, student(max_iter=1), random_state=3).fit(TEXTS).predict_proba(TEST[0])
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    own = Unifier(teachers, student(max_iter=1, random_state=5), random_state=3).fit(TEXTS)
    assert own.student_.random_state == 5


def test_a_file_that_is_a_teacher_again(unified: Unifier, tmp_path: Path) -> None:
    path, expected = unified.save(tmp_path / "unified.npz"), unified.predict_proba(TEST[0])
    teacher = as_teacher(path)
    assert teacher.classes.tolist() == ["a", "b", "c"]
    proba = softmax(teacher.predict_logits(TEST[0]), axis=1)
    np.testing.assert_allclose(proba, expected, atol=2e-2)
    assert (proba.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.99
    card = read_card(card_path(path))
    assert card.description == "Unified from 2 teachers."
    assert card.details["teachers"] == ["not a", "not c"]
    assert card.details["temperature"] == "1"
    assert load(path).score(*TEST) == pytest.approx(unified.score(*TEST), abs=0.01)


@pytest.mark.parametrize("X", [TEXTS[:40], np.array(TEXTS[:40])], ids=["list", "array"])
def test_texts_need_no_choice_of_student(teachers: list[Any], X: Any) -> None:
    assert isinstance(Unifier(teachers).fit(X).student_, Ngrams)

"""How teachers are given: a list, a dict, a Ranking or one; and what is none of these."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import InvalidInputError, TeacherError, as_teacher
from consilience.rank import RankedTeacher, Ranking
from consilience.teachers import Teacher
from consilience.teachers.given import distinct_names, given_teachers, open_teachers

X = np.zeros((2, 3))


def teacher(name: str) -> Teacher:
    return as_teacher(lambda rows: rows, ["a", "b", "c"], name, output="logits")


def ranked(name: str, score: float, error: str | None = None) -> RankedTeacher:
    made = None if error else teacher(name)
    return RankedTeacher(made, name, score, (np.nan, np.nan), np.nan, 0.0, error=error)


def ranking(*rows: RankedTeacher) -> Ranking:
    return Ranking(rows, "transport", 10, 2, 0.95)


def test_a_list_keeps_its_teachers() -> None:
    pair = [teacher("one"), teacher("two")]
    for given in (pair, tuple(pair)):
        opened = open_teachers(given)
        assert (opened.names, opened.teachers, opened.scores) == (["one", "two"], pair, None)


def test_a_dict_names_them() -> None:
    opened = open_teachers({"first": teacher("one"), 2: teacher("two")})
    assert opened.names == [found.name for found in opened.teachers] == ["first", "2"]


def test_one_teacher_is_a_list_of_one() -> None:
    one, path = teacher("one"), Path("model.onnx")
    assert open_teachers(one).teachers == [one]
    assert given_teachers(path).sources == [path]
    assert open_teachers(np.array(["a", "b"])).teachers[0].classes.tolist() == ["a", "b"]


def test_a_ranking_gives_those_with_a_score_best_first() -> None:
    given = ranking(ranked("best", -0.5), ranked("worse", -0.9), ranked("failed", -np.inf, "it broke"))
    opened = open_teachers(given)
    assert (opened.names, opened.scores) == (["best", "worse"], [-0.5, -0.9])
    assert opened.teachers[0] is given.best


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "teachers is empty"),
        ({}, "teachers is empty"),
        (None, "teachers is a NoneType; give a list of teachers, a dict of them by name, a Ranking, or one"),
        ({1, 2}, "teachers is a set; give a list"),
        (iter([1]), "teachers is a list_iterator; give a list"),
        (b"model.onnx", "teachers is a bytes; give a list"),
        (ranking(ranked("failed", -np.inf, "it broke")), "a Ranking in which no teacher has a score"),
    ],
)
def test_what_are_no_teachers(given: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        open_teachers(given)


def test_an_error_says_which_teacher_it_is_about() -> None:
    with pytest.raises(TeacherError, match=r"'model' \(2 of 3\) is given as 'model.pkl'"):
        open_teachers([teacher("one"), "model.pkl", teacher("three")])


def test_names_that_several_share_are_numbered() -> None:
    assert distinct_names(["a", "b", "a"]) == ["a 1", "b", "a 2"]
    assert distinct_names(["a", "a 1", "a"]) == ["a 2", "a 1", "a 3"]
    assert open_teachers([teacher("twin"), teacher("twin")]).names == ["twin 1", "twin 2"]


def test_an_iterator_is_not_used_up_by_being_refused() -> None:
    given = (teacher(name) for name in ["one"])
    with pytest.raises(InvalidInputError, match="teachers is a generator"):
        given_teachers(given)
    assert next(given).name == "one"

"""Other names for a teacher's classes, several of them as one, and one as several."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from tests.scoring.ask import observe

from consilience import Unifier, methods
from consilience.exceptions import TeacherError
from consilience.teachers import (
    Function,
    Precomputed,
    as_teacher,
    join_classes,
    rename_classes,
    split_classes,
)

X = np.random.default_rng(0).normal(size=(12, 3))
CLASSES = ["ja", "nb", "nn", "no"]


def say(rows: Any) -> np.ndarray:
    return np.column_stack([rows, rows[:, 0] - rows[:, 1]]) * 3


def teacher(**options: Any) -> Any:
    return Function(say, CLASSES, "nordic", output="logits", **options)


def test_renamed_classes_and_nothing_else() -> None:
    own = teacher(fingerprint="v1", embed=lambda rows: rows)
    found = rename_classes(own, {"ja": "jpn", "nn": "nno"})
    assert (found.name, found.classes.tolist()) == ("nordic", ["jpn", "nb", "nno", "no"])
    np.testing.assert_array_equal(found.predict_logits(X), own.predict_logits(X))
    assert found.fingerprint == own.fingerprint  # what a store keeps of it stays known
    np.testing.assert_array_equal(found.embed(X), X)


@pytest.mark.parametrize(
    ("aliases", "says"),
    [
        ({"jp": "jpn"}, r"has no class 'jp' to rename; its classes are ja, nb, nn, no\. Drop"),
        ({"nb": "no"}, r"aliases make 'nb', 'no' of 'nordic' one class, 'no'.*join_classes"),
        ({"nb": "nor", "nn": "nor"}, "aliases make 'nb', 'nn' of 'nordic' one class, 'nor'"),
        ({"nb": "nn"}, "aliases make 'nb', 'nn' of 'nordic' one class, 'nn'"),
        ([("nb", "nob")], "aliases is a list; give a mapping, from the teacher's name of a class to"),
        ({"nb": None}, "cannot be renamed: aliases has the entry None of type NoneType"),
        ({"nb": ["nob"]}, r"cannot be renamed: aliases has the entry \['nob'\] of type list"),
        ({"ja": 3}, "mixes numbers and text"),
    ],
)
def test_aliases_are_used_and_join_nothing(aliases: dict, says: str) -> None:
    with pytest.raises(TeacherError, match=says) as caught:
        rename_classes(teacher(), aliases)
    assert str(caught.value).startswith("Teacher 'nordic' ")


def test_all_classes_are_renamed_at_once() -> None:
    swapped, chain = {"nb": "nn", "nn": "nb", "ja": "ja"}, {"ja": "nb", "nb": "nn", "nn": "nno"}
    assert rename_classes(teacher(), swapped).classes.tolist() == ["ja", "nn", "nb", "no"]
    assert rename_classes(teacher(), chain).classes.tolist() == ["nb", "nn", "nno", "no"]


@pytest.mark.parametrize(
    ("change", "given", "classes"),
    [
        (rename_classes, {"a": "x"}, ["x", "b"]),
        (join_classes, {"x": ["a", "b"]}, ["x"]),
        (split_classes, {"a": ["x", "y"]}, ["x", "y", "b"]),
    ],
)
def test_a_model_that_is_no_teacher_yet_becomes_one(change: Any, given: dict, classes: list[str]) -> None:
    model = LogisticRegression().fit(X, ["a", "b"] * 6)
    assert change(model, given).classes.tolist() == classes
    with pytest.raises(TeacherError, match="is a int, which is no classifier"):
        change(5, given)
    with pytest.raises(TeacherError, match="is a list; give a mapping, from"):
        change(model, list(given.items()))


@given(arrays(float, (5, 4), elements=st.floats(-1000, 1000)))
@settings(max_examples=60, deadline=None)
def test_joint_probabilities_add(logits: np.ndarray) -> None:
    own = as_teacher(logits, CLASSES, output="logits")
    found = join_classes(own, {"nor": ["nb", "no"]})
    assert found.classes.tolist() == ["ja", "nor", "nn"]
    p = softmax(logits, axis=1)
    joint = np.column_stack([p[:, 0], p[:, 1] + p[:, 3], p[:, 2]])
    np.testing.assert_allclose(np.exp(found.predict_logits(range(5))), joint, atol=1e-12)


def test_the_order_of_a_group_does_not_matter_and_its_name_may_be_a_member() -> None:
    own = teacher(fingerprint="v1")
    first, second = (join_classes(own, {"no": group}) for group in (["nb", "no", "nn"], ["nn", "no", "nb"]))
    assert first.classes.tolist() == second.classes.tolist() == ["ja", "no"]
    np.testing.assert_array_equal(first.predict_logits(X), second.predict_logits(X))
    assert first.fingerprint == second.fingerprint
    others = (join_classes(own, {}), join_classes(own, {"no": ["nb", "no"]}))
    assert len({own.fingerprint, first.fingerprint, *(one.fingerprint for one in others)}) == 4
    assert join_classes(teacher(), {"no": ["nb", "no"]}).fingerprint is None


def test_abstentions_stay() -> None:
    silent = as_teacher([[0.0] * 4, [np.nan] * 4, [0.0] * 4], CLASSES, output="logits")
    for found in (join_classes(silent, {"nor": ["nb", "no"]}), split_classes(silent, {"nb": ["x", "y"]})):
        assert found.batched is False
        assert np.isnan(found.predict_logits(range(3))).all(axis=1).tolist() == [False, True, False]


def test_a_joint_teacher_sees_what_its_teacher_sees_but_has_no_last_layer() -> None:
    own = as_teacher(LogisticRegression().fit(X, CLASSES * 3))
    joint = join_classes(own, {"nor": ["nb", "no"]})
    seen = joint.observe(X)
    np.testing.assert_array_equal(seen.logits, joint.predict_logits(X))
    np.testing.assert_array_equal(seen.embeddings, own.embed(X))
    np.testing.assert_array_equal(joint.embed(X), own.embed(X))
    assert own.class_weights is not None
    assert joint.class_weights is joint.class_centres is None


def test_random_twins_are_joined_too() -> None:
    torch = pytest.importorskip("torch")
    layer, groups = torch.nn.Linear(3, 4), {"nor": ["nb", "no"]}
    twin = join_classes(as_teacher(layer, CLASSES), groups).randomised(0)
    assert twin.classes.tolist() == ["ja", "nor", "nn"]
    assert twin.predict_logits(X).shape == (12, 3)
    assert join_classes(as_teacher(layer, CLASSES, embed=lambda x: x), groups).randomised(0) is None


def test_errors_are_in_the_teachers_name() -> None:
    found = join_classes(as_teacher(lambda rows: rows["ink"], CLASSES, "pen"), {"nor": ["nb", "no"]})
    with pytest.raises(TeacherError, match=r"Teacher 'pen' failed on .*IndexError"):
        found.predict_logits(X)


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (
            {"nor": ["nb", "nx"]},
            r"has no class 'nx' to join; its classes are ja, nb, nn",
        ),
        ({"nor": []}, "The group 'nor' is empty"),
        ({"nor": "nb"}, "The group 'nor' is 'nb'"),
        ({"nor": 3}, "cannot be joined like this"),
        ({"nor": ["nb", "nb"]}, "names nb more than once"),
        ({"a": ["nb", "no"], "b": ["no", "nn"]}, "has the class 'no' in two groups. Drop one"),
        ({"ja": ["nb", "no"]}, "has a class 'ja' that is not in the group of that name"),
        ({1: ["nb", "no"]}, "mixes numbers and text"),
        ({None: ["nb", "no"]}, "cannot be joined like this: classes has the entry None"),
        ({"nor": [["nb"], "no"]}, r"The group 'nor' has the entry \['nb'\] of type list"),
        ({"nor": None}, "cannot be joined like this: The group 'nor' is None"),
    ],
)
def test_groups_are_checked(groups: dict, says: str) -> None:
    with pytest.raises(TeacherError, match=says) as caught:
        join_classes(teacher(), groups)
    assert str(caught.value).startswith("Teacher 'nordic' ")


def test_each_of_a_split_class_is_as_probable_against_others_as_the_whole() -> None:
    own = teacher(fingerprint="v1", embed=lambda rows: rows)
    found = split_classes(own, {"nn": ["hognorsk", "samnorsk"]})
    assert found.classes.tolist() == ["ja", "nb", "hognorsk", "samnorsk", "no"]
    before, after = own.predict_logits(X), found.predict_logits(X)
    np.testing.assert_array_equal(after, before[:, [0, 1, 2, 2, 3]])
    seen = observe(found, X)
    np.testing.assert_allclose(seen.logits, after, rtol=1e-6)
    np.testing.assert_allclose(seen.embeddings, X, rtol=1e-6)
    other = split_classes(own, {"nb": ["a", "b"]})
    assert found.fingerprint not in (None, own.fingerprint, other.fingerprint)
    assert found.class_weights is None


def test_others_decide_within_a_split_class() -> None:
    zoo = Precomputed(np.log([[0.05, 0.95]]), ["cat", "bird"], "zoo", output="logits", smoothing=0)
    aviary = Precomputed(np.log([[0.3, 0.7]]), ["owl", "wren"], "aviary", output="logits", smoothing=0)
    split = split_classes(zoo, {"bird": ["owl", "wren"]})
    unifier = Unifier([split, aviary], "logistic", method=methods.CE(temperature=1.0))
    cat, owl, wren = unifier.estimate([[0]])[0]
    assert cat < owl < wren  # whole, "bird" would tie with what the aviary says of its own


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"sv": ["a", "b"]}, "has no class 'sv' to split; its classes are ja, nb, nn, no"),
        ({"nn": []}, "cannot be split like this: The group 'nn' is empty"),
        ({"nn": ["nb", "x"]}, "cannot be split like this: classes names nb more than once"),
        ({"nn": [1, 2]}, "cannot be split like this"),
        ({"nn": "xy"}, "cannot be split like this: The group 'nn' is 'xy'"),
    ],
)
def test_what_cannot_be_split(groups: dict, says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        split_classes(teacher(), groups)

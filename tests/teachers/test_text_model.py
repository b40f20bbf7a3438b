"""Saved text models as teachers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import TeacherError, as_teacher
from consilience.files.card import card_path
from consilience.students.ngrams import Ngrams

TEXTS, LABELS = ["ka ka", "lo lo", "mi"] * 4, ["a", "b", "c"] * 4


@pytest.fixture(scope="module")
def model() -> Ngrams:
    return Ngrams(n_buckets=500, dim=5, max_iter=3, random_state=0).fit(TEXTS, LABELS)


def test_a_file_says_which_of_the_two_it_is(model: Ngrams, tmp_path: Path) -> None:
    assert as_teacher(model.save(tmp_path / "model.npz")).predict_logits(["lo", "mi ka"]).shape == (2, 3)
    np.savez(tmp_path / "outputs.npz", proba=np.full((2, 3), 1 / 3), classes=["a", "b", "c"])
    assert as_teacher(tmp_path / "outputs.npz").predict_logits([0, 1]).shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"output": "labels"}, "output='labels' is for arrays"),
        ({"classes": ["x", "y"]}, "classes= names 2"),
        ({"embed": "layer"}, "give a function of X"),
    ],
)
def test_what_cannot_be_used_is_refused(model: Ngrams, options: Any, says: str, tmp_path: Path) -> None:
    path = model.save(tmp_path / "model.npz")
    with pytest.raises(TeacherError, match=says):
        as_teacher(path, **options)
    with pytest.raises(ValueError, match="X has 1 in row 0, of type int; expected a list of texts"):
        as_teacher(path).predict_logits([1])
    card_path(path).unlink()
    with np.load(path) as archive:
        arrays = {**archive, "bias": np.zeros(2, np.float32)}
    np.savez(path, **arrays)
    with pytest.raises(TeacherError, match=r"'model' cannot be used: model\.npz is not a .*text model"):
        as_teacher(path)


def test_a_model_in_memory_is_the_teacher_that_its_file_is(model: Ngrams, tmp_path: Path) -> None:
    teacher, saved = as_teacher(model), as_teacher(model.save(tmp_path / "model.npz"))
    assert (teacher.name, teacher.classes.tolist()) == ("Ngrams", ["a", "b", "c"])
    seen, stored = (one.observe(["ka", "lo mi"]) for one in (teacher, saved))
    np.testing.assert_array_equal(seen.logits, model.predict_logits(["ka", "lo mi"]))
    np.testing.assert_array_equal(teacher.class_weights, saved.class_weights)
    # files are in half precision
    np.testing.assert_allclose(seen.embeddings, stored.embeddings, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(seen.logits, stored.logits, atol=0.01)
    again, other = (
        as_teacher(Ngrams(n_buckets=500, dim=5, max_iter=3, random_state=seed).fit(TEXTS, LABELS))
        for seed in (0, 1)
    )
    assert teacher.fingerprint == again.fingerprint != other.fingerprint
    with pytest.raises(TeacherError, match="is not fitted"):
        as_teacher(Ngrams())

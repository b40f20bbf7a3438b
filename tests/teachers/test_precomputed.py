"""Arrays and files of outputs."""

import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from consilience.exceptions import TeacherError, UnsafeFileError
from consilience.files import arrays
from consilience.teachers import HardLabels, as_teacher

X = np.zeros((4, 1))
PROBA = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]])
CLASSES = ["a", "b", "c"]


def code(logits: np.ndarray) -> list[int]:
    """The label of each row; -1 for an abstention."""
    return [-1 if np.isnan(row).all() else int(row.argmax()) for row in logits]


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (["b", "a", "c", "a"], None, [1, 0, 2, 0]),
        (["b", "a", "c", "a"], ["c", "b", "a"], [1, 2, 0, 2]),
        (["b", None, np.nan, "a"], None, [1, -1, -1, 0]),
        (np.array([5, 7, -1, 5]), None, [0, 1, -1, 0]),
        (np.array([5, 7, -1, 5]), [-1, 5, 7], [1, 2, 0, 1]),
        (np.array([5.0, np.nan, -1.0, 7.0]), [5, 7], [0, -1, -1, 1]),
        ([5, None, -1, 7], [5, 7, 9], [0, -1, -1, 1]),
        (np.array([True, False, True, True]), None, [1, 0, 1, 1]),
        (pd.Series(["x", pd.NA, "y", "x"], dtype="string"), None, [0, -1, 1, 0]),
        (pd.Series(["x", None, "y", "x"], dtype="category"), ["y", "x"], [1, -1, 0, 1]),
        (pd.DataFrame({"label": ["x", "y", "y", "x"]}), None, [0, 1, 1, 0]),
    ],
)
def test_hard_labels(labels: Any, classes: Any, codes: list[int]) -> None:
    teacher = as_teacher(labels, classes)
    assert code(teacher.predict_logits(X)) == codes
    if classes is not None:
        assert teacher.classes.tolist() == classes


def test_smoothing_is_the_documented_one() -> None:
    given = HardLabels(list("abca"), label_smoothing=0.3)
    for s, teacher in ((0.3, given), (0.01, as_teacher(list("abca")))):
        np.testing.assert_allclose(np.exp(teacher.predict_logits(X)[0]), [1 - s + s / 3, s / 3, s / 3])


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (
            ["a", "x", "b", "x"],
            ["a", "b"],
            "its array of hard labels has 'x' in row 1 (2 such rows), which is none of",
        ),
        (
            [0, 1, 2, 1],
            ["a", "b", "c"],
            "Labels name classes; for positions, give np.asarray(classes)[labels]",
        ),
        ([None, 3, 0, 1], [0, 1], "has 3 in row 1 (1 such row)"),
        (["a", 1, "b", 2], None, "mixes numbers and text"),
        ([None] * 4, None, "has no labels"),
        (["a", "a\0", "b", "b"], None, "with a NUL character"),
        ([0, 1, np.inf, 1], None, "has inf in row 2; labels are text, or finite numbers"),
        ([0, 1e300, 1, 1], None, "has 1e+300 in row 1; labels are"),
        ([0, 10**400, 1, 1], None, "which an array cannot hold exactly"),
        ([0.5, 1.0, 2.0, 1.0], [0, 1, 2], "has 0.5 in row 0"),
    ],
)
def test_wrong_labels(labels: Any, classes: Any, message: str) -> None:
    with pytest.raises(TeacherError, match=re.escape(message)):
        as_teacher(np.array(labels, dtype=object), classes)


@pytest.mark.parametrize(
    ("array", "classes", "output", "message"),
    [
        (PROBA, None, "auto", "is an array of scores, which does not name its classes"),
        (PROBA, ["a", "b"], "auto", "has 3 columns for 2 classes"),
        (PROBA[0], CLASSES, "logits", "has an array of shape (3,); expected (n, k)"),
        (PROBA, CLASSES, "labels", "or (n,) for hard labels"),
        (np.zeros((2, 2, 2)), CLASSES, "auto", "has an array of shape (2, 2, 2)"),
        ([[1.0], [1.0, 2.0]], CLASSES, "auto", "its rows cannot be read as an array"),
        ([["x", "y", "z"]] * 4, CLASSES, "logits", "instead of an array of numbers"),
        ([[10**400, 1, 2]] * 4, CLASSES, "logits", "instead of an array of numbers"),
    ],
)
def test_arrays_that_are_no_scores(array: Any, classes: Any, output: Any, message: str) -> None:
    with pytest.raises(TeacherError, match=re.escape(message)):
        as_teacher(array, classes, output=output).predict_logits(X)


def test_rows_must_be_those_of_x() -> None:
    teacher = as_teacher(PROBA, CLASSES)
    assert teacher.batched is False  # type: ignore[attr-defined]
    for rows in (0, 3, 5):
        with pytest.raises(TeacherError, match=f"holds outputs for 4 rows and X has {rows}"):
            teacher.predict_logits(np.zeros((rows, 1)))


def test_a_part_is_read_as_the_whole_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.teachers.precomputed._PART_ROWS", 2)
    scores, features = np.array([[0.5, 0.5], [0.1, 0.9], [3.0, 0.5], [0.2, 0.8]]), np.eye(4)
    np.save(tmp_path / "scores.npy", scores)
    for source in (scores, tmp_path / "scores.npy"):
        part = as_teacher(source, ["a", "b"], embed=features).part(slice(1, 2))
        seen = part.observe(X[:1])
        np.testing.assert_array_equal(seen.logits, scores[1:2])  # they are no probabilities
        np.testing.assert_array_equal(seen.embeddings, features[1:2])


def test_given_logits_cannot_be_overwritten_by_the_caller() -> None:
    given = PROBA - 5
    logits = as_teacher(given, CLASSES).predict_logits(X)
    with pytest.raises(ValueError, match="read-only"):
        logits[0, 0] = 1
    given[0, 0] = 0.0  # but the user's own array stays theirs


def test_a_data_frame_names_its_classes() -> None:
    frame = pd.DataFrame(PROBA, columns=CLASSES)
    assert as_teacher(frame).classes.tolist() == CLASSES
    assert as_teacher(pd.DataFrame(PROBA)).classes.tolist() == [0, 1, 2]
    with pytest.raises(TeacherError, match="in another order"):
        as_teacher(frame, ["c", "b", "a"])


def test_npy_is_read_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.npy"
    np.save(path, PROBA)
    monkeypatch.chdir(tmp_path)
    teacher = as_teacher("p.npy", CLASSES)
    monkeypatch.chdir("/")
    np.testing.assert_allclose(np.exp(teacher.predict_logits(X)), PROBA, atol=2e-6)
    os.truncate(path, path.stat().st_size - 8)  # a mapped file would end the process here
    with pytest.raises(
        TeacherError, match=r"'p' cannot be used: .*p\.npy cannot be read: its header promises"
    ):
        teacher.predict_logits(X)
    path.unlink()
    with pytest.raises(TeacherError, match=r"'p' cannot be used: .*No such file"):
        teacher.observe(X)


def test_archives_that_are_not_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_INFLATED", 10**5)
    np.savez_compressed(tmp_path / "bomb.npz", logits=np.zeros((10**5, 3)), classes=np.array(CLASSES))
    with zipfile.ZipFile(tmp_path / "odd.npz", "w") as archive:
        archive.writestr("logits", b"text")
    problems = {"bomb": r"would inflate to 2\.4 MB", "odd": "its member 'logits' is no array"}
    for name, problem in problems.items():
        with pytest.raises(TeacherError, match=rf"'{name}' cannot be used: .*{problem}"):
            as_teacher(tmp_path / f"{name}.npz", CLASSES)


def test_tensors_of_types_and_layouts_that_numpy_lacks() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor([[4.0, 1.0, -2.0]] * 4)
    for given in (scores.bfloat16(), scores.half(), scores.to_sparse(), scores.requires_grad_()):
        for source in (given, lambda rows, given=given: given):
            logits = as_teacher(source, CLASSES, output="logits").predict_logits(X)
            np.testing.assert_array_equal(logits, [[4.0, 1.0, -2.0]] * 4)


def test_real_polars() -> None:
    polars = pytest.importorskip("polars")
    assert code(as_teacher(polars.Series(["b", None, "a", "b"])).predict_logits(X)) == [1, -1, 0, 1]
    big = as_teacher(polars.Series([2**53 + 1, None, 2**53, 2**53 + 1]))
    assert code(big.predict_logits(X)) == [1, -1, 0, 1]
    teacher = as_teacher(polars.DataFrame(PROBA, schema=CLASSES))
    np.testing.assert_allclose(np.exp(teacher.predict_logits(X)), PROBA, atol=2e-6)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickles_are_never_loaded(suffix: str, tmp_path: Path) -> None:
    mark, path = tmp_path / "mark", tmp_path / f"evil{suffix}"
    boom = type(
        "Boom", (), {"__reduce__": lambda self: (Path.touch, (mark,))}
    )  # touches a file when unpickled
    evil = np.array([boom()] * 4, dtype=object)
    np.save(path, evil) if suffix == ".npy" else np.savez(path, labels=evil)
    with pytest.raises(TeacherError, match=r"cannot be read: .*would have to be unpickled"):
        as_teacher(path, CLASSES)
    assert not mark.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("content", [b"", b"no such format" * 9, b"\x93NUMPY\x01\x00v\x00{'broken"])
def test_broken_files(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(TeacherError, match=r"'broken' cannot be used: .* cannot be read"):
        as_teacher(path, CLASSES)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(UnsafeFileError, match="is not a regular file"):
        as_teacher(tmp_path / "folder.npy", CLASSES)


LABELS = {"labels": np.array(["a", "b", "a", "b"])}
BOTH = {**LABELS, "logits": PROBA}


@pytest.mark.parametrize(
    ("members", "output", "codes"),
    [
        ({"logits": PROBA, "ids": np.arange(4)}, "auto", [0, 2, 0, 2]),
        (LABELS, "auto", [0, 1, 0, 1]),
        (BOTH, "logits", [0, 2, 0, 2]),
        (BOTH, "auto", "choose one with output="),
        (LABELS, "logits", r"has labels, classes in a.npz; expected logits"),
        ({"scores": PROBA}, "auto", r"has scores, classes in a\.npz; expected one of logits, proba"),
    ],
)
def test_npz_keys(members: dict[str, Any], output: Any, codes: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **members, classes=np.array(CLASSES))
    if isinstance(codes, str):
        with pytest.raises(TeacherError, match=codes):
            as_teacher(tmp_path / "a.npz", output=output)
        return
    logits = as_teacher(tmp_path / "a.npz", output=output).predict_logits(X)
    assert code(logits) == codes
    assert np.array_equal(logits, PROBA) == ("logits" in members)  # not taken as probabilities


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "class=9" / "p.parquet"  # no partition: that would add a column
    path.parent.mkdir()
    pd.DataFrame(PROBA, columns=CLASSES, index=list("wxyz")).to_parquet(path)
    assert as_teacher(path).classes.tolist() == CLASSES
    halves = [0.5, None, 0.5, 0.5]
    for cells in ({"label": ["u", None, "u", "u"]}, {"a": halves, "b": halves}):
        pd.DataFrame(cells).to_parquet(path)
        assert code(as_teacher(path).predict_logits(X)) == [0, -1, 0, 0]
    pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}).to_parquet(path)
    with pytest.raises(TeacherError, match="cannot be read"):
        as_teacher(path)
    with pytest.raises(TeacherError, match="hard labels are one column 'label'"):
        as_teacher(path, output="labels")


ROWS, HALVES = np.random.default_rng(0).normal(size=(4, 3)), np.full((4, 2), 0.5)


def test_embeddings_and_weights_of_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "full.npz"
    np.savez(path, proba=HALVES, classes=np.array(["a", "b"]), embeddings=ROWS)
    teacher = as_teacher(path)
    np.testing.assert_array_equal(teacher.embed(ROWS), ROWS)
    assert teacher.class_weights is None
    np.savez(path, labels=np.array(["a", "b", "a", "a"]), embeddings=ROWS, class_weights=ROWS[:2])
    teacher = as_teacher(path)
    np.testing.assert_array_equal(teacher.observe(ROWS).embeddings, ROWS)
    np.testing.assert_array_equal(teacher.class_weights, ROWS[:2])
    np.testing.assert_array_equal(as_teacher(path, embed=lambda X: X * 2).embed(ROWS), ROWS * 2)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"embeddings": np.zeros((3, 2))}, r"embeddings of shape \(3, 2\) for 4 rows"),
        ({"embeddings": np.zeros(4)}, r"embeddings of shape \(4,\)"),
        ({"embeddings": np.full((4, 2), np.inf)}, "embeddings have inf in row 0"),
        ({"embeddings": np.array([["a"]] * 4)}, "<U1 entries instead of an array of numbers"),
        (
            {"embeddings": np.zeros((4, 2)), "class_weights": np.zeros((2, 3))},
            r"class_weights of shape \(2, 3\)",
        ),
        ({"class_weights": np.zeros((2, 3))}, "class_weights in full.npz and no embeddings"),
    ],
)
def test_embeddings_of_an_npz_that_do_not_fit(arrays: Any, says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "full.npz", proba=np.full((4, 2), 0.5), classes=np.array(["a", "b"]), **arrays)
    with pytest.raises(TeacherError, match=says):
        as_teacher(tmp_path / "full.npz")


def test_embeddings_next_to_an_array_of_scores() -> None:
    np.testing.assert_array_equal(as_teacher(HALVES, ["a", "b"], embed=ROWS).observe(ROWS).embeddings, ROWS)
    assert as_teacher(["a", "b", "a", "a"], embed=ROWS.tolist()).embed(ROWS).shape == (4, 3)
    with pytest.raises(TeacherError, match="has embed='layer'; give an array"):
        as_teacher(HALVES, ["a", "b"], embed="layer")


def test_hard_labels_stay_what_they_are_in_every_form() -> None:
    big = [2**53 + 1, None, 2**53, 2**53 + 1]
    for labels in (big, np.array(big, dtype=object), pd.Series(big, dtype="Int64")):
        teacher = as_teacher(labels)
        assert teacher.classes.tolist() == [2**53, 2**53 + 1]
        assert code(teacher.predict_logits(X)) == [1, -1, 0, 1]


def test_masked_entries_abstain() -> None:
    labels, mask = np.ma.array([0, 1, 1, 0], mask=[0, 1, 0, 0]), np.zeros(PROBA.shape, dtype=bool)
    assert code(as_teacher(labels).predict_logits(X)) == [0, -1, 1, 0]
    mask[2] = True
    teacher = as_teacher(np.ma.array(PROBA, mask=mask), CLASSES)
    assert code(teacher.predict_logits(X)) == [0, 2, -1, 2]
    mask[1, 0] = True
    with pytest.raises(TeacherError, match="have nan in row 1 "):
        as_teacher(np.ma.array(PROBA, mask=mask), CLASSES).predict_logits(X)

"""ONNX files: running them."""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from consilience.exceptions import InvalidInputError, MissingDependencyError, TeacherError
from consilience.teachers import Onnx, as_teacher

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
W, B = np.arange(6).reshape(2, 3) - 2.0, np.array([0.0, 1.0, -1.0])
CLASSES = ["a", "b", "c"]

Make = Callable[..., Any]


def test_logits_and_probabilities_are_read_from_the_graph(linear: Make, save: Make) -> None:
    for last, expected in [(None, X @ W + B), ("Softmax", np.log(softmax(X @ W + B, axis=1)))]:
        logits = as_teacher(save(linear(last)), CLASSES).predict_logits(X)
        np.testing.assert_allclose(logits, expected, atol=1e-4)
    with pytest.raises(TeacherError, match="gave probabilities that sum to"):
        as_teacher(save(linear("Sigmoid")), CLASSES).predict_logits(X)


@pytest.mark.parametrize("dtype", [1, 10, 11], ids=["float32", "float16", "float64"])
def test_x_takes_the_type_of_the_input(dtype: int, linear: Make, save: Make) -> None:
    for given in (X.astype(np.float64), X, np.asfortranarray(X), X.tolist(), pd.DataFrame(X)):
        logits = as_teacher(save(linear(dtype=dtype)), CLASSES).predict_logits(given)
        np.testing.assert_allclose(logits, X @ W + B, atol=2e-2)


def test_whole_numbers_are_not_invented(linear: Make, save: Make) -> None:
    model = linear()
    model.graph.node[0].input[0] = "z"
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["x"], ["z"], to=onnx.TensorProto.FLOAT))
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    teacher = as_teacher(save(model), CLASSES)
    whole = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(teacher.predict_logits(whole), whole @ W + B)
    for bad in (X, np.array([[np.nan, 1.0]])):
        with pytest.raises(TeacherError, match=r"takes whole numbers \(int64\) for 'x'"):
            teacher.predict_logits(bad)
    with pytest.raises(TeacherError, match=r"takes int64 for 'x', and X has <U1"):
        teacher.predict_logits(np.array([["p", "q"]]))


@pytest.mark.parametrize("rows", [1, 4, 10, 16])
def test_a_fixed_batch_is_filled_up(rows: int, linear: Make, save: Make) -> None:
    teacher = as_teacher(save(linear(rows=rows)), CLASSES)
    np.testing.assert_allclose(teacher.predict_logits(X), X @ W + B, atol=1e-5)
    np.testing.assert_allclose(teacher.predict_logits(X[:3]), X[:3] @ W + B, atol=1e-5)


def test_batches_are_no_larger_than_asked(linear: Make, save: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, seen = Onnx(save(linear()), CLASSES, batch_size=4), []
    monkeypatch.setattr(teacher, "_matrix", lambda result: seen.append(len(result)) or result)
    np.testing.assert_allclose(teacher.predict_logits(X), X @ W + B, atol=1e-5)
    assert seen == [4, 4, 2]


@pytest.mark.parametrize("zipmap", [True, False])
def test_named_inputs_come_from_a_data_frame(zipmap: bool, convert: Make) -> None:
    frame = pd.DataFrame(
        {"age": np.arange(8) * 1.0, "town": list("uvuvwwuv"), "size": np.arange(8)[::-1] ** 2.0}
    )
    y = np.array(["no", "yes"])[np.arange(8) % 2]
    encode = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["age", "size"]))
    model = make_pipeline(encode, LogisticRegression()).fit(frame, y)
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    types = [
        ("age", FloatTensorType([None, 1])),
        ("town", StringTensorType([None, 1])),
        ("size", FloatTensorType([None, 1])),
    ]
    path = convert(model, initial_types=types, options={"zipmap": zipmap})
    teacher = Onnx(path, batch_size=3)
    shuffled = frame[["town", "size", "age"]]
    np.testing.assert_allclose(
        softmax(teacher.predict_logits(shuffled), axis=1), model.predict_proba(frame), atol=1e-5
    )
    with pytest.raises(TeacherError, match="cannot read X: it lacks the column 'size'"):
        teacher.predict_logits(frame[["age", "town"]])
    with pytest.raises(TeacherError, match=r"takes a table of 3 columns, and X has 2"):
        teacher.predict_logits(X)


@pytest.mark.parametrize(("kind", "k"), [(LinearSVC, 2), (LinearSVC, 3), (SVC, 3)])
def test_margins_are_logits_whatever_the_output_is_called(kind: Any, k: int, convert: Make) -> None:
    model = kind().fit(X, np.arange(10) % k)
    teacher, margins = as_teacher(convert(model, X[:1])), model.decision_function(X)
    assert teacher.classes.tolist() == list(range(k))
    expected = margins if k == 3 else np.column_stack([0 * margins, margins])
    np.testing.assert_allclose(teacher.predict_logits(X), expected, atol=1e-4)


@pytest.mark.parametrize("zipmap", [True, False])
def test_the_swapped_columns_of_a_binary_svm_are_refused(zipmap: bool, convert: Make) -> None:
    model = SVC().fit(X, np.arange(10) % 2)
    path = convert(model, X[:1], options={"zipmap": zipmap})
    if not zipmap:  # should onnxruntime mend it, the refusal can go
        session = onnxruntime.InferenceSession(path)
        label, scores = session.run(None, {"X": X})
        assert np.all(scores.argmax(axis=1) != label)
    with pytest.raises(TeacherError, match=r"in the wrong columns\. Convert CalibratedClassifierCV"):
        as_teacher(path)


def test_a_file_that_changed_is_checked_again(linear: Make, tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    onnx.save(linear(), path, save_as_external_data=True, location="big.data", size_threshold=0)
    teacher = as_teacher(path, CLASSES)
    (tmp_path / "big.data").rename(tmp_path / "moved")
    (tmp_path / "big.data").symlink_to(tmp_path / "moved")
    with pytest.raises(InvalidInputError, match="which is a link, a folder or a device"):
        teacher.predict_logits(X)


def test_the_session_is_opened_once_and_late(
    linear: Make, save: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Mock(wraps=onnxruntime.InferenceSession)
    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    teacher = as_teacher(save(linear()), CLASSES)
    copy = pickle.loads(pickle.dumps(teacher))  # noqa: S301
    for asked, times in ((None, 0), (teacher, 1), (teacher, 1), (copy, 2)):
        if asked is not None:
            asked.predict_logits(X)
        assert opened.call_count == times


@pytest.mark.parametrize(
    ("change", "classes", "columns", "message"),
    [
        ("", CLASSES, 1, r"failed on X of shape \(10, 1\).*takes x float32 \(None, 2\)"),
        ("", ["a", "b"], 2, "returned 3 columns for 2 classes"),
        ("no scores", CLASSES, 2, "has no output of class scores; its outputs are out"),
        ("unknown operator", CLASSES, 2, r"cannot be opened by onnxruntime from model\.onnx"),
    ],
)
def test_models_and_rows_that_do_not_fit(
    change: str, classes: list[str], columns: int, message: str, linear: Make, save: Make
) -> None:
    model = linear()
    if change == "no scores":
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    elif change:
        model.graph.node[0].op_type, model.graph.node[0].domain = "StealFiles", "evil.ops"
        model.opset_import.append(onnx.helper.make_opsetid("evil.ops", 1))
    with pytest.raises(TeacherError, match=message):
        as_teacher(save(model), classes).predict_logits(X[:, :columns])


CONTENTS = [b"", b"hello, this is text", b"\x00" * 64, b"PK\x03\x04" + b"x" * 99, None]


@pytest.mark.parametrize("content", CONTENTS)
def test_files_that_are_no_models(content: bytes | None, linear: Make, tmp_path: Path) -> None:
    path = tmp_path / "fake.onnx"
    path.write_bytes(linear().SerializeToString()[:-20] if content is None else content)
    with pytest.raises(TeacherError, match=r"Teacher 'fake' (is no ONNX model: fake\.onnx|cannot be opened)"):
        as_teacher(path, CLASSES).predict_logits(X)


def test_devices(linear: Make, save: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(linear())
    assert Onnx(path, CLASSES, device="cpu").predict_logits(X).shape == (10, 3)
    with pytest.raises(InvalidInputError, match="device='tpu' is unknown; use 'cpu' or 'cuda'"):
        Onnx(path, CLASSES, device="tpu")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(TeacherError, match="onnxruntime lacks CUDAExecutionProvider"):
        Onnx(path, CLASSES, device="cuda").predict_logits(X)


def test_text_as_a_plain_list(convert: Make) -> None:
    from skl2onnx.common.data_types import StringTensorType

    words = ["good", "bad", "fine", "bad"] * 3
    column = np.array(words)[:, None]
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(column, ["p", "n"] * 6)
    path = convert(model, initial_types=[("word", StringTensorType([None, 1]))])
    for given in (words, column, np.array(words), pd.DataFrame({"word": words})):
        proba = softmax(Onnx(path, batch_size=5).predict_logits(given), axis=1)
        np.testing.assert_allclose(proba, model.predict_proba(column), atol=1e-5)


@pytest.mark.parametrize("module", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(
    module: str, linear: Make, save: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(linear())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"needs {module}: pip install 'consilience\[onnx\]'"):
        as_teacher(path, CLASSES).predict_logits(X)


@pytest.mark.parametrize(("offset", "rows"), [(41, 2), (0, -1000), (0, 2**40)])
def test_data_that_end_before_their_shape_are_not_read(
    offset: int, rows: int, linear: Make, save: Make, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    model = linear()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location, tensor.dims[0] = onnx.TensorProto.EXTERNAL, rows
    for key, value in (("location", "data"), ("offset", str(offset))):
        tensor.external_data.add(key=key, value=value)
    teacher = as_teacher(save(model), CLASSES)
    assert teacher.class_weights is None
    with pytest.raises(TeacherError, match="cannot be opened by onnxruntime"):
        teacher.predict_logits(X)

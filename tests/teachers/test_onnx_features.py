"""Embeddings, class weights and fingerprints of ONNX files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from consilience import Unifier
from consilience.exceptions import TeacherError, UnsafeFileError
from consilience.files.card import Card, card_path, write_card
from consilience.teachers import Onnx, as_teacher

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 2)).astype(np.float32)
HIDDEN = RNG.normal(size=(2, 5)).astype(np.float32)
LAST = RNG.normal(size=(5, 3)).astype(np.float32)
BIAS = np.array([0.5, 0.0, -0.5], dtype=np.float32)
CLASSES = ["a", "b", "c"]


def features() -> np.ndarray:
    return np.maximum(X @ HIDDEN, 0)


def model(head: list[Any], constants: dict[str, np.ndarray], n_classes: int = 3) -> Any:
    """Make x -> relu(x HIDDEN) = h -> `head`, which must make `out`."""
    first = [helper.make_node("MatMul", ["x", "H"], ["z"]), helper.make_node("Relu", ["z"], ["h"])]
    weights = {"H": HIDDEN, **constants}
    graph = helper.make_graph(
        [*first, *head],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None, n_classes])],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def matmul_and(operator: str, inputs: str, **constants: Any) -> Any:
    head = [node("MatMul", "h W", "s"), node(operator, inputs, "out")]
    return model(head, {"W": LAST, **{name: np.float32(value) for name, value in constants.items()}})


def matmul_add() -> Any:
    return matmul_and("Add", "s b", b=BIAS)


SOFTMAX = [
    node("Gemm", "h W b", "s"),
    node("ReduceMax", "s", "m", axes=[1]),
    node("Sub", "s m", "r"),
    node("Exp", "r", "e"),
    node("ReduceSum", "e one", "n"),
    node("Div", "e n", "out"),
]
HEADS: dict[str, Callable[[], Any]] = {
    "Gemm": lambda: model([node("Gemm", "h W b", "out")], {"W": LAST, "b": BIAS}),
    "Gemm transB": lambda: model([node("Gemm", "h W b", "out", transB=1)], {"W": LAST.T.copy(), "b": BIAS}),
    "Gemm alpha": lambda: model([node("Gemm", "h W b", "out", alpha=2.0)], {"W": LAST / 2, "b": BIAS}),
    "MatMul Add": matmul_add,
    "Softmax": lambda: model(
        [node("Gemm", "h W b", "s"), node("Softmax", "s", "out")], {"W": LAST, "b": BIAS}
    ),
    "softmax by hand": lambda: model(SOFTMAX, {"W": LAST, "b": BIAS, "one": np.array([1])}),
    "temperature": lambda: matmul_and("Mul", "s c", c=[2.0]),
    "divisor": lambda: matmul_and("Div", "s c", c=[2.0]),
    "shift": lambda: matmul_and("Sub", "s c", c=[2.0]),
    "constant node": lambda: model(
        [
            helper.make_node("Constant", [], ["W"], value=numpy_helper.from_array(LAST)),
            node("Gemm", "h W b", "out"),
        ],
        {"b": BIAS},
    ),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_last_layer_is_found(kind: str, save: Callable[[Any], Path]) -> None:
    teacher = Onnx(save(HEADS[kind]()), CLASSES, batch_size=4)
    np.testing.assert_allclose(teacher.class_weights, LAST.T, atol=1e-6)
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.embeddings, features(), atol=1e-5)
    np.testing.assert_allclose(seen.logits, teacher.predict_logits(X), atol=1e-5)


def test_a_tensor_can_be_named(save: Callable[[Any], Path]) -> None:
    path = save(matmul_add())
    for tensor, expected, has_weights in (("z", X @ HIDDEN, False), ("h", features(), True), ("x", X, False)):
        teacher = Onnx(path, CLASSES, embed=tensor, batch_size=4)
        np.testing.assert_allclose(teacher.embed(X), expected, atol=1e-5)
        assert (teacher.class_weights is not None) == has_weights
    with pytest.raises(TeacherError, match="no tensor 'hh'; it has, for example, 'h'"):
        as_teacher(path, CLASSES, embed="hh")
    with pytest.raises(TeacherError, match="has embed=3; give the name of a tensor, or a function"):
        as_teacher(path, CLASSES, embed=3)


@pytest.mark.parametrize(
    "head",
    [
        [node("Gather", "s order", "out", axis=1)],  # columns change places
        [node("Mul", "s c", "out")],  # signs or lengths change
        [node("Div", "s c", "out")],
        [node("Sub", "c s", "out")],
        [node("Abs", "s", "out")],
        [node("Pow", "s c", "out")],
        [node("MatMul", "h V", "t"), node("Add", "s t", "out")],
    ],
    ids=lambda head: head[-1].op_type,
)
def test_weights_that_the_rest_of_the_graph_changes_are_not_given(
    head: list[Any], save: Callable[[Any], Path]
) -> None:
    constants = {"V": -2 * LAST, "c": np.full((), -2, np.float32), "order": np.array([2, 0, 1])}
    teacher = as_teacher(save(model([node("MatMul", "h W", "s"), *head], {"W": LAST, **constants})), CLASSES)
    assert teacher.class_weights is None
    assert teacher.embed(X) is None


def test_centres_on_a_card_are_for_the_layer_they_were_taken_from(save: Callable[[Any], Path]) -> None:
    path = save(matmul_add())
    centres = np.ones((3, 5))
    for named, used, unused in ((None, (None, "h"), ("z",)), ("z", ("z",), (None, "h"))):
        write_card(card_path(path), Card("birds", CLASSES, centres=centres, embed=named))
        for embed in used:
            np.testing.assert_array_equal(as_teacher(path, embed=embed).class_centres, centres)
        for embed in (*unused, lambda rows: rows):
            assert as_teacher(path, embed=embed).class_centres is None


def test_one_probability_that_is_made_two(save: Callable[[Any], Path]) -> None:
    for order, sign in (("q p", 1), ("p q", -1)):
        head = [
            node("MatMul", "h W", "s"),
            node("Sigmoid", "s", "p"),
            node("Sub", "one p", "q"),
            node("Concat", order, "out", axis=1),
        ]
        made = model(head, {"W": LAST[:, :1].copy(), "one": np.ones((), np.float32)}, 2)
        teacher = as_teacher(save(made), ["no", "yes"])
        seen = teacher.observe(X)
        margins = seen.embeddings @ teacher.class_weights.T
        np.testing.assert_allclose(np.diff(margins), np.diff(seen.logits), atol=1e-4)
        np.testing.assert_allclose(teacher.class_weights[1], sign * LAST[:, 0] / 2, atol=1e-6)


def large(folder: Path) -> Path:
    """Save a model whose weights lie in big.bin."""
    folder.mkdir()
    options = {"save_as_external_data": True, "location": "big.bin", "size_threshold": 0}
    onnx.save(matmul_add(), folder / "big.onnx", **options)
    return folder / "big.onnx"


def test_external_data_next_to_the_model_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = large(tmp_path / "models")
    monkeypatch.chdir(elsewhere)  # where bytes without a folder would look
    teacher = as_teacher(path, CLASSES)
    np.testing.assert_allclose(teacher.class_weights, LAST.T, atol=1e-6)
    np.testing.assert_allclose(teacher.observe(X).embeddings, features(), atol=1e-5)

    fresh = as_teacher(path, CLASSES)
    broken = onnx.load(path, load_external_data=False)
    for tensor in broken.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../elsewhere/secret.bin" if entry.key == "location" else entry.value
    os.rename(tmp_path / "models" / "big.bin", elsewhere / "secret.bin")
    path.write_bytes(broken.SerializeToString())
    for ask in (fresh.embed, fresh.observe):  # made before the file was exchanged
        with pytest.raises(UnsafeFileError, match="model's own folder"):
            ask(X)


def test_a_fingerprint_is_of_the_file_and_of_what_it_reads(tmp_path: Path) -> None:
    path = large(tmp_path / "models")
    first = as_teacher(path, CLASSES).fingerprint
    assert first == as_teacher(path, ["x", "y", "z"], "other").fingerprint
    assert first != as_teacher(path, CLASSES, embed="z").fingerprint
    data = path.with_name("big.bin").read_bytes()
    path.with_name("big.bin").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert first != as_teacher(path, CLASSES).fingerprint


def test_a_file_exchanged_under_an_open_session_has_no_fingerprint(save: Callable[[Any], Path]) -> None:
    path = save(matmul_add())
    waiting, running = as_teacher(path, CLASSES), as_teacher(path, CLASSES)
    first = running.fingerprint
    running.predict_logits(X)
    path.write_bytes(HEADS["Gemm transB"]().SerializeToString())
    assert running.fingerprint is None  # it goes on with the model that was
    assert waiting.fingerprint not in (None, first)


def test_what_a_unifier_saves_has_an_embedding(tmp_path: Path) -> None:
    rows, labels = np.repeat(np.eye(4, dtype=np.float32), 10, axis=0), np.repeat(np.arange(4), 10)
    sources = [LogisticRegression().fit(rows[labels != k], labels[labels != k]) for k in (0, 3)]
    for student, width in (("logistic", 4), ("mlp", 256)):
        unified = Unifier(sources, student, random_state=0).fit(rows)
        teacher = as_teacher(unified.save(tmp_path / f"{student}.onnx"))
        assert teacher.embed(rows).shape == (40, width)
        assert teacher.class_weights.shape == (4, width)


def test_a_binary_linear_classifier_has_half_of_its_two_rows_of_weights(convert: Callable[..., Path]) -> None:
    fitted = LogisticRegression().fit(X, np.arange(len(X)) % 2)
    teacher = as_teacher(convert(fitted, X[:1], options={"zipmap": False}))
    seen = teacher.observe(X)
    margins = seen.embeddings @ teacher.class_weights.T
    np.testing.assert_allclose(
        np.diff(margins).ravel() + fitted.intercept_, np.diff(seen.logits).ravel(), atol=1e-4
    )

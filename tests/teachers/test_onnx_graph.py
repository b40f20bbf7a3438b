"""ONNX files: what they say about themselves."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from consilience.exceptions import TeacherError
from consilience.teachers import as_teacher
from consilience.teachers.onnx_graph import Graph, find_scores, parse_names

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Make = Callable[..., Any]
rng = np.random.default_rng(0)
Y = np.arange(60) % 3
X = (rng.normal(size=(60, 3)) + np.eye(3)[Y]).astype(np.float32)

MODELS = [
    LogisticRegression(),
    RandomForestClassifier(3, random_state=0),
    GradientBoostingClassifier(n_estimators=2),
    AdaBoostClassifier(n_estimators=2),
    MLPClassifier((4,), tol=1.0, random_state=0),
    GaussianNB(),
    KNeighborsClassifier(),
    LinearDiscriminantAnalysis(),
    CalibratedClassifierCV(LinearSVC(), cv=2),
    make_pipeline(StandardScaler(), RandomForestClassifier(3, random_state=0)),
    # the last classifier of a stack is trained on 0, 1, 2 whatever the classes are
    StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], cv=2),
]


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("names", [["kiwi", "fig", "pear"], [50, 7, 20]], ids=["text", "numbers"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_classes_of_what_skl2onnx_writes(
    model: ClassifierMixin, names: list[Any], zipmap: bool, convert: Make
) -> None:
    model.fit(X, np.array(names)[Y])
    teacher = as_teacher(convert(model, X[:1], options={id(model): {"zipmap": zipmap}}))
    assert teacher.classes.tolist() == sorted(names)
    proba = softmax(teacher.predict_logits(X), axis=1)
    np.testing.assert_allclose(proba, model.predict_proba(X), atol=2e-4)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("('a', 'b')", ["a", "b"]),
        ('{"0": "a", "1": "b"}', ["a", "b"]),
        ("{1: 'car', 0: 'person'}", ["person", "car"]),
        ("[3, 1, 2]", [3, 1, 2]),
        ("[0.5, 1.5]", [0.5, 1.5]),
        ("  ['a']", ["a"]),
        (r"['a\d']", ["a\\d"]),
    ],
)
def test_names_in_metadata(text: str, names: list[Any]) -> None:
    assert parse_names(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "a, b",
        "null",
        "{0: 'a', 2: 'b'}",
        "{'x': 'a'}",
        "{0: 'a', '0': 'b'}",
        "{0: 'a', 0: 'b'}",
        '{"0": "a", "0": "b"}',
        "[['a'], ['b']]",
        "[None]",
        "{None: 'a'}",
        "__import__('os').system('true')",
        "[__import__('os').getcwd()]",
        "{0: open('x', 'w')}",
        "[].__class__",
        "['a'] * 10**9",
        "[10 ** 10 ** 10]",
        "[" * 100_000,
        "[" * 50_000 + "]" * 50_000,
        "(" * 150 + ")" * 150,
        "[" + "-" * 200_000 + "1]",
        "[" + "1+" * 100_000 + "1]",
        "{" * 100_000,
        "[" + "'a'," * 500_000 + "]",
        "['\0']",
    ],
    ids=lambda text: text[:12],
)
def test_metadata_that_is_no_list_of_names(text: str) -> None:
    start = time.perf_counter()
    assert parse_names(text) is None
    assert time.perf_counter() - start < 5


def test_a_zipmap_alone_names_the_classes(convert: Make, save: Make) -> None:
    path = convert(LogisticRegression().fit(X, np.array(["kiwi", "fig", "pear"])[Y]), X[:1])
    assert as_teacher(path).output == "probabilities"  # before a row is seen: a Normalizer with L1 keeps them
    model = onnx.load(path)
    del model.graph.output[0]  # the label
    (classifier,) = [node for node in model.graph.node if node.op_type == "LinearClassifier"]
    del classifier.attribute[:]
    assert as_teacher(save(model)).classes.tolist() == ["fig", "kiwi", "pear"]


@pytest.mark.parametrize("key", ["names", "class_names", "classes"])
def test_metadata_name_the_classes(key: str, linear: Make, save: Make) -> None:
    path = save(linear(metadata={key: "{0: 'x', 1: 'y', 2: 'z'}", "other": "['no']"}))
    assert as_teacher(path).classes.tolist() == ["x", "y", "z"]
    assert as_teacher(path, ["p", "q", "r"]).classes.tolist() == ["p", "q", "r"]
    with pytest.raises(TeacherError, match="in another order"):
        as_teacher(path, ["z", "y", "x"])


def test_a_stale_or_broken_list_in_the_file_gives_way(linear: Make, save: Make) -> None:
    nameless = save(linear(metadata={"names": "__import__('os')"}))
    with pytest.raises(TeacherError, match=r"without a card, metadata or class labels, which does not name"):
        as_teacher(nameless)
    path = save(linear(metadata={"names": "['x', 'x']"}))
    with pytest.raises(TeacherError, match="names x more than once"):
        as_teacher(path)
    assert as_teacher(path, ["p", "q", "r"]).predict_logits(X[:, :2]).shape == (60, 3)


def outputs(linear: Make, *names: str, rank: int = 2) -> Any:
    """A model with several float outputs, each a copy of the logits."""
    model = linear(output="first")
    model.graph.output[0].name = names[0]
    model.graph.node[0].output[0] = "z"
    del model.graph.output[:]
    for name in names:
        model.graph.node.append(onnx.helper.make_node("Identity", ["z"], [name]))
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, [None] * rank))
    return model


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (["features", "logits"], "auto", "logits"),
        (["features", "probabilities"], "auto", "probabilities"),
        (["probabilities", "logits"], "auto", "logits"),
        (["probabilities", "logits"], "probabilities", "probabilities"),
        (["Logits", "x"], "auto", "Logits"),
        (["x", "y"], "auto", "x"),
        (["x", "y"], "auto", "y"),  # where the first is no matrix
    ],
)
def test_which_output_holds_the_scores(names: list[str], wanted: str, found: str, linear: Make) -> None:
    model = outputs(linear, *names)
    if found == "y":
        del model.graph.output[0].type.tensor_type.shape.dim[:]
    assert find_scores(Graph(model), "t", wanted).output == found


@pytest.mark.parametrize(
    ("last", "output", "kind"),
    [
        (None, "out", "logits"),
        ("Softmax", "out", "probabilities"),
        ("Softmax", "logits", "probabilities"),
        ("LogSoftmax", "out", "logits"),
        ("Relu", "out", None),
        ("Relu", "my_logits", "logits"),
        ("Relu", "probabilities", None),
    ],
)
def test_what_the_graph_says_of_its_scores(last: Any, output: str, kind: Any, linear: Make) -> None:
    assert find_scores(Graph(linear(last, output=output)), "t").kind == kind


def test_a_graph_that_goes_round_in_circles(linear: Make, save: Make) -> None:
    model = linear()
    del model.graph.node[:]
    model.graph.node.extend(
        onnx.helper.make_node("Identity", *pair) for pair in ((["loop"], ["out"]), (["out"], ["loop"]))
    )
    with pytest.raises(TeacherError, match="cannot be opened by onnxruntime"):
        as_teacher(save(model), ["a", "b", "c"]).predict_logits(X[:, :2])


def scaled_model() -> Any:
    """Make a model with all the constants we read: weights W, temperature T and labels."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "W": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.zeros(3, np.float32),
        "T": np.array([2.0], np.float32),
        "labels": np.array([5, 6, 7]),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["z"]),
        helper.make_node("Div", ["z", "T"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("Gather", ["labels", "best"], ["label"]),
    ]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        outputs,
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("constant", ["W", "T", "labels"])
@pytest.mark.parametrize("damage", ["no data", "large shape", "no type", "unknown type", "text"])
def test_damaged_constants_get_one_sentence(constant: str, damage: str, save: Make, capfd: Any) -> None:
    model = scaled_model()
    sound = as_teacher(save(model))
    assert sound.classes.tolist() == [5, 6, 7]
    assert sound.class_weights is not None
    (tensor,) = [found for found in model.graph.initializer if found.name == constant]
    if damage == "no data":
        tensor.ClearField("raw_data")
    elif damage == "large shape":
        tensor.dims[:] = [2**40, 2**40]
    else:
        tensor.data_type = {"no type": 0, "unknown type": 99, "text": onnx.TensorProto.STRING}[damage]
    path = save(model)
    for classes in (None, ["a", "b", "c"]):
        with pytest.raises(TeacherError, match=r"'model' .*(cannot be opened|does not name|failed)"):
            as_teacher(path, classes).observe(np.ones((2, 2), np.float32))
    assert capfd.readouterr().out == ""  # onnxruntime would print that it tries again


def test_attributes_of_another_type_get_one_sentence(linear: Make, save: Make) -> None:
    model = linear()
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("alpha", "much"))
    with pytest.raises(TeacherError, match="'model' has a graph that cannot be read"):
        as_teacher(save(model), ["a", "b", "c"])

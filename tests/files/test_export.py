"""ONNX export: the written model against the source's own probabilities, in onnxruntime."""

import importlib.util
import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("skl2onnx")

from sklearn.datasets import load_iris  # noqa: E402
from sklearn.dummy import DummyClassifier  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402

from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.files.export import EXPORTABLE, check_export, finish, sklearn_to_onnx, write_model  # noqa: E402
from consilience.files.graph import IR_VERSION, OPSET  # noqa: E402

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
MODELS = {
    "logistic": LogisticRegression(max_iter=1000),
    "forest": RandomForestClassifier(15, random_state=0),
    "hist": HistGradientBoostingClassifier(max_iter=15, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=8, random_state=0),
    "mlp": MLPClassifier((8,), max_iter=400, tol=1e-2, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "pipeline-forest": make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)),
    "adaboost": AdaBoostClassifier(n_estimators=4, random_state=0),  # skl2onnx has no double converter for it
}


def run(model, rows):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["probabilities", "label"], {"X": rows})


def done(model, rows, classes=None, columns=None, temperature=1.0, metadata=None):
    classes = model.classes_ if classes is None else classes
    return finish(
        sklearn_to_onnx(model, rows),
        classes=classes,
        columns=np.arange(len(classes)) if columns is None else columns,
        temperature=temperature,
        scores="probabilities",
        metadata=metadata or {},
    )


def passthrough(k, double=False):
    """A model whose scores are its input."""
    kind = "double" if double else "float"
    text = (
        f'<ir_version: 8, opset_import: ["": {OPSET}]>'
        f"g ({kind}[n, {k}] X) => ({kind}[n, {k}] label) {{ label = Identity(X) }}"
    )
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", [False, True])
def test_scikit_learn_round_trip(name, text):
    model = MODELS[name].fit(X, NAMES[Y] if text else Y)
    exported = done(model, X)
    assert exported.graph.name == "consilience"
    assert exported.SerializeToString() == done(model.fit(X, NAMES[Y] if text else Y), X).SerializeToString()
    for rows in (X[:0], X[:1], X[::20][:7], X):
        probabilities, label = run(exported, rows)
        assert probabilities.dtype == np.float32
        assert probabilities.shape == (len(rows), 3)
        if len(rows):
            np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=1e-5)
            assert label.tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_input_has_the_type_of_the_example(name, dtype):
    rows = (X * 10).astype(dtype)
    model = MODELS[name].fit(rows, np.minimum(Y, 1))
    probabilities, _ = run(done(model, rows), rows)
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize("name", ["forest", "hist", "boosting"])
def test_values_on_a_threshold_fall_as_in_scikit_learn(name):
    """Decimal data: midpoints of values are values, and float rounding moves them across a threshold."""
    rng = np.random.default_rng(0)
    train = rng.integers(0, 50, size=(400, 3)) / 10
    y = (train.sum(axis=1) * 3).astype(int) % 3
    model = MODELS[name].fit(train, y)
    grid = rng.integers(0, 1000, size=(4000, 3)) / 200
    probabilities, _ = run(done(model, train[:5]), grid)
    np.testing.assert_allclose(probabilities, model.predict_proba(grid), atol=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
@pytest.mark.parametrize("name", ["logistic", "forest"])
def test_sharpening(name, temperature):
    model = MODELS[name].fit(X, np.minimum(Y, 1))
    probabilities, _ = run(done(model, X, temperature=temperature), X)
    expected = model.predict_proba(X) ** temperature
    np.testing.assert_allclose(probabilities, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)


def test_a_finished_model_has_our_form_and_is_compared():
    model, expected = done(MODELS["forest"].fit(X, Y), X), MODELS["forest"].predict_proba(X)
    onnx.checker.check_model(model, full_check=True)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    assert (model.ir_version, versions) == (IR_VERSION, {"": OPSET, "ai.onnx.ml": 3})
    assert [entry.name for entry in model.graph.input] == ["X"]
    ends = [*model.graph.input, *model.graph.output]
    shapes = [[d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim] for one in ends]
    assert shapes == [["n", 4], ["n", 3], ["n"]]
    check_export(model, X, None, expected, 1e-5)
    for other, words in ((expected[:, ::-1], "differs from the fitted one"), (expected[:, :2], "up to inf")):
        with pytest.raises(InvalidInputError, match=words):
            check_export(model, X, None, other, 1e-5)


def finished(model, **changed):
    settings = {"classes": [0, 1], "columns": [0, 1], "temperature": 1, "scores": "logits", "metadata": {}}
    return finish(model, **{**settings, **changed})


def test_probabilities_stay_probabilities():
    k = 2000
    p = np.full((1, k), 1 / k, dtype=np.float32)
    p[0, 7] *= 1.1
    sharp = {"classes": range(k), "columns": range(k), "temperature": 20, "scores": "probabilities"}
    probabilities, label = run(finished(passthrough(k), **sharp), p)
    assert probabilities.sum() == pytest.approx(1, rel=1e-4)  # nothing underflows
    assert label.tolist() == [7]
    # onnxruntime gives 1 - p for one class of a binary forest, and rounding may take it below zero
    for temperature in (1, 3):
        model = finished(passthrough(2), temperature=temperature, scores="probabilities")
        assert run(model, np.array([[-1e-8, 1.0]], dtype=np.float32))[0].tolist() == [[0.0, 1.0]]


def test_missing_classes_get_no_probability():
    model = LogisticRegression(max_iter=500).fit(X[Y != 1], Y[Y != 1])
    probabilities, label = run(done(model, X, classes=["a", "zero", "b", "two"], columns=[3, 1]), X)
    assert (probabilities[:, [0, 2]] == 0).all()
    np.testing.assert_allclose(probabilities[:, [3, 1]], model.predict_proba(X), atol=1e-6)
    assert set(label.tolist()) == {"zero", "two"}


@pytest.mark.parametrize("double", [False, True])
def test_logits_become_a_softmax(double):
    rows = np.array([[1e4, 0.0, -1e4], [1.0, 2.0, 3.0]], dtype=np.float64 if double else np.float32)
    model = finished(passthrough(3, double), classes=[5, 6, 7], columns=[0, 1, 2], temperature=9)
    probabilities, label = run(model, rows)
    e = np.exp([-2.0, -1.0, 0.0])
    np.testing.assert_allclose(probabilities, [[1, 0, 0], e / e.sum()], atol=1e-6)
    assert (label.dtype, label.tolist()) == (np.int64, [5, 7])


@pytest.mark.parametrize("classes", [["a", "é"], [3, 5], [0.5, 2.25], [False, True]])
def test_class_names_keep_their_kind(classes):
    model = finished(passthrough(2), classes=classes, metadata={"method": "ce"})
    assert run(model, np.array([[0, 1], [1, 0]], dtype=np.float32))[1].tolist() == [classes[1], classes[0]]
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties.pop("classes")) == classes
    assert properties == {"method": "ce"}


def test_names_of_a_model_do_not_meet_ours():
    once = finished(passthrough(2))
    del once.graph.output[1:]
    twice = finished(once, columns=[1, 0], scores="probabilities")
    assert run(twice, np.array([[0.0, 9.0]], dtype=np.float32))[0][0, 0] > 0.99
    text = f"""<ir_version: 8, opset_import: ["": {OPSET}]>
    g (float[n, 2] X) => (float[n, 2] scores) {{
        label = Abs(X)
        yes = Constant<value = bool {{1}}>()
        scores = If (yes) <
            then_branch = a () => (float[n, 2] probabilities) {{ probabilities = Neg(label) }},
            else_branch = b () => (float[n, 2] other) {{ other = Identity(label) }}
        >
    }}"""
    branches = finished(onnx.parser.parse_model(text))
    assert run(branches, np.array([[-5.0, 1.0]], dtype=np.float32))[1].tolist() == [1]
    renamed = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {OPSET}]>'
        "g (float[n, 2] label) => (float[n, 2] s) { s = Neg(label) }"
    )
    assert [entry.name for entry in finished(renamed).graph.input] == ["student_label"]


@pytest.mark.parametrize(
    ("model", "rows", "words"),
    [
        (DummyClassifier(), X, "DummyClassifier cannot be exported"),
        (
            make_pipeline(StandardScaler(), DummyClassifier()),
            X,
            r"Pipeline \(StandardScaler, DummyClassifier\)",
        ),
        (LinearSVC(), X, "LinearSVC has no predict_proba"),
        (DummyClassifier(), X.astype(str), r"needs numbers \(n, d\)"),
    ],
)
def test_what_cannot_be_exported_says_so(model, rows, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        sklearn_to_onnx(model.fit(X, Y), rows)
    assert EXPORTABLE in str(caught.value) or "needs" in words


@pytest.mark.parametrize(
    ("classes", "words"),
    [(["a", "a"], "more than once"), ([2**63, 2**63 + 2**12], "uint64 cannot be written")],
)
def test_classes_that_a_file_cannot_hold(classes, words):
    with pytest.raises(InvalidInputError, match=words):
        finished(passthrough(2), classes=classes)


def test_a_conversion_that_is_wrong_is_refused(monkeypatch):
    """A converter of skl2onnx that gives other probabilities must not reach a file."""
    model = LogisticRegression(max_iter=1000).fit(X, Y)
    own = model.predict_proba
    monkeypatch.setattr(model, "predict_proba", lambda rows: own(rows)[:, ::-1])
    with pytest.raises(InvalidInputError, match=r"differ from its own by up to (1|0\.\d+)\)"):
        sklearn_to_onnx(model, X)


def test_write_model(tmp_path):
    model, path = done(MODELS["logistic"].fit(X, Y), X), tmp_path / "student.onnx"
    nonsense = passthrough(2)
    nonsense.graph.node[0].op_type = "Nonsense"
    with pytest.raises(onnx.checker.ValidationError):
        write_model(nonsense, path)
    assert not list(tmp_path.iterdir())
    write_model(model, path)
    assert [file.name for file in tmp_path.iterdir()] == ["student.onnx"]
    assert onnx.load(path) == model
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosting_of_others_says_what_to_install_or_is_right(library):
    module = pytest.importorskip(library)
    name = "LGBMClassifier" if library == "lightgbm" else "XGBClassifier"
    options = {"verbose": -1} if library == "lightgbm" else {}
    model = getattr(module, name)(n_estimators=8, **options).fit(X, Y)
    for candidate in (model, make_pipeline(StandardScaler(), model).fit(X, Y)):
        if importlib.util.find_spec("onnxmltools") is None:
            with pytest.raises(InvalidInputError, match=f"{name} needs onnxmltools: pip install"):
                sklearn_to_onnx(candidate, X)
        else:
            probabilities, _ = run(done(candidate, X), X)
            np.testing.assert_allclose(probabilities, candidate.predict_proba(X), atol=1e-5)

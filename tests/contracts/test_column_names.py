"""Names of columns count: every estimator puts them in order, and names those that are missing or unknown."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from consilience import (
    CollisionClassifier,
    CollisionClustering,
    CrossTaskDistiller,
    InvalidInputError,
    SoftLabelClassifier,
    TeacherError,
    Unifier,
    as_teacher,
)
from consilience.files.card import card_path, read_card

pandas = pytest.importorskip("pandas")

X, y = load_iris(return_X_y=True)
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
FRAME = pandas.DataFrame(X, columns=NAMES)


def first_column(rows: Any) -> np.ndarray:
    """Answer from the first column, wherever it comes from."""
    column = np.asarray(rows, dtype=float)[:, 0] - 5.8
    return np.column_stack([-column, column])


TEACHERS = [as_teacher(first_column, pair, str(pair), output="logits") for pair in ([0, 1], [1, 2])]
MODELS = {
    "unifier": Unifier(TEACHERS, "logistic", random_state=0),
    "distiller": CrossTaskDistiller(None, "logistic", loss="none", random_state=0),
    "soft labels": SoftLabelClassifier("forest", random_state=0),
    "own estimator": SoftLabelClassifier(LogisticRegression(max_iter=500)),
    "classifier": CollisionClassifier(),
    "clustering": CollisionClustering(3, n_init=1, random_state=0),
}


@pytest.fixture(scope="module", params=MODELS, ids=lambda name: name.replace(" ", "-"))
def fitted(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param].fit(FRAME, None if request.param == "unifier" else y)


class TestNames:
    def test_are_those_of_scikit_learn_and_decide_the_order(self, fitted: Any) -> None:
        assert fitted.feature_names_in_.tolist() == NAMES
        assert fitted.feature_names_in_.dtype == object
        expected = fitted.predict_proba(FRAME)
        np.testing.assert_array_equal(fitted.predict_proba(FRAME[NAMES[::-1]]), expected)
        np.testing.assert_array_equal(fitted.predict(FRAME[NAMES[::-1]]), fitted.predict(FRAME))

    def test_that_are_missing_or_unknown_are_named(self, fitted: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"X lacks the column 'sepal width'\. The model was"):
            fitted.predict(FRAME.drop(columns="sepal width"))
        with pytest.raises(InvalidInputError, match=r"X has the unknown columns 'a', 'b'\..*Drop what is"):
            fitted.predict(FRAME.assign(a=1, b=2))

    def test_may_be_absent_later(self, fitted: Any) -> None:
        """Rows without names are taken by position, without a warning."""
        for rows in (X, X.tolist(), pandas.DataFrame(X)):
            np.testing.assert_allclose(fitted.predict_proba(rows), fitted.predict_proba(FRAME), atol=1e-12)

    @pytest.mark.filterwarnings("ignore:X has feature names")  # of scikit-learn: there is nothing to compare
    def test_are_forgotten_by_the_next_fit(self, fitted: Any) -> None:
        before = fitted.predict_proba(FRAME)
        again = copy.copy(fitted).fit(X, None if isinstance(fitted, Unifier) else y)
        assert not hasattr(again, "feature_names_in_")
        np.testing.assert_allclose(again.predict_proba(FRAME), before, atol=1e-3)


@pytest.mark.parametrize(
    ("columns", "words"),
    [(["a", "b", "a", "b"], "2 column names more than once: 'a', 'b'"), (["a", 1, 2, 3], "1 is no text")],
)
def test_names_that_cannot_be_used_are_refused(columns: list[Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        MODELS["soft labels"].fit(pandas.DataFrame(X, columns=columns), y)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_tables_of_other_libraries_have_names(library: str) -> None:
    module = pytest.importorskip(library)
    make = module.DataFrame if library == "polars" else module.table
    table = make({name: X[:, i] for i, name in enumerate(NAMES)})
    model = SoftLabelClassifier("logistic").fit(table, y)
    assert model.feature_names_in_.tolist() == NAMES
    expected = model.predict_proba(FRAME)
    np.testing.assert_allclose(model.predict_proba(table.select(NAMES[::-1])), expected, atol=1e-6)


@pytest.fixture(scope="module", params=["logistic", "torch"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was fitted on the frame and saved, once for all tests."""
    pytest.importorskip("skl2onnx")
    if request.param == "torch":
        pytest.importorskip("torch")
    model = SoftLabelClassifier(request.param, random_state=0).fit(FRAME, y)
    return Path(model.save(tmp_path_factory.mktemp("saved") / "model.onnx"))


class TestSaved:
    def test_a_saved_model_knows_the_names(self, path: Path) -> None:
        onnx = pytest.importorskip("onnx")
        model = onnx.load(path)
        assert list(read_card(card_path(path)).feature_names) == NAMES
        written = {entry.key: entry.value for entry in model.metadata_props}
        assert json.loads(written["feature_names"]) == NAMES
        assert [entry.name for entry in model.graph.input] == ["X"]

    def test_as_a_teacher_it_puts_columns_in_order(self, path: Path) -> None:
        teacher = as_teacher(path)
        expected = teacher.predict_logits(FRAME)
        for rows in (FRAME[NAMES[::-1]], X):
            np.testing.assert_array_equal(teacher.predict_logits(rows), expected)
            np.testing.assert_array_equal(teacher.observe(rows).logits, expected)
            scores = Unifier([teacher], "logistic", random_state=0).score_teachers(rows)
            np.testing.assert_allclose(scores, expected, rtol=1e-5)
        with pytest.raises(TeacherError, match="'model' cannot read X: it lacks the column 'petal width'"):
            teacher.predict_logits(FRAME[NAMES[:3]])
        with pytest.raises(TeacherError, match="has the unknown column 'a'"):
            teacher.predict_logits(FRAME.assign(a=0.0))


def test_names_of_strangers_that_make_no_sense_are_ignored(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = SoftLabelClassifier("logistic").fit(X, y).save(tmp_path / "model.onnx")
    card_path(path).unlink()
    for content in ("[1, 2]", '["a", "a"]', "{", "open('x')"):
        graph = onnx.load(path)
        names = {"feature_names": content, "feature_kinds": '["text", "text"]', "classes": "[0, 1, 2]"}
        onnx.helper.set_model_props(graph, names)
        onnx.save(graph, path)
        assert as_teacher(path).predict_logits(FRAME).shape == (150, 3)

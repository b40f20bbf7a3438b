"""What is asked after `fit` can be asked of any fitted classifier of ours."""

from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from consilience import (
    CollisionClassifier,
    CrossTaskDistiller,
    InvalidInputError,
    SoftLabelClassifier,
)

X, Y = load_iris(return_X_y=True)
TEACHER = LogisticRegression(max_iter=500).fit(X[::2], Y[::2])
MODELS: dict[str, Any] = {
    "soft labels": lambda: SoftLabelClassifier("logistic", random_state=0),
    "distilled": lambda: CrossTaskDistiller(TEACHER, "logistic", cost="constant", check=False),
    "collision": lambda: CollisionClassifier(),
}


@pytest.mark.parametrize("name", MODELS)
def test_any_classifier_is_evaluated_and_has_a_page(name: str, tmp_path: Path) -> None:
    model = MODELS[name]().fit(X[::2], Y[::2])
    found = model.evaluate(X[1::2], Y[1::2])
    assert found.scores.accuracy == model.score(X[1::2], Y[1::2]) > 0.8
    assert [row.kind for row in found.compared] == ([] if name == "collision" else ["labels only"])
    with pytest.raises(InvalidInputError, match="is about rows: give X"):
        model.report(tmp_path / "model.html")
    pytest.importorskip("jinja2")
    text = model.report(tmp_path / "model.html", X[1::2], Y[1::2], labels_only=False).read_text("utf8")
    assert "Which rows are hard?" in text
    assert f"{100 * found.scores.accuracy:.1f}%" in text


def test_a_distilled_student_is_explained_by_what_its_teachers_say() -> None:
    from consilience.inspect.explanation import disagreements, explain

    model = MODELS["distilled"]().fit(X[::2], Y[::2])
    found = explain(model, X[1])
    assert found.decision == model.predict(X[1:2])[0]
    assert found.soft_label is None
    assert list(found.said[0].proba) == [0, 1, 2]
    left = disagreements(model, X)
    assert left.n_left == (model.predict(X) != TEACHER.predict(X)).sum()
    with pytest.raises(InvalidInputError, match="has no teachers"):
        explain(MODELS["soft labels"]().fit(X, Y), X[1])

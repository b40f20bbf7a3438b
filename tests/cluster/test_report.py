"""`CollisionClustering.report`: the page of a clustering."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jinja2")

from sklearn.datasets import load_iris

from consilience import CollisionClustering, InvalidInputError, clustering_accuracy
from consilience.cluster.report import clustering_page
from consilience.exceptions import NotFittedError


@pytest.fixture(scope="module")
def iris() -> tuple[Any, Any, Any]:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "<i>virginica"])[y]
    return CollisionClustering(3, random_state=0).fit(X), X, names


def test_the_page_compares_clusters_with_classes(iris: Any, tmp_path: Path) -> None:
    model, X, names = iris
    page = clustering_page(model, X, names)
    json.dumps(page, allow_nan=False)
    figures = {figure["name"]: figure["value"] for figure in page["figures"]}
    assert figures["accuracy on 150 rows"] == f"{100 * clustering_accuracy(names, model.labels_):.1f}%"
    sizes, agreement, hard, settings = page["sections"]
    assert [row[1] for row in sizes["blocks"][0]["rows"]] == np.bincount(model.labels_).tolist()
    heat, held = agreement["blocks"]
    for name, row in zip(heat["rows"], heat["values"], strict=True):
        inside = names[model.labels_ == int(name.removeprefix("cluster "))]
        shares = [float((inside == column).mean()) for column in heat["columns"]]
        assert [value or 0.0 for value in row] == pytest.approx(shares, abs=1e-4)
    assert sum(row[3] for row in held["rows"]) == 150
    sure = model.predict_proba(X).max(axis=1)
    assert hard["blocks"][0]["rows"][0][0] == sure.argmin()
    (curve,) = [block for block in settings["blocks"] if block["kind"] == "curve"]
    assert curve["values"] == model.objective_history_.tolist()
    text = model.report(tmp_path / "c.html", X, names).read_text(encoding="utf8")
    assert "&lt;i&gt;virginica" in text


def test_without_rows_the_page_has_sizes_only(iris: Any) -> None:
    model, _, names = iris
    titles = [section["title"] for section in clustering_page(model)["sections"]]
    assert titles == ["How large are the clusters?", "Settings and versions"]
    some = [None] * 149 + [names[0]]
    assert "Do clusters and classes agree?" in [
        s["title"] for s in clustering_page(model, y=some)["sections"]
    ]
    assert len(clustering_page(model, y=[None] * 150)["sections"]) == 2  # no class is known


def test_mistakes_are_one_sentence(iris: Any, tmp_path: Path) -> None:
    model, X, _ = iris
    with pytest.raises(InvalidInputError, match="y has 2 rows and X has 150"):
        model.report(tmp_path / "c.html", X, [0, 1])
    with pytest.raises(InvalidInputError, match="another ending"):
        model.report(tmp_path / "c.txt")
    with pytest.raises(NotFittedError):
        CollisionClustering().report(tmp_path / "c.html")

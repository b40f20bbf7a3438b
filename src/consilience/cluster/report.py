"""How good is a clustering? Its agreement with classes, and its page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from consilience._validation import check_fitted
from consilience._words import counted, percent
from consilience.exceptions import InvalidInputError
from consilience.inspect.drawing import Block, curve, drawing, heat, histogram
from consilience.inspect.page import (
    Column,
    binned,
    check_report,
    facts,
    least_sure,
    page,
    section,
    setting,
    table,
    versions,
    write_page,
)
from consilience.kernels.arrays import Floats, Ints
from consilience.labels import read_labels

MOST_ROWS = 50  # hard rows
MOST_DRAWN = 100  # clusters or classes in a matrix
UNTOLD = ("run", "prior", "model")


def clustering_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    r"""Return the share of rows that are right under the best one-to-one match of clusters and classes.

    The numbers of clusters have no meaning, so the Hungarian algorithm assigns a class to each cluster:

    .. math:: \max_{m} \frac1n \sum_i [\, m(\mathrm{pred}_i) = \mathrm{true}_i \,],
        \qquad m \text{ one-to-one.}

    If there are more clusters than classes, the rows of the clusters left over count as wrong.

    Parameters
    ----------
    labels_true : (n,) array
        Classes: numbers or names. Rows without one are left out.
    labels_pred : (n,) array
        Clusters: numbers or names. Rows without one count as wrong.

    Returns
    -------
    float between 0 and 1.

    See Also
    --------
    sklearn.metrics.normalized_mutual_info_score, sklearn.metrics.adjusted_rand_score :
        Agreement without a match.

    Examples
    --------
    >>> clustering_accuracy(["cat", "cat", "dog", "dog"], [1, 1, 0, 1])
    0.75
    """
    classes, i = read_labels(labels_true, where="labels_true")
    clusters, j = read_labels(labels_pred, where="labels_pred")
    if len(i) != len(j):
        raise InvalidInputError(f"labels_true has {len(i)} rows and labels_pred has {len(j)}.")
    known = i >= 0
    counted = known & (j >= 0)
    flat = np.bincount(i[counted] * len(clusters) + j[counted], minlength=len(classes) * len(clusters))
    counts = flat.reshape(len(classes), len(clusters))
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / known.sum())


def cluster_agreement(truth: Any, labels: ArrayLike, where: str = "y") -> dict[str, Any]:
    """Tell how well clusters (n,) agree with classes (n,); rows without a class are left out.

    Examples
    --------
    >>> cluster_agreement(["cat", None, "dog"], [1, 0, 0])
    {'n_rows': 2, 'accuracy': 1.0, 'nmi': 1.0, 'ari': 1.0}
    """
    found, clusters = read_labels(truth, where=where, at_least=0), np.asarray(labels)
    known, classes = found.known, found.codes[found.known]
    if not known.any():
        return {"n_rows": 0, "accuracy": None, "nmi": None, "ari": None}
    return {
        "n_rows": int(known.sum()),
        "accuracy": clustering_accuracy(classes, clusters[known]),
        "nmi": float(normalized_mutual_info_score(classes, clusters[known])),
        "ari": float(adjusted_rand_score(classes, clusters[known])),
    }


def report(model: Any, path: str | os.PathLike[str], X: Any = None, y: Any = None) -> Path:
    """Write the clusters as one page, an HTML file (docs/report.md): sizes, how sure, and hard rows of X.

    With y (n,), the classes of the rows of X, it also tells how well clusters and classes agree.
    """
    target = check_report(path)
    check_fitted(model, "labels_")
    return write_page(target, clustering_page(model, X, y))


def clustering_page(model: Any, X: Any = None, y: Any = None) -> Block:
    """Return the page of a fitted clustering as plain data; parameters as in `report`."""
    proba = None if X is None else model.predict_proba(X)
    labels = model.labels_ if proba is None else proba.argmax(axis=1)
    n_labels = len(labels) if y is None else len(read_labels(y, at_least=0).codes)
    if n_labels != len(labels):
        rows = "X has" if X is not None else "fit saw"
        raise InvalidInputError(f"y has {n_labels} rows and {rows} {len(labels)}.")
    agreement = {"n_rows": 0} if y is None else cluster_agreement(y, labels)
    clusters = counted(model.n_clusters, "cluster")
    figures = [(f"{model.n_clusters:,}", clusters.split()[1]), (f"{len(labels):,}", "rows")]
    sections = [_sizes(model, labels, proba)]
    if proba is not None:
        figures.append((percent(float(proba.max(axis=1).mean())), "mean confidence"))
    if agreement["n_rows"]:
        figures.append((percent(agreement["accuracy"]), f"accuracy on {counted(agreement['n_rows'], 'row')}"))
        figures.append((f"{agreement['nmi']:.3f}", "normalised mutual information"))
        sections.append(_classes(model.n_clusters, labels, y, agreement))
    if proba is not None and proba.shape[1] > 1:
        every, names = np.arange(len(proba)), list(range(proba.shape[1]))
        hard = least_sure("Rows between two clusters", proba, every, names, MOST_ROWS, "place")
        text = "Rows are known by their position, counted from 0."
        sections.append(section("Which rows are hard?", text, hard))
    lead = (
        "Groups found by a model that labels the rows itself, so that it is sure of every row and every "
        "cluster gets its share."
    )
    title = f"{clusters} of {len(labels):,} rows"
    return page(title, lead, figures, [*sections, _settings(model)])


def _sizes(model: Any, labels: Ints, proba: Floats | None) -> Block:
    sizes = np.bincount(labels, minlength=model.n_clusters)
    columns: list[Column] = [
        ("cluster", "place", range(model.n_clusters)),
        ("rows", "count", sizes),
        ("share", "bar", sizes / max(1, sizes.sum())),
    ]
    if proba is not None:
        sums = np.bincount(labels, proba.max(axis=1), model.n_clusters)
        columns.append(("mean confidence", "bar", np.where(sizes > 0, sums / np.maximum(1, sizes), np.nan)))
    sure = "Probability of the cluster that a row is in"
    return section(
        "How large are the clusters?",
        "Numbers of clusters have no meaning. Without a prior, fairness asks for equal sizes.",
        table("Clusters", columns),
        None if proba is None else drawing(histogram, sure, counts=binned(proba)),
    )


def _classes(n_clusters: int, labels: Ints, y: Any, agreement: dict[str, Any]) -> Block:
    """Return clusters beside classes."""
    truth = read_labels(y, at_least=0)
    classes = truth.classes.tolist()
    counts = np.zeros((n_clusters, len(classes)), dtype=np.intp)
    np.add.at(counts, (labels[truth.known], truth.codes[truth.known]), 1)
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(1, totals[:, None])
    drawn = totals.argsort(kind="stable")[::-1][:MOST_DRAWN]
    values = np.where(counts > 0, shares.round(4), None)[drawn, :MOST_DRAWN].tolist()  # type: ignore[call-overload]
    best = counts.argmax(axis=1)
    columns: list[Column] = [
        ("cluster", "place", range(n_clusters)),
        ("most are", "name", [classes[k] if total else None for k, total in zip(best, totals, strict=True)]),
        ("share", "bar", np.where(totals > 0, shares.max(axis=1), np.nan)),
        ("rows with a class", "count", totals),
    ]
    return section(
        "Do clusters and classes agree?",
        f"On {counted(agreement['n_rows'], 'row')} with a class: accuracy {percent(agreement['accuracy'])} "
        f"under the best one-to-one match, normalised mutual information {agreement['nmi']:.3f}, adjusted "
        f"Rand index {agreement['ari']:.3f}.",
        drawing(
            heat,
            "Classes of each cluster, in percent of the cluster",
            rows=[f"cluster {k}" for k in drawn.tolist()],
            columns=classes[:MOST_DRAWN],
            values=values,
        ),
        table("What each cluster holds", columns),
    )


def _settings(model: Any) -> Block:
    told = {
        name: setting(value)
        for name, value in model.get_params(deep=False).items()
        if name not in UNTOLD and value is not None
    }
    told |= {"model": type(model.model_).__name__.lower()}
    told |= {"objective": f"{model.objective_:.6g}", "rounds": str(model.n_iter_)}
    history = np.asarray(model.objective_history_).tolist()
    title = "The objective, by rounds"
    line = drawing(curve, title, values=history, across="rounds") if len(history) > 1 else None
    return section("Settings and versions", "", facts(told), line, versions())

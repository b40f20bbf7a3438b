"""The page of a clustering: sizes, confidence, agreement with classes, hard rows, the objective by rounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from consilience._validation import check_fitted
from consilience._words import counted, percent
from consilience.cluster.accuracy import cluster_agreement
from consilience.exceptions import InvalidInputError
from consilience.inspect.blocks import (
    Block,
    column,
    curve,
    facts,
    heat,
    histogram,
    page,
    section,
    table,
    versions,
)
from consilience.inspect.page import check_report, write_page
from consilience.inspect.page_tables import least_sure, setting
from consilience.kernels.arrays import Floats, Ints
from consilience.labels import read_labels

if TYPE_CHECKING:
    from consilience.cluster.clustering import CollisionClustering

BINS = 20  # of the histogram of confidence
MOST_ROWS = 50  # hard rows
MOST_DRAWN = 100  # clusters or classes in a matrix
_UNTOLD = ("run", "prior", "model")


class Found(NamedTuple):
    """Clusters of some rows."""

    labels: Ints  # (n,)
    proba: Floats | None  # (n, K), with X


def write_report(model: CollisionClustering, path: str | os.PathLike[str], X: Any, y: Any) -> Path:
    """Do what `CollisionClustering.report` says."""
    target = check_report(path)
    check_fitted(model, "labels_")
    return write_page(target, clustering_page(model, X, y))


def clustering_page(model: CollisionClustering, X: Any = None, y: Any = None) -> Block:
    """Return the page of a fitted clustering as plain data; parameters as in `CollisionClustering.report`."""
    found = Found(model.labels_, None)
    if X is not None:
        proba = model.predict_proba(X)
        found = Found(proba.argmax(axis=1), proba)
    if y is not None and len(y) != len(found.labels):
        rows = "X has" if X is not None else "fit saw"
        raise InvalidInputError(f"y has {len(y)} rows and {rows} {len(found.labels)}.")
    agreement = None if y is None else cluster_agreement(y, found.labels)
    figures = [
        (f"{model.n_clusters:,}", "cluster" if model.n_clusters == 1 else "clusters"),
        (f"{len(found.labels):,}", "rows"),
    ]
    if found.proba is not None:
        figures.append((percent(float(found.proba.max(axis=1).mean())), "mean confidence"))
    if agreement and agreement["n_rows"]:
        figures.append((percent(agreement["accuracy"]), f"accuracy on {counted(agreement['n_rows'], 'row')}"))
        figures.append((f"{agreement['nmi']:.3f}", "normalised mutual information"))
    return page(
        f"{counted(model.n_clusters, 'cluster')} of {len(found.labels):,} rows",
        "Groups found by a model that labels the rows itself, so that it is sure of every row and every "
        "cluster gets its share.",
        figures,
        [
            _size_section(model, found),
            _agreement_section(model, found, y, agreement),
            _row_section(found),
            _settings_section(model),
        ],
    )


def _size_section(model: CollisionClustering, found: Found) -> Block:
    sizes = np.bincount(found.labels, minlength=model.n_clusters)
    heads = [column("cluster", "place"), column("rows", "count"), column("share", "percent", bar=True)]
    columns: list[list[Any]] = [
        list(range(model.n_clusters)),
        sizes.tolist(),
        (sizes / max(1, sizes.sum())).tolist(),
    ]
    drawing = None
    if found.proba is not None:
        top = found.proba.max(axis=1)
        sums = np.bincount(found.labels, top, model.n_clusters)
        heads.append(column("mean confidence", "percent", bar=True))
        columns.append([float(s / n) if n else None for s, n in zip(sums, sizes, strict=True)])
        counts = np.histogram(top, bins=BINS, range=(0, 1))[0]
        drawing = histogram("Probability of the cluster that a row is in", counts.tolist())
    rows = list(zip(*columns, strict=True))
    return section(
        "How large are the clusters?",
        "Numbers of clusters have no meaning. Without a prior, fairness asks for equal sizes.",
        table("Clusters", heads, rows),
        drawing,
    )


def _agreement_section(
    model: CollisionClustering, found: Found, y: Any, agreement: dict[str, Any] | None
) -> Block | None:
    """Return clusters beside classes, if some are known."""
    if agreement is None or not agreement["n_rows"]:
        return None
    truth = read_labels(y, at_least=0)
    known = truth.known
    classes = truth.classes.tolist()
    counts = np.zeros((model.n_clusters, len(classes)), dtype=np.intp)
    np.add.at(counts, (found.labels[known], truth.codes[known]), 1)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    drawn = counts.sum(axis=1).argsort(kind="stable")[::-1][:MOST_DRAWN]
    values = [
        [round(float(share), 4) if counts[k, j] else None for j, share in enumerate(shares[k][:MOST_DRAWN])]
        for k in drawn.tolist()
    ]
    cells = []
    for k in range(model.n_clusters):
        best, total = int(counts[k].argmax()), int(counts[k].sum())
        cells.append([k, classes[best] if total else None, float(shares[k, best]) if total else None, total])
    heads = [
        column("cluster", "place"),
        column("most are", "name"),
        column("share", "percent", bar=True),
        column("rows with a class", "count"),
    ]
    return section(
        "Do clusters and classes agree?",
        f"On {counted(agreement['n_rows'], 'row')} with a class: accuracy {percent(agreement['accuracy'])} "
        f"under the best one-to-one match, normalised mutual information {agreement['nmi']:.3f}, adjusted "
        f"Rand index {agreement['ari']:.3f}.",
        heat(
            "Classes of each cluster, in percent of the cluster",
            [f"cluster {k}" for k in drawn.tolist()],
            classes[:MOST_DRAWN],
            values,
        ),
        table("What each cluster holds", heads, cells),
    )


def _row_section(found: Found) -> Block | None:
    if found.proba is None or found.proba.shape[1] < 2:
        return None
    every, clusters = np.arange(len(found.proba)), list(range(found.proba.shape[1]))
    rows = least_sure("Rows between two clusters", found.proba, every, clusters, MOST_ROWS, "place")
    return section(
        "Which rows are hard?",
        "Rows are known by their position, counted from 0.",
        rows,
    )


def _settings_section(model: CollisionClustering) -> Block:
    told: dict[str, Any] = {
        name: setting(value)
        for name, value in model.get_params(deep=False).items()
        if name not in _UNTOLD and value is not None
    }
    told |= {"model": type(model.model_).__name__.lower()}
    told |= {"objective": f"{model.objective_:.6g}", "rounds": model.n_iter_}
    history = np.asarray(model.objective_history_)
    drawing = curve("The objective, by rounds", history.tolist(), "rounds") if len(history) > 1 else None
    return section("Settings and versions", "", facts(told), drawing, facts(versions()))

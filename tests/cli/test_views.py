"""What the commands compute for display: every field against a plain computation."""

from __future__ import annotations

from itertools import combinations, permutations
from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rich")
pytest.importorskip("typer")


from consilience import CollisionClustering, CrossTaskDistiller, LabelSpace, Unifier, as_teacher, methods
from consilience.cli import console
from consilience.cli.commands.distil import distiller_view
from consilience.distil.losses import Sinkhorn
from consilience.distil.teacher_check import TeacherCheck

N = 30
CLASSES = np.array(["a", "b", "c"])
TRUTH = CLASSES[np.arange(N) % 3]


def rows(seed: int, spread: float = 0.8) -> np.ndarray:
    """Return rows (30, 2) of three classes in turn, which overlap."""
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    return centres[np.arange(N) % 3] + spread * np.random.RandomState(seed).randn(N, 2)


def scores(known: list[str], seed: int, right: float = 2.0) -> np.ndarray:
    """Return logits (30, k): noise, and more for the true class."""
    noise = np.random.RandomState(seed).randn(N, len(known))
    return noise + right * (TRUTH[:, None] == np.array(known))


def test_space_view() -> None:
    space = LabelSpace(
        [["b", "a"], ["c", "b", "d"], ["f", "e"]], names=["x", "y", "z"], disconnected="ignore"
    )
    view = console.space_view(space, ["onnx", "npy", "npz"])
    assert view["n_classes"] == 6
    assert view["classes"] == ["a", "b", "c", "d", "e", "f"]
    assert [(t["name"], t["kind"], t["n_classes"], sorted(t["classes"])) for t in view["teachers"]] == [
        ("x", "onnx", 2, ["a", "b"]),
        ("y", "npy", 3, ["b", "c", "d"]),
        ("z", "npz", 2, ["e", "f"]),
    ]


def unified(**options: Any) -> tuple[Unifier, Any, list[Any]]:
    """Return a unifier of two teachers after fit, its estimate, and the known labels.

    The second teacher abstains on four rows. Seven rows have a label.
    """
    late = scores(["b", "c"], 1)
    late[[3, 6, 9, 10]] = np.nan
    teachers = [as_teacher(scores(["a", "b"], 0), ["a", "b"], "early"), as_teacher(late, ["b", "c"], "late")]
    y = [label if i < 7 else None for i, label in enumerate(TRUTH.tolist())]
    fitted = Unifier(teachers, "logistic", random_state=5, **options).fit(rows(0), y)
    parts = ("method", "n_abstentions", "temperatures", "pool_weights", "neighbor_weight", "seconds")
    kept = {part: getattr(fitted, f"{part}_") for part in parts}
    return fitted, SimpleNamespace(space=fitted.label_space_, **kept), y


def test_unifier_view() -> None:
    fitted, estimate, y = unified(method="auto")
    X = rows(2)
    labels = np.where(np.arange(N) % 4 == 0, None, TRUTH)
    right = sum(guess == label for guess, label in zip(fitted.predict(X), labels, strict=True))
    assert 0 < right < 22
    assert fitted.pool_weights_ is not None
    assert console.unifier_view(fitted, estimate, ["onnx", "npy"], N, y, (X, labels)) == {
        "teachers": [
            {"name": "early", "kind": "onnx", "n_classes": 2, "abstentions": 0, "temperature": 1.0},
            {"name": "late", "kind": "npy", "n_classes": 2, "abstentions": 4, "temperature": 1.0},
        ],
        "n_classes": 3,
        "classes": ["a", "b", "c"],
        "n_rows": N,
        "n_labels": 7,
        "method": "auto",
        "train": "estimate",
        "temperature": 1.0,
        "pool_weights": fitted.pool_weights_,
        "neighbor_weight": fitted.neighbor_weight_,
        "calibrated": False,
        "off_set": False,
        "seed": 5,
        "student": "LogisticRegression",
        "encoding": None,
        "balanced": True,
        "accuracy": right / 22,
        "n_test": 22,
        "seconds": fitted.seconds_,
    }


def test_unifier_view_tells_options_apart() -> None:
    fitted, estimate, _ = unified(method=methods.CE(temperature=2.5, off_set=True), balance=False)
    view = console.unifier_view(fitted, estimate, ["onnx", "npy"], N, None, None)
    assert view["n_labels"] == 0
    assert (view["method"], view["temperature"], view["pool_weights"]) == ("ce", 2.5, None)
    assert (view["off_set"], view["calibrated"], view["balanced"]) == (True, False, False)
    assert (view["accuracy"], view["n_test"]) == (None, 0)


def test_unifier_view_of_calibrated_teachers() -> None:
    known = CLASSES.tolist()
    teachers = [as_teacher(scores(known, seed, seed + 2.0), known, f"t{seed}") for seed in range(3)]
    unifier = Unifier(teachers, method=methods.CE(teacher_temperatures="agreement"))
    found = unifier.make_estimate(rows(0))
    view = console.unifier_view(unifier, found, ["onnx", "npy", "npz"], N, None, (rows(2), TRUTH))
    assert view["calibrated"]
    shown = [teacher["temperature"] for teacher in view["teachers"]]
    assert shown == found.temperatures.tolist()
    assert len(set(shown)) == 3
    # without a student there is nothing to measure or to balance
    assert (view["student"], view["balanced"], view["accuracy"], view["n_test"]) == (None, False, None, 0)


def test_unifier_view_without_a_test_label() -> None:
    fitted, estimate, _ = unified(method="sd")
    view = console.unifier_view(fitted, estimate, ["onnx", "npy"], N, None, (rows(2), [None] * N))
    assert (view["accuracy"], view["n_test"]) == (None, 0)


def entropy(counts: list[int]) -> float:
    return -sum(count / sum(counts) * log(count / sum(counts)) for count in counts if count)


def agreement(truth: list[str], found: list[int]) -> dict[str, float]:
    """Return accuracy, NMI and ARI by the best of all matches, by entropies, and by pairs of rows."""
    pairs = list(zip(truth, found, strict=True))
    names, clusters = sorted(set(truth)), range(3)
    matches = (dict(zip(order, names, strict=False)) for order in permutations(clusters))
    accuracy = max(sum(match.get(k) == name for name, k in pairs) for match in matches) / len(pairs)
    h_truth = entropy([truth.count(name) for name in names])
    h_found = entropy([found.count(k) for k in clusters])
    mutual = h_truth + h_found - entropy([pairs.count((name, k)) for name in names for k in clusters])
    together = [(a == b, i == j) for (a, i), (b, j) in combinations(pairs, 2)]
    both, first, second = (sum(map(test, together)) for test in (all, lambda t: t[0], lambda t: t[1]))
    chance = first * second / len(together)
    ari = (both - chance) / ((first + second) / 2 - chance)
    return {"accuracy": accuracy, "nmi": mutual / ((h_truth + h_found) / 2), "ari": ari}


def test_clusters_view() -> None:
    X = rows(0)
    y = np.full(N, -1)
    y[[0, 3, 6, 1, 4, 2]] = [0, 0, 0, 1, 1, 2]
    model = CollisionClustering(3, loss="mi", n_init=2, n_neighbors=3, random_state=4).fit(X, y)
    truth = [label if i % 5 else None for i, label in enumerate(TRUTH.tolist())]
    found = model.labels_.tolist()
    view = console.clusters_view(model, X, y, truth)
    clusters = view.pop("clusters")
    best = model.predict_proba(X).max(axis=1).tolist()
    for k in range(3):
        members = [i for i in range(N) if found[i] == k]
        assert clusters[k] == {
            "cluster": k,
            "rows": len(members),
            "share": pytest.approx(len(members) / N),
            "confidence": pytest.approx(sum(best[i] for i in members) / len(members)),
            "labelled": sum(y[i] >= 0 for i in members),
        }
    assert len(clusters) == 3
    kept = [i for i in range(N) if truth[i] is not None]
    expected = agreement([TRUTH[i] for i in kept], [found[i] for i in kept])
    assert 0 < expected["accuracy"] < 1
    assert view.pop("agreement") == pytest.approx(expected | {"n_rows": 24})
    assert view == {
        "n_rows": N,
        "n_features": 2,
        "n_clusters": 3,
        "loss": "mi",
        "seed": 4,
        "n_labels": 6,
        "objective": model.objective_,
        "n_iter": model.n_iter_,
    }


def test_clusters_view_of_an_empty_cluster() -> None:
    proba = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])
    model: Any = SimpleNamespace(
        predict_proba=lambda _: proba, labels_=proba.argmax(axis=1), n_clusters=3, n_features_in_=1,
        loss="mi", random_state=0, objective_=-1.5, n_iter_=2,
    )  # fmt: skip
    view = console.clusters_view(model, np.zeros((3, 1)), None, None)
    assert [c["rows"] for c in view["clusters"]] == [2, 0, 1]
    assert [c["confidence"] for c in view["clusters"]] == [pytest.approx(0.65), None, pytest.approx(0.7)]
    assert [c["labelled"] for c in view["clusters"]] == [0, 0, 0]
    assert (view["n_labels"], view["agreement"]) == (0, None)
    unknown = console.clusters_view(model, np.zeros((3, 1)), None, [None] * 3)["agreement"]
    assert unknown == {"n_rows": 0, "accuracy": None, "nmi": None, "ari": None}


def distilled() -> CrossTaskDistiller:
    """Return a student of three teachers after fit, with checks written by hand, in another order."""
    lists = {"one": ["p", "q", "r"], "two": ["s", "t"], "three": ["a", "b", "c", "u"]}
    teachers = [as_teacher(scores(known, len(known)), known, name) for name, known in lists.items()]
    y = [label if i < 24 else None for i, label in enumerate(TRUTH.tolist())]
    model = CrossTaskDistiller(
        teachers,
        "logistic",
        Sinkhorn(temperature=2.0),
        teacher_weight=1.5,
        cost="constant",
        check=False,
        random_state=6,
    ).fit(rows(0), y)
    one = TeacherCheck("one", 0.75, 0.11, 0.02, added=3.5, accuracy=0.6, labels_only_accuracy=0.4, n_rows=21)
    model.checks_ = [TeacherCheck.unknown("two"), one]
    model.teacher_weights_ = np.array([0.9, 0.0, 0.6])
    return model


def test_distiller_view() -> None:
    model = distilled()
    labels_only = CrossTaskDistiller(None, "logistic", loss="none").fit(rows(3)[:4], TRUTH[:4])
    X = rows(2)
    labels = [None if i % 4 == 0 else label for i, label in enumerate(TRUTH.tolist())]
    right, right_labels_only = (
        sum(guess == label for guess, label in zip(m.predict(X), labels, strict=True))
        for m in (model, labels_only)
    )
    assert right != right_labels_only
    assert distiller_view(model, labels_only, ["onnx", "npy", "npz"], (X, labels)) == {
        "teachers": [
            {"name": "one", "kind": "onnx", "n_classes": 3, "weight": 0.9,
             "reliability": 0.75, "added": 3.5, "held_out": 21},
            {"name": "two", "kind": "npy", "n_classes": 2, "weight": 0.0,
             "reliability": 0.0, "added": None, "held_out": 0},
            {"name": "three", "kind": "npz", "n_classes": 4, "weight": 0.6,
             "reliability": None, "added": None, "held_out": None},
        ],
        "n_classes": 3,
        "classes": ["a", "b", "c"],
        "n_labels": 24,
        "loss": "sinkhorn",
        "teacher_weight": 1.5,
        "temperature": 2.0,
        "seed": 6,
        "student": "LogisticRegression",
        "encoding": None,
        "accuracy": pytest.approx(right / 22),
        "accuracy_labels_only": pytest.approx(right_labels_only / 22),
        "n_test": 22,
        "seconds": model.seconds_,
    }  # fmt: skip


@pytest.mark.parametrize("test", [None, (rows(2), [None] * N)])
def test_distiller_view_without_a_test_label(test: tuple[Any, Any] | None) -> None:
    model = distilled()
    view = distiller_view(model, model, ["onnx", "npy", "npz"], test)
    assert (view["accuracy"], view["accuracy_labels_only"], view["n_test"]) == (None, None, 0)

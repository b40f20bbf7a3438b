"""Is it good? What `Unifier.evaluate` and ``consilience evaluate`` return."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._validation import check_choice
from consilience._words import aligned, counted, percent, shorten
from consilience.inspect.metrics import Scores, most_confused

MOST_CONFUSED = 10  # pairs of classes that are printed
MOST_CLASSES = 30  # classes that are printed

Kind = Literal["vote", "labels only", "teacher"]


@dataclass(frozen=True)
class Compared:
    """Another classifier beside the model, on the same rows and about the same classes.

    Attributes
    ----------
    name : str
    kind : {"vote", "labels only", "teacher"}
    n_classes : int
        How many classes the question is about. Beside a teacher these are the teacher's own: the rows are
        those of its classes, and the model's probabilities are renormalised over them.
    other : Scores
        How good the other classifier is.
    model : Scores
        How good the model is.
    """

    name: str
    kind: Kind
    n_classes: int
    other: Scores
    model: Scores


@dataclass(frozen=True)
class ClassScores:
    """How well one class is known.

    Attributes
    ----------
    name : str or number
    n_rows : int
        Rows of the class.
    n_predicted : int
        Rows that the model takes for it.
    precision : float
        The share of these that are right. NaN if there are none.
    recall : float
        The share of the rows of the class that the model finds. NaN if there are none.
    teacher : str or None
        The teacher that finds most rows of the class among its own classes.
    teacher_recall : float
        The share that it finds. NaN if no teacher was asked.
    lost : bool
        Whether the model has nearly lost the class: see `Evaluation.lost`.
    """

    name: Any
    n_rows: int
    n_predicted: int
    precision: float
    recall: float
    teacher: str | None
    teacher_recall: float
    lost: bool


@dataclass(frozen=True)
class Confused:
    """How often rows of one class are taken for another."""

    truth: Any
    predicted: Any
    n_rows: int
    share: float  # of the rows of the true class


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How good a classifier is on labelled rows, also beside its teachers, their vote and the labels alone.

    Attributes
    ----------
    scores : Scores
        Of the model, on all labelled rows.
    compared : tuple of Compared
        The vote, the student trained on these labels alone (cross-validated), and every teacher.
    by_class : tuple of ClassScores
        In the order of the classes.
    confusion : (L, L) array of int
        How many rows of each class (its row) the model takes for each class (its column). Rows of a class
        that nobody knows are not among them; they count in the scores, and as predictions.
    n_unlabelled : int
        Rows without a label, which are left out.
    confidence : float
        Of the intervals.
    n_bins : int
        Bins of the calibration error, of equal width.
    remarks : tuple of str
        What could not be measured, and classes that nobody knows.
    """

    scores: Scores
    compared: tuple[Compared, ...]
    by_class: tuple[ClassScores, ...]
    confusion: NDArray[np.intp]
    n_unlabelled: int
    confidence: float
    n_bins: int
    remarks: tuple[str, ...]

    @property
    def lost(self) -> tuple[Any, ...]:
        """Classes that got nearly lost: under 10 % of at least five rows are found, or it is never chosen."""
        return tuple(row.name for row in self.by_class if row.lost)

    @property
    def warning(self) -> str | None:
        """A sentence about the classes that got nearly lost, if there are any."""
        rows = sorted((row for row in self.by_class if row.lost), key=lambda row: -row.n_rows)
        if not rows:
            return None
        words = []
        for row in rows:
            found = f"{row.name} ({round(row.recall * row.n_rows)} of {counted(row.n_rows, 'row')} found"
            beside = "" if row.teacher is None else f"; {row.teacher} finds {percent(row.teacher_recall)}"
            words.append(f"{found}{beside})")
        return f"{counted(len(rows), 'class')} nearly lost: {shorten(words, 5)}."

    @property
    def confused(self) -> tuple[Confused, ...]:
        """Pairs of classes that are confused, most rows first."""
        names = [row.name for row in self.by_class]
        return tuple(
            Confused(names[truth], names[decided], count, count / self.by_class[truth].n_rows)
            for truth, decided, count in most_confused(self.confusion)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON. None replaces NaN."""
        return {
            **plain(self.scores),
            "n_classes": len(self.by_class),
            "n_unlabelled": self.n_unlabelled,
            "confidence": self.confidence,
            "n_bins": self.n_bins,
            "compared": [plain(row) for row in self.compared],
            "by_class": [plain(row) for row in self.by_class],
            "confused": [plain(pair) for pair in self.confused],
            "lost": list(self.lost),
            "remarks": list(self.remarks),
        }

    def to_frame(self, of: Literal["compared", "classes", "confused"] = "compared") -> Any:
        """Return a pandas data frame of all that is compared, of classes, or of confused pairs."""
        check_choice("of", of, ("compared", "classes", "confused"))
        pandas = require("pandas", extra="tables", purpose="A data frame")
        if of == "classes":
            return pandas.DataFrame([asdict(row) for row in self.by_class])
        if of == "confused":
            columns = ["truth", "predicted", "n_rows", "share"]
            return pandas.DataFrame([asdict(pair) for pair in self.confused], columns=columns)
        records = [{"name": "model", "kind": "model", "n_classes": len(self.by_class), **_flat(self.scores)}]
        for row in self.compared:
            about = {"name": row.name, "kind": row.kind, "n_classes": row.n_classes}
            beside = {f"model_{name}": value for name, value in _flat(row.model).items() if name != "n_rows"}
            records.append(about | _flat(row.other) | beside)
        return pandas.DataFrame(records)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the evaluation as one page, an HTML file that needs nothing else, and return its path."""
        from consilience.inspect.evaluation_page import evaluation_page
        from consilience.inspect.page import check_report, write_page

        return write_page(check_report(path), evaluation_page(self.to_dict()))

    def __repr__(self) -> str:
        lines = [*_headline(self), *_compared_lines(self), *_class_lines(self), *self.remarks]
        return "\n".join([*lines, self.warning] if self.warning else lines)


def _headline(evaluation: Evaluation) -> list[str]:
    scores, (low, high) = evaluation.scores, evaluation.scores.interval
    over = f"{counted(scores.n_rows, 'row')} of {counted(len(evaluation.by_class), 'class')}"
    return [
        f"{percent(scores.accuracy)} of {over} are right "
        f"({100 * evaluation.confidence:g}% interval: {percent(low)} to {percent(high)})",
        f"balanced accuracy {percent(scores.balanced_accuracy)}, log-loss {scores.log_loss:.3f}, "
        f"calibration error {percent(scores.calibration_error)} ({evaluation.n_bins} bins)",
    ]


def _compared_lines(evaluation: Evaluation) -> list[str]:
    if not evaluation.compared:
        return []
    names = ("accuracy", "balanced", "log-loss", "calibration")
    heads = [head for name in names for head in (f">{name}", ">model")]
    rows = [
        [row.name, str(row.other.n_rows), str(row.n_classes), *figures(plain(row))]
        for row in evaluation.compared
    ]
    return ["", *aligned(["beside", ">rows", ">classes", *heads], rows)]


def figures(row: dict[str, Any]) -> list[str]:
    """Return the figures of one line of `Evaluation.to_dict`["compared"]: the other's, then the model's."""
    cells = []
    for name in ("accuracy", "balanced_accuracy", "log_loss", "calibration_error"):
        for side in (row["other"], row["model"]):
            cells.append(f"{side[name]:.3f}" if name == "log_loss" else percent(side[name]))
    return cells


def worst_first(by_class: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort `Evaluation.to_dict`["by_class"] by recall; classes without rows come last."""
    return sorted(by_class, key=lambda row: (row["recall"] is None, row["recall"] or 0.0))


def _class_lines(evaluation: Evaluation) -> list[str]:
    worst = worst_first([plain(row) for row in evaluation.by_class])
    cells = [
        [
            str(row["name"]),
            str(row["n_rows"]),
            str(row["n_predicted"]),
            *map(percent, (row["precision"], row["recall"])),
        ]
        for row in worst[:MOST_CLASSES]
    ]
    lines = ["", *aligned(["class", ">rows", ">predicted", ">precision", ">recall"], cells)]
    if len(worst) > MOST_CLASSES:
        lines.append(f"and {len(worst) - MOST_CLASSES} more classes: to_frame('classes')")
    pairs = [
        f"{pair.truth} taken for {pair.predicted}: {counted(pair.n_rows, 'row')} ({percent(pair.share)})"
        for pair in evaluation.confused[:MOST_CONFUSED]
    ]
    return [
        *lines,
        "",
        *(["most confused:", *(f"  {shorten([pair])}" for pair in pairs), ""] if pairs else []),
    ]


def _flat(scores: Scores) -> dict[str, Any]:
    values = asdict(scores)
    low, high = values.pop("interval")
    return values | {"low": low, "high": high}


def plain(record: Any) -> dict[str, Any]:
    """Return a dataclass as a dict, with None for NaN and lists for tuples."""
    plain: dict[str, Any] = _without_nan(asdict(record))
    return plain


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value

"""Is it good? What `evaluate` returns, with its tables and its page."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._validation import check_choice
from consilience._words import counted, percent
from consilience.inspect.drawing import Block, dots, drawing
from consilience.inspect.page import (
    as_lines,
    check_report,
    facts,
    frame,
    page,
    plain,
    remarks,
    section,
    table,
    write_page,
)

MOST_CONFUSED, MOST_CLASSES = 10, 30  # pairs of classes, and classes, that are printed
FIGURES = {
    "accuracy": "percent",
    "balanced_accuracy": "percent",
    "log_loss": "number",
    "calibration_error": "percent",
}


@dataclass(frozen=True)
class Scores:
    """How good a classifier is on some rows.

    Attributes
    ----------
    n_rows : int
    accuracy : float
        The share of rows that are right.
    interval : (float, float)
        Wilson's interval of the accuracy.
    balanced_accuracy : float
        The mean recall of the classes that occur.
    log_loss : float
        Minus the mean logarithm of the probability of the true class.
    calibration_error : float
        The expected calibration error: rows fall into bins of equal width by the probability of the class
        decided for; in each bin, the mean of it is compared with the share of rows that are right.
    """

    n_rows: int
    accuracy: float
    interval: tuple[float, float]
    balanced_accuracy: float
    log_loss: float
    calibration_error: float


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
    other, model : Scores
        How good the other classifier and the model are.
    """

    name: str
    kind: Literal["vote", "labels only", "teacher"]
    n_classes: int
    other: Scores
    model: Scores


@dataclass(frozen=True)
class ClassScores:
    """How well one class is known.

    Attributes
    ----------
    name : str or number
    n_rows, n_predicted : int
        Rows of the class, and rows that the model takes for it.
    precision, recall : float
        The share of the latter, and of the former, that are right. NaN if there are none.
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
    warning : str or None
        A sentence about the classes that got nearly lost, if there are any.
    """

    scores: Scores
    compared: tuple[Compared, ...]
    by_class: tuple[ClassScores, ...]
    confusion: NDArray[np.intp]
    n_unlabelled: int
    confidence: float
    n_bins: int
    remarks: tuple[str, ...]
    warning: str | None = None

    @property
    def lost(self) -> tuple[Any, ...]:
        """Classes that got nearly lost: under 10 % of at least five rows are found, or it is never chosen."""
        return tuple(row.name for row in self.by_class if row.lost)

    @property
    def confused(self) -> tuple[Confused, ...]:
        """Pairs of classes that are confused, most rows first."""
        wrong = self.confusion - np.diag(self.confusion.diagonal())
        pairs = np.argwhere(wrong)[np.argsort(-wrong[wrong > 0], kind="stable")].tolist()
        names = [row.name for row in self.by_class]
        return tuple(
            Confused(names[i], names[j], int(wrong[i, j]), int(wrong[i, j]) / self.by_class[i].n_rows)
            for i, j in pairs
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON. None replaces NaN."""
        return {
            **plain(self.scores),
            "n_classes": len(self.by_class),
            "n_unlabelled": self.n_unlabelled,
            "confidence": self.confidence,
            "n_bins": self.n_bins,
            "compared": plain(self.compared),
            "by_class": plain(self.by_class),
            "confused": plain(self.confused),
            "lost": list(self.lost),
            "remarks": list(self.remarks),
        }

    def to_frame(self, of: Literal["compared", "classes", "confused"] = "compared") -> Any:
        """Return a pandas data frame of all that is compared, of classes, or of confused pairs."""
        check_choice("of", of, ("compared", "classes", "confused"))
        if of != "compared":
            kind, rows = (ClassScores, self.by_class) if of == "classes" else (Confused, self.confused)
            return frame(map(asdict, rows), columns=list(kind.__dataclass_fields__))
        model = {"name": "model", "kind": "model", "n_classes": len(self.by_class), **_flat(self.scores)}
        others = [
            {"name": row.name, "kind": row.kind, "n_classes": row.n_classes, **_flat(row.other)}
            | {f"model_{name}": value for name, value in _flat(row.model).items() if name != "n_rows"}
            for row in self.compared
        ]
        return frame([model, *others])

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the evaluation as one page, an HTML file that needs nothing else, and return its path."""
        figures = [
            (percent(self.scores.accuracy), "accuracy"),
            (percent(self.scores.balanced_accuracy), "balanced accuracy"),
            (f"{self.scores.n_rows:,}", "labelled rows"),
            (f"{len(self.by_class):,}", "classes"),
        ]
        lead = (
            f"A classifier of {counted(len(self.by_class), 'class')}, measured on {self._rows} with labels."
        )
        return write_page(check_report(path), page("How good is the model?", lead, figures, self.sections()))

    def sections(self) -> list[Block]:
        """Return the parts of a page: the whole, and each class."""
        lost = f"{counted(len(self.lost), 'class')} nearly lost: marked in the table of classes below."
        points = [
            (row.name, [[side.accuracy, *side.interval] for side in (row.model, row.other)])
            for row in self.compared
        ]
        caption = f"Accuracy beside others, with {100 * self.confidence:g}% intervals"
        return [
            section(
                "How good is it?",
                "Each line puts another classifier beside the model, on the same rows and for the same "
                "question. Beside a teacher, the rows are those of its classes, and the question is which of "
                "these a row is.",
                facts(self.facts),
                remarks([*([lost] if self.lost else []), *self.remarks]),
                drawing(dots, caption, series=["the model", "the other"], rows=points) if points else None,
                self.beside_table() if points else None,
            ),
            section(
                "Which classes are hard?",
                "The worst come first. The best teacher is the one that finds most rows of the class among "
                "its own classes.",
                self.class_table(),
                self.confused_table() if self.confused else None,
            ),
        ]

    @property
    def _rows(self) -> str:
        return counted(self.scores.n_rows, "row")

    @property
    def facts(self) -> dict[str, str | None]:
        """The figures of the model, in words."""
        scores, left_out = self.scores, self.n_unlabelled
        low, high = map(percent, scores.interval)
        interval = f"{100 * self.confidence:g}% interval: {low} to {high}"
        return {
            "accuracy": f"{percent(scores.accuracy)} ({interval})",
            "balanced accuracy": percent(scores.balanced_accuracy),
            "log-loss": f"{scores.log_loss:.3f}",
            "calibration error": f"{percent(scores.calibration_error)} ({counted(self.n_bins, 'bin')})",
            "rows": f"{self._rows} of {counted(len(self.by_class), 'class')}"
            + (f", and {left_out:,} without a label, left out" if left_out else ""),
        }

    def beside_table(self) -> Block:
        """Return the table of all that is compared."""
        heads = [("beside", "name"), ("rows", "count"), ("classes", "count")]
        for name, form in FIGURES.items():
            heads += [(name.removesuffix("_accuracy").replace("_", " "), form), ("model's", form)]
        rows = [
            [row.name, row.other.n_rows, row.n_classes]
            + [getattr(side, name) for name in FIGURES for side in (row.other, row.model)]
            for row in self.compared
        ]
        return table("All figures", heads, rows)

    def class_table(self) -> Block:
        """Return the table of classes, the worst first; those without rows come last."""
        rows = sorted(plain(self.by_class), key=lambda row: (row["recall"] is None, row["recall"] or 0.0))
        heads = {
            "name": ("class", "name"),
            "recall": ("recall", "bar"),
            "precision": ("precision", "percent"),
            "n_rows": ("rows", "count"),
            "n_predicted": ("predicted", "count"),
        }
        if any(row["teacher"] is not None for row in rows):
            heads |= {"teacher": ("best teacher", "name"), "teacher_recall": ("its recall", "percent")}
        note = (
            "Marked classes are nearly lost: less than 10% of at least five rows are found, or none is "
            "predicted."
        )
        return table(
            "Classes",
            list(heads.values()),
            [[row[key] for key in heads] for row in rows],
            note=note if self.lost else "",
            marked=[i for i, row in enumerate(rows) if row["lost"]],
        )

    def confused_table(self) -> Block:
        """Return the table of pairs of classes that are confused most often."""
        heads = [("class", "name"), ("taken for", "name"), ("rows", "count"), ("of the class", "bar")]
        rows = [[pair.truth, pair.predicted, pair.n_rows, pair.share] for pair in self.confused]
        return table("Confused most often", heads, rows[:MOST_CLASSES])

    def __repr__(self) -> str:
        tables = [as_lines(self.beside_table()), as_lines(self.class_table(), MOST_CLASSES)]
        if self.confused:
            tables.append(as_lines(self.confused_table(), MOST_CONFUSED))
        told = [f"{name}: {fact}" for name, fact in self.facts.items()]
        lines = [*told, *(line for lines in tables for line in ["", *lines]), "", *self.remarks]
        return "\n".join([*lines, self.warning] if self.warning else lines)


def _flat(scores: Scores) -> dict[str, Any]:
    values = asdict(scores)
    low, high = values.pop("interval")
    return values | {"low": low, "high": high}

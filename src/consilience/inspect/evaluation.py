"""Is it good? The scores of answers, and what `evaluate` returns, with its tables and its page.

scikit-learn has most of the figures, and the tests compare with it. Here they share one pass over the rows:
its functions sort the labels anew for every metric, and its log-loss makes an array (n, L) of zeros and ones.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import binomtest

from consilience._validation import check_choice
from consilience._words import counted, percent, shorten
from consilience.inspect.drawing import Block, dots, drawing
from consilience.inspect.page import (
    Told,
    check_report,
    columns_of,
    facts,
    frame,
    page,
    plain,
    remarks,
    section,
    table,
    write_page,
)
from consilience.kernels.arrays import Floats, Ints

MOST_CONFUSED, MOST_CLASSES = 10, 30  # pairs of classes, and classes, that are printed
FIGURES = {
    "accuracy": "percent",
    "balanced_accuracy": "percent",
    "log_loss": "number",
    "calibration_error": "percent",
}
# scikit-learn's bound: a probability of zero costs 36 nats, not infinitely many
LEAST_LIKELIHOOD = float(np.finfo(np.float64).eps)


class Answers(NamedTuple):
    """What a classifier says about k rows, as far as the scores need it."""

    decided: Ints  # (k,) the class that it finds most probable
    confidence: Floats  # (k,) the probability of that class
    likelihood: Floats  # (k,) the probability of the true class

    @classmethod
    def given(cls, proba: Floats, truth: Ints) -> Answers:
        """Return the answers of probabilities (k, c); `truth` (k,) are columns, or unknown from c on."""
        rows, decided = np.arange(len(proba)), proba.argmax(axis=1)
        known = truth < proba.shape[1]
        likelihood = np.where(known, proba[rows, np.where(known, truth, 0)], 0.0)
        return cls(decided, proba[rows, decided], likelihood)


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

    @classmethod
    def of(cls, answers: Answers, truth: Ints, confidence: float, n_bins: int) -> Scores:
        """Score answers about at least one row; classes that nobody knows, in `truth` (k,), are errors."""
        right = answers.decided == truth
        bins = np.minimum((answers.confidence * n_bins).astype(np.intp), n_bins - 1)
        gaps = np.bincount(bins, answers.confidence - right, n_bins)
        n_rows, n_right = len(truth), int(right.sum())
        return cls(
            n_rows,
            n_right / n_rows,
            wilson(n_right, n_rows, confidence),
            float(np.nanmean(recalls(answers.decided, truth, int(truth.max()) + 1))),
            -float(np.log(np.maximum(answers.likelihood, LEAST_LIKELIHOOD)).mean()),
            float(np.abs(gaps).sum() / n_rows),
        )


def wilson(n_right: int, n_rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of an accuracy."""
    ends = binomtest(n_right, n_rows).proportion_ci(confidence, "wilson")
    return float(ends.low), float(ends.high)


def recalls(decided: Ints, truth: Ints, n_classes: int) -> Floats:
    """Return the share (n_classes,) of each class's rows that are decided rightly; NaN without rows."""
    hits = np.bincount(truth[decided == truth], minlength=n_classes)
    return shares(hits, np.bincount(truth, minlength=n_classes))[:n_classes]


def shares(parts: Ints, wholes: Ints) -> Floats:
    """Return parts (L,) of wholes; NaN of nothing."""
    return np.asarray(np.divide(parts, wholes, out=np.full(len(wholes), np.nan), where=wholes > 0))


def conditioned(proba: Floats) -> Floats:
    """Return probabilities (k, c) given that the class is one of these; all alike where none has mass."""
    mass = proba.sum(axis=1, keepdims=True)
    uniform = np.full(proba.shape, 1.0 / proba.shape[1])
    return np.asarray(np.divide(proba, mass, out=uniform, where=mass > 0))


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


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Told):
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
    confusion: Ints
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
        words = [
            f"{row.name} ({round(row.recall * row.n_rows)} of {counted(row.n_rows, 'row')} found"
            + ("" if row.teacher is None else f"; {row.teacher} finds {percent(row.teacher_recall)}")
            + ")"
            for row in sorted(self.by_class, key=lambda row: -row.n_rows)
            if row.lost
        ]
        return f"{counted(len(words), 'class')} nearly lost: {shorten(words, 5)}." if words else None

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
        heads = [("beside", "name", "name"), ("rows", "count", "other.n_rows")]
        heads.append(("classes", "count", "n_classes"))
        for name, form in FIGURES.items():
            title = name.removesuffix("_accuracy").replace("_", " ")
            heads += [(title, form, f"other.{name}"), ("model's", form, f"model.{name}")]
        return table("All figures", columns_of(self.compared, *heads))

    def class_table(self) -> Block:
        """Return the table of classes, the worst first; those without rows come last."""
        rows = sorted(self.by_class, key=lambda row: (row.n_rows == 0, row.recall))
        columns = columns_of(
            rows,
            ("class", "name", "name"),
            ("recall", "bar", "recall"),
            ("precision", "percent", "precision"),
            ("rows", "count", "n_rows"),
            ("predicted", "count", "n_predicted"),
        )
        if any(row.teacher is not None for row in rows):
            others = ("best teacher", "name", "teacher"), ("its recall", "percent", "teacher_recall")
            columns += columns_of(rows, *others)
        lost = [i for i, row in enumerate(rows) if row.lost]
        note = (
            "Marked classes are nearly lost: less than 10% of at least five rows are found, or none is "
            "predicted."
        )
        return table("Classes", columns, note=note if lost else "", marked=lost, printed=MOST_CLASSES)

    def confused_table(self) -> Block:
        """Return the table of pairs of classes that are confused most often."""
        columns = columns_of(
            self.confused[:MOST_CLASSES],
            ("class", "name", "truth"),
            ("taken for", "name", "predicted"),
            ("rows", "count", "n_rows"),
            ("of the class", "bar", "share"),
        )
        return table("Confused most often", columns, printed=MOST_CONFUSED)

    def told(self) -> list[str | Block]:
        """Return the figures in words, the tables, and the remarks."""
        figures = "\n".join(f"{name}: {fact}" for name, fact in self.facts.items())
        tables = self.beside_table(), self.class_table(), self.confused_table()
        return [figures, *tables, "\n".join([*self.remarks, *filter(None, [self.warning])])]


def _flat(scores: Scores) -> dict[str, Any]:
    values = asdict(scores)
    low, high = values.pop("interval")
    return values | {"low": low, "high": high}

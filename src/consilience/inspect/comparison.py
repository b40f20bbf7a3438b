"""Would other settings be better? What `Unifier.compare` and ``consilience compare`` return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from consilience._optional import require
from consilience._words import aligned, counted, percent
from consilience.inspect.evaluation import plain

# The settings in use are kept unless others are better by more than this share.
MARGIN = 0.01


@dataclass(frozen=True)
class Configuration:
    """One way to unify, and how good it is on rows that its student has not seen.

    Attributes
    ----------
    method, balance, teacher_temperatures, self_label
        The settings of `Unifier`, its method and its student. A method of your own has the name of its
        function.
    agreement : float
        How often the student decides as the teachers do, where it is likely that they know the class; see
        `Unifier.compare`.
    coverage : float
        Over how many of the classes its decisions spread: the exponential of their entropy over L.
    support : float
        Agreement times coverage: the criterion without labels.
    accuracy : float
        The share of labelled rows that are right. NaN without labels.
    interval : (float, float)
        Wilson's interval of the accuracy, for 95 %.
    seconds : float
        How long both fits took, soft labels included.
    error : str or None
        Why there are no figures.
    """

    method: str
    balance: bool | str
    teacher_temperatures: str | None
    self_label: bool
    agreement: float
    coverage: float
    support: float
    accuracy: float
    interval: tuple[float, float]
    seconds: float
    error: str | None = None

    @property
    def name(self) -> str:
        """The settings in a few words."""
        notes = {
            "balanced": self.balance is True,
            "balanced by roots": self.balance == "sqrt",
            "calibrated": self.teacher_temperatures is not None,
            "self-labelled": self.self_label,
        }
        return ", ".join([self.method, *(note for note, holds in notes.items() if holds)])


@dataclass(frozen=True, eq=False)
class Comparison:
    """Settings of a `Unifier`, best first.

    Attributes
    ----------
    rows : tuple of Configuration
        Those that failed come last.
    criterion : {"accuracy", "support"}
        What decides the order: accuracy if there are labels.
    current : str
        The name of the settings in use.
    student : str
        What learnt.
    n_rows, n_labels, n_classes : int
    n_groups : int
        Groups of classes that share no teacher. With more than one, agreement says nothing about how well a
        row's group is found.
    remarks : tuple of str
        Classes that nobody knows: their rows count as errors.
    """

    rows: tuple[Configuration, ...]
    criterion: Literal["accuracy", "support"]
    current: str
    student: str
    n_rows: int
    n_labels: int
    n_classes: int
    n_groups: int
    remarks: tuple[str, ...] = ()

    @property
    def recommended(self) -> Configuration:
        """The settings in use, unless others are clearly better; then the best of these.

        Clearly means beyond the upper end of the interval of the accuracy; without labels, by more than 1 %.
        """
        best, current = self.rows[0], self._current
        if current is None or current.error is not None:
            return best
        if self.criterion == "accuracy":
            return best if best.accuracy > current.interval[1] else current
        return best if best.support > (1 + MARGIN) * current.support else current

    @property
    def recommendation(self) -> str:
        """What to do, in a sentence."""
        best, chosen = self.rows[0], self.recommended
        if best.error is not None:
            return f"No settings could be compared. The first failed: {best.error}"
        figure = f"{self.criterion} {percent(getattr(chosen, self.criterion))}"
        doubt = "" if self.criterion == "accuracy" else " Without labels this is a guess: label some rows."
        if chosen.name != self.current:
            mine = self._current
            beside = "" if mine is None else f", against {percent(getattr(mine, self.criterion))} of yours"
            return f"Take {chosen.name}: {figure}{beside} ({self.current}).{doubt}"
        if best.name == chosen.name:
            return f"Keep your settings ({self.current}): {figure}, the best.{doubt}"
        lead = f"{best.name} has {percent(getattr(best, self.criterion))}"
        return f"Keep your settings ({self.current}): {figure}; {lead}, which is not clearly better.{doubt}"

    @property
    def _current(self) -> Configuration | None:
        return next((row for row in self.rows if row.name == self.current), None)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Configuration]:
        return iter(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON. None replaces NaN."""
        return {
            "criterion": self.criterion,
            "student": self.student,
            "n_rows": self.n_rows,
            "n_labels": self.n_labels,
            "n_classes": self.n_classes,
            "n_groups": self.n_groups,
            "current": self.current,
            "recommended": self.recommended.name,
            "recommendation": self.recommendation,
            "remarks": list(self.remarks),
            "rows": [{"name": row.name, **plain(row)} for row in self.rows],
        }

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row for each configuration."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        records = []
        for row in self.rows:
            values = asdict(row)
            low, high = values.pop("interval")
            records.append({"name": row.name, **values, "low": low, "high": high})
        return pandas.DataFrame(records)

    def __repr__(self) -> str:
        view = self.to_dict()
        lines = [title(view), "", *aligned(headers(view), [cells(row, view) for row in view["rows"]]), ""]
        return "\n".join([*lines, *remarks(view), self.recommendation])


def title(view: dict[str, Any]) -> str:
    """Return what was compared, from `Comparison.to_dict`."""
    over = f"{counted(view['n_rows'], 'row')} of {counted(view['n_classes'], 'class')}"
    return f"{counted(len(view['rows']), 'way')} to unify by {view['criterion']}, best first ({over})"


def headers(view: dict[str, Any]) -> list[str]:
    """Return the columns of the table; ">" marks those to be right-aligned."""
    measured = [">accuracy", "interval"] if view["n_labels"] else []
    return ["", "settings", *measured, ">support", ">agreement", ">coverage", ">seconds"]


def cells(row: dict[str, Any], view: dict[str, Any]) -> list[str]:
    """Return one line of the table; a star marks the settings in use."""
    mark = "*" if row["name"] == view["current"] else ""
    if row["error"] is not None:
        blank = [""] * (len(headers(view)) - 3)
        return [mark, row["name"], *blank, "failed"]
    measured = []
    if view["n_labels"]:
        low, high = row["interval"]
        measured = [percent(row["accuracy"]), f"{percent(low)} to {percent(high)}"]
    figures = [percent(row[name]) for name in ("support", "agreement", "coverage")]
    return [mark, row["name"], *measured, *figures, f"{row['seconds']:.1f}"]


def remarks(view: dict[str, Any]) -> list[str]:
    """Return what to know about the table."""
    found = [f"*: your settings. The student is {view['student']}. Figures are of rows that it has not seen."]
    if view["n_groups"] > 1:
        found.append(
            f"{view['n_groups']} groups of classes share no teacher: agreement does not tell them apart."
        )
    found += view["remarks"]
    found += [f"{row['name']} failed: {row['error']}" for row in view["rows"] if row["error"] is not None]
    return found

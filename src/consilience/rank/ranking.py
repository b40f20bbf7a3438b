"""The result of `consilience.rank_teachers`: teachers, best first, and how certain their order is."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience._words import counted
from consilience.exceptions import InvalidInputError, visible
from consilience.inspect.drawing import Block, dots, drawing
from consilience.inspect.page import (
    Column,
    Told,
    check_report,
    columns_of,
    facts,
    frame,
    page,
    plain,
    section,
    table,
    versions,
    write_page,
)

if TYPE_CHECKING:
    from consilience.teachers import Teacher


@dataclass(frozen=True, eq=False)
class RankedTeacher:
    """One teacher and its score.

    Attributes
    ----------
    teacher : Teacher or None
        None if the given object could not be made into a teacher.
    name : str
    score : float
        Higher is better for every metric. Minus infinity if the teacher failed.
    interval : (float, float)
        Bootstrap interval of the score over the rows. NaN if the teacher failed, or without resamples.
    wins : float
        The share of resamples in which this teacher has the best score. NaN without resamples.
    seconds : float
        Wall time, including the teacher's own.
    warnings : tuple of str
    error : str or None
        Why the teacher has no score.
    scores : mapping
        The score of every metric requested. NaN if a metric could not be computed.
    partial : bool
        Whether the score covers fewer classes than the others, because the teacher abstains on the rest.

    Examples
    --------
    >>> row = RankedTeacher(None, "pets", 0.8, (0.7, 0.9), 0.6, 0.1)
    >>> row.name, row.score, row.error is None
    ('pets', 0.8, True)
    """

    teacher: Teacher | None
    name: str
    score: float
    interval: tuple[float, float]
    wins: float
    seconds: float
    warnings: tuple[str, ...] = ()
    error: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    partial: bool = False

    @property
    def remarks(self) -> str:
        """What to tell beside the figures."""
        failed = [] if self.error is None else [f"failed: {self.error}"]
        return visible("; ".join([*failed, *self.warnings]))


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Told):
    """Teachers by score, best first; see `consilience.rank_teachers`.

    Attributes
    ----------
    rows : tuple of RankedTeacher
        Teachers that failed come last, in the order given. Before them come those with partial scores.
    metric : str
        The metric that decides the order.
    n_rows : int
        Rows of X.
    n_classes : int
        Classes of y.
    confidence : float or None
        The confidence of the intervals, if there are any.

    Examples
    --------
    >>> from consilience import as_teacher, rank_teachers
    >>> y = ["cat", "dog"] * 20
    >>> unsure = as_teacher([[0.6, 0.4], [0.5, 0.5]] * 20, ["wolf", "lion"], name="unsure")
    >>> sure = as_teacher([[0.1, 0.9], [0.9, 0.1]] * 20, ["wolf", "lion"], name="sure")
    >>> ranking = rank_teachers([unsure, sure], range(40), y, metric="leep")
    >>> ranking.best.name, [row.name for row in ranking]
    ('sure', ['sure', 'unsure'])
    """

    rows: tuple[RankedTeacher, ...]
    metric: str
    n_rows: int
    n_classes: int
    confidence: float | None

    @property
    def best(self) -> Teacher:
        """The teacher with the highest score."""
        first = self.rows[0]
        if first.error is not None or first.teacher is None:
            raise InvalidInputError(f"No teacher could be scored. The first one failed: {first.error}")
        return first.teacher

    def scored_teachers(self) -> list[tuple[str, Teacher, float]]:
        """Return name, teacher and score of each teacher that has a score, best first."""
        return [
            (row.name, row.teacher, row.score)
            for row in self.rows
            if row.teacher is not None and math.isfinite(row.score)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[RankedTeacher]:
        return iter(self.rows)

    def __getitem__(self, place: int) -> RankedTeacher:
        return self.rows[place]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the teachers themselves, ready for JSON. None replaces non-finite numbers."""
        names = ("name", "score", "interval", "wins", "seconds", "warnings", "error", "partial", "scores")
        rows = [
            {"rank": rank, **{name: plain(getattr(row, name)) for name in names}}
            for rank, row in enumerate(self.rows, 1)
        ]
        about = ("metric", "n_rows", "n_classes", "confidence")
        return {**{name: getattr(self, name) for name in about}, "teachers": rows}

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per teacher."""
        records = [
            {
                "teacher": row.name,
                "score": row.score,
                **dict(zip(("low", "high"), row.interval, strict=True)),
                "wins": row.wins,
                "seconds": row.seconds,
                **{name: row.scores.get(name, math.nan) for name in self._others},
                "warnings": "; ".join(row.warnings),
                "error": row.error,
            }
            for row in self.rows
        ]
        found = frame(records, index=range(1, len(records) + 1))
        found.index.name = "rank"
        return found

    @property
    def _others(self) -> list[str]:
        """The metrics that do not rank."""
        return list(dict.fromkeys(name for row in self.rows for name in row.scores if name != self.metric))

    def table(self) -> Block:
        """Return all teachers as a table."""
        rows = self.rows
        ends = [("low", "number", [row.interval[0] for row in rows])]
        ends.append(("high", "number", [row.interval[1] for row in rows]))
        resampled = [*ends, *columns_of(rows, ("wins", "bar", "wins"))]
        columns: list[Column] = [
            ("rank", "place", range(1, len(rows) + 1)),
            *columns_of(rows, ("teacher", "name", "name"), (self.metric, "number", "score")),
            *(resampled if any(math.isfinite(row.wins) for row in rows) else []),
            *((name, "number", [row.scores.get(name) for row in rows]) for name in self._others),
            ("seconds", "number", [round(row.seconds, 3) for row in rows]),
            *columns_of(rows, ("", "text", "remarks")),
        ]
        partial = [place for place, row in enumerate(rows) if row.partial]
        note = "Marked teachers abstain on some classes: their scores cover fewer." if partial else ""
        title = f"{counted(len(rows), 'teacher')} by {self.metric}, best first ({self.size})"
        return table(title, columns, note=note, marked=partial)

    @property
    def size(self) -> str:
        """The rows and classes of the task, in words."""
        return f"{counted(self.n_rows, 'row')} of {counted(self.n_classes, 'class')}"

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the ranking as one page, an HTML file that needs nothing else, and return its path.

        Parameters
        ----------
        path : path
            A file name that ends in ``.html``, in a folder that exists.
        """
        return write_page(check_report(path), ranking_page(self))

    def told(self) -> list[str | Block]:
        """Return the table with its caption, and what wins are."""
        found = self.table()
        wins = "wins: the share of resamples of the rows in which a teacher is the best"
        return [found["caption"], found, wins if self.confidence else ""]


def ranking_page(ranking: Ranking) -> Block:
    """Return the page of a ranking as plain data."""
    good = [row for row in ranking.rows if row.error is None]
    read = "The first metric decides the order."
    if ranking.confidence is not None:
        read += (
            f" Intervals cover {100 * ranking.confidence:g}% of the resamples of the rows: where they "
            "overlap much, the order is a guess. Wins: the share of resamples in which a teacher is the best."
        )
    figures = [
        (f"{len(ranking.rows):,}", "teacher" if len(ranking.rows) == 1 else "teachers"),
        (f"{ranking.n_rows:,}", "labelled rows"),
        (f"{ranking.n_classes:,}", "classes"),
    ]
    if good and math.isfinite(good[0].wins):
        figures.append((f"{100 * good[0].wins:.0f}%", "of resamples are won by the first"))
    if len(good) < len(ranking.rows):
        figures.append((f"{len(ranking.rows) - len(good):,}", "without a score"))
    points = [(row.name, [plain([row.score, *row.interval])]) for row in good]
    title = f"{ranking.metric}, with intervals"
    drawn = drawing(dots, title, series=["score"], rows=points, form="number") if good else None
    return page(
        f"{counted(len(ranking.rows), 'teacher')}, ranked for your task",
        f"How much each would help with {ranking.size}, by {ranking.metric}, without training on any. Higher "
        "is better.",
        figures,
        [
            section("Which teacher would help most?", read, drawn, ranking.table()),
            section(
                "Settings and versions",
                "",
                facts({"metric": ranking.metric, "rows and classes": ranking.size}),
                versions(),
            ),
        ],
    )

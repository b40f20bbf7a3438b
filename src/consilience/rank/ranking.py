"""The result of `consilience.rank_teachers`: teachers, best first, and how certain their order is."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience._optional import require
from consilience._words import counted, visible
from consilience.exceptions import InvalidInputError

if TYPE_CHECKING:
    from consilience.teachers import Teacher

BAR, SHORTEST_BAR = 20, 5  # characters of the longest bar, and the shortest one worth drawing
WIDTH = 100  # columns of a printed ranking
LONGEST_NAME = 40  # of a teacher, when printed


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


@dataclass(frozen=True, eq=False)
class Ranking:
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
        return {
            "metric": self.metric,
            "n_rows": self.n_rows,
            "n_classes": self.n_classes,
            "confidence": self.confidence,
            "teachers": [
                {
                    "rank": rank,
                    "name": row.name,
                    "score": _finite(row.score),
                    "interval": [_finite(end) for end in row.interval],
                    "wins": _finite(row.wins),
                    "bar": share,
                    "seconds": row.seconds,
                    "warnings": list(row.warnings),
                    "error": row.error,
                    "partial": row.partial,
                    "scores": {name: _finite(value) for name, value in row.scores.items()},
                }
                for rank, (row, share) in enumerate(zip(self.rows, bars(self), strict=True), 1)
            ],
        }

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per teacher."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        others = [name for name in self.rows[0].scores if name != self.metric]
        records = [
            {
                "teacher": row.name,
                "score": row.score,
                "low": row.interval[0],
                "high": row.interval[1],
                "wins": row.wins,
                "seconds": row.seconds,
                **{name: row.scores.get(name, math.nan) for name in others},
                "warnings": "; ".join(row.warnings),
                "error": row.error,
            }
            for row in self.rows
        ]
        return pandas.DataFrame(records, index=pandas.RangeIndex(1, len(records) + 1, name="rank"))

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the ranking as one page, an HTML file that needs nothing else, and return its path.

        Parameters
        ----------
        path : path
            A file name that ends in ``.html``, in a folder that exists.
        """
        from consilience.inspect.page import check_report, write_page
        from consilience.rank.report import ranking_page

        return write_page(check_report(path), ranking_page(self.to_dict()))

    def __repr__(self) -> str:
        lines = [self._title(), *_printed(self)]
        lines += [f"     {visible(row.name)}: {text}" for row in self.rows for text in row.warnings]
        if any(math.isfinite(row.wins) for row in self.rows):
            lines.append("     wins: the share of resamples of the rows in which a teacher is the best")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        columns = _columns(self)
        names = ["", "teacher", *(title for title, _ in columns), "", "remarks"]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = []
        for place, (row, share) in enumerate(zip(self.rows, bars(self), strict=True)):
            remarks = [] if row.error is None else [f"failed: {row.error}"]
            bar = f"<div style='background:#4c78a8;height:0.8em;width:{max(1, round(100 * share))}px'></div>"
            cells = (
                str(place + 1),
                html.escape(row.name),
                *(html.escape(column[place]) for _, column in columns),
                "" if row.error is not None else bar,
                html.escape("; ".join([*remarks, *row.warnings])),
            )
            body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        title = html.escape(self._title())
        return f"<table><caption>{title}</caption><tr>{head}</tr>{''.join(body)}</table>"

    def _title(self) -> str:
        over = f"{counted(self.n_rows, 'row')} of {counted(self.n_classes, 'class')}"
        return f"{counted(len(self.rows), 'teacher')} by {self.metric}, best first ({over})"


def _columns(ranking: Ranking) -> list[tuple[str, list[str]]]:
    """Return the title and the cells of each column: score, interval, wins, and the further metrics."""
    rows = ranking.rows
    columns = [(ranking.metric, [_number(row.score) for row in rows])]
    if any(math.isfinite(row.wins) for row in rows):
        columns.append(("interval", [interval_text(row) for row in rows]))
        columns.append(
            ("wins", [f"{100 * row.wins:.0f}%" if math.isfinite(row.wins) else "" for row in rows])
        )
    others = dict.fromkeys(name for row in rows for name in row.scores if name != ranking.metric)
    scores = [(name, [_number(row.scores.get(name, math.nan)) for row in rows]) for name in others]
    return columns + scores


def _printed(ranking: Ranking) -> list[str]:
    """Return the lines of the table. Columns beyond its width continue below, with the names again."""
    names = [_shortened(visible(row.name)) for row in ranking.rows]
    width = max(map(len, ["teacher", *names]))
    first = [f"     {'teacher':<{width}}", *(f"{i:>3}  {name:<{width}}" for i, name in enumerate(names, 1))]
    blocks = [list(first)]
    for title, cells in _columns(ranking):
        wide = max(map(len, [title, *cells]))
        if len(blocks[-1][0]) + 2 + wide > WIDTH and len(blocks[-1][0]) > len(first[0]):
            blocks.append(list(first))
        blocks[-1] = [
            f"{line}  {cell:>{wide}}" for line, cell in zip(blocks[-1], [title, *cells], strict=True)
        ]
    longest = min(BAR, WIDTH - 2 - len(blocks[0][0]))
    for place, (row, share) in enumerate(zip(ranking.rows, bars(ranking), strict=True), 1):
        if row.error is not None:
            blocks[0][place] = f"{first[place]}  failed: {row.error}"
        elif longest >= SHORTEST_BAR:
            blocks[0][place] += "  " + "█" * max(1, round(longest * share))
    return [line.rstrip() for block in blocks for line in block]


def _shortened(name: str) -> str:
    """Return a name without its middle if it is long; its ends tell files apart."""
    if len(name) <= LONGEST_NAME:
        return name
    half = LONGEST_NAME // 2
    return f"{name[: half - 1]}…{name[-half:]}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else ""


def bars(ranking: Ranking) -> list[float]:
    """Return the length of each row's bar, from 0 for the worst score to 1 for the best."""
    scores = [row.score for row in ranking.rows if row.error is None]
    low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
    reach = high - low
    return [
        0.0 if row.error is not None else (row.score - low) / reach if reach > 0 else 1.0
        for row in ranking.rows
    ]


def interval_text(row: RankedTeacher) -> str:
    """Return an interval as text, or "" if there is none."""
    low, high = row.interval
    return f"[{low:.4g}, {high:.4g}]" if math.isfinite(low) and math.isfinite(high) else ""


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

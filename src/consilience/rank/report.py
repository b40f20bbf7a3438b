"""The page of a ranking, from `Ranking.to_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience._words import counted, visible
from consilience.inspect.blocks import Block, column, dots, facts, page, section, table, versions


def ranking_page(view: Mapping[str, Any]) -> Block:
    """Return the page of a ranking as plain data.

    Parameters
    ----------
    view : mapping
        The result of `Ranking.to_dict`; `seed` in it is shown, too.
    """
    rows = view["teachers"]
    good = [row for row in rows if row["error"] is None]
    failed = [row for row in rows if row["error"] is not None]
    noted = [[row["name"], visible(text)] for row in rows for text in row["warnings"]]
    over = f"{counted(view['n_rows'], 'row')} of {counted(view['n_classes'], 'class')}"
    sections = [
        section("Which teacher would help most?", _how_to_read(view), *_ranked(view, good)) if good else None,
        section(
            "Which failed?",
            "They have no score, for the reason given.",
            table(
                "Teachers without a score",
                [column("teacher", "name"), column("why")],
                [[row["name"], visible(row["error"])] for row in failed],
            ),
        )
        if failed
        else None,
        section(
            "What to keep in mind",
            "",
            table("Remarks", [column("teacher", "name"), column("remark")], noted),
        )
        if noted
        else None,
        section(
            "Settings and versions",
            "",
            facts({"metric": view["metric"], "rows and classes": over, "seed": view.get("seed")}),
            facts(versions()),
        ),
    ]
    return page(
        f"{counted(len(rows), 'teacher')}, ranked for your task",
        f"How much each would help with {over}, by {view['metric']}, without training on any. Higher is "
        "better.",
        _figures(view, rows, good),
        sections,
    )


def _figures(view: Mapping[str, Any], rows: list[Any], good: list[Any]) -> list[tuple[str, str]]:
    figures = [
        (f"{len(rows):,}", "teacher" if len(rows) == 1 else "teachers"),
        (f"{view['n_rows']:,}", "labelled rows"),
        (f"{view['n_classes']:,}", "classes"),
    ]
    if good and good[0]["wins"] is not None:
        figures.append((f"{100 * good[0]['wins']:.0f}%", "of resamples are won by the first"))
    if len(good) < len(rows):
        figures.append((f"{len(rows) - len(good):,}", "without a score"))
    return figures


def _how_to_read(view: Mapping[str, Any]) -> str:
    first = "The first metric decides the order."
    if view["confidence"] is None:
        return first
    return (
        f"{first} Intervals cover {100 * view['confidence']:g}% of the resamples of the rows: where they "
        "overlap much, the order is a guess. Wins: the share of resamples in which a teacher is the best."
    )


def _ranked(view: Mapping[str, Any], good: list[Any]) -> list[Block]:
    metric = view["metric"]
    others = list(dict.fromkeys(name for row in good for name in row["scores"] if name != metric))
    points = [(row["name"], [[row["score"], *row["interval"]]]) for row in good]
    heads = [
        column("rank", "place"),
        column("teacher", "name"),
        column(metric, "number"),
        column("low", "number"),
        column("high", "number"),
        column("wins", "percent", bar=True),
        *(column(name, "number") for name in others),
        column("seconds", "number"),
    ]
    cells = [
        [
            row["rank"],
            row["name"],
            row["score"],
            *row["interval"],
            row["wins"],
            *(row["scores"].get(name) for name in others),
            round(row["seconds"], 3),
        ]
        for row in good
    ]
    marked = [i for i, row in enumerate(good) if row["partial"]]
    note = "Marked teachers abstain on some classes: their scores cover fewer." if marked else ""
    return [
        dots(f"{metric}, with intervals", ["score"], points, form="number"),
        table("Teachers, best first", heads, cells, note=note, marked=marked),
    ]

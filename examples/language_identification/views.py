"""Print the results of the commands as tables, from the same mappings that ``--json`` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from examples.language_identification.comparison import UNIFIED
from examples.language_identification.evaluation import CEILING, GROUPS, Evaluation
from examples.language_identification.languages import CODES, all_classes, before_split, classes_of, name_of
from examples.language_identification.texts import Texts
from rich.markup import escape

from consilience._words import shorten
from consilience.cli.console import console, facts_table, plain_table


def show_texts(texts: Texts, *, samples: int = 0) -> None:
    """Print where the text comes from, and some of it."""
    out = console()
    table = plain_table("from", ">files", ">broken", ">messages", ">rows taken")
    for source in texts.sources:
        figures = (source.files, source.broken, source.messages, source.rows)
        table.add_row(escape(source.name), *(f"{figure:,}" for figure in figures))
    out.print(table)
    count = _counted(len(texts.rows), "row")
    out.print(f"\n[bold]{count} of text.[/] The names of files are not used as labels.")
    for row in texts.rows[:samples]:
        out.print(f"  {escape(row)}", no_wrap=True, overflow="ellipsis")


def unified_view(unifier: Any, n_rows: int, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return what a unifier did, as values that JSON can hold.

    Parameters
    ----------
    unifier : Unifier
        After `fit`.
    n_rows : int
    seconds : mapping
        The times of earlier steps.
    """
    space = unifier.label_space_
    return {
        "teachers": [
            {
                "name": name,
                "n_classes": len(before_split(name, classes.tolist())),
                "abstentions": int(silent),
                "temperature": float(T),
            }
            for name, classes, silent, T in zip(
                space.names, space.class_lists, unifier.n_abstentions_, unifier.temperatures_, strict=True
            )
        ],
        "n_rows": n_rows,
        "n_classes": space.n_classes,
        "method": unifier.method_.name,
        "off_set": getattr(unifier.method_, "off_set", False),
        "seconds": {**seconds, **unifier.seconds_},
    }


def unified(view: Mapping[str, Any]) -> list[Any]:
    """Draw the result of `unified_view`, with the model's file and its size."""
    table = plain_table("teacher", ">languages", ">abstains on", ">temperature")
    for one in view["teachers"]:
        figures = (f"{one['n_classes']}", _counted(one["abstentions"], "row"), f"{one['temperature']:.2f}")
        table.add_row(escape(one["name"]), *figures)
    facts = {
        "languages": str(view["n_classes"]),
        "rows": f"{view['n_rows']:,}",
        "method": view["method"] + (", off-set weighting" if view["off_set"] else ""),
        "seconds": ", ".join(f"{step} {seconds:.1f}" for step, seconds in view["seconds"].items()),
        "model": f"{view['model']}, {view['bytes'] / 1e6:.1f} MB",
        "scores kept in": view["cache"],
    }
    return [table, "", facts_table(facts)]


def evaluation_view(evaluation: Evaluation, speed: Mapping[str, float]) -> dict[str, Any]:
    """Return an evaluation and the speed of the systems, as values that JSON can hold."""
    view = evaluation.to_dict()
    view["texts_per_second"] = dict(speed)
    teachers = [rate for name, rate in speed.items() if name != UNIFIED]
    if teachers:
        view["texts_per_second_of_all_teachers"] = 1 / sum(1 / rate for rate in teachers)
    return view


def evaluation(view: Mapping[str, Any], *, per_language: bool) -> Iterator[Any]:
    """Draw the result of `evaluation_view`."""
    groups = [group for group in view["groups"] if group["name"] != "none"]
    speed = view["texts_per_second"]
    heads = [f">{_HEADS[group['name']]}" for group in groups]
    table = plain_table("", ">knows", ">accuracy", ">macro", *heads, *([">texts/s"] if speed else []))
    for system in view["systems"]:
        cells = [
            str(system["languages"] or ""),
            _percent(system["accuracy"]),
            _percent(system["macro"]),
            *(_percent(system["by_group"][group["name"]]) for group in groups),
        ]
        if speed:
            cells.append(f"{speed[system['name']]:,.0f}" if system["name"] in speed else "")
        style = {UNIFIED: "bold", CEILING: "dim"}.get(system["name"])
        table.add_row(escape(system["name"]), *cells, style=style)
    yield table
    yield ""
    for group in groups:
        sentences = f"{_counted(group['rows'], 'sentence')} in {_counted(group['languages'], 'language')}"
        yield f"{_HEADS[group['name']]}: {sentences} that {_KNOWN[group['name']]}."
    unknown = [one["code"] for one in view["by_language"] if one["teachers"] == 0]
    if unknown:
        yield (
            f"In languages that no teacher knows ({escape(shorten(unknown, 20))}): {view['uncovered']:,} of "
            f"{_counted(view['rows'], 'sentence')}, all counted as errors."
        )
    if speed.get(UNIFIED) and "texts_per_second_of_all_teachers" in view:
        ratio = speed[UNIFIED] / view["texts_per_second_of_all_teachers"]
        yield f"The unified model is {ratio:,.0f} times as fast as the teachers one after the other."
    if per_language:
        yield ""
        yield _by_language(view["by_language"])


_HEADS = dict(zip(GROUPS, ("by all", "by some", "by one", "by none"), strict=True))
_KNOWN = dict(
    zip(GROUPS, ("all teachers know", "some know", "one teacher knows", "no teacher knows"), strict=True)
)


def _by_language(languages: Sequence[Mapping[str, Any]]) -> Any:
    table = plain_table("", "language", ">rows", ">known by", ">accuracy", ">best teacher", "taken for")
    for one in languages:
        taken = ", ".join(f"{code or 'nothing'} {_percent(share)}" for code, share in one["confusions"])
        figures = (str(one["rows"]), str(one["teachers"]), _percent(one["accuracy"]))
        table.add_row(
            one["code"], escape(name_of(one["code"])), *figures, _percent(one["best_teacher"]), taken
        )
    return table


def languages_view() -> list[dict[str, Any]]:
    """Return every language, its name, and which identifiers know it."""
    known = {name: set(classes_of(name)) for name in CODES}
    return [
        {"code": code, "name": name_of(code), "known_by": [name for name in known if code in known[name]]}
        for code in all_classes()
    ]


def show_languages(view: Sequence[Mapping[str, Any]]) -> None:
    """Print the result of `languages_view`."""
    table = plain_table("", "language", *CODES)
    for one in view:
        marks = ("✓" if name in one["known_by"] else "" for name in CODES)
        table.add_row(one["code"], escape(one["name"]), *marks)
    out = console()
    out.print(table)
    shared = sum(len(one["known_by"]) == len(CODES) for one in view)
    out.print(f"\n{len(view)} languages; {shared} of them are known to all {len(CODES)} identifiers.")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"

"""The parts of a report that tell how good a classifier is, from `Evaluation.to_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience._words import counted, percent
from consilience.inspect.blocks import Block, column, dots, facts, page, remarks, section, table
from consilience.inspect.evaluation import worst_first

MOST_CONFUSED = 30  # pairs of classes


def evaluation_page(view: Mapping[str, Any], title: str = "How good is the model?") -> Block:
    """Return the page of an evaluation alone.

    Parameters
    ----------
    view : mapping
        The result of `Evaluation.to_dict`.
    title : str
    """
    return page(
        title,
        f"A classifier of {counted(view['n_classes'], 'class')}, measured on "
        f"{counted(view['n_rows'], 'row')} with labels.",
        [
            (percent(view["accuracy"]), "accuracy"),
            (percent(view["balanced_accuracy"]), "balanced accuracy"),
            (f"{view['n_rows']:,}", "labelled rows"),
            (f"{view['n_classes']:,}", "classes"),
        ],
        evaluation_sections(view),
    )


def evaluation_sections(view: Mapping[str, Any]) -> list[Block]:
    """Return the sections about the whole and about each class.

    Parameters
    ----------
    view : mapping
        The result of `Evaluation.to_dict`.
    """
    low, high = map(percent, view["interval"])
    level = f"{100 * view['confidence']:g}%"
    lost = len(view["lost"])
    warned = [f"{counted(lost, 'class')} nearly lost: marked in the table of classes below."] if lost else []
    spoken = [*warned, *view["remarks"]]
    return [
        section(
            "How good is it?",
            "Each line puts another classifier beside the model, on the same rows and for the same question. "
            "Beside a teacher, the rows are those of its classes, and the question is which of these a row "
            "is.",
            facts(
                {
                    "accuracy": f"{percent(view['accuracy'])} ({level} interval: {low} to {high})",
                    "balanced accuracy": percent(view["balanced_accuracy"]),
                    "log-loss": f"{view['log_loss']:.3f}",
                    "calibration error": f"{percent(view['calibration_error'])} ({view['n_bins']} bins)",
                    "rows with a label": f"{view['n_rows']:,}",
                    "rows without": f"{view['n_unlabelled']:,}, left out" if view["n_unlabelled"] else None,
                }
            ),
            remarks(spoken) if spoken else None,
            _beside_drawing(view) if view["compared"] else None,
            _beside_table(view) if view["compared"] else None,
        ),
        section(
            "Which classes are hard?",
            "The worst come first. The best teacher is the one that finds most rows of the class among its "
            "own classes.",
            _class_table(view),
            _confused_table(view) if view["confused"] else None,
        ),
    ]


def _beside_drawing(view: Mapping[str, Any]) -> Block:
    rows = [
        (
            row["name"],
            [[row[side]["accuracy"], *row[side]["interval"]] for side in ("model", "other")],
        )
        for row in view["compared"]
    ]
    level = f"{100 * view['confidence']:g}%"
    return dots(f"Accuracy beside others, with {level} intervals", ["the model", "the other"], rows)


def _beside_table(view: Mapping[str, Any]) -> Block:
    figures = ("accuracy", "balanced_accuracy", "log_loss", "calibration_error")
    words = ("accuracy", "balanced", "log-loss", "calibration error")
    heads = []
    for word, name in zip(words, figures, strict=True):
        form: Any = "number" if name == "log_loss" else "percent"
        heads += [column(word, form), column("model's", form)]
    rows = [
        [
            row["name"],
            row["other"]["n_rows"],
            row["n_classes"],
            *(row[side][name] for name in figures for side in ("other", "model")),
        ]
        for row in view["compared"]
    ]
    heads = [column("beside", "name"), column("rows", "count"), column("classes", "count"), *heads]
    return table("All figures", heads, rows)


def _class_table(view: Mapping[str, Any]) -> Block:
    by_class = worst_first(view["by_class"])
    told = any(row["teacher"] is not None for row in by_class)
    heads = [
        column("class", "name"),
        column("recall", "percent", bar=True),
        column("precision", "percent"),
        column("rows", "count"),
        column("predicted", "count"),
    ]
    if told:
        heads += [column("best teacher", "name"), column("its recall", "percent")]
    rows = [
        [row[key] for key in ("name", "recall", "precision", "n_rows", "n_predicted")]
        + ([row["teacher"], row["teacher_recall"]] if told else [])
        for row in by_class
    ]
    marked = [i for i, row in enumerate(by_class) if row["lost"]]
    note = (
        "Marked classes are nearly lost: less than 10% of at least five rows are found, or none is predicted."
    )
    return table("Classes", heads, rows, note=note if marked else "", marked=marked)


def _confused_table(view: Mapping[str, Any]) -> Block:
    heads = [
        column("class", "name"),
        column("taken for", "name"),
        column("rows", "count"),
        column("of the class", "percent", bar=True),
    ]
    rows = [
        [pair["truth"], pair["predicted"], pair["n_rows"], pair["share"]]
        for pair in view["confused"][:MOST_CONFUSED]
    ]
    return table("Confused most often", heads, rows)

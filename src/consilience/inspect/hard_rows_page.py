"""The parts of a report about what is doubtful: hard rows, and names that may not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from consilience._words import shorten
from consilience.inspect.aliases import find_suggestions
from consilience.inspect.blocks import Block, column, section, table
from consilience.inspect.explain import compare_decisions
from consilience.inspect.page_tables import least_sure
from consilience.inspect.suggestions import MOST_NAMES, AliasSuggestions
from consilience.inspect.truth import Truth
from consilience.kernels.arrays import Floats, Ints
from consilience.labels import LabelSpace

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier

MOST_ROWS = 30  # hard rows of each kind
MOST_COLUMNS = 4000  # packed columns up to which names are compared
ALIAS_ROWS = 2000  # rows on which they are


def hard_rows_section(
    unified: Unifier,
    logits: Floats,
    rows: Ints,
    which: str,
    proba: Floats | None,
    truth: Truth | None,
) -> Block:
    """Return rows by their position: where teachers contradict each other, what is unsure, what is wrong.

    Parameters
    ----------
    unified : Unifier
    logits : (k, m) array
        Packed logits, divided by temperatures.
    rows : (k,) array of int
        The positions of their rows.
    which : str
        These rows, in words.
    proba : (n, L) array or None
        The student's probabilities for X.
    truth : Truth or None
        The true classes of X.
    """
    space, Q = unified.label_space_, unified.soft_labels_
    own = proba is not None and len(proba) == len(logits)  # the teachers answered about X, too
    believed = proba if own else None if Q is None else Q[rows]
    every = np.flatnonzero(unified.covered_) if proba is None else np.arange(len(proba))
    names = space.classes.tolist()
    parts = []
    if believed is not None:
        parts.append(_contradictions(logits, believed, rows, which, space, with_student=own))
    if proba is not None:
        parts.append(least_sure("Rows that the model is least sure of", proba, every, names, MOST_ROWS))
    elif Q is not None:
        parts.append(least_sure("Rows whose soft labels are least sure", Q, every, names, MOST_ROWS))
    if proba is not None and truth is not None:
        parts.append(_sure_and_wrong(proba, truth))
    text = (
        "Rows are known by their position, counted from 0. Look at them first: they show names that do not "
        "fit, teachers that err, and classes that are hard to tell apart."
    )
    return section("Which rows are hard?", text, *parts)


def _contradictions(
    logits: Floats, believed: Floats, rows: Ints, which: str, space: LabelSpace, *, with_student: bool
) -> Block:
    found = compare_decisions(logits, believed, space, len(logits))
    cells = [
        [
            int(rows[row.row]),
            row.one,
            row.one_says,
            row.one_sure,
            "the model" if row.kind == "student" else row.other,
            row.other_says,
            row.other_sure,
        ]
        for row in found.rows
        if with_student or row.kind == "teachers"
    ]
    heads = [column("row", "place")]
    for first in ("one", "another"):
        heads += [column(first, "name"), column("says", "name"), column("how sure", "percent")]
    also = f" The model left a teacher on {found.n_left:,}." if with_student else ""
    note = (
        f"Teachers contradict each other on {found.n_contradicted:,} rows: both know both classes.{also} "
        f"Of {which}."
    )
    return table("Contradictions, worst first", heads, cells[:MOST_ROWS], note=note)


def _sure_and_wrong(proba: Floats, truth: Truth) -> Block:
    decided, sure, codes = proba.argmax(axis=1), proba.max(axis=1), truth.labels
    wrong = np.flatnonzero((codes >= 0) & (decided != codes))
    order = wrong[np.argsort(-sure[wrong], kind="stable")][:MOST_ROWS]
    names = truth.names
    likelihood = [float(proba[row, k]) if (k := codes[row]) < truth.n_classes else 0.0 for row in order]
    cells = [
        [row, names[codes[row]], names[decided[row]], float(sure[row]), likely]
        for row, likely in zip(order.tolist(), likelihood, strict=True)
    ]
    heads = [
        column("row", "place"),
        column("label", "name"),
        column("the model says", "name"),
        column("how sure", "percent", bar=True),
        column("of the label", "percent"),
    ]
    note = (
        f"{len(wrong):,} of {int((codes >= 0).sum()):,} labelled rows are wrong. Surest first: a label "
        "may be wrong, too."
    )
    return table("Wrong, and sure of it", heads, cells, note=note)


def alias_section(unified: Unifier, logits: Floats, rows: Ints, which: str) -> Block | None:
    """Return names that are likely one class, or two; None for a single teacher."""
    space = unified.label_space_
    if space.n_teachers < 2:
        return None
    title = "Do the names fit?"
    if space.n_columns > MOST_COLUMNS:
        return section(
            title,
            f"The teachers have {space.n_columns:,} classes together. Names are compared here up to "
            f"{MOST_COLUMNS:,}; suggest_aliases(teachers, X) compares these.",
        )
    found = find_suggestions(logits, space, unified.aliases or {}, ALIAS_ROWS)
    text = (
        "Teachers that mean the same class rank the same rows first, whatever they call it. Judged by "
        f"{found.n_rows:,} of {which}. Nothing of this is applied: look at the rows, then pass what you "
        "believe as aliases."
    )
    if not len(found):
        return section(title, f"{text} All names seem to fit.")
    return section(title, text, *_suggestion_tables(found, rows))


def _suggestion_tables(found: AliasSuggestions, rows: Ints) -> list[Block]:
    parts = []
    if found.same_class:
        heads = [
            column("alias", "name"),
            column("of", "name"),
            column("is likely", "name"),
            column("of", "name"),
            column("agreement", "number"),
            column("spelling", "number"),
            column("rows"),
        ]
        cells = [
            [
                pair.alias,
                shorten(pair.alias_teachers, MOST_NAMES),
                pair.name,
                shorten(pair.name_teachers, MOST_NAMES),
                round(pair.agreement, 2),
                None if pair.spelling is None else round(pair.spelling, 2),
                shorten(rows[list(pair.rows)].tolist()),
            ]
            for pair in found.same_class
        ]
        parts.append(table("Names that are likely one class", heads, cells))
    if found.same_name:
        heads = [
            column("name", "name"),
            column("of", "name"),
            column("is likely not that of", "name"),
            column("agreement", "number"),
            column("rows"),
        ]
        cells = [
            [
                pair.name,
                shorten(pair.teachers, MOST_NAMES),
                shorten(pair.other_teachers, MOST_NAMES),
                round(pair.agreement, 2),
                shorten(rows[list(pair.rows)].tolist()),
            ]
            for pair in found.same_name
        ]
        parts.append(table("Names that are likely two classes", heads, cells))
    return parts

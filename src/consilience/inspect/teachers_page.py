"""The parts of a report about teachers: what they know, where they agree, and their soft labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from consilience._words import percent
from consilience.inspect.blocks import (
    Block,
    column,
    facts,
    heat,
    histogram,
    incidence,
    remarks,
    section,
    table,
)
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.soft_labels.agreement import TeacherAgreement, teacher_agreement
from consilience.soft_labels.methods import spread_out

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier

BINS = 20  # of a histogram
MOST_TEACHERS = 100  # in a drawing
MOST_CELLS = 30_000  # of the drawing of the label space: more are a sample of its classes
MOST_PAIRS = 100  # of teachers in a table


def label_space_section(unified: Unifier, logits: Floats) -> Block:
    """Return who knows what: the matrix of teachers and classes, and a line for each teacher."""
    space = unified.label_space_
    mask, groups = space.mask, space.components()
    component = np.empty(space.n_classes, dtype=np.intp)
    for i, group in enumerate(groups):
        component[np.isin(space.classes, group)] = i
    # classes that the same teachers know are side by side, so runs are long
    order = np.lexsort([*(~mask.T[::-1]), component])
    drawn = spread_out(order, max(60, MOST_CELLS // min(space.n_teachers, MOST_TEACHERS)))
    breaks = (np.flatnonzero(np.diff(component[drawn])) + 1).tolist()
    names = space.names[:MOST_TEACHERS]
    cells = [np.flatnonzero(mask[drawn, i]).tolist() for i in range(len(names))]
    note = [f"The drawing has {len(drawn):,} of the {space.n_classes:,} classes, evenly spaced."]
    few = len(drawn) < space.n_classes
    return section(
        "Who knows what?",
        _components_in_words(groups),
        incidence(
            "Classes that each teacher knows", names, space.classes[drawn].tolist(), cells, breaks=breaks
        ),
        remarks(note) if few else None,
        _teacher_table(unified, mask, logits),
        _component_table(groups) if len(groups) > 1 else None,
    )


def _components_in_words(groups: list[Any]) -> str:
    if len(groups) == 1:
        return (
            "Chains of shared classes connect all teachers: there is one component, and the teachers "
            "determine the probabilities of all classes. The number at the end of a line counts its classes."
        )
    return (
        f"There are {len(groups)} components, groups of classes that no chain of shared classes connects; "
        "dashed lines divide them. The number at the end of a line counts its classes."
    )


def _teacher_table(unified: Unifier, mask: Any, logits: Floats) -> Block:
    space, n = unified.label_space_, len(unified.covered_)
    alone = mask.sum(axis=1) == 1
    sure = [_mean_confidence(logits[:, space.block(i)]) for i in range(space.n_teachers)]
    rows = [
        [
            name,
            int(mask[:, i].sum()),
            int((mask[:, i] & alone).sum()),
            1 - int(unified.n_abstentions_[i]) / n,
            sure[i],
            float(unified.temperatures_[i]),
        ]
        for i, name in enumerate(space.names)
    ]
    heads = [
        column("teacher", "name"),
        column("classes", "count"),
        column("only it knows", "count"),
        column("answers", "percent", bar=True),
        column("mean confidence", "percent"),
        column("temperature", "number"),
    ]
    return table(
        "Teachers",
        heads,
        rows,
        note="Answers: the share of the rows of fit on which it did not abstain. Temperature: what its "
        "logits were divided by; 1 without calibration.",
    )


def _mean_confidence(block: Floats) -> float | None:
    """Return the mean largest probability of a teacher's block of logits; None if it never answers."""
    answered = block[~np.isnan(block[:, 0])]
    if not len(answered):
        return None
    top = answered.max(axis=1, keepdims=True)
    return float((1 / np.exp(answered - top).sum(axis=1)).mean())


def _component_table(groups: list[Any]) -> Block:
    rows = [[i + 1, len(group), ", ".join(map(str, group[:12].tolist()))] for i, group in enumerate(groups)]
    heads = [column("component", "place"), column("classes", "count"), column("such as", "name")]
    return table("Components", heads, rows)


def agreement_section(logits: Floats, space: LabelSpace, which: str) -> Block | None:
    """Return how often teachers name the same class among those they share; None for a single teacher."""
    if space.n_teachers < 2:
        return None
    found = teacher_agreement(logits, space)
    text = (
        f"Of {which}, a row counts for two teachers if each decides for a class that the other knows, too. "
        "Shown is how often they decide for the same one. Empty: they share fewer than two classes, or have "
        "no such row."
    )
    if np.isnan(found.share).all():
        return section("Do teachers agree?", f"{text} No two teachers can be compared.")
    most = min(space.n_teachers, MOST_TEACHERS)
    values = [
        [None if np.isnan(value) else round(float(value), 4) for value in row[:most]]
        for row in found.share[:most]
    ]
    names = space.names[:most]
    return section(
        "Do teachers agree?",
        text,
        heat("Agreement, in percent", names, names, values),
        _pair_table(found, space),
    )


def _pair_table(found: TeacherAgreement, space: LabelSpace) -> Block:
    """Return the pairs of teachers, those that agree least first."""
    one, other = np.triu_indices(space.n_teachers, 1)
    known = ~np.isnan(found.share[one, other])
    one, other = one[known], other[known]
    order = np.argsort(found.share[one, other], kind="stable")
    rows = [
        [
            space.names[i],
            space.names[j],
            float(found.share[i, j]),
            int(found.n_rows[i, j]),
            int(found.n_shared[i, j]),
        ]
        for i, j in zip(one[order[:MOST_PAIRS]].tolist(), other[order[:MOST_PAIRS]].tolist(), strict=True)
    ]
    heads = [
        column("teacher", "name"),
        column("and", "name"),
        column("agree", "percent", bar=True),
        column("rows", "count"),
        column("shared classes", "count"),
    ]
    note = f"The {MOST_PAIRS} pairs of {len(order):,} that agree least." if len(order) > MOST_PAIRS else ""
    return table("Pairs that agree least", heads, rows, note=note)


def soft_label_section(unified: Unifier, proba: Floats | None) -> Block:
    """Return how sure the soft labels are, what was pooled, and the balance of classes before and after."""
    Q, space = unified.soft_labels_, unified.label_space_
    if Q is not None and not unified.covered_.all():
        Q = Q[unified.covered_]  # nothing is known about the others
    pool = unified.pool_weights_ or {}
    near = unified.neighbor_weight_
    told = facts(
        {
            "pool": ", ".join(f"{name} {percent(share)}" for name, share in pool.items()),
            "weight of neighbours": percent(near) if near else None,
            "balancing": "on" if unified.class_weights_ is not None else "off",
        }
    )
    drawings = []
    if Q is not None:
        heated = unified.method_.temperature
        at = f", at temperature {heated:g}" if heated != 1 else ""
        drawings.append(histogram(f"Soft labels: probability of the likeliest class{at}", _binned(Q)))
    if proba is not None:
        drawings.append(histogram("The model: probability of the class it decides for", _binned(proba)))
    text = (
        "What the student learnt from: a probability of each class for each row, made of the teachers' "
        "outputs."
    )
    if Q is None:
        text = "There are no soft labels: the student learnt from the method's own loss."
    return section("Soft labels", text, told, *drawings, _balance_table(Q, unified, space))


def _binned(proba: Floats) -> list[int]:
    counts: list[int] = np.histogram(proba.max(axis=1), bins=BINS, range=(0, 1))[0].tolist()
    return counts


def _balance_table(Q: Floats | None, unified: Unifier, space: LabelSpace) -> Block:
    """Return the share of each class in the soft labels before and after balancing, the rarest first."""
    mask = space.mask
    known_by = [
        ", ".join([*np.array(space.names)[mask[k]][:3].tolist(), *(["…"] if mask[k].sum() > 3 else [])])
        for k in range(space.n_classes)
    ]
    heads = [column("class", "name"), column("teachers", "count"), column("who", "name")]
    columns: list[Any] = [space.classes.tolist(), mask.sum(axis=1).tolist(), known_by]
    order = np.argsort(mask.sum(axis=1), kind="stable")
    if Q is not None:
        shares = Q.mean(axis=0)
        heads.append(column("share", "percent", bar=True))
        columns.append(shares.tolist())
        order = np.argsort(shares, kind="stable")
        if unified.class_weights_ is not None:
            weighted = shares * unified.class_weights_
            heads.append(column("after balancing", "percent", bar=True))
            columns.append((weighted / weighted.sum()).tolist())
    rows = [[values[k] for values in columns] for k in order.tolist()]
    note = "Share: the mean soft label of the class. Balancing weighs rows so that classes count alike."
    return table("Balance of classes", heads, rows, note=note if Q is not None else "")

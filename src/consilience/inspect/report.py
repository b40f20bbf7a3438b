"""The page of a fitted classifier: who knows what, do teachers agree, how good is it, what is doubtful."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from consilience._validation import check_choice, check_fitted, n_rows
from consilience._words import counted, percent, shorten
from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.inspect.aliases import find_suggestions
from consilience.inspect.drawing import Block, drawing, heat, histogram, incidence
from consilience.inspect.evaluate import ask, evaluate, read_truth, space_of
from consilience.inspect.explanation import compare_decisions
from consilience.inspect.page import (
    Column,
    binned,
    check_report,
    facts,
    least_sure,
    page,
    plain,
    remarks,
    section,
    setting,
    table,
    versions,
    write_page,
)
from consilience.kernels.arrays import Floats, Ints
from consilience.labels import BETWEEN_GROUPS, LabelSpace
from consilience.labels.reader import LabelCodes
from consilience.rows import as_rows
from consilience.run import resolve_run
from consilience.soft_labels.agreement import divide_by_temperatures, teacher_agreement
from consilience.soft_labels.solvers import spread_out
from consilience.students.student import student_name

MOST_TEACHERS = 100  # in a drawing, and pairs of them in a table
MOST_CELLS = 30_000  # of the drawing of the label space: more are a sample of its classes
MOST_ROWS = 30  # hard rows of each kind
MOST_COLUMNS, ALIAS_ROWS = 4000, 2000  # packed columns up to which names are compared, and on how many rows
# what a page does not tell: teachers have their own table, a cache is a place on your disk
UNTOLD = ("teachers", "student", "method", "aliases", "run")


class Basis(NamedTuple):
    """What a page is about: what is known about some rows."""

    logits: Floats  # (k, m) packed, divided by the teachers' temperatures
    rows: Ints  # (k,) where these rows are in X, or in the X of fit
    which: str  # these rows, in words
    proba: Floats | None  # (n, L) the student's, on X
    raw: Floats | None  # (n, m) packed logits for X, as teachers give them
    told: list[str]


def report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    labels_only: Literal["auto"] | bool = "auto",
    logits: ArrayLike | None = None,
) -> Path:
    """Write one page to show: an HTML file that needs nothing else (docs/report.md).

    It has the balance of classes, hard rows, settings and versions; with y also the evaluation. The page of
    a `Unifier` says who knows what, where teachers agree, how sure the soft labels are, and which names may
    not fit. It holds names, figures and positions of rows, never the rows themselves.

    Parameters
    ----------
    path : path
        A file name that ends in ``.html``, in a folder that exists.
    X : array, sparse matrix, data frame or list, optional
        n rows to report on. Teachers are asked about them once. Without X, the page is about what the `fit`
        of a `Unifier` kept: the soft labels, and the teachers' outputs for up to 2,000 rows.
    y : (n,) sequence, optional
        Labels of these rows, as in `evaluate`.
    labels_only : {"auto", True, False}
        Whether to train a student on these labels alone, for comparison; as in `evaluate`.
    logits : (n, m) array, optional
        The teachers' outputs for X, from `score_teachers`: then no teacher is asked.

    Returns
    -------
    Path
        Where the page is.
    """
    target = check_report(path)
    check_fitted(model, "classes_")
    check_choice("labels_only", labels_only, ("auto", True, False))
    if X is None and (y is not None or logits is not None):
        raise InvalidInputError("y and logits are about rows; give their X, too.")
    return write_page(target, model_page(model, X, y, labels_only=labels_only, logits=logits))


def model_page(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    labels_only: Literal["auto"] | bool = "auto",
    logits: ArrayLike | None = None,
) -> Block:
    """Return the page as plain data; parameters as in `report`."""
    unified, truth, found = hasattr(model, "label_space_"), None, None
    X = None if X is None else as_rows(X).all(resolve_run(getattr(model, "run", None)))
    if X is None and not unified:
        raise InvalidInputError(f"The page of a {type(model).__name__} is about rows: give X.")
    if X is not None and n_rows(X) == 0:
        raise InvalidInputError("X has no rows; give some to report on, or leave X out.")
    if y is not None:  # labels first: teachers may take hours
        truth = read_truth(y, n_rows(X), space_of(model))
    basis = _kept(model) if X is None else _asked(model, X, logits, unified)
    if y is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoverageWarning)  # the page marks lost classes
            found = evaluate(
                model, X, y, teachers=unified, labels_only=labels_only, logits=basis.raw if unified else None
            )
    space, proba = space_of(model), basis.proba
    learner = student_name(model.student_) if hasattr(model, "student_") else type(model).__name__
    lead = f"A {learner} that knows {counted(space.n_classes, 'class')}."
    title, figures = "A classifier", [(f"{space.n_classes:,}", "classes")]
    sections: list[Block | None] = [section("Before you read on", "", remarks(basis.told))]
    if unified:
        n, n_groups, Q = len(model.covered_), len(space.components()), _covered_labels(model)
        teachers = counted(space.n_teachers, "teacher")
        alone = space.n_teachers == 1
        title = "A classifier from one teacher" if alone else f"One classifier out of {space.n_teachers}"
        lead += f" It learnt from {teachers} and {n:,} rows, without the teachers' training data."
        figures = [
            (f"{space.n_teachers:,}", "teacher" if alone else "teachers"),
            *figures,
            (f"{n:,}", "unlabelled rows"),
            (f"{n_groups:,}", "component" if n_groups == 1 else "components"),
        ]
        if Q is not None:
            figures.append((percent(float(Q.max(axis=1).mean())), "mean confidence of the soft labels"))
        sections = [
            section("Before you read on", "", remarks([*basis.told, *_warnings(model)])),
            _label_space(model, basis.logits),
            _agreement(basis.logits, space, basis.which),
            _soft_labels(model, proba),
        ]
    if proba is not None:
        figures.append((percent(float(proba.max(axis=1).mean())), "mean confidence of the model"))
    if found is not None:
        figures.append((percent(found.scores.accuracy), f"accuracy on {counted(found.scores.n_rows, 'row')}"))
        sections += found.sections()
    sections.append(_hard_rows(model, basis, space, truth))
    sections += [_aliases(model, basis) if unified else None, _settings(model)]
    return page(title, lead, figures, sections)


def _kept(unified: Any) -> Basis:
    """Return what `fit` kept."""
    n, kept = len(unified.covered_), len(unified.reference_)
    which = f"{kept:,} of the {n:,} rows of fit" if kept < n else "the rows of fit"
    return Basis(unified.reference_, spread_out(np.arange(n), kept), which, None, None, [])


def _asked(model: Any, X: Any, logits: ArrayLike | None, unified: bool) -> Basis:
    """Ask the teachers, once, and the student about X. If no teacher answers, keep to what `fit` kept."""
    space, n, told, which = space_of(model), n_rows(X), list[str](), f"the {n_rows(X):,} rows given"
    if not unified:
        order = np.argsort(space.encode(model.classes_))
        return Basis(np.empty((0, 0)), np.arange(n), which, model.predict_proba(X)[:, order], None, told)
    raw = ask(model.teachers_, space, X, resolve_run(model.run), told, logits=logits)
    proba = model.predict_proba(X)
    if np.isnan(raw[:, space.offsets[:-1]]).all():
        return _kept(model)._replace(proba=proba, raw=raw, told=told)
    divided = divide_by_temperatures(raw, model.temperatures_, space)
    return Basis(divided, np.arange(n), which, proba, raw, told)


def _warnings(unified: Any) -> list[str]:
    """Return what a reader should know first."""
    space, n_uncovered = unified.label_space_, int((~unified.covered_).sum())
    n_groups = len(space.components())
    silent = np.array(space.names)[unified.n_abstentions_ == len(unified.covered_)].tolist()
    lines = [
        (
            n_uncovered,
            f"Every teacher abstained on {n_uncovered:,} rows of fit; the student did not see these.",
        ),
        (
            n_groups > 1,
            f"The teachers fall into {n_groups} groups of classes that share no class. Their outputs for a "
            f"row do not determine how mass splits between the groups. {BETWEEN_GROUPS}",
        ),
        (silent, f"These teachers answered on no row: {shorten(silent)}."),
    ]
    return [line for holds, line in lines if holds]


def _label_space(unified: Any, logits: Floats) -> Block:
    """Return who knows what: the matrix of teachers and classes, and a line for each teacher."""
    space = unified.label_space_
    mask, groups = space.mask, space.components()
    component = np.empty(space.n_classes, dtype=np.intp)
    for i, group in enumerate(groups):
        component[np.isin(space.classes, group)] = i
    # classes that the same teachers know are side by side, so runs are long
    order = np.lexsort([*(~mask.T[::-1]), component])
    drawn = spread_out(order, max(60, MOST_CELLS // min(space.n_teachers, MOST_TEACHERS)))
    names = list(space.names[:MOST_TEACHERS])
    sample = f"The drawing has {len(drawn):,} of the {space.n_classes:,} classes, evenly spaced."
    one = (
        "Chains of shared classes connect all teachers: there is one component, and the teachers determine "
        "the probabilities of all classes."
    )
    several = (
        f"There are {len(groups)} components, groups of classes that no chain of shared classes connects; "
        "dashed lines divide them."
    )
    teachers: list[Column] = [
        ("teacher", "name", space.names),
        ("classes", "count", mask.sum(axis=0)),
        ("only it knows", "count", mask[mask.sum(axis=1) == 1].sum(axis=0)),
        ("answers", "bar", 1 - unified.n_abstentions_ / len(unified.covered_)),
        (
            "mean confidence",
            "percent",
            [_confidence(logits[:, space.block(i)]) for i in range(mask.shape[1])],
        ),
        ("temperature", "number", unified.temperatures_),
    ]
    components: list[Column] = [
        ("component", "place", range(1, len(groups) + 1)),
        ("classes", "count", [len(group) for group in groups]),
        ("such as", "name", [", ".join(map(str, group[:12].tolist())) for group in groups]),
    ]
    note = (
        "Answers: the share of the rows of fit on which it did not abstain. Temperature: what its logits "
        "were divided by; 1 without calibration."
    )
    return section(
        "Who knows what?",
        f"{one if len(groups) == 1 else several} The number at the end of a line counts its classes.",
        drawing(
            incidence,
            "Classes that each teacher knows",
            rows=names,
            columns=space.classes[drawn].tolist(),
            cells=[np.flatnonzero(mask[drawn, i]).tolist() for i in range(len(names))],
            breaks=(np.flatnonzero(np.diff(component[drawn])) + 1).tolist(),
        ),
        remarks([sample] if len(drawn) < space.n_classes else []),
        table("Teachers", teachers, note=note),
        table("Components", components) if len(groups) > 1 else None,
    )


def _confidence(block: Floats) -> float:
    """Return the mean largest probability of a teacher's block of logits; NaN if it never answers."""
    answered = block[~np.isnan(block[:, 0])]
    return float(softmax(answered, axis=1).max(axis=1).mean()) if len(answered) else np.nan


def _agreement(logits: Floats, space: LabelSpace, which: str) -> Block | None:
    """Return how often teachers name the same class among those they share; None for a single teacher."""
    if space.n_teachers < 2:
        return None
    found, title = teacher_agreement(logits, space), "Do teachers agree?"
    text = (
        f"Of {which}, a row counts for two teachers if each decides for a class that the other knows, too. "
        "Shown is how often they decide for the same one. Empty: they share fewer than two classes, or have "
        "no such row."
    )
    one, other = np.triu_indices(space.n_teachers, 1)
    share = found.share[one, other]
    n_known = int(np.count_nonzero(~np.isnan(share)))
    if n_known == 0:
        return section(title, f"{text} No two teachers can be compared.")
    names, most = np.array(space.names, dtype=object), MOST_TEACHERS
    columns: list[Column] = [
        ("teacher", "name", names[one]),
        ("and", "name", names[other]),
        ("agree", "bar", share),
        ("rows", "count", found.n_rows[one, other]),
        ("shared classes", "count", found.n_shared[one, other]),
    ]
    least = np.argsort(share, kind="stable")[: min(n_known, most)]
    few = f"The {most} pairs of {n_known:,} that agree least." if n_known > most else ""
    drawn, values = names[:most].tolist(), plain(found.share[:most, :most].round(4))
    return section(
        title,
        text,
        drawing(heat, "Agreement, in percent", rows=drawn, columns=drawn, values=values),
        table("Pairs that agree least", columns, order=least, note=few),
    )


def _covered_labels(unified: Any) -> Floats | None:
    """Return the soft labels of the rows about which something is known."""
    Q: Floats | None = unified.soft_labels_
    return Q if Q is None or unified.covered_.all() else Q[unified.covered_]


def _soft_labels(unified: Any, proba: Floats | None) -> Block:
    """Return how sure the soft labels are, what was pooled, and the balance of classes before and after."""
    Q, heated = _covered_labels(unified), unified.method_.temperature
    near = unified.neighbor_weight_
    pooled = [f"{name} {percent(share)}" for name, share in (unified.pool_weights_ or {}).items()]
    told = {
        "pool": ", ".join(pooled),
        "weight of neighbours": percent(near) if near else None,
        "balancing": "off" if unified.class_weights_ is None else "on",
    }
    at = f", at temperature {heated:g}" if heated != 1 else ""
    shown = {
        f"Soft labels: probability of the likeliest class{at}": Q,
        "The model: probability of the class it decides for": proba,
    }
    drawings = [drawing(histogram, name, counts=binned(p)) for name, p in shown.items() if p is not None]
    text = "What the student learnt from: a probability of each class, made of the teachers' outputs."
    if Q is None:
        text = "There are no soft labels: the student learnt from the method's own loss."
    return section("Soft labels", text, facts(told), *drawings, _balance(Q, unified))


def _balance(Q: Floats | None, unified: Any) -> Block:
    """Return the share of each class in the soft labels before and after balancing, the rarest first."""
    space, mask = unified.label_space_, unified.label_space_.mask
    known = [np.array(space.names)[row].tolist() for row in mask]
    columns: list[Column] = [
        ("class", "name", space.classes),
        ("teachers", "count", mask.sum(axis=1)),
        ("who", "name", [", ".join([*who[:3], *(["…"] if len(who) > 3 else [])]) for who in known]),
    ]
    shares, note = mask.sum(axis=1), ""
    if Q is not None:
        shares = Q.mean(axis=0)
        note = "Share: the mean soft label of the class. Balancing weighs rows so that classes count alike."
        columns.append(("share", "bar", shares))
        if unified.class_weights_ is not None:
            weighted = shares * unified.class_weights_
            columns.append(("after balancing", "bar", weighted / weighted.sum()))
    return table("Balance of classes", columns, order=np.argsort(shares, kind="stable"), note=note)


def _hard_rows(model: Any, basis: Basis, space: LabelSpace, truth: LabelCodes | None) -> Block:
    """Return rows by their position: where teachers contradict each other, what is unsure, what is wrong."""
    proba, names, parts = basis.proba, space.classes.tolist(), []
    Q = getattr(model, "soft_labels_", None)
    own = proba is not None and len(proba) == len(basis.logits)  # the teachers answered about X, too
    believed = proba if own else None if Q is None or not len(basis.logits) else Q[basis.rows]
    if believed is not None:
        parts.append(_contradictions(basis, believed, space, with_student=own))
    if proba is not None:
        every = np.arange(len(proba))
        parts.append(least_sure("Rows that the model is least sure of", proba, every, names, MOST_ROWS))
    elif Q is not None:
        every = np.flatnonzero(model.covered_)
        parts.append(least_sure("Rows whose soft labels are least sure", Q, every, names, MOST_ROWS))
    if proba is not None and truth is not None:
        parts.append(_sure_and_wrong(proba, truth))
    text = (
        "Rows are known by their position, counted from 0. Look at them first: they show names that do not "
        "fit, teachers that err, and classes that are hard to tell apart."
    )
    return section("Which rows are hard?", text, *parts)


def _contradictions(basis: Basis, believed: Floats, space: LabelSpace, *, with_student: bool) -> Block:
    found = compare_decisions(basis.logits, believed, space, len(basis.logits), places=basis.rows)
    kept = tuple(row for row in found.rows if with_student or row.kind == "teachers")[:MOST_ROWS]
    also = f" The model left a teacher on {found.n_left:,}." if with_student else ""
    note = (
        f"Teachers contradict each other on {found.n_contradicted:,} rows: both know both classes.{also} "
        f"Of {basis.which}."
    )
    return found.row_table("Contradictions, worst first", kept, note=note)


def _sure_and_wrong(proba: Floats, truth: LabelCodes) -> Block:
    names, codes, decided, sure = truth.classes, truth.codes, proba.argmax(axis=1), proba.max(axis=1)
    wrong = np.flatnonzero(truth.known & (decided != codes))
    rows = wrong[np.argsort(-sure[wrong], kind="stable")][:MOST_ROWS]
    wider = np.hstack([proba, np.zeros((len(proba), len(names) - proba.shape[1]))])
    columns: list[Column] = [
        ("row", "place", rows),
        ("label", "name", names[codes[rows]]),
        ("the model says", "name", names[decided[rows]]),
        ("how sure", "bar", sure[rows]),
        ("of the label", "percent", wider[rows, codes[rows]]),
    ]
    labelled = int(truth.known.sum())
    note = f"{len(wrong):,} of {labelled:,} labelled rows are wrong. Surest first: a label may be wrong, too."
    return table("Wrong, and sure of it", columns, note=note)


def _aliases(unified: Any, basis: Basis) -> Block | None:
    """Return names that are likely one class, or two; None for a single teacher."""
    space, title = unified.label_space_, "Do the names fit?"
    if space.n_teachers < 2:
        return None
    if space.n_columns > MOST_COLUMNS:
        return section(
            title,
            f"The teachers have {space.n_columns:,} classes together. Names are compared here up to "
            f"{MOST_COLUMNS:,}; suggest_aliases(teachers, X) compares these.",
        )
    found = find_suggestions(basis.logits, space, unified.aliases or {}, ALIAS_ROWS)
    text = (
        "Teachers that mean the same class rank the same rows first, whatever they call it. Judged by "
        f"{found.n_rows:,} of {basis.which}. Nothing of this is applied: look at the rows, then pass "
        "what you believe as aliases."
    )
    good = "" if len(found) else " All names seem to fit."
    return section(title, text + good, *found.tables(basis.rows.tolist()))


def _settings(model: Any) -> Block:
    """Return settings, versions, seed and seconds. Nothing in it names a place on a disk."""
    method = getattr(model, "method_", None)
    told = model.get_params(deep=False) | (method.get_params(deep=False) if method else {})
    learner = student_name(model.student_) if hasattr(model, "student_") else None
    shown = {
        "method": method and method.name,
        **{name: setting(value) for name, value in told.items() if name not in UNTOLD and value is not None},
        "student": learner,
        "n_iter_": getattr(model, "n_iter_", None),
    }
    aliases = getattr(model, "aliases", None) or {}
    columns = [("alias", "name", [*aliases]), ("class", "name", [*aliases.values()])]
    seconds = getattr(model, "seconds_", {}).items()
    return section(
        "Settings and versions",
        "With these, the same rows and the same teachers give the same model.",
        facts(shown),
        facts({f"{step}, seconds": f"{spent:.2f}" for step, spent in seconds}),
        versions(*(("torch",) if learner == "torch network" else ())),
        table("Aliases in use", columns) if aliases else None,
    )

"""Gather the page of a unified model: who knows what, do teachers agree, how good is it, what is doubtful."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import check_choice, check_fitted, check_packed_logits, n_rows
from consilience._words import counted, percent, shorten
from consilience.exceptions import CoverageWarning, InvalidInputError
from consilience.inspect.blocks import Block, column, facts, page, remarks, section, table, versions
from consilience.inspect.evaluate import LabelsOnly, ask, evaluate_unifier
from consilience.inspect.evaluation_page import evaluation_sections
from consilience.inspect.hard_rows_page import alias_section, hard_rows_section
from consilience.inspect.page import check_report, write_page
from consilience.inspect.page_tables import setting
from consilience.inspect.teachers_page import agreement_section, label_space_section, soft_label_section
from consilience.inspect.truth import read_truth
from consilience.kernels.arrays import Floats
from consilience.labels import BETWEEN_GROUPS
from consilience.run import resolve_run
from consilience.scoring.store import as_store
from consilience.soft_labels.methods import spread_out
from consilience.soft_labels.teacher_temperatures import divide_by_temperatures
from consilience.students.student import student_name

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier

# what a page does not tell: teachers have their own table, a cache is a place on your disk
_UNTOLD = ("teachers", "student", "method", "aliases", "run")


class Basis(NamedTuple):
    """What the page is about: answers of teachers and of the student about some rows."""

    logits: Floats  # (k, m) packed, divided by the teachers' temperatures
    rows: NDArray[np.intp]  # (k,) where these rows are in X, or in the X of fit
    which: str  # these rows, in words
    proba: Floats | None  # (n, L) the student's, on X
    raw: Floats | None  # (n, m) packed logits for X, as teachers give them
    remarks: list[str]


def write_report(
    unified: Unifier,
    path: str | os.PathLike[str],
    X: Any,
    y: Any,
    *,
    labels_only: LabelsOnly,
    logits: ArrayLike | None,
) -> Path:
    """Do what `Unifier.report` says."""
    target = check_report(path)
    check_fitted(unified, "student_")
    check_choice("labels_only", labels_only, ("auto", True, False))
    if X is None and (y is not None or logits is not None):
        raise InvalidInputError("y and logits are about rows; give their X, too.")
    return write_page(target, unified_page(unified, X, y, labels_only=labels_only, logits=logits))


def unified_page(
    unified: Unifier,
    X: Any = None,
    y: Any = None,
    *,
    labels_only: LabelsOnly = "auto",
    logits: ArrayLike | None = None,
) -> Block:
    """Return the page of a fitted `Unifier` as plain data; parameters as in `Unifier.report`."""
    truth = None
    if y is not None:  # labels first: teachers may take hours
        truth = read_truth(y, n_rows(X), unified.label_space_, some_known=True)
    basis = _kept(unified) if X is None else _asked(unified, X, logits)
    view = None if y is None else _evaluated(unified, X, y, basis, labels_only)
    space = unified.label_space_
    sections = [
        _remark_section(unified, basis),
        label_space_section(unified, basis.logits),
        agreement_section(basis.logits, space, basis.which),
        soft_label_section(unified, basis.proba),
        *([] if view is None else evaluation_sections(view)),
        hard_rows_section(unified, basis.logits, basis.rows, basis.which, basis.proba, truth),
        alias_section(unified, basis.logits, basis.rows, basis.which),
        _settings_section(unified),
    ]
    return page(
        f"One classifier out of {space.n_teachers}"
        if space.n_teachers > 1
        else "A classifier from one teacher",
        f"A {student_name(unified.student_)} that knows {counted(space.n_classes, 'class')}. It learnt from "
        f"{counted(space.n_teachers, 'teacher')} and {len(unified.covered_):,} rows, without the teachers' "
        "training data.",
        _figures(unified, basis, view),
        sections,
    )


def _kept(unified: Unifier) -> Basis:
    """Return what `fit` kept."""
    rows = spread_out(np.arange(len(unified.covered_)), len(unified.reference_))
    which = (
        f"{len(rows):,} of the {len(unified.covered_):,} rows of fit"
        if len(rows) < len(unified.covered_)
        else "the rows of fit"
    )
    return Basis(unified.reference_, rows, which, None, None, [])


def _asked(unified: Unifier, X: Any, logits: ArrayLike | None) -> Basis:
    """Ask the teachers, once, and the student about X. If no teacher answers, keep to what `fit` kept."""
    space, n, told = unified.label_space_, n_rows(X), list[str]()
    if n == 0:
        raise InvalidInputError("X has no rows; give some to report on, or leave X out.")
    if logits is None:
        every, run = np.ones(n, dtype=bool), resolve_run(unified.run)
        raw = ask(
            unified.teachers_,
            space,
            X,
            every,
            run.rows_per_call,
            as_store(run.cache, run.cache_limit),
            run.report,
            told,
        )
    else:
        raw = check_packed_logits(logits, space, n)
    proba = unified.predict_proba(X)
    if np.isnan(raw[:, space.offsets[:-1]]).all():
        return _kept(unified)._replace(proba=proba, raw=raw, remarks=told)
    divided = divide_by_temperatures(raw, unified.temperatures_, space)
    return Basis(divided, np.arange(n), f"the {n:,} rows given", proba, raw, told)


def _evaluated(unified: Unifier, X: Any, y: Any, basis: Basis, labels_only: LabelsOnly) -> Mapping[str, Any]:
    """Return what `Unifier.evaluate` measures. The page marks lost classes, so no warning names them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        found = evaluate_unifier(
            unified,
            X,
            y,
            teachers=True,
            labels_only=labels_only,
            n_folds=5,
            logits=basis.raw,
            confidence=0.95,
            n_bins=15,
        )
    return found.to_dict()


def _figures(unified: Unifier, basis: Basis, view: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    space, Q = unified.label_space_, unified.soft_labels_
    n_groups = len(space.components())
    figures = [
        (f"{space.n_teachers:,}", "teacher" if space.n_teachers == 1 else "teachers"),
        (f"{space.n_classes:,}", "classes"),
        (f"{len(unified.covered_):,}", "unlabelled rows"),
        (f"{n_groups:,}", "component" if n_groups == 1 else "components"),
    ]
    if Q is not None:
        figures.append(
            (percent(float(Q.max(axis=1)[unified.covered_].mean())), "mean confidence of the soft labels")
        )
    if basis.proba is not None:
        figures.append((percent(float(basis.proba.max(axis=1).mean())), "mean confidence of the model"))
    if view is not None:
        figures.append((percent(view["accuracy"]), f"accuracy on {counted(view['n_rows'], 'row')}"))
    return figures


def _remark_section(unified: Unifier, basis: Basis) -> Block | None:
    """Return what a reader should know first, if there is anything."""
    lines, n_uncovered = list(basis.remarks), int((~unified.covered_).sum())
    if n_uncovered:
        lines.append(
            f"Every teacher abstained on {n_uncovered:,} rows of fit; the student did not see these."
        )
    groups = unified.label_space_.components()
    if len(groups) > 1:
        lines.append(
            f"The teachers fall into {len(groups)} groups of classes that share no class. Their outputs for "
            f"a row do not determine how mass splits between the groups. {BETWEEN_GROUPS}"
        )
    silent_teachers = [
        name
        for name, count in zip(unified.label_space_.names, unified.n_abstentions_, strict=True)
        if count == len(unified.covered_)
    ]
    if silent_teachers:
        lines.append(f"These teachers answered on no row: {shorten(silent_teachers)}.")
    return section("Before you read on", "", remarks(lines)) if lines else None


def _settings_section(unified: Unifier) -> Block:
    """Return settings, versions, seed and seconds. Nothing in it names a place on a disk."""
    told: dict[str, Any] = {
        name: setting(value)
        for name, value in unified.get_params(deep=False).items()
        if name not in _UNTOLD and value is not None
    }
    told |= {
        "method": unified.method_.name,
        **{
            name: setting(value)
            for name, value in unified.method_.get_params(deep=False).items()
            if value is not None
        },
        "student": student_name(unified.student_),
        "n_iter_": unified.n_iter_,
    }
    spent = {f"{step}, seconds": f"{seconds:.2f}" for step, seconds in unified.seconds_.items()}
    more = ("torch",) if student_name(unified.student_) == "torch network" else ()
    aliases = dict(unified.aliases or {})
    return section(
        "Settings and versions",
        "With these, the same rows and the same teachers give the same model.",
        facts(told),
        facts(spent),
        facts(versions(*more)),
        table("Aliases in use", [column("alias", "name"), column("class", "name")], list(aliases.items()))
        if aliases
        else None,
    )

"""Soft labels of a `Unifier`: what the teachers say about the rows, and what the method makes of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._progress import silent
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.labels import LabelSpace
from consilience.rows import Rows, as_rows, new_array
from consilience.run import Run
from consilience.scoring import score
from consilience.soft_labels.estimate import check_options, compared_rows, fill_soft_labels
from consilience.soft_labels.neighbours import N_NEIGHBORS, average_over_neighbours
from consilience.soft_labels.teacher_temperatures import agreement_temperatures
from consilience.students.classifier import timed
from consilience.students.make import is_torch_student
from consilience.unify.alias_warnings import warn_of_names, warn_of_unused
from consilience.unify.answers import Answers, Opened, find_coverage, given_logits

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


class SoftLabels(NamedTuple):
    """Soft labels, and how they were made."""

    soft_labels: NDArray[Any]  # (n, L)
    pool_weights: dict[str, float] | None  # the share of each estimate in the pool
    neighbor_weight: float


class Estimate(NamedTuple):
    """What a summary shows of soft labels and of the teachers they come from."""

    soft_labels: NDArray[Any] | None
    label_space: LabelSpace
    n_abstentions: NDArray[np.intp]
    temperatures: Floats
    pool_weights: dict[str, float] | None
    neighbor_weight: float
    seconds: dict[str, float]


def estimate(unifier: Unifier, X: Any, y: Any = None, logits: Any = None) -> Estimate:
    """Return what `Unifier.estimate` returns, and how it was made."""
    run, opened, seconds = unifier.prepare(), unifier.open_teachers(), dict[str, float]()
    answers = collect_answers(unifier, as_rows(X), y, logits, opened, run, seconds)
    found = find_soft_labels(unifier, answers, run, seconds)
    return Estimate(
        found.soft_labels, answers.space, answers.n_abstentions, answers.temperatures, *found[1:], seconds
    )


def collect_answers(
    unifier: Unifier,
    rows: Rows,
    y: Any,
    logits: Any,
    opened: Opened,
    run: Run,
    seconds: dict[str, float],
    student: Any = None,
) -> Answers:
    """Score all rows, unless `logits` are given, and collect what is known about each row."""
    teachers, space = opened
    with timed(seconds, "scoring"):
        labels = _read_labels(y, len(rows), space, student)  # first: teachers may take hours
        raw = score(*opened, rows, run) if logits is None else given_logits(logits, len(rows), space)
        covered, n_abstentions = find_coverage(raw, rows, space, labels)
    compared = np.asarray(compared_rows(raw)[0], dtype=np.float64)
    warn_of_names(compared, space)
    temperatures = np.ones(space.n_teachers)
    if unifier.calibrate is not None:
        with timed(seconds, "calibration"):
            temperatures = agreement_temperatures(compared, space, progress=run.progress or silent)
    smoothing = np.full(space.n_teachers, float(unifier.smoothing))
    return Answers(teachers, space, rows, raw, labels, covered, n_abstentions, temperatures, smoothing)


def _read_labels(y: Any, n_rows: int, space: LabelSpace, student: Any) -> NDArray[np.intp]:
    """Return the position of each known label, -1 without one."""
    if n_rows == 0:
        raise InvalidInputError("X has no rows; the student needs some to learn from.")
    # one number for all rows: of very many, the labels that nobody knows would fill the memory
    labels = np.broadcast_to(np.intp(-1), n_rows) if y is None else space.encode(y)
    if len(labels) != n_rows:
        raise InvalidInputError(f"y has {len(labels)} rows and X has {n_rows}.")
    student.encode_validation(partial(space.encode, where="y of validation"))
    labels_given = y is not None or getattr(student, "validation", None) is not None
    warn_of_unused(space, labels_given=labels_given)
    return labels


def find_soft_labels(unifier: Unifier, answers: Answers, run: Run, seconds: dict[str, float]) -> SoftLabels:
    """Make soft labels of what the teachers say, block by block."""
    options = check_options(
        unifier.method, unifier.temperature, unifier.tol, unifier.max_iter, unifier.off_set
    )
    with timed(seconds, "soft labels"):
        space, progress = answers.space, run.progress or silent
        Q = new_array((len(answers.rows), space.n_classes), run)
        compared, ranked = compared_rows(answers.raw)
        pool_weights = fill_soft_labels(
            Q,
            answers.logits,
            answers.prepared(compared),
            space,
            unifier.method,
            options,
            ranked=ranked,
            progress=progress,
        )
        answers.pin_labels(Q)
        wanted, weight = _neighbours_wanted(unifier), 0.0
        if wanted:
            required = unifier.n_neighbors is not None
            weight = average_over_neighbours(
                answers.rows, Q, answers.covered, wanted, required=required, progress=progress
            )
            answers.pin_labels(Q)
    return SoftLabels(Q, pool_weights, weight)


def _neighbours_wanted(unifier: Unifier) -> int:
    """Return how many neighbours to average over; parameters as in `Unifier`.

    By default, this is done where it was measured to help: for the method ``"auto"``, and for students that
    are linear models or networks. Trees average over near rows themselves.
    """
    if unifier.n_neighbors is not None:
        return unifier.n_neighbors
    student = unifier.student
    named = student is None or (isinstance(student, str) and student in ("logistic", "mlp", "torch"))
    network = is_torch_student(student) or (callable(student) and not hasattr(student, "predict_proba"))
    return N_NEIGHBORS if unifier.method == "auto" and (named or network) else 0

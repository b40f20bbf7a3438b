"""What a `Unifier` does with rows that do not fit in memory, and where its teachers run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience._progress import silent
from consilience.exceptions import InvalidInputError
from consilience.files.spool import Spool
from consilience.kernels.arrays import Floats
from consilience.kernels.columns import inverse
from consilience.labels import LabelSpace
from consilience.rows import Rows, memory_budget
from consilience.rows.source_targets import SourceTargets
from consilience.run import Run
from consilience.scoring.engines import engine_for, score_rows
from consilience.scoring.ray_options import read_options
from consilience.scoring.store import as_store
from consilience.soft_labels.estimate import Estimated, check_options
from consilience.students.base import StudentRows, as_student_sees, timed
from consilience.students.checkpoints import checkpoint_folder
from consilience.students.passes import check_student_streams
from consilience.students.training import check_trains_on_ray, fit_network, fit_student_by_passes
from consilience.unify.alias_warnings import warn_of_names
from consilience.unify.scored import Estimate, Opened, check_coverage, reference_rows
from consilience.unify.self_labels_by_blocks import label_by_blocks
from consilience.unify.stream import (
    ENCODED_BYTES,
    ENCODED_FROM,
    Streamed,
    StreamedLabels,
    check_streams,
    find_coverage,
    keep_scores,
    packed_targets,
    solve_stream,
)
from consilience.unify.training import method_loss, normalised

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


def fit_by_blocks(unifier: Unifier, source: Rows, y: Any, logits: Any, opened: Opened) -> Unifier:
    """Do what `Unifier.fit` does, with rows that are read block by block."""
    check_streams(unifier.n_neighbors)
    student = unifier._make_student(source.head)
    budget = memory_budget(Run(memory=unifier.memory))
    check_trains_on_ray(student, read_options(unifier.engine_options))
    check_student_streams(student, len(source), source.n_bytes, opened.space.n_classes, budget)
    row_bytes = max(1, source.n_bytes // len(source)) if len(source) else 1
    few = max(1, min(ENCODED_FROM, budget // row_bytes, ENCODED_BYTES // row_bytes))
    some = source.take(source.sample_rows(few))  # names and encoding come from these
    read = unifier._read_rows(student, some)
    seconds: dict[str, float] = {}
    streamed = _score(unifier, source, y, logits, opened, seconds, student)
    found = None
    if unifier.train == "estimate":
        with timed(seconds, "soft labels"):
            found = _soft_labels(unifier, streamed)
    with timed(seconds, "training"):
        class_weights, own = _train(unifier, student, read, streamed, found, budget)
    kept = None if found is None else Estimated(found.soft_labels.mapped(), found.weights)
    unifier._keep_labels(streamed, kept, class_weights, own, reference_rows(streamed.compared()))
    unifier.seconds_ = seconds
    unifier._keep_student(student, some, read, n_rows=len(source))
    return unifier


def estimate_by_blocks(unifier: Unifier, source: Rows, y: Any, logits: Any, opened: Opened) -> Estimate:
    """Return soft labels of rows that are read block by block, on disk."""
    seconds: dict[str, float] = {}
    check_streams(unifier.n_neighbors)
    streamed = _score(unifier, source, y, logits, opened, seconds)
    with timed(seconds, "soft labels"):
        found = _soft_labels(unifier, streamed)
    return Estimate(
        found.soft_labels.mapped(),
        streamed.space,
        streamed.n_abstentions,
        streamed.temperatures,
        found.weights,
        0.0,
        seconds,
    )


def score_in_memory(unifier: Unifier, opened: Opened, X: Any) -> Floats:
    """Return the packed logits (n, m) of all teachers for rows in memory."""
    return score_rows(
        opened.teachers,
        opened.space,
        X,
        engine=unifier.engine,
        options=unifier.engine_options,
        batch_size=unifier.batch_size,
        store=as_store(unifier.cache, unifier.cache_limit),
        progress=unifier.progress or silent,
    )


def score_by_blocks(unifier: Unifier, source: Rows, opened: Opened) -> Spool:
    """Return the packed logits (n, m) of all teachers, on disk."""
    run = engine_for(unifier.engine, unifier.engine_options, source)
    scores = run(
        opened.teachers,
        opened.space,
        source,
        batch_size=unifier.batch_size,
        store=as_store(unifier.cache, unifier.cache_limit),
        progress=unifier.progress or silent,
    )
    return keep_scores(scores, source, opened.space)


def _score(
    unifier: Unifier,
    source: Rows,
    y: Any,
    logits: Any,
    opened: Opened,
    seconds: dict[str, float],
    student: Any = None,
) -> Streamed:
    """Score all rows, unless `logits` are given, and collect what is known about each row."""
    space, n = opened.space, len(source)
    with timed(seconds, "scoring"):
        labels = unifier._read_labels(y, n, space, student)  # first: teachers may take hours
        raw = score_by_blocks(unifier, source, opened) if logits is None else _given(logits, n, space)
        known = labels if y is not None else None
        covered, n_abstentions = find_coverage(raw, source, space, known)
    check_coverage(covered)
    plain = Streamed(
        opened.teachers, space, source, raw, known, covered, n_abstentions, np.ones(space.n_teachers), 0.0
    )
    compared = plain.compared()
    warn_of_names(compared, space, stacklevel=5)
    temperatures = unifier._temperatures(compared, space, seconds)
    return plain.heated(temperatures, float(unifier.smoothing))


def _given(logits: Any, rows: int, space: LabelSpace) -> NDArray[Any]:
    """Return given logits (n, m) as an array, mapped if they are; their content is checked by blocks."""
    array: NDArray[Any] = np.asanyarray(logits)
    if array.shape != (rows, space.n_columns):
        raise InvalidInputError(
            f"logits have shape {array.shape}; expected ({rows}, {space.n_columns}): a row per row of X, and "
            "a column per class of each teacher, teacher after teacher."
        )
    return array


def _soft_labels(unifier: Unifier, streamed: Streamed) -> StreamedLabels:
    options = check_options(
        unifier.method, unifier.temperature, unifier.tol, unifier.max_iter, unifier.off_set
    )
    return solve_stream(streamed, unifier.method, options, unifier.progress or silent, stacklevel=6)


def _train(
    unifier: Unifier,
    student: Any,
    read: StudentRows,
    streamed: Streamed,
    found: StreamedLabels | None,
    budget: int,
) -> tuple[Floats | None, Floats | None]:
    """Train the student by passes over the rows; return the balancing weights, and its pseudo-labels."""
    as_seen = partial(as_student_sees, student, names=read.names, encoder=read.encoder)
    if found is None:
        space, packed = packed_targets(streamed)
        fit_network(
            student,
            SourceTargets(streamed.source, streamed.covered, packed, as_seen, space.n_columns),
            read_options(unifier.engine_options),
            n_classes=space.n_classes,
            criterion=method_loss(unifier, space),
            progress=unifier.progress or silent,
            memory=budget,
        )
        return None, None
    class_weights = None
    if unifier._balances(streamed.space):
        class_weights = inverse(found.mean)
        class_weights = np.sqrt(class_weights) if unifier.balance == "sqrt" else class_weights
    L, weights = streamed.space.n_classes, normalised(class_weights, found.mean)
    source, covered = streamed.source, streamed.covered
    targets = SourceTargets(source, covered, found.soft_labels.__getitem__, as_seen, L)
    _fit(unifier, student, targets, weights, budget, found.digest)
    if not unifier.self_label:
        return class_weights, None
    own = label_by_blocks(student, as_seen, streamed, found, weights, unifier.resolved_temperature)
    targets = SourceTargets(source, covered, own.targets.__getitem__, as_seen, L, own.row_weights.__getitem__)
    _fit(unifier, student, targets, np.ones(L), budget, f"{found.digest}-own")
    return class_weights, own.labels.mapped()


def _fit(
    unifier: Unifier, student: Any, targets: SourceTargets, class_weights: Floats, budget: int, key: str
) -> None:
    """Fit the student by passes."""
    with checkpoint_folder(as_store(unifier.cache, unifier.cache_limit), key) as folder:
        fit_student_by_passes(
            student,
            targets,
            class_weights,
            loss=unifier.loss,
            temperature=unifier.resolved_temperature,
            progress=unifier.progress,
            memory=budget,
            checkpoint=folder,
            key=key,
            on_ray=read_options(unifier.engine_options),
        )

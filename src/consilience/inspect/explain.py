"""Explain answers: what each teacher said about a row, and where they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from consilience._validation import as_numbers, check_count, check_fitted, check_packed_logits, n_rows
from consilience.exceptions import InvalidInputError
from consilience.inspect.evaluate import ask
from consilience.inspect.explanation import ClassPair, Disagreement, Disagreements, Explanation, Said
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.packed import block_softmax, floor_blocks
from consilience.labels import LabelSpace
from consilience.run import resolve_run
from consilience.scoring.store import as_store
from consilience.soft_labels.estimate import estimate_soft_labels
from consilience.soft_labels.teacher_temperatures import divide_by_temperatures

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


def explain_row(unified: Unifier, x: Any) -> Explanation:
    """Do what `Unifier.explain` says."""
    check_fitted(unified, "student_")
    X, space, remarks = as_one_row(x), unified.label_space_, list[str]()
    packed = _ask(unified, X, None, remarks)
    proba = unified.predict_proba(X)[0]
    soft = _soft_label(unified, packed, remarks)
    _, shares = block_softmax(packed, space.offsets, 1.0)
    classes = space.classes.tolist()
    said = []
    for i, name in enumerate(space.names):
        own, values = space.columns[space.block(i)], shares[0, space.block(i)]
        weight = np.nan if soft is None else float(soft[own].sum())
        known = (
            {}
            if np.isnan(values[0])
            else dict(zip(space.classes[own].tolist(), values.tolist(), strict=True))
        )
        said.append(Said(name, float(unified.temperatures_[i]), weight, known))
    return Explanation(
        classes[int(proba.argmax())],
        dict(zip(classes, proba.tolist(), strict=True)),
        None if soft is None else dict(zip(classes, soft.tolist(), strict=True)),
        tuple(said),
        unified.method_.name,
        unified.pool_weights_,
        tuple(remarks),
    )


def as_one_row(x: Any) -> Any:
    """Return a single row as an X of one row."""
    if isinstance(x, list | tuple) and len(x) == 1 and isinstance(x[0], str):
        return x
    if hasattr(x, "to_frame") and hasattr(x, "iloc"):  # a row of a pandas frame
        return x.to_frame().T.infer_objects()
    if isinstance(x, list | tuple):
        x = as_numbers("x", x, "expected one row, such as X[17]")
    shape = getattr(x, "shape", None)
    if not shape:
        return [x]
    if len(shape) == 1:
        return x[None]
    if shape[0] != 1:
        raise InvalidInputError(f"x has {shape[0]} rows; explain takes one, such as X[17] or X[17:18].")
    return x


def _ask(unified: Unifier, X: Any, logits: ArrayLike | None, remarks: list[str]) -> Floats:
    """Return the teachers' logits (n, m), divided by their temperatures."""
    space = unified.label_space_
    if logits is None:
        known = np.ones(n_rows(X), dtype=bool)
        run = resolve_run(unified.run)
        cache = as_store(run.cache, run.cache_limit)
        packed = ask(unified.teachers_, space, X, known, run.rows_per_call, cache, run.report, remarks)
    else:
        packed = check_packed_logits(logits, space, n_rows(X))
    return divide_by_temperatures(packed, unified.temperatures_, space)


def _soft_label(unified: Unifier, packed: Floats, remarks: list[str]) -> Floats | None:
    """Return the soft label (L,) that the method makes of one row, or None, with a remark."""
    if unified.student_.train == "backprop":
        remarks.append("There is no soft label: the student learnt from the method's own loss.")
        return None
    starts = unified.label_space_.offsets[:-1]
    answers = ~np.isnan(packed[0, starts])
    if not answers.any():
        remarks.append("There is no soft label: every teacher abstains.")
        return None
    reference = None
    if unified.method_.name in ("auto", "ranks"):  # they rank the row among those that fit has seen
        reference = unified.reference_
        if (answers & np.isnan(reference[:, starts]).all(axis=0)).any():
            remarks.append(
                "There is no soft label: a teacher answers that never did when the model was fitted."
            )
            return None
    space = unified.label_space_
    packed = floor_blocks(packed, space.offsets, np.array([one.smoothing for one in unified.teachers_]))
    if unified.neighbor_weight_:
        remarks.append(
            "The student learnt soft labels that were mixed with those of neighbours (weight "
            f"{unified.neighbor_weight_:.2g}). The one here is of the row alone."
        )
    method = clone(unified.method_).set_params(n_neighbors=0, teacher_temperatures=None)
    Q = estimate_soft_labels(packed, space, method, reference=reference)
    return np.asarray(Q[0])


class _Worst:
    """The worst disagreement of each row so far."""

    def __init__(self, n: int) -> None:
        self.severity = np.zeros(n)
        self.one, self.other = np.full(n, -1), np.full(n, -1)  # teachers
        self.says, self.objects = np.zeros(n, np.intp), np.zeros(n, np.intp)  # classes
        self.sure, self.as_sure = np.zeros(n), np.zeros(n)

    def note(self, rows: NDArray[np.intp], severity: Floats, *found: Any) -> None:
        """Keep what is worse than before: one, other, says, objects, sure, as_sure; each (k,) or a number."""
        worse = severity > self.severity[rows]
        places = rows[worse]
        self.severity[places] = severity[worse]
        kept = (self.one, self.other, self.says, self.objects, self.sure, self.as_sure)
        for array, values in zip(kept, found, strict=True):
            array[places] = values[worse] if isinstance(values, np.ndarray) else values


def find_disagreements(unified: Unifier, X: Any, *, max_rows: int, logits: ArrayLike | None) -> Disagreements:
    """Do what `Unifier.disagreements` says."""
    check_fitted(unified, "student_")
    check_count("max_rows", max_rows)
    space, remarks = unified.label_space_, list[str]()
    packed = _ask(unified, X, logits, remarks)
    return compare_decisions(packed, unified.predict_proba(X), space, max_rows, remarks)


def compare_decisions(
    packed: Floats, proba: Floats, space: LabelSpace, max_rows: int, remarks: Sequence[str] = ()
) -> Disagreements:
    """Compare what teachers say with each other and with probabilities (n, L) over all classes.

    Parameters
    ----------
    packed : (n, m) array
        Packed logits, divided by the teachers' temperatures.
    proba : (n, L) array
        The student's.
    space : LabelSpace
    max_rows : int
        List at most this many rows.
    remarks : sequence of str
        What to tell with the result.
    """
    _, shares = block_softmax(packed, space.offsets, 1.0)
    contradicted = _contradictions(shares, proba, space)
    left = _left(shares, proba, space)
    rows = [*_listed(contradicted, "teachers", space, max_rows), *_listed(left, "student", space, max_rows)]
    pairs = [*_pairs(contradicted, "teachers", space), *_pairs(left, "student", space)]
    return Disagreements(
        tuple(sorted(rows, key=lambda row: -row.severity)[:max_rows]),
        tuple(sorted(pairs, key=lambda pair: -pair.severity)),
        len(proba),
        int((contradicted.severity > 0).sum()),
        int((left.severity > 0).sum()),
        tuple(remarks),
    )


def _contradictions(shares: Floats, proba: Floats, space: LabelSpace) -> _Worst:
    """Find teachers that decide differently between classes that both know."""
    worst, n_teachers = _Worst(len(proba)), space.n_teachers
    blocks = [space.columns[space.block(i)] for i in range(n_teachers)]
    for i in range(n_teachers):
        for j in range(i + 1, n_teachers):
            shared, in_i, in_j = np.intersect1d(blocks[i], blocks[j], return_indices=True)
            if len(shared) < 2:
                continue
            rows = np.flatnonzero(~np.isnan(shares[:, space.offsets[i]] + shares[:, space.offsets[j]]))
            p, q = (
                _given(shares[np.ix_(rows, space.offsets[k] + columns)])
                for k, columns in ((i, in_i), (j, in_j))
            )
            a, b, every = p.argmax(axis=1), q.argmax(axis=1), np.arange(len(rows))
            sure, as_sure = p[every, a], q[every, b]
            mass = proba[np.ix_(rows, shared)].sum(axis=1)
            severity = np.where(a != b, np.minimum(sure, as_sure) * mass, 0.0)
            worst.note(rows, severity, i, j, shared[a], shared[b], sure, as_sure)
    return worst


def _left(shares: Floats, proba: Floats, space: LabelSpace) -> _Worst:
    """Find rows where a teacher knows the student's class and decides for another."""
    worst, decided = _Worst(len(proba)), proba.argmax(axis=1)
    for i in range(space.n_teachers):
        own = space.columns[space.block(i)]
        rows = np.flatnonzero(np.isin(decided, own) & ~np.isnan(shares[:, space.offsets[i]]))
        p, every = shares[rows, space.block(i)], np.arange(len(rows))
        a = p.argmax(axis=1)
        mine = proba[np.ix_(rows, own)]
        mass = mine.sum(axis=1)
        sure = p[every, a]
        as_sure = mine.max(axis=1) / np.maximum(mass, np.finfo(float).tiny)
        severity = np.where(own[a] != decided[rows], np.minimum(sure, as_sure) * mass, 0.0)
        worst.note(rows, severity, i, -1, own[a], decided[rows], sure, as_sure)
    return worst


def _given(part: Floats) -> Floats:
    """Return probabilities (k, c) given that the class is one of these."""
    total = part.sum(axis=1, keepdims=True)
    uniform = np.full(part.shape, 1.0 / part.shape[1])
    return np.asarray(np.divide(part, total, out=uniform, where=total > 0))


Kind = Literal["teachers", "student"]


def _listed(worst: _Worst, kind: Kind, space: LabelSpace, most: int) -> list[Disagreement]:
    """Return the worst rows, most severe first."""
    order = np.argsort(-worst.severity, kind="stable")[:most]
    classes = space.classes.tolist()
    return [
        Disagreement(
            int(row),
            kind,
            space.names[worst.one[row]],
            classes[worst.says[row]],
            float(worst.sure[row]),
            "student" if kind == "student" else space.names[worst.other[row]],
            classes[worst.objects[row]],
            float(worst.as_sure[row]),
            float(worst.severity[row]),
        )
        for row in order.tolist()
        if worst.severity[row] > 0
    ]


def _pairs(worst: _Worst, kind: Kind, space: LabelSpace) -> list[ClassPair]:
    """Count rows by the two classes of their worst disagreement."""
    there = worst.severity > 0
    low = np.minimum(worst.says, worst.objects)[there]
    high = np.maximum(worst.says, worst.objects)[there]
    cells = low * space.n_classes + high
    counts = np.bincount(cells)
    sums = np.bincount(cells, worst.severity[there])
    classes = space.classes.tolist()
    return [
        ClassPair(
            kind,
            (classes[cell // space.n_classes], classes[cell % space.n_classes]),
            int(counts[cell]),
            float(sums[cell]),
        )
        for cell in np.flatnonzero(counts).tolist()
    ]

"""Why does it say so? What each teacher said about a row, and where teachers disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from consilience._validation import as_numbers, check_choice, check_count, check_fitted, n_rows
from consilience._words import counted, percent
from consilience.exceptions import InvalidInputError, visible
from consilience.inspect.drawing import Block
from consilience.inspect.evaluate import ask
from consilience.inspect.evaluation import conditioned
from consilience.inspect.page import Told, columns_of, frame, plain, table
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.packed import block_softmax, floor_blocks
from consilience.labels import LabelSpace
from consilience.rows import as_rows
from consilience.rows.tables import is_instance_of
from consilience.run import resolve_run
from consilience.soft_labels.agreement import divide_by_temperatures
from consilience.soft_labels.estimate import estimate_soft_labels

MOST_PROBABLE = 3  # classes of a distribution that are printed
MOST_ROWS = 15  # disagreements that are printed
Kind = Literal["teachers", "student"]
_WORST = np.dtype(
    [
        *(("severity", float), ("one", int), ("one_says", int), ("one_sure", float)),
        *(("other", int), ("other_says", int), ("other_sure", float)),
    ]
)
"""The worst disagreement about a row so far: who disagrees, what they say, and how sure they are."""


@dataclass(frozen=True)
class Said:
    """What one teacher says about a row.

    Attributes
    ----------
    teacher : str
    temperature : float
        What its logits are divided by.
    weight : float
        The mass that the soft label gives to its classes: how much its answer is about this row. With
        `off_set` this is its weight in the estimate. NaN without a soft label.
    proba : mapping
        The probability of each of its classes, at its temperature; empty if it abstains.
    """

    teacher: str
    temperature: float
    weight: float
    proba: Mapping[Any, float]


@dataclass(frozen=True, repr=False)
class Explanation(Told):
    """How the answer about one row comes about.

    Attributes
    ----------
    decision : str or number
        The class that the student decides for.
    proba : mapping
        The student's probability of each class.
    soft_label : mapping or None
        What the method makes of the teachers; None if it makes none, or if no teacher answers.
    said : tuple of Said
        What each teacher says.
    method : str
        What made the soft label; "" if nothing did.
    pool_weights : mapping or None
        With ``method="auto"``, the share of each estimate in the pool.
    remarks : tuple of str
        What could not be told.
    """

    decision: Any
    proba: Mapping[Any, float]
    soft_label: Mapping[Any, float] | None
    said: tuple[Said, ...]
    method: str
    pool_weights: Mapping[str, float] | None
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON: distributions are lists of classes with probabilities."""
        soft = None if self.soft_label is None else _listed(self.soft_label)
        said = [plain(one) | {"proba": _listed(one.proba)} for one in self.said]
        return {**plain(self), "proba": _listed(self.proba), "soft_label": soft, "said": said}

    def to_frame(self) -> Any:
        """Return a pandas data frame: a column per class; teachers, soft label and student as rows."""
        rows = {said.teacher: said.proba for said in self.said}
        rows |= {"soft label": self.soft_label or {}, "student": self.proba}
        return frame(rows.values(), index=list(rows), columns=list(self.proba))

    def told(self) -> list[str | Block]:
        """Return the decision, what each says, and the remarks."""
        lines = [
            (one.teacher, _probable(one.proba) or "abstains", one.temperature, one.weight)
            for one in self.said
        ]
        if self.method:
            pooled = [f"{name} {percent(share)}" for name, share in (self.pool_weights or {}).items()]
            how = ": ".join(filter(None, [self.method, ", ".join(pooled)]))
            lines.append((f"soft label ({how})", _probable(self.soft_label or {}), np.nan, np.nan))
        lines.append(("student", _probable(self.proba), np.nan, np.nan))
        who, says, heat, weight = zip(*lines, strict=True)
        columns = ("who", "text", who), ("says", "text", says), ("temperature", "number", heat)
        found = table("What teachers and student say", [*columns, ("weight", "percent", weight)])
        head = f"The student decides for {visible(str(self.decision))}."
        return [head, found, "\n".join(self.remarks)]


@dataclass(frozen=True)
class Disagreement:
    """Two that contradict each other about a row.

    Attributes
    ----------
    row : int
        Which row of X.
    kind : {"teachers", "student"}
        Two teachers that both know both classes; or a teacher, and the student that left it.
    one, other : str
        Who disagree. For kind ``"student"``, `other` is ``"student"``.
    one_says, other_says : str or number
        What they decide for.
    one_sure, other_sure : float
        How sure they are of it.
    severity : float
        How sure the less sure is, times the student's mass on the classes that both know.
    """

    row: int
    kind: Kind
    one: str
    one_says: Any
    one_sure: float
    other: str
    other_says: Any
    other_sure: float
    severity: float


@dataclass(frozen=True)
class ClassPair:
    """Two classes about which there is disagreement; `n_rows` counts rows whose worst one it is."""

    kind: Kind
    classes: tuple[Any, Any]
    n_rows: int
    severity: float  # the sum over these rows


@dataclass(frozen=True, eq=False, repr=False)
class Disagreements(Told):
    """Where teachers contradict each other, or the student left them; worst first.

    Attributes
    ----------
    rows : tuple of Disagreement
        At most one of each kind for a row, its worst.
    pairs : tuple of ClassPair
        The same by pairs of classes, over all rows.
    n_rows : int
        Rows of X.
    n_contradicted, n_left : int
        Rows on which teachers contradict each other, and on which the student left a teacher.
    remarks : tuple of str
    """

    rows: tuple[Disagreement, ...]
    pairs: tuple[ClassPair, ...]
    n_rows: int
    n_contradicted: int
    n_left: int
    remarks: tuple[str, ...] = ()

    def to_frame(self, of: Literal["rows", "pairs"] = "rows") -> Any:
        """Return a pandas data frame of rows, or of pairs of classes."""
        check_choice("of", of, ("rows", "pairs"))
        kind, rows = (Disagreement, self.rows) if of == "rows" else (ClassPair, self.pairs)
        return frame(map(asdict, rows), columns=list(kind.__dataclass_fields__))

    def row_table(self, caption: str, rows: Sequence[Disagreement] | None = None, note: str = "") -> Block:
        """Return rows as a table, by default all."""
        rows = self.rows if rows is None else rows
        others = ["the model" if row.kind == "student" else row.other for row in rows]
        columns = [
            *columns_of(
                rows,
                ("row", "place", "row"),
                ("one", "name", "one"),
                ("says", "name", "one_says"),
                ("how sure", "percent", "one_sure"),
            ),
            ("another", "name", others),
            *columns_of(rows, ("says", "name", "other_says"), ("how sure", "percent", "other_sure")),
        ]
        return table(caption, columns, note=note, printed=MOST_ROWS)

    def told(self) -> list[str | Block]:
        """Return how many rows there are, the worst of them, pairs of classes, and the remarks."""
        head = (
            f"{counted(self.n_rows, 'row')}: teachers contradict each other on {self.n_contradicted}, "
            f"and the student leaves a teacher on {self.n_left}"
        )
        columns = [
            ("kind", "text", [one.kind for one in self.pairs]),
            ("classes", "text", [" / ".join(map(str, one.classes)) for one in self.pairs]),
            *columns_of(self.pairs, ("rows", "count", "n_rows"), ("severity", "number", "severity")),
        ]
        pairs = table("Pairs of classes", columns, printed=MOST_ROWS)
        return [head, self.row_table("Rows"), pairs, "\n".join(self.remarks)]


def _listed(proba: Mapping[Any, float]) -> list[dict[str, Any]]:
    """Return a distribution as a list: class names need not be texts, as the keys of JSON are."""
    return [{"class": name, "probability": value} for name, value in proba.items()]


def _probable(proba: Mapping[Any, float]) -> str:
    """Return the most probable classes as text."""
    top = sorted(proba.items(), key=lambda item: -item[1])[:MOST_PROBABLE]
    return ", ".join(f"{name} {percent(value)}" for name, value in top)


def explain(model: Any, x: Any) -> Explanation:
    """Tell how the answer about one row comes about.

    Parameters
    ----------
    x : a row
        One row of X: ``X[17]``, a text, or an X with one row.

    Returns
    -------
    Explanation
        What each teacher says, at which temperature and weight, the soft label, and the student's answer.
        It prints well, and has `to_dict` and `to_frame`. The methods ``"auto"`` and ``"ranks"`` rank the
        row among up to 2,000 of those that `fit` has seen.
    """
    X = as_one_row(x)
    space, heat, packed, told = _teachers_said(model, X)
    proba = model.predict_proba(X)[0]
    soft = _soft_label(model, packed, told) if hasattr(model, "method_") else None
    _, shares = block_softmax(packed, space.offsets, 1.0)
    said = []
    for i, name in enumerate(space.names):
        own, values = space.columns[space.block(i)], shares[0, space.block(i)]
        weight = np.nan if soft is None else float(soft[own].sum())
        known = {} if np.isnan(values[0]) else _by_class(space.classes[own], values)
        said.append(Said(name, float(heat[i]), weight, known))
    return Explanation(
        model.classes_[proba.argmax()].item(),
        _by_class(model.classes_, proba),
        None if soft is None else _by_class(model.classes_, soft),
        tuple(said),
        model.method_.name if hasattr(model, "method_") else "",
        getattr(model, "pool_weights_", None),
        tuple(told),
    )


def _by_class(classes: NDArray[Any], proba: Floats) -> dict[Any, float]:
    return dict(zip(classes.tolist(), proba.tolist(), strict=True))


def as_one_row(x: Any) -> Any:
    """Return a single row as an X of one row."""
    if isinstance(x, list | tuple) and len(x) == 1 and isinstance(x[0], str):
        return x
    if hasattr(x, "to_frame") and hasattr(x, "iloc"):  # a row of a pandas frame
        return x.to_frame().T.infer_objects()
    if isinstance(x, list | tuple | memoryview) or is_instance_of(x, "polars", "Series"):
        x = as_numbers("x", x, "expected one row, such as X[17]")
    shape: tuple[int, ...] = getattr(x, "shape", None) or ()
    if len(shape) > 1 and shape[0] != 1:
        raise InvalidInputError(f"x has {shape[0]} rows; explain takes one, such as X[17] or X[17:18].")
    return x if len(shape) > 1 else x[None] if shape else [x]


def _teachers_said(
    model: Any, X: Any, logits: ArrayLike | None = None
) -> tuple[LabelSpace, Floats, Floats, list[str]]:
    """Return the space of a model's teachers, their temperatures (N,), their logits (n, m), and remarks.

    The logits are divided by the temperatures.
    """
    check_fitted(model, "classes_")
    space, told = getattr(model, "label_space_", None), list[str]()
    if space is None:
        teachers = getattr(model, "teachers_", None)
        if not teachers:
            raise InvalidInputError(f"This {type(model).__name__} has no teachers that could be asked.")
        lists, names = [one.classes for one in teachers], [one.name for one in teachers]
        space = LabelSpace(lists, names=names, disconnected="ignore")
    heat = np.asarray(getattr(model, "temperatures_", np.ones(space.n_teachers)))
    packed = ask(model.teachers_, space, X, resolve_run(model.run), told, logits=logits)
    return space, heat, divide_by_temperatures(packed, heat, space), told


def disagreements(
    model: Any, X: Any, *, max_rows: int = 100, logits: ArrayLike | None = None
) -> Disagreements:
    """Find rows and pairs of classes where teachers contradict each other, or the student left them.

    Teachers contradict each other if both know both classes: one that does not know birds is not wrong to
    call a bird a cat. The worst comes first: both are sure, and the student puts its mass on the classes
    in question.

    Parameters
    ----------
    X : array, sparse matrix, data frame or list
        n rows.
    max_rows : int
        List at most this many rows. Pairs of classes are counted over all.
    logits : (n, m) array, optional
        The teachers' outputs for X, from `score_teachers`.

    Returns
    -------
    Disagreements
        It prints well, and has `to_dict` and `to_frame`.
    """
    check_count("max_rows", max_rows)
    X = as_rows(X).all(resolve_run(getattr(model, "run", None)))
    space, _, packed, told = _teachers_said(model, X, logits)
    order = {name: k for k, name in enumerate(model.classes_.tolist())}
    proba = np.hstack([model.predict_proba(X), np.zeros((n_rows(X), 1))])  # of classes that it does not know
    ours = proba[:, [order.get(name, -1) for name in space.classes.tolist()]]
    return compare_decisions(packed, ours, space, max_rows, told)


def compare_decisions(
    packed: Floats,
    proba: Floats,
    space: LabelSpace,
    max_rows: int,
    told: Sequence[str] = (),
    places: NDArray[np.intp] | None = None,
) -> Disagreements:
    """Compare what teachers say with each other and with probabilities (n, L) over all classes.

    `packed` (n, m) are logits, divided by the teachers' temperatures; `told` is what to say with the result,
    and `places` (n,) where the rows are, if not in the order given.
    """
    _, shares = block_softmax(packed, space.offsets, 1.0)
    N, decided = space.n_teachers, proba.argmax(axis=1)
    blocks = [*(shares[:, space.block(i)] for i in range(N)), proba]
    classes = [*(space.columns[space.block(i)] for i in range(N)), np.arange(space.n_classes)]
    worst: dict[Kind, NDArray[Any]] = {"teachers": np.zeros(len(proba), _WORST)}
    worst["student"] = worst["teachers"].copy()
    for i, j in combinations(range(N + 1), 2):
        shared, in_i, in_j = np.intersect1d(classes[i], classes[j], return_indices=True)
        answered = ~np.isnan(blocks[i][:, 0] + blocks[j][:, 0])
        if j == N:  # the student left a teacher that knows what it decides for
            answered &= np.isin(decided, shared)
        if len(shared) > 1:
            rows = np.flatnonzero(answered)
            p, q = (conditioned(blocks[k][np.ix_(rows, own)]) for k, own in ((i, in_i), (j, in_j)))
            says, objects, sure, as_sure = p.argmax(axis=1), q.argmax(axis=1), p.max(axis=1), q.max(axis=1)
            mass = proba[np.ix_(rows, shared)].sum(axis=1)
            severity = np.where(says != objects, np.minimum(sure, as_sure) * mass, 0.0)
            parts = np.broadcast_arrays(severity, i, shared[says], sure, j, shared[objects], as_sure)
            found = worst["student" if j == N else "teachers"]
            worse = severity > found["severity"][rows]
            found[rows[worse]] = np.rec.fromarrays(parts, dtype=_WORST)[worse]
    return _listed_disagreements(
        worst, space, max_rows, np.arange(len(proba)) if places is None else places, tuple(told)
    )


def _listed_disagreements(
    worst: Mapping[Kind, NDArray[Any]],
    space: LabelSpace,
    max_rows: int,
    places: NDArray[np.intp],
    remarks: tuple[str, ...],
) -> Disagreements:
    """List each row's worst disagreement (n,) of each kind, and count them by pairs of classes."""
    classes, names = space.classes.tolist(), [*space.names, "student"]
    listed, pairs, counts = list[Disagreement](), list[ClassPair](), list[int]()
    for kind, found in worst.items():
        rows = np.flatnonzero(found["severity"])
        counts.append(len(rows))
        rows = rows[np.argsort(-found["severity"][rows], kind="stable")]
        for place, (severity, i, a, p, j, b, q) in zip(
            places[rows[:max_rows]].tolist(), found[rows[:max_rows]].tolist(), strict=True
        ):
            listed.append(
                Disagreement(place, kind, names[i], classes[a], p, names[j], classes[b], q, severity)
            )
        both = np.sort([found["one_says"][rows], found["other_says"][rows]], axis=0)
        both, cells = np.unique(both, axis=1, return_inverse=True)
        sums = np.bincount(cells.ravel(), found["severity"][rows]).tolist()
        sizes = np.bincount(cells.ravel()).tolist()
        for (low, high), size, severity in zip(both.T.tolist(), sizes, sums, strict=True):
            pairs.append(ClassPair(kind, (classes[low], classes[high]), size, severity))
    listed.sort(key=lambda row: -row.severity)
    pairs.sort(key=lambda pair: -pair.severity)
    n_contradicted, n_left = counts
    return Disagreements(tuple(listed[:max_rows]), tuple(pairs), len(places), n_contradicted, n_left, remarks)


def _soft_label(unified: Any, packed: Floats, told: list[str]) -> Floats | None:
    """Return the soft label (L,) that the method makes of one row, or None, with a remark."""
    space, method, reference = unified.label_space_, unified.method_, None
    answers = ~np.isnan(packed[0, space.offsets[:-1]])
    why = None
    if unified.student_.train == "backprop":
        why = "the student learnt from the method's own loss."
    elif not answers.any():
        why = "every teacher abstains."
    elif method.name in ("auto", "ranks"):  # they rank the row among those that fit has seen
        reference = unified.reference_
        if (answers & np.isnan(reference[:, space.offsets[:-1]]).all(axis=0)).any():
            why = "a teacher answers that never did when the model was fitted."
    if why is not None:
        told.append(f"There is no soft label: {why}")
        return None
    if unified.neighbor_weight_:
        told.append(
            "The student learnt soft labels that were mixed with those of neighbours (weight "
            f"{unified.neighbor_weight_:.2g}). The one here is of the row alone."
        )
    smoothing = np.array([one.smoothing for one in unified.teachers_])
    method = clone(method).set_params(n_neighbors=0, teacher_temperatures=None)
    packed = floor_blocks(packed, space.offsets, smoothing)
    return np.asarray(estimate_soft_labels(packed, space, method, reference=reference)[0])

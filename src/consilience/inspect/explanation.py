"""Why does it say so? What `Unifier.explain` and `Unifier.disagreements` return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from consilience._optional import require
from consilience._validation import check_choice
from consilience._words import aligned, counted, percent, visible
from consilience.inspect.evaluation import plain

MOST_PROBABLE = 3  # classes of a distribution that are printed
MOST_ROWS = 15  # disagreements that are printed


@dataclass(frozen=True)
class Said:
    """What one teacher says about a row.

    Attributes
    ----------
    teacher : str
    temperature : float
        What its logits are divided by: 1 without `teacher_temperatures`.
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


@dataclass(frozen=True)
class Explanation:
    """How the answer about one row comes about.

    Attributes
    ----------
    decision : str or number
        The class that the student decides for.
    proba : mapping
        The student's probability of each class.
    soft_label : mapping or None
        What the method makes of the teachers; None with ``train="backprop"``, or if no teacher answers.
    said : tuple of Said
        What each teacher says.
    method : str
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
        return {
            "decision": self.decision,
            "proba": _listed(self.proba),
            "soft_label": None if self.soft_label is None else _listed(self.soft_label),
            "said": [plain(said) | {"proba": _listed(said.proba)} for said in self.said],
            "method": self.method,
            "pool_weights": None if self.pool_weights is None else dict(self.pool_weights),
            "remarks": list(self.remarks),
        }

    def to_frame(self) -> Any:
        """Return a pandas data frame: a column per class; teachers, soft label and student as rows."""
        pandas = require("pandas", extra="tables", purpose="A data frame")
        rows = {said.teacher: said.proba for said in self.said}
        records = [*rows.values(), self.soft_label or {}, self.proba]
        names = [*rows, "soft label", "student"]
        return pandas.DataFrame(records, index=names, columns=list(self.proba))

    def __repr__(self) -> str:
        lines = [
            [
                said.teacher,
                _probable(said.proba) or "abstains",
                f"{said.temperature:.3g}",
                percent(said.weight),
            ]
            for said in self.said
        ]
        soft = "" if self.soft_label is None else _probable(self.soft_label)
        how = self.method
        if self.pool_weights is not None:
            how += f": {', '.join(f'{name} {percent(share)}' for name, share in self.pool_weights.items())}"
        lines += [[f"soft label ({how})", soft, "", ""], ["student", _probable(self.proba), "", ""]]
        head = f"The student decides for {visible(str(self.decision))}."
        table = aligned(["who", "says", ">temperature", ">weight"], lines)
        return "\n".join([head, "", *table, *self.remarks])


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
    kind: Literal["teachers", "student"]
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

    kind: Literal["teachers", "student"]
    classes: tuple[Any, Any]
    n_rows: int
    severity: float  # the sum over these rows


@dataclass(frozen=True)
class Disagreements:
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

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        plainly: dict[str, Any] = plain(self)
        return plainly

    def to_frame(self, of: Literal["rows", "pairs"] = "rows") -> Any:
        """Return a pandas data frame of rows, or of pairs of classes."""
        check_choice("of", of, ("rows", "pairs"))
        pandas = require("pandas", extra="tables", purpose="A data frame")
        kind = Disagreement if of == "rows" else ClassPair
        columns = list(kind.__dataclass_fields__)
        return pandas.DataFrame([asdict(row) for row in getattr(self, of)], columns=columns)

    def __repr__(self) -> str:
        head = (
            f"{counted(self.n_rows, 'row')}: teachers contradict each other on {self.n_contradicted}, "
            f"and the student leaves a teacher on {self.n_left}"
        )
        rows = [
            [
                *(str(row.row), row.one, f"{row.one_says} {percent(row.one_sure)}"),
                *(row.other, f"{row.other_says} {percent(row.other_sure)}", f"{row.severity:.2f}"),
            ]
            for row in self.rows[:MOST_ROWS]
        ]
        pairs = [
            [pair.kind, " / ".join(map(str, pair.classes)), str(pair.n_rows), f"{pair.severity:.1f}"]
            for pair in self.pairs[:MOST_ROWS]
        ]
        lines = [head]
        if rows:
            lines += ["", *aligned([">row", "who", "says", "and", "says", ">severity"], rows)]
            lines += ["", *aligned(["kind", "classes", ">rows", ">severity"], pairs)]
        return "\n".join([*lines, *self.remarks])


def _listed(proba: Mapping[Any, float]) -> list[dict[str, Any]]:
    """Return a distribution as a list: class names need not be texts, as the keys of JSON are."""
    return [{"class": name, "probability": value} for name, value in proba.items()]


def _probable(proba: Mapping[Any, float]) -> str:
    """Return the most probable classes as text."""
    top: Sequence[tuple[Any, float]] = sorted(proba.items(), key=lambda item: -item[1])[:MOST_PROBABLE]
    return ", ".join(f"{name} {percent(value)}" for name, value in top)

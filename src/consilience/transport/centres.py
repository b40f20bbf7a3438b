"""Class centres, the cost of taking one class for another, and whether weights can replace centres.

SCTD, Sec. 4.1.2 and Tables 2 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._validation import as_random_state, check_choice, n_rows, take_rows
from consilience._words import shorten
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError, shown, warn
from consilience.kernels.transport.centres import (
    centre_distances,
    class_means,
    nearest_other_mean,
    unit_rows,
)
from consilience.labels import class_list, read_labels
from consilience.run import Run
from consilience.scoring import observe
from consilience.teachers import Observed, Teacher, as_teacher
from consilience.transport.costs import Constant, Cost, Random, Superclass, as_cost

# Without labels, the weights are trustworthy if they agree with the whole model on at least this share of the
# rows. Weights fail on rows far from the origin. When rows are moved away step by step, teachers lose the
# classes that they share with the student at about the point where agreement falls below a half
# (python -m benchmarks.papers.centres).
TRUSTED_AGREEMENT = 0.5
# With labels, the weights are trustworthy if they lose at most this much accuracy against the whole model.
TRUSTED_LOSS = 0.1
_CHECKED_ROWS = 2000


def class_centres(
    teacher: Any, X: Any, y: Any, *, classes: ArrayLike | None = None, observed: Observed | None = None
) -> NDArray[np.float64]:
    """Return the mean embedding (C, d) of each class of y, as a teacher sees it: SCTD, eq. (6).

    Parameters
    ----------
    teacher : teacher
        Or anything that `as_teacher` accepts. If the teacher has no embedding, the square roots of its
        probabilities take its place.
    X : (n, ...) rows
    y : (n,) sequence of str or int
        The class of each row. Rows without a label are left out.
    classes : (C,) sequence, optional
        The classes, in the order of the result. Default: the classes of y, in numpy.unique's order.
    observed : Observed, optional
        The result of `observe` for X. Pass it to avoid running the teacher again.

    Returns
    -------
    (C, d) float64 array

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0, 1], [0, 3], [4, 0]]), ["a", "a", "b"]
    >>> class_centres(LogisticRegression().fit(X, y), X, y).tolist()
    [[0.0, 2.0], [4.0, 0.0]]
    """
    names, codes = read_labels(y, n_rows(X), classes=classes)
    return _means(features(observed_rows(as_teacher(teacher), X, observed)), names, codes)


def cost_matrix(
    teacher: Any,
    X: Any = None,
    y: Any = None,
    *,
    cost: str | Cost = "embedding",
    classes: ArrayLike | None = None,
    observed: Observed | None = None,
    random_state: Any = None,
) -> NDArray[np.float64]:
    """Return the cost of taking each class of a teacher for each class of the student: SCTD, eq. (7).

    M[m, n] is the distance from the teacher's class m to the student's class n in the teacher's embedding.

    Parameters
    ----------
    teacher : teacher
        Or anything that `as_teacher` accepts.
    X : (n, ...) rows
        The student's rows. Optional if the cost needs neither an embedding nor y.
    y : (n,) sequence of str or int
        The class of each row; rows without a label are left out. Optional for the costs by name if `classes`
        is given.
    cost : {"embedding", "constant", "random"} or Cost
        "embedding" is the paper's cost. An object has options: ``transport.Embedding(normalize=False)``. The
        baselines of Table 8 are `Constant`, `Random` and `Superclass`.
    classes : (C,) sequence, optional
        The student's classes, in the order of the result. Default: those of y, in numpy.unique's order.
    observed : Observed, optional
        The result of `observe` for X, from the teacher whose embedding is used.
    random_state : int, RandomState or None
        Seeds a `Random` cost.

    Returns
    -------
    (m, C) float64 array
        One row for each class of the teacher, one column for each class of the student.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0, 1], [0, 3], [4, 0], [2, 0]])
    >>> teacher = LogisticRegression().fit(X, ["car", "car", "cat", "cat"])
    >>> cost = cost_matrix(teacher, X, ["bus", "bus", "dog", "dog"])
    >>> cost.shape, bool(cost[0, 0] < cost[0, 1]), bool(cost[1, 1] < cost[1, 0])
    ((2, 2), True, True)
    """
    chosen: Any = as_cost("cost", cost)
    source = as_teacher(teacher)
    if isinstance(chosen, Constant | Superclass):
        if y is None and classes is not None:
            return cost_by_name(source, np.asarray(class_list(classes)), chosen)
        rows = None if X is None else n_rows(X)
        return cost_by_name(source, read_labels(y, rows, classes=classes).classes, chosen)
    names, codes = read_labels(y, n_rows(X), classes=classes)
    own, points = class_points(source, X, chosen, observed, random_state)
    return centre_distances(own, _means(points, names, codes), chosen.normalize)


def class_points(
    teacher: Teacher, X: Any, cost: Any, observed: Observed | None = None, random_state: Any = None
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return the centres (m, d) of a teacher's own classes, and the rows X (n, d), in one space.

    Parameters
    ----------
    teacher : Teacher
    X : (n, ...) rows
    cost : Embedding or Random
        Which space.
    observed, random_state
        As in `cost_matrix`.
    """
    if isinstance(cost, Random):  # Table 8, II
        seed = int(as_random_state(random_state).randint(2**31 - 1))
        rng, randomised = np.random.default_rng(seed), teacher.randomised(seed)
        if randomised is not None:
            points, weights = features(observe(randomised, X, Run())), layer_weights(randomised, X)
        else:
            points, weights = features(observed_rows(teacher, X, observed)), None
            points = points @ rng.normal(size=(points.shape[1], points.shape[1]))
        own = rng.normal(size=(len(teacher.classes), points.shape[1])) if weights is None else weights
        return unit_rows(own), points
    used = teacher if cost.other is None else as_teacher(cost.other)
    seen = observed_rows(used, X, observed)
    own = teacher_centres(used, X, seen, cost.centres)
    return own if cost.other is None else own[_rows_of(used, teacher)], features(seen)


def features(observed: Observed) -> NDArray[Any]:
    """Return a teacher's embeddings (n, d), or the square roots of its probabilities (n, k) if it has none.

    Examples
    --------
    >>> features(Observed(np.log([[0.25, 0.75]]), None)).round(3).tolist()
    [[0.5, 0.866]]
    """
    if observed.embeddings is not None:
        return observed.embeddings
    return np.asarray(np.sqrt(softmax(observed.logits, axis=1)))


def teacher_centres(
    teacher: Teacher, some: Any, seen: Observed, centres: str = "auto"
) -> NDArray[np.float64]:
    """Return the centres (m, d) of a teacher's own classes in its embedding; `centres` as in `Embedding`.

    Weights of the last layer are scaled to unit length: SCTD, eq. (8). A teacher without an embedding gets
    unit vectors.

    Parameters
    ----------
    teacher : Teacher
    some : rows
        Some rows, in which the teacher may look for its last layer.
    seen : Observed
        What the teacher gives for the rows that centres are to fit.
    centres : str
    """
    width = features(seen).shape[1]
    card = teacher.class_centres
    if card is not None and (centres == "card" or (centres == "auto" and _fits(teacher, card, width))):
        return _fitting(teacher, card, width, "centres on its card")
    if centres == "card":
        raise TeacherError(
            teacher.name, "has no centres on its card. Use {remedy}.", remedy=("centres", "auto")
        )
    if seen.embeddings is None:
        return np.eye(len(teacher.classes))
    weights = layer_weights(teacher, some) if centres in ("auto", "weights") else None
    if weights is not None:
        unit = unit_rows(_fitting(teacher, weights, width, "weights"))
        if centres == "weights" or _weights_agree(teacher, unit, seen.logits, seen.embeddings):
            return unit
    elif centres == "weights":
        raise TeacherError(
            teacher.name,
            "has no last layer whose weights act on its embedding. Use {remedy}.",
            remedy=("centres", "auto"),
        )
    return _predicted_centres(teacher, seen.logits, seen.embeddings)


def observed_rows(teacher: Teacher, X: Any, observed: Observed | None) -> Observed:
    """Return what a teacher gives for X, or `observed` after a check.

    A row that lacks either its logits or its features is NaN throughout.
    """
    seen = observe(teacher, X, Run()) if observed is None else observed
    expected = (n_rows(X), len(teacher.classes))
    if seen.logits.shape != expected:
        raise InvalidInputError(
            f"observed has logits of shape {seen.logits.shape}; expected {expected}: one row per row "
            f"of X, and one column per class of teacher {teacher.name!r}."
        )
    if seen.embeddings is None:
        return seen
    silent = (np.isnan(seen.logits[:, 0]) | np.isnan(seen.embeddings).any(axis=1))[:, None]
    if not silent.any():
        return seen
    return Observed(np.where(silent, np.nan, seen.logits), np.where(silent, np.nan, seen.embeddings))


def _means(points: NDArray[Any], names: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the mean features (C, d) of each class; raise if a class has no row."""
    means = class_means(points, codes, len(names))
    missing = names[np.isnan(means).any(axis=1)]
    if len(missing):
        raise InvalidInputError(
            f"The centre of {shorten(missing, 5)} is unknown: y has no rows of these classes, or the teacher "
            "abstains on them. Give rows of every class, or leave these out of {remedy}.",
            remedy="classes",
        )
    return means


def layer_weights(teacher: Teacher, X: Any) -> NDArray[Any] | None:
    """Return the weights (k, d) of a teacher's last layer, or None."""
    if teacher.class_weights is None and teacher.batched and n_rows(X):
        teacher.observe(take_rows(X, slice(0, 1)))  # some networks show it only when they run
    return teacher.class_weights


def _weights_agree(
    teacher: Teacher, weights: NDArray[np.float64], all_logits: NDArray[np.float64], rows: NDArray[Any]
) -> bool:
    """Tell whether the nearest weights match the teacher's predictions on enough rows; warn if not."""
    step = max(1, len(rows) // _CHECKED_ROWS)
    logits, points = all_logits[::step], rows[::step]
    answered = ~np.isnan(logits[:, 0])
    if not answered.any():
        return True
    agreement = np.mean((points[answered] @ weights.T).argmax(axis=1) == logits[answered].argmax(axis=1))
    if agreement >= TRUSTED_AGREEMENT:
        return True
    warn(
        ConsilienceWarning(
            f"The weights of teacher {teacher.name!r} agree with its predictions on {agreement:.0%} of the "
            f"rows (at least {TRUSTED_AGREEMENT:.0%} are needed); its class centres come from its "
            "predictions instead. Put true centres on its card if you have them."
        )
    )
    return False


def _predicted_centres(
    teacher: Teacher, logits: NDArray[np.float64], embeddings: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the mean (m, d) of all rows for each class, weighted by its probability."""
    answered = ~np.isnan(logits[:, 0])
    if not answered.any():
        raise TeacherError(teacher.name, "abstains on every row of X, so it has no centres there.")
    mass = softmax(logits[answered], axis=1).T
    mass /= np.maximum(mass.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(mass @ embeddings[answered])


def _fits(teacher: Teacher, card: Any, width: int) -> bool:
    """Tell whether the centres on a card match the width of the teacher's embedding; warn if not."""
    if np.shape(card)[1] == width:
        return True
    warn(
        ConsilienceWarning(
            f"The centres on the card of teacher {teacher.name!r} have {np.shape(card)[1]} columns and its "
            f"embedding has {width}, so they are not used. Give {{remedy}} the layer they were taken from.",
            remedy="embed",
        )
    )
    return False


def _fitting(teacher: Teacher, centres: Any, width: int, what: str) -> NDArray[np.float64]:
    values = np.asarray(centres, dtype=np.float64)
    if values.shape != (len(teacher.classes), width):
        raise TeacherError(
            teacher.name,
            f"has {what} of shape {values.shape} and embeddings of {width} columns; expected "
            f"({len(teacher.classes)}, {width}). Was the card written for another {{remedy}}?",
            remedy="embed",
        )
    return values


def _rows_of(other: Teacher, teacher: Teacher) -> list[int]:
    """Return the positions of a teacher's classes among the classes of another teacher."""
    known = other.classes.tolist()
    missing = [name for name in teacher.classes.tolist() if name not in known]
    if missing:
        raise InvalidInputError(
            f"{{argument}} does not know the classes {shorten(missing, 5)} of teacher {shown(teacher.name)}. "
            "Give a teacher that knows them all.",
            argument="other",
            value=other.name,
        )
    return [known.index(name) for name in teacher.classes.tolist()]


def cost_by_name(teacher: Teacher, names: NDArray[Any], cost: Constant | Superclass) -> NDArray[np.float64]:
    """Return 0 between classes of the same name, or of the same superclass, else 1: Table 8, I and III."""
    source, target = teacher.classes.tolist(), names.tolist()
    if isinstance(cost, Superclass):
        above = cost.superclasses
        missing = [name for name in dict.fromkeys([*source, *target]) if name not in above]
        if missing:
            raise InvalidInputError(
                f"superclasses lacks {shorten(missing, 5)}; give a superclass for every class of both sides."
            )
        source, target = [above[name] for name in source], [above[name] for name in target]
    return np.array([[0.0 if a == b else 1.0 for b in target] for a in source])


@dataclass(frozen=True)
class NcmAccuracy:
    """Accuracy of nearest-class-mean classifiers in a teacher's embedding: SCTD, Table 2.

    Attributes
    ----------
    model : float
        Accuracy of the whole model. Without labels it is 1: the model agrees with itself.
    true_centres : float
        Accuracy of the nearest class mean, where each row is left out of its own class's mean. Without
        labels, the predicted class counts as the class.
    weight_centres : float or None
        Accuracy of the nearest row of weights, eq. (8). None if the teacher has no weights.
    n_rows : int
        Number of rows compared.
    labelled : bool
        Whether y was given. Otherwise the model's own predictions take the place of labels.
    """

    model: float
    true_centres: float
    weight_centres: float | None
    n_rows: int
    labelled: bool

    @property
    def trustworthy(self) -> bool:
        """Whether the weights can replace the centres.

        With labels, they may be at most `TRUSTED_LOSS` worse than the model. Without, they must agree with it
        on at least `TRUSTED_AGREEMENT` of the rows; these rows need not belong to its classes.
        """
        if self.weight_centres is None:
            return False
        if self.labelled:
            return self.model - self.weight_centres <= TRUSTED_LOSS
        return self.weight_centres >= TRUSTED_AGREEMENT

    def __str__(self) -> str:
        verdict = "The weights can replace the class centres."
        if self.weight_centres is None:
            verdict = "The teacher has no weights on its embedding; its centres come from elsewhere."
        elif not self.trustworthy:
            verdict = (
                "The weights cannot replace the class centres; put true centres on the card, "
                "or use centres='predictions'."
            )
        what = "accuracy" if self.labelled else "agreement with the model's own predictions"
        weights = "-" if self.weight_centres is None else f"{self.weight_centres:.1%}"
        return (
            f"{what} on {self.n_rows} rows: model {self.model:.1%}, nearest true centre "
            f"{self.true_centres:.1%}, nearest weights {weights}. {verdict}"
        )


def ncm_accuracy(
    teacher: Any, X: Any, y: Any = None, *, normalize: bool = True, observed: Observed | None = None
) -> NcmAccuracy:
    """Check whether the weights of a teacher's last layer can replace its class centres: SCTD, Table 2.

    Parameters
    ----------
    teacher : teacher
        Or anything that `as_teacher` accepts.
    X : (n, ...) rows
    y : (n,) sequence, optional
        Labels. Rows without one, or of classes that the teacher does not know, are left out. Without y, the
        nearest-mean classifiers are compared with the model's own predictions, and X may be any rows.
    normalize : bool
        Whether to scale rows and centres to unit length, as in `cost_matrix`.
    observed : Observed, optional
        The result of `observe` for X.

    Returns
    -------
    NcmAccuracy

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.neural_network import MLPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = MLPClassifier(64, max_iter=60, random_state=0, tol=1).fit(X / 16, y)
    >>> check = ncm_accuracy(model, X / 16, y)
    >>> check.labelled, check.n_rows
    (True, 1797)
    """
    check_choice("normalize", normalize, (True, False))
    source = as_teacher(teacher)
    seen = observed_rows(source, X, observed)
    known = source.classes.tolist()
    answered = ~np.isnan(seen.logits[:, 0])
    predicted = np.where(answered, np.argmax(np.nan_to_num(seen.logits), axis=1), -1)
    if y is None:
        truth = predicted
    else:
        names, codes = read_labels(y, n_rows(X))
        place = {name: i for i, name in enumerate(known)}
        own = np.array([place.get(name, -1) for name in names.tolist()])[codes]
        truth = np.where(answered & (codes >= 0), own, -1)
    rows = np.flatnonzero(truth >= 0)
    if len(rows) == 0:
        raise InvalidInputError(
            f"No row of X belongs to a class that teacher {source.name!r} knows ({shorten(known, 5)})."
        )
    points, truth = np.asarray(features(seen)[rows], dtype=np.float64), truth[rows]
    weights = layer_weights(source, X) if seen.embeddings is not None else None
    unit = unit_rows(points) if normalize else points
    near_weights = None if weights is None else (unit @ unit_rows(weights).T).argmax(axis=1)
    near_means = nearest_other_mean(points, truth, len(known), normalize)
    return NcmAccuracy(
        model=float(np.mean(predicted[rows] == truth)),
        true_centres=float(np.mean(near_means == truth)),
        weight_centres=None if near_weights is None else float(np.mean(near_weights == truth)),
        n_rows=len(rows),
        labelled=y is not None,
    )

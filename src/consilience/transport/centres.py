"""Class centres, and the cost of taking one class for another (SCTD, Sec. 4.1.2 and Table 8)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._validation import as_random_state, check_choice, n_rows
from consilience._words import shorten
from consilience.exceptions import ConsilienceWarning, InvalidInputError, TeacherError
from consilience.kernels.transport.centres import centre_distances, class_means, unit_rows
from consilience.labels import class_list, read_labels
from consilience.scoring.engine import Observed, observe
from consilience.teachers import Teacher, as_teacher

Kind = Literal["embedding", "constant", "random", "superclass"]
Centres = Literal["auto", "card", "weights", "predictions"]

KINDS = ("embedding", "constant", "random", "superclass")
CENTRES = ("auto", "card", "weights", "predictions")

# Without labels, the weights are trustworthy if they agree with the whole model on at least this share of the
# rows. Weights fail on rows far from the origin. When rows are moved away step by step, teachers lose the
# classes that they share with the student at about the point where agreement falls below a half
# (python -m benchmarks.papers.centres).
TRUSTED_AGREEMENT = 0.5
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
    seen = observed_rows(as_teacher(teacher), X, observed)
    return _means(seen, names, codes)


def cost_matrix(
    teacher: Any,
    X: Any = None,
    y: Any = None,
    *,
    kind: Kind = "embedding",
    classes: ArrayLike | None = None,
    centres: Centres = "auto",
    other: Any = None,
    superclasses: Mapping[Any, Any] | None = None,
    normalize: bool = True,
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
        The class of each row; rows without a label are left out. Optional for the kinds "constant" and
        "superclass" if `classes` is given.
    kind : {"embedding", "constant", "random", "superclass"}
        "embedding" is the paper's cost. The others are the baselines of Table 8:

        - "constant": 0 between classes of the same name, else 1;
        - "random": like "embedding", but a torch teacher gets random weights. Other teachers get a random
          projection of the embedding, and random vectors for their classes;
        - "superclass": 0 between classes of the same superclass, else 1.
    classes : (C,) sequence, optional
        The student's classes, in the order of the result. Default: those of y, in numpy.unique's order.
    centres : {"auto", "card", "weights", "predictions"}
        Where the centres of the teacher's classes come from: its card, the weights of its last layer
        (eq. 8), or its predictions. With "predictions" (ours) a centre is the mean of the rows of X, weighted
        by the teacher's probability for the class. "auto" takes the first of these that exists. It skips
        weights that disagree with the teacher on more than half of X (see `ncm_accuracy`), with a warning.
    other : teacher, optional
        Use the embedding of this teacher instead (Table 8, IV). It must know all classes of the teacher.
    superclasses : mapping, optional
        The superclass of each class of the teacher and of the student, for ``kind="superclass"``.
    normalize : bool
        Whether to scale both sides to unit length. Costs then lie in [0, 2]. Without it the student's
        centres keep their lengths, while the weights of eq. (8) always have length one: the cost then
        compares different units.
    observed : Observed, optional
        The result of `observe` for X, from the teacher whose embedding is used.
    random_state : int, RandomState or None
        Used by ``kind="random"``.

    Returns
    -------
    (m, C) float64 array
        One row for each class of the teacher, one column for each class of the student.

    Notes
    -----
    A teacher without an embedding (a forest, a function, precomputed outputs) gets one: the square roots of
    its probabilities. Its own class m is then the m-th unit vector, and the distance is Hellinger's, up to a
    factor. A class of the student is close to class m if the teacher predicts m for its rows.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0, 1], [0, 3], [4, 0], [2, 0]])
    >>> teacher = LogisticRegression().fit(X, ["car", "car", "cat", "cat"])
    >>> cost = cost_matrix(teacher, X, ["bus", "bus", "dog", "dog"])
    >>> cost.shape, bool(cost[0, 0] < cost[0, 1]), bool(cost[1, 1] < cost[1, 0])
    ((2, 2), True, True)
    """
    check_choice("kind", kind, KINDS)
    check_choice("centres", centres, CENTRES)
    check_choice("normalize", normalize, (True, False))
    _check_combination(kind, centres, other, superclasses)
    source = as_teacher(teacher)
    if kind in ("constant", "superclass"):
        names = np.asarray(class_list(classes)) if y is None and classes is not None else None
        if names is None:
            names = read_labels(y, None if X is None else n_rows(X), classes=classes).classes
        return _by_name(source, names, superclasses)
    names, codes = read_labels(y, n_rows(X), classes=classes)
    if kind == "random":
        return _random_cost(source, X, names, codes, normalize, observed, random_state)
    used = source if other is None else as_teacher(other)
    seen = observed_rows(used, X, observed)
    rows = None if other is None else _rows_of(used, source)
    own = teacher_centres(used, X, centres=centres, observed=seen)
    return centre_distances(own if rows is None else own[rows], _means(seen, names, codes), normalize)


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
    teacher: Teacher, X: Any, *, centres: Centres = "auto", observed: Observed | None = None
) -> NDArray[np.float64]:
    """Return the centres (m, d) of a teacher's own classes in its embedding; parameters as in `cost_matrix`.

    Weights of the last layer are scaled to unit length: SCTD, eq. (8). A teacher without an embedding gets
    unit vectors.
    """
    check_choice("centres", centres, CENTRES)
    seen = observed_rows(teacher, X, observed)
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
    weights = layer_weights(teacher, X) if centres in ("auto", "weights") else None
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
    """Return what a teacher gives for X, or `observed` after a check. Rows without features are NaN."""
    if observed is None:
        return _without_partial_rows(observe(teacher, X))
    expected = n_rows(X), len(teacher.classes)
    if observed.logits.shape != expected:
        raise InvalidInputError(
            f"observed has logits of shape {observed.logits.shape}; expected {expected}: one row per row "
            f"of X, and one column per class of teacher {teacher.name!r}."
        )
    return _without_partial_rows(observed)


def _without_partial_rows(seen: Observed) -> Observed:
    """Set a row to NaN throughout if it lacks either its logits or its features."""
    if seen.embeddings is None:
        return seen
    silent = np.isnan(seen.logits[:, 0]) | np.isnan(seen.embeddings).any(axis=1)
    if not silent.any():
        return seen
    return Observed(
        np.where(silent[:, None], np.nan, seen.logits), np.where(silent[:, None], np.nan, seen.embeddings)
    )


def _means(seen: Observed, names: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the mean features (C, d) of each class; raise if a class has no row."""
    means = class_means(features(seen), codes, len(names))
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
    teacher.find_head(X)
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
    warnings.warn(
        f"The weights of teacher {teacher.name!r} agree with its predictions on {agreement:.0%} of the rows "
        f"(at least {TRUSTED_AGREEMENT:.0%} are needed); its class centres come from its predictions "
        "instead. Put true centres on its card if you have them.",
        ConsilienceWarning,
        stacklevel=4,
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
    warnings.warn(
        ConsilienceWarning(
            f"The centres on the card of teacher {teacher.name!r} have {np.shape(card)[1]} columns and its "
            f"embedding has {width}, so they are not used. Give {{remedy}} the layer they were taken from.",
            remedy="embed",
        ),
        stacklevel=4,
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


def _rows_of(other: Teacher, teacher: Teacher) -> NDArray[np.intp]:
    """Return the positions of a teacher's classes among the classes of another teacher."""
    place = {name: i for i, name in enumerate(other.classes.tolist())}
    missing = [name for name in teacher.classes.tolist() if name not in place]
    if missing:
        raise InvalidInputError(
            f"{{argument}} does not know the classes {shorten(missing, 5)} of teacher {teacher.name!r}. Give "
            "a teacher that knows them all.",
            argument="other",
            value=other.name,
        )
    return np.array([place[name] for name in teacher.classes.tolist()], dtype=np.intp)


def _by_name(
    teacher: Teacher, names: NDArray[Any], superclasses: Mapping[Any, Any] | None
) -> NDArray[np.float64]:
    """Return 0 between classes of the same name, or of the same superclass, else 1: Table 8, I and III."""
    source, target = teacher.classes.tolist(), names.tolist()
    if superclasses is not None:
        missing = [name for name in dict.fromkeys([*source, *target]) if name not in superclasses]
        if missing:
            raise InvalidInputError(
                f"superclasses lacks {shorten(missing, 5)}; give a superclass for every class of both sides."
            )
        source, target = [superclasses[name] for name in source], [superclasses[name] for name in target]
    return np.array([[0.0 if a == b else 1.0 for b in target] for a in source])


def _random_cost(
    teacher: Teacher,
    X: Any,
    names: NDArray[Any],
    codes: NDArray[np.intp],
    normalize: bool,
    observed: Observed | None,
    random_state: Any,
) -> NDArray[np.float64]:
    """Return the cost in a random embedding: Table 8, II."""
    seed = int(as_random_state(random_state).randint(2**31 - 1))
    rng = np.random.default_rng(seed)
    randomised = teacher.randomised(seed)
    if randomised is not None:
        seen = observe(randomised, X)
        weights = layer_weights(randomised, X)
        target = _means(seen, names, codes)
    else:
        weights = None
        target = _means(observed_rows(teacher, X, observed), names, codes)
        target = target @ rng.normal(size=(target.shape[1], target.shape[1]))
    own = rng.normal(size=(len(teacher.classes), target.shape[1])) if weights is None else weights
    return centre_distances(unit_rows(own), target, normalize)


def _check_combination(kind: Kind, centres: Centres, other: Any, superclasses: Any) -> None:
    if kind != "embedding" and (other is not None or centres != "auto"):
        raise InvalidInputError(
            "other and centres are for {remedy}, not {argument}. Leave them out.",
            argument="kind",
            value=kind,
            remedy=("kind", "embedding"),
        )
    if (kind == "superclass") != (superclasses is not None):
        raise InvalidInputError(
            "kind='superclass' needs {remedy}, and no other kind takes it.",
            argument="kind",
            value=kind,
            remedy="superclasses",
        )
    if superclasses is not None and not isinstance(superclasses, Mapping):
        raise InvalidInputError(
            f"superclasses is a {type(superclasses).__name__}; give a mapping from classes to superclasses."
        )

"""Evaluate a classifier on labelled rows: ask it, its teachers and a student of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import clone

from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    check_number,
    check_weights,
    n_rows,
    take_rows,
)
from consilience._words import counted, shorten
from consilience.exceptions import CoverageWarning, InvalidInputError, TeacherError, shown, warn
from consilience.inspect.evaluation import (
    Answers,
    ClassScores,
    Compared,
    Evaluation,
    Scores,
    conditioned,
    recalls,
    shares,
)
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.held_out import held_out_folds
from consilience.labels import LabelSpace, check_packed_logits
from consilience.labels.reader import LabelCodes
from consilience.rows import as_rows
from consilience.run import Run, part_of, resolve_run
from consilience.scoring import observe
from consilience.teachers import Teacher

Alone = tuple[Answers, NDArray[np.bool_], int]
"""What a student of the labels alone says, of which of the rows (n,), and how many folds it took."""
MOST_LABELS = 5000  # up to which labels_only="auto" lets a student learn the labels alone
LOST, LOST_ROWS = 0.1, 5  # a class is nearly lost if a smaller share of at least so many rows is found


def read_truth(y: Any, rows: int, space: LabelSpace, *, where: str = "y", at_least: int = 1) -> LabelCodes:
    """Read labels to compare with. They may be aliases, or classes that nobody knows.

    Classes that nobody knows follow those of the space, so no guess has their position. Labels of which the
    space knows none are refused: they are meant for something else.

    Parameters
    ----------
    y : (n,) sequence
        None, NaN or -1 for rows without a label.
    rows : int
        n, the rows of X.
    space : LabelSpace
    where : str
        What to call y in an error.
    at_least : int
        How many different classes y must have.
    """
    found: LabelCodes = space.read(y, rows, where=where, at_least=at_least)
    if found.known.any() and found.codes[found.known].min() >= space.n_classes:
        # raises, and says what was expected; not of y itself, which may be an iterator
        space.encode([found.classes[code] if code >= 0 else None for code in found.codes], where)
    return found


def unknown_classes(truth: LabelCodes, space: LabelSpace) -> list[str]:
    """Return a sentence about the classes that nobody knows, those with most rows first; none without any."""
    counts = np.bincount(truth.codes[truth.codes >= space.n_classes], minlength=len(truth.classes))
    if not counts.any():
        return []
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    names = truth.classes.tolist()
    listed = [f"{shown(names[i])} ({counted(int(counts[i]), 'row')})" for i in order]
    number = counted(len(order), "class")
    return [f"{number} that nobody knows, whose rows count as errors: {shorten(listed, 5)}."]


def score(model: Any, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
    """Return the share of rows whose class is predicted.

    Parameters
    ----------
    X : array, sparse matrix, data frame or list
        n rows.
    y : (n,) sequence
        Their classes; they may be aliases, as in `fit`. Rows without a label are left out. A class that
        the model does not know counts as an error.
    sample_weight : (n,) array, optional
        The weight of each row.
    """
    check_fitted(model, "classes_")
    rows, space = as_rows(X), space_of(model)
    truth = read_truth(y, len(rows), space)
    weights = truth.known * check_weights("sample_weight", sample_weight, len(rows))
    if not weights.any():
        raise InvalidInputError("sample_weight is 0 for every row with a label; give some rows a weight.")
    guesses = space.encode(model.classes_)[model.predict_proba(rows.given).argmax(axis=1)]
    return float(np.average(guesses == truth.codes, weights=weights))


def space_of(model: Any) -> LabelSpace:
    """Return the label space of a model's classes; one without teachers in it has one of its own."""
    space = getattr(model, "label_space_", None)
    aliases = getattr(model, "aliases_", None)
    return space or LabelSpace([model.classes_], aliases, disconnected="ignore")


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    teachers: bool = True,
    labels_only: Literal["auto"] | bool = "auto",
    n_folds: int = 5,
    logits: ArrayLike | None = None,
    confidence: float = 0.95,
    n_bins: int = 15,
) -> Evaluation:
    """Measure how good it is on labelled rows, and beside what else one could do with them.

    Beside each teacher, the rows are those of its classes, and the question is which of these a row is.
    The vote gives every teacher one vote, for its decision; all classes share one more equally.

    Parameters
    ----------
    X : array, sparse matrix, data frame or list
        n rows.
    y : (n,) sequence
        Their labels, which may be aliases. Rows without one (None, NaN, -1) are left out. A class that
        nobody knows counts as an error, and a remark names it. If all labels are such, you get an error.
    teachers : bool
        Whether to ask the teachers of a `Unifier` about X, to compare with each and with their vote.
        Teachers that only hold outputs for other rows are left out.
    labels_only : {"auto", True, False}
        Whether to train the same kind of student on these labels alone, cross-validated: if it is as
        good, you need no teachers. ``"auto"`` does so with up to 5,000 labels.
    n_folds : int
        Folds of that cross-validation.
    logits : (n, m) array, optional
        The teachers' outputs for X, from `score_teachers`: then no teacher is asked.
    confidence : float
        Of the interval of the accuracy, which is Wilson's.
    n_bins : int
        Bins of the expected calibration error; they have equal width.

    Returns
    -------
    Evaluation
        It prints well, and has `to_dict`, `to_frame` and `report`.

    Warns
    -----
    CoverageWarning
        With the classes that got nearly lost: less than 10 % of at least five rows are found, or the
        class is never predicted.
    """
    check_fitted(model, "classes_")
    check_choice("teachers", teachers, (True, False))
    check_choice("labels_only", labels_only, ("auto", True, False))
    check_measures(n_folds, confidence, n_bins)
    run, space = resolve_run(getattr(model, "run", None)), space_of(model)
    X = as_rows(X).all(run)
    labels = read_truth(y, n_rows(X), space)
    known, told = labels.known, unknown_classes(labels, space)
    truth = labels.codes[known]
    packed = None
    if logits is not None or (teachers and hasattr(model, "label_space_")):
        packed = ask(getattr(model, "teachers_", ()), space, X, run, told, known=known, logits=logits)
    X = X if known.all() else take_rows(X, known)
    proba = np.zeros((len(truth), space.n_classes))
    proba[:, space.encode(model.classes_)] = model.predict_proba(X)
    alone, wanted = None, labels_only if hasattr(model, "student") else False
    if wanted == "auto" and len(truth) > MOST_LABELS:
        told.append(
            f"The student was not trained on the {len(truth)} labels alone, which may take long: "
            "labels_only=True does it."
        )
    elif wanted:
        alone = learn_labels(model.student, model.random_state, X, truth, space, n_folds, run, told)
    return assess(proba, truth, space, packed, alone, confidence, n_bins, told, int((~known).sum()))


def evaluate_teacher(
    model: Teacher,
    X: Any,
    y: Any,
    *,
    teachers: Sequence[Teacher] = (),
    aliases: Mapping[Any, Any] | None = None,
    student: Any = None,
    labels_only: bool = False,
    n_folds: int = 5,
    confidence: float = 0.95,
    n_bins: int = 15,
    run: Run | None = None,
    random_state: Any = None,
    where: str = "y",
) -> Evaluation:
    """Evaluate a model that is a teacher, such as a file; parameters as in `evaluate`.

    Parameters
    ----------
    teachers : sequence of Teacher
        What to compare it with. Rows of a class that only a teacher knows count, too: the model errs there.
    aliases : mapping, optional
        Other names of classes.
    student : classifier, name or None
        With `labels_only`, what learns these labels alone.
    where : str
        What to call y in an error.
    """
    check_measures(n_folds, confidence, n_bins)
    run, everyone = resolve_run(run), [model, *teachers]
    lists, names = [one.classes for one in everyone], [one.name for one in everyone]
    space = LabelSpace(lists, aliases, names=names, disconnected="ignore")
    labels = read_truth(y, n_rows(X), space, where=where)
    known, told = labels.known, unknown_classes(labels, space)
    truth = labels.codes[known]
    packed = ask(everyone, space, X, run, told, known=known, first_must=True)
    X, own, answered = take_rows(X, known), space.block(0), ~np.isnan(packed[:, 0])
    if not answered.any():
        raise InvalidInputError(
            f"{model.name!r} abstains on every labelled row; there is nothing to measure."
        )
    if not answered.all():
        told.append(f"{model.name} abstains on {int((~answered).sum())} rows, which are left out.")
        X, truth, packed = take_rows(X, answered), truth[answered], packed[answered]
    proba = np.zeros((len(truth), space.n_classes))
    proba[:, space.columns[own]] = softmax(packed[:, own], axis=1)
    alone = learn_labels(student, random_state, X, truth, space, n_folds, run, told) if labels_only else None
    packed[:, own] = np.nan  # it has no vote in what it is compared with
    return assess(proba, truth, space, packed, alone, confidence, n_bins, told, int((~known).sum()))


def check_measures(n_folds: int, confidence: float, n_bins: int) -> None:
    """Raise if an option of `evaluate` is wrong."""
    check_count("n_folds", n_folds, at_least=2)
    check_number("confidence", confidence, above=0, below=1)
    check_count("n_bins", n_bins, at_most=10_000)


def ask(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    run: Run,
    told: list[str],
    *,
    known: NDArray[np.bool_] | None = None,
    logits: ArrayLike | None = None,
    first_must: bool = False,
) -> Floats:
    """Return packed logits (k, m) for the rows of X that are `known` (n,), by default all.

    With `logits` (n, m), no teacher is asked. Teachers that only hold outputs for other rows abstain, with a
    remark. With `first_must`, the first of them may not.
    """
    known = np.ones(n_rows(X), dtype=bool) if known is None else known
    if logits is not None:
        return check_packed_logits(logits, space, n_rows(X))[known]
    packed = np.empty((int(known.sum()), space.n_columns))
    some = X if known.all() else take_rows(X, known)
    for i, teacher in enumerate(teachers):
        one = run.changed(progress=part_of(run.report, i, len(teachers)))
        try:
            if teacher.batched:
                found = observe(teacher, some, one, embeddings=False).logits
            else:
                found = observe(teacher, X, one, embeddings=False).logits[known]
        except TeacherError as error:
            if teacher.batched or (first_must and i == 0):
                raise error.at(i, len(teachers)) from error.__cause__
            found = np.full((len(packed), len(teacher.classes)), np.nan)
            told.append(f"{space.names[i]} is left out: its outputs are stored, for other rows.")
        packed[:, space.block(i)] = found
    return packed


def learn_labels(
    student: Any,
    random_state: Any,
    X: Any,
    truth: Ints,
    space: LabelSpace,
    n_folds: int,
    run: Run,
    told: list[str],
) -> Alone | None:
    """Train a student on these labels alone, and let it answer about rows that it has not seen.

    The only row of a class is never held out, and rows of classes that nobody knows are left out. None, with
    a remark, if there is too little to learn from.
    """
    from consilience.students.classifier import SoftLabelClassifier

    ours = truth < space.n_classes
    folds = np.full(len(truth), -1)
    folds[ours] = held_out_folds(truth[ours], n_folds, as_random_state(random_state))
    held_out = folds >= 0
    if len(np.unique(truth[held_out])) < 2:
        told.append("No student was trained on the labels alone: it needs two rows each of two classes.")
        return None
    proba, used = np.zeros((len(truth), space.n_classes)), np.unique(folds[held_out]).tolist()
    for done, fold in enumerate(used):
        run.report("labels alone", done, len(used))
        seen, other = ours & (folds != fold), folds == fold
        learner = SoftLabelClassifier(
            clone(student, safe=False), classes=np.arange(space.n_classes), random_state=random_state
        )
        proba[other] = learner.fit(take_rows(X, seen), truth[seen]).predict_proba(take_rows(X, other))
    run.report("labels alone", len(used), len(used))
    return Answers.given(proba[held_out], truth[held_out]), held_out, len(used)


class Side(NamedTuple):
    """A teacher, and a model beside it, on the k rows of the teacher's classes that it answered."""

    truth: Ints  # (k,) positions among its classes
    teacher: Answers
    model: Answers


def beside_teachers(
    logits: Floats, space: LabelSpace, proba: Floats, truth: Ints
) -> tuple[Answers, list[Side]]:
    """Return how the teachers vote, and what each teacher and a model say of the rows of its classes.

    Every teacher that answers has one vote, and all classes share one more. So each of L classes that v of N
    teachers decide for has the share (v + 1 / L) / (N + 1). Ties go to the class whose voters are surer: the
    one with the larger sum of their probabilities.

    Beside a teacher, the model's probabilities are those given that the class is one of the teacher's.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits; NaN in the block of a teacher that abstains.
    space : LabelSpace
    proba : (n, L) array
        What the model says.
    truth : (n,) array of int
        The class of each row; those from L on are unknown to all.
    """
    n, n_classes = proba.shape
    # votes, plus how sure their voters are as a fraction of one: it decides between equal votes
    votes, n_answers, sides = np.zeros((n, n_classes)), np.zeros((n, 1)), list[Side]()
    for i in range(space.n_teachers):
        classes, block = space.columns[space.block(i)], logits[:, space.block(i)]
        answered = np.flatnonzero(~np.isnan(block[:, 0]))
        p = softmax(block[answered], axis=1)
        best = p.argmax(axis=1)
        votes[answered, classes[best]] += 1 + p[np.arange(len(p)), best] / (space.n_teachers + 1)
        n_answers[answered] += 1
        place = np.full(max(n_classes, int(truth.max(initial=0)) + 1), -1)
        place[classes] = np.arange(len(classes))
        own = place[truth[answered]]
        asked, true = own >= 0, own[own >= 0]
        q = conditioned(proba[np.ix_(answered[asked], classes)])
        sides.append(Side(true, Answers.given(p[asked], true), Answers.given(q, true)))
    voted = (np.floor(votes) + 1 / n_classes) / (n_answers + 1)
    return Answers.given(voted, truth)._replace(decided=votes.argmax(axis=1)), sides


def assess(
    proba: Floats,
    truth: Ints,
    space: LabelSpace,
    packed: Floats | None,
    alone: Alone | None = None,
    confidence: float = 0.95,
    n_bins: int = 15,
    told: Sequence[str] = (),
    n_unlabelled: int = 0,
) -> Evaluation:
    """Compare a model's probabilities (n, L) and those of others with the truth (n,).

    Parameters
    ----------
    packed : (n, m) array or None
        What the teachers say.
    alone : Alone, optional
        What a student of the labels says.
    told : sequence of str
        Remarks.
    """

    def measured(answers: Answers, truth: Ints) -> Scores:
        return Scores.of(answers, truth, confidence, n_bins)

    L, answers = space.n_classes, Answers.given(proba, truth)
    scores, compared, sides = measured(answers, truth), list[Compared](), list[Side]()
    if packed is not None and not np.isnan(packed[:, space.offsets[:-1]]).all():
        vote, sides = beside_teachers(packed, space, proba, truth)
        compared.append(Compared("vote", "vote", L, measured(vote, truth), scores))
    if alone is not None:
        learnt, rows, n_folds = alone
        same = Answers.given(proba[rows], truth[rows])
        both = [measured(one, truth[rows]) for one in (learnt, same)]
        compared.append(Compared(f"labels alone ({n_folds} folds)", "labels only", L, *both))
    found = np.full((space.n_teachers, L), np.nan)  # the share of each class's rows that a teacher finds
    for i, side in enumerate(sides):
        if len(side.truth):
            own, both = space.columns[space.block(i)], [measured(one, side.truth) for one in side[1:]]
            compared.append(Compared(space.names[i], "teacher", len(own), *both))
            found[i, own] = recalls(side.teacher.decided, side.truth, len(own))
    ours = truth < L
    cells = np.bincount(truth[ours] * L + answers.decided[ours], minlength=L**2)
    confusion, predicted = cells.reshape(L, L), np.bincount(answers.decided, minlength=L)
    evaluation = Evaluation(
        scores,
        tuple(compared),
        _by_class(space, confusion, predicted, found),
        confusion,
        n_unlabelled,
        confidence,
        n_bins,
        tuple(told),
    )
    if evaluation.warning is not None:
        warn(CoverageWarning(evaluation.warning))
    return evaluation


def _by_class(space: LabelSpace, confusion: Ints, predicted: Ints, found: Floats) -> tuple[ClassScores, ...]:
    """Return how well each class is known, by its row of the `confusion` and the rows `predicted` (L,).

    `found` (N, L) has the share of its rows that each teacher finds.
    """
    counts, right = confusion.sum(axis=1), confusion.diagonal()
    precision, recall = shares(right, predicted), shares(right, counts)
    lost = (counts > 0) & ((predicted == 0) | ((counts >= LOST_ROWS) & (right < LOST * counts)))
    best, rows = np.nan_to_num(found, nan=-1.0).argmax(axis=0), list[ClassScores]()
    for k, name in enumerate(space.classes.tolist()):
        most = float(found[best[k], k])
        who = None if np.isnan(most) else space.names[best[k]]
        figures = int(counts[k]), int(predicted[k]), float(precision[k]), float(recall[k])
        rows.append(ClassScores(name, *figures, who, most, bool(lost[k])))
    return tuple(rows)

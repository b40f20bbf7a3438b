"""Evaluate a classifier on labelled rows: ask it, its teachers and a student of the labels, and count."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import clone

from consilience._progress import Progress, part_of, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    check_number,
    check_packed_logits,
    n_rows,
    take_rows,
)
from consilience.exceptions import CoverageWarning, InvalidInputError, TeacherError
from consilience.inspect.evaluation import ClassScores, Compared, Evaluation
from consilience.inspect.metrics import (
    Answers,
    Codes,
    Scores,
    answers_of,
    confusion_matrix,
    measure,
    recalls_of,
    scores_of,
)
from consilience.inspect.truth import read_truth
from consilience.kernels.arrays import Floats
from consilience.kernels.held_out import held_out_folds
from consilience.kernels.unify.answers import beside_teachers
from consilience.kernels.unify.packed import make_layout
from consilience.labels import LabelSpace
from consilience.run import resolve_run
from consilience.scoring.engine import observe
from consilience.scoring.store import as_store
from consilience.students.classifier import SoftLabelClassifier
from consilience.teachers import Teacher

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier

LabelsOnly = Literal["auto"] | bool

# With labels_only="auto", the student learns the labels alone if there are at most this many.
MOST_LABELS = 5000
# A class is nearly lost if less than this share of its rows is found, and it has at least so many rows.
LOST, LOST_ROWS = 0.1, 5


class Measured(NamedTuple):
    """How things are measured."""

    confidence: float
    n_bins: int

    def scores(self, answers: Answers, truth: Codes, n_classes: int) -> Scores:
        """Return how good answers are."""
        return measure(answers, truth, n_classes, confidence=self.confidence, n_bins=self.n_bins)


class Alone(NamedTuple):
    """What the student says that learnt these labels only, cross-validated."""

    answers: Answers  # (k,) on the rows held out
    held_out: NDArray[np.bool_]  # (n,)
    n_folds: int


def evaluate_unifier(
    unified: Unifier,
    X: Any,
    y: Any,
    *,
    teachers: bool,
    labels_only: LabelsOnly,
    n_folds: int,
    logits: ArrayLike | None,
    confidence: float,
    n_bins: int,
) -> Evaluation:
    """Do what `Unifier.evaluate` says."""
    check_fitted(unified, "student_")
    check_choice("teachers", teachers, (True, False))
    measured = _check(labels_only, n_folds, confidence, n_bins)
    space, run = unified.label_space_, resolve_run(unified.run)
    progress = run.report
    packed = None if logits is None else check_packed_logits(logits, space, n_rows(X))
    labels = read_truth(y, n_rows(X), space, some_known=True)
    truth, known = labels.codes, labels.known
    remarks = [] if labels.remark is None else [labels.remark]
    if packed is not None and not known.all():
        packed = packed[known]
    elif packed is None and teachers:
        cache = as_store(run.cache, run.cache_limit)
        packed = ask(unified.teachers_, space, X, known, run.rows_per_call, cache, progress, remarks)
    X = X if known.all() else take_rows(X, known)
    proba = unified.predict_proba(X)
    alone = None
    if wants_labels_only(labels_only, len(truth), remarks):
        student = SoftLabelClassifier(
            clone(unified.student, safe=False),
            random_state=unified.random_state,
        )
        alone = learn_labels(student, X, truth, space.n_classes, n_folds, progress, remarks)
    found = assess(proba, truth, space, packed, alone, measured, remarks)
    return _told(found, int((~known).sum()), stacklevel=4)


def evaluate_model(
    model: Teacher,
    X: Any,
    y: Any,
    *,
    teachers: Sequence[Teacher] = (),
    aliases: Any = None,
    labels_only: bool = False,
    student: Any = None,
    n_folds: int = 5,
    confidence: float = 0.95,
    n_bins: int = 15,
    batch_size: int = 4096,
    cache: Any = None,
    progress: Progress = silent,
    random_state: Any = None,
    where: str = "y",
) -> Evaluation:
    """Evaluate a model that is a teacher, such as a file that `save` wrote.

    Parameters
    ----------
    model : Teacher
    X : array, sparse matrix, data frame or list
        n rows.
    y : (n,) sequence
        Their labels; rows without one are left out. A class that nobody knows counts as an error.
    teachers : sequence of Teacher
        What to compare it with. Rows of a class that only a teacher knows count, too: the model errs there.
    aliases : mapping, optional
        Other names of classes.
    labels_only : bool
        Whether to train a student on these labels alone, for comparison.
    student : classifier, name or None
        That student, as in `Unifier`.
    n_folds, confidence, n_bins
        As in `Unifier.evaluate`.
    batch_size, cache, progress, random_state
        As in `Unifier`.
    where : str
        What to call y in an error.
    """
    measured = _check(labels_only, n_folds, confidence, n_bins)
    names = [model.name, *(teacher.name for teacher in teachers)]
    lists = [model.classes, *(teacher.classes for teacher in teachers)]
    whole = LabelSpace(lists, aliases, names=names, disconnected="ignore")
    labels = read_truth(y, n_rows(X), whole, where=where, some_known=True)
    truth, known = labels.codes, labels.known
    remarks = [] if labels.remark is None else [labels.remark]
    packed = ask([model, *teachers], whole, X, known, batch_size, cache, progress, remarks, first_must=True)
    X = X if known.all() else take_rows(X, known)
    own = whole.block(0)
    answered = ~np.isnan(packed[:, 0])
    if not answered.any():
        raise InvalidInputError(
            f"{model.name!r} abstains on every labelled row; there is nothing to measure."
        )
    if not answered.all():
        remarks.append(f"{model.name} abstains on {int((~answered).sum())} rows, which are left out.")
        X, truth, packed = take_rows(X, answered), truth[answered], packed[answered]
    proba = np.zeros((len(truth), whole.n_classes))
    proba[:, whole.columns[own]] = softmax(packed[:, own], axis=1)
    alone = None
    if labels_only:
        learner = SoftLabelClassifier(student, random_state=random_state)
        alone = learn_labels(learner, X, truth, whole.n_classes, n_folds, progress, remarks)
    packed[:, own] = np.nan  # it has no vote in what it is compared with
    found = assess(proba, truth, whole, packed if teachers else None, alone, measured, remarks)
    return _told(found, int((~known).sum()), stacklevel=3)


def _check(labels_only: LabelsOnly, n_folds: int, confidence: float, n_bins: int) -> Measured:
    check_choice("labels_only", labels_only, ("auto", True, False))
    check_count("n_folds", n_folds, at_least=2)
    check_number("confidence", confidence, above=0, below=1)
    return Measured(float(confidence), check_count("n_bins", n_bins, at_most=10_000))


def ask(
    teachers: Sequence[Teacher],
    space: LabelSpace,
    X: Any,
    known: NDArray[np.bool_],
    batch_size: int,
    cache: Any,
    progress: Progress,
    remarks: list[str],
    *,
    first_must: bool = False,
) -> Floats:
    """Return packed logits (k, m) for the rows of X that are `known` (n,).

    Teachers that only hold outputs for other rows abstain, with a remark. With `first_must`, the first of
    them may not.
    """
    packed = np.empty((int(known.sum()), space.n_columns))
    some = X if known.all() else take_rows(X, known)
    for i, teacher in enumerate(teachers):
        report, rows = part_of(progress, i, len(teachers)), some if teacher.batched else X
        try:
            seen = observe(
                teacher, rows, batch_size=batch_size, store=cache, embeddings=False, progress=report
            )
            logits = seen.logits
            packed[:, space.block(i)] = logits if rows is some else logits[known]
        except TeacherError as error:
            if teacher.batched or (first_must and i == 0):
                raise error.at(i, len(teachers)) from error.__cause__
            packed[:, space.block(i)] = np.nan
            remarks.append(f"{space.names[i]} is left out: its outputs are stored, for other rows.")
    return packed


def wants_labels_only(labels_only: LabelsOnly, n_labels: int, remarks: list[str]) -> bool:
    """Tell whether to train on the labels alone; a remark says if there are too many for that."""
    if labels_only == "auto" and n_labels > MOST_LABELS:
        remarks.append(
            f"The student was not trained on the {n_labels} labels alone, which may take long: "
            "labels_only=True does it."
        )
        return False
    return bool(labels_only)


def learn_labels(
    student: SoftLabelClassifier,
    X: Any,
    truth: Codes,
    n_classes: int,
    n_folds: int,
    progress: Progress,
    remarks: list[str],
) -> Alone | None:
    """Train a student on these labels alone, and let it answer about rows that it has not seen.

    The only row of a class is never held out, and rows of unknown classes, from `n_classes` on, are left out.
    None, with a remark, if there is too little to learn from.
    """
    ours = truth < n_classes
    folds = np.full(len(truth), -1)
    folds[ours] = held_out_folds(truth[ours], n_folds, as_random_state(student.random_state))
    held_out = folds >= 0
    if len(np.unique(truth[held_out])) < 2:
        remarks.append("No student was trained on the labels alone: it needs two rows each of two classes.")
        return None
    proba = np.zeros((len(truth), n_classes))
    student.set_params(classes=np.arange(n_classes))
    used = np.unique(folds[held_out])
    for done, fold in enumerate(used.tolist()):
        progress("labels alone", done, len(used))
        seen = ours & (folds != fold)
        learner = clone(student).fit(take_rows(X, seen), truth[seen])
        proba[folds == fold] = learner.predict_proba(take_rows(X, folds == fold))
    progress("labels alone", len(used), len(used))
    return Alone(answers_of(proba[held_out], truth[held_out]), held_out, len(used))


def assess(
    proba: Floats,
    truth: Codes,
    space: LabelSpace,
    packed: Floats | None,
    alone: Alone | None,
    measured: Measured,
    remarks: Sequence[str] = (),
) -> Evaluation:
    """Compare a model's probabilities (n, L) and those of others with the truth (n,); see `measure`."""
    n_classes = space.n_classes
    answers = answers_of(proba, truth)
    confusion = confusion_matrix(truth, answers.decided, n_classes)
    scores = measured.scores(answers, truth, n_classes)
    compared, sides = [], []
    if packed is not None and any(not np.isnan(packed[:, start]).all() for start in space.offsets[:-1]):
        layout = make_layout(space.columns, space.offsets, n_classes)
        beside = beside_teachers(packed, layout, proba, truth, measured.n_bins)
        voted = measured.scores(Answers(*beside.vote), truth, n_classes)
        compared.append(Compared("vote", "vote", n_classes, voted, scores))
        sides = list(zip(beside.teachers, beside.model, strict=True))
    if alone is not None:
        held = truth[alone.held_out]
        model = (
            scores if alone.held_out.all() else measured.scores(answers.of(alone.held_out), held, n_classes)
        )
        learnt = measured.scores(alone.answers, held, n_classes)
        name = f"labels alone ({alone.n_folds} folds)"
        compared.append(Compared(name, "labels only", n_classes, learnt, model))
    best = np.full(n_classes, np.nan)  # the best recall of a teacher
    who = np.full(n_classes, -1)
    for i, (theirs, ours) in enumerate(sides):
        if not theirs.occurs.any():
            continue
        own = space.columns[space.block(i)]
        both = (scores_of(tally, measured.confidence) for tally in (theirs, ours))
        compared.append(Compared(space.names[i], "teacher", len(own), *both))
        found = recalls_of(theirs.occurs, theirs.hits)
        better = ~(found <= best[own]) & ~np.isnan(found)
        best[own[better]], who[own[better]] = found[better], i
    predicted = np.bincount(answers.decided, minlength=n_classes)
    by_class = _by_class(confusion, predicted, space, best, who)
    return Evaluation(scores, tuple(compared), by_class, confusion, 0, *measured, tuple(remarks))


def _by_class(
    confusion: NDArray[np.intp], predicted: Codes, space: LabelSpace, best: Floats, who: NDArray[np.intp]
) -> tuple[ClassScores, ...]:
    counts, right = confusion.sum(axis=1), confusion.diagonal()
    recall = recalls_of(counts, right)
    precision = recalls_of(predicted, right)
    lost = (counts > 0) & ((predicted == 0) | ((counts >= LOST_ROWS) & (right < LOST * counts)))
    return tuple(
        ClassScores(
            name,
            int(counts[k]),
            int(predicted[k]),
            float(precision[k]),
            float(recall[k]),
            space.names[who[k]] if who[k] >= 0 else None,
            float(best[k]),
            bool(lost[k]),
        )
        for k, name in enumerate(space.classes.tolist())
    )


def _told(found: Evaluation, n_unlabelled: int, stacklevel: int) -> Evaluation:
    """Warn of lost classes, `stacklevel` calls up, and return the evaluation."""
    if found.warning:
        warnings.warn(found.warning, CoverageWarning, stacklevel=stacklevel)
    return replace(found, n_unlabelled=n_unlabelled)

"""Classifiers of scikit-learn with `partial_fit` as students that learn in passes over rows."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline

from consilience._validation import take_rows
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import responsibilities, weigh
from consilience.kernels.held_out import resample, thin
from consilience.kernels.linear_model import targets
from consilience.rows.targets import (
    BUFFER,
    SAMPLED,
    Epochs,
    Look,
    Part,
    TargetRows,
    in_random_order,
    look_at,
    take_part,
    windows,
)
from consilience.run import Run
from consilience.students.student import (
    COPIES,
    FEW_COPIES,
    SMALL,
    WeightedStudent,
    fit_foreign,
    foreign_errors,
    mean_collision,
    numbers_per_row,
)

if TYPE_CHECKING:
    from numpy.random import Generator, RandomState

CHUNK_ROWS = 2**13
"""Most rows of one call of `partial_fit`."""
PASSES = 10
"""The most passes of a classifier that has no `max_iter`."""
PATIENCE = 5
"""Epochs without a better held-out loss, of a classifier that has no `n_iter_no_change`."""
HELD_OUT = 0.1
LEAST_FALL = 1e-4
"""The least fall of the held-out loss, as a share of it, that counts as better."""


def learn_by_parts(
    student: WeightedStudent, rows: TargetRows, class_weights: Floats, run: Run, random: RandomState
) -> None:
    """Fit a student whose classifier has `partial_fit`, in passes over the rows.

    The steps of a pipeline before the classifier are fitted to about 100,000 random rows. Each chunk of rows
    becomes weighted copies (or drawn labels, for a classifier without weights), drawn anew in each pass; at
    most two per row, if there are many rows. Training ends after the classifier's `max_iter` passes, after
    20 million row visits, or if the loss of held-out rows stalls; the classifier with the lowest one is kept.

    With ``loss="collision"`` the soft labels are multiplied with the classifier's own predictions, from the
    second epoch on: the EM algorithm of `WeightedStudent`, with a step for each chunk.
    """
    estimator = student.seeded_clone(random)
    seed = int(random.randint(2**31 - 1))
    rows = in_random_order(rows, BUFFER / 2, seed)  # a window is copied once
    look = look_at(rows, seed, fraction=HELD_OUT, n_sample=SAMPLED)
    # as for rows in memory: more copies only if there are few rows
    copies = max(FEW_COPIES, SMALL / numbers_per_row(look.sample[0], len(look.sample[1])) / rows.n_rows)
    training = _Training(student, estimator, look, class_weights, copies, seed)
    passes = int(getattr(training.last, "max_iter", None) or PASSES)
    epochs = Epochs.of(look.rest.n_rows, passes, limited=True)
    patience = int(getattr(training.last, "n_iter_no_change", PATIENCE))
    done, epoch, since, best, kept = 0, 0, 0, np.inf, training.last
    for part in _chunks(look.rest, np.random.default_rng(seed)):
        training.learn(part, own=student.loss == "collision" and epoch > 0)
        done += len(part[1])
        if done < epochs.end(epoch, epochs.n_rows):
            continue
        epoch += 1
        run.report("training", epoch, epochs.total)
        value = training.held_out_loss()
        if value < best - LEAST_FALL * abs(best) or not np.isfinite(best):
            best, since = value, 0
            kept = copy.deepcopy(training.last) if look.measured else training.last
        else:
            since += 1
        if epoch == epochs.total or (look.measured and since >= patience):
            break
    if isinstance(estimator, Pipeline):
        estimator.steps[-1] = (estimator.steps[-1][0], kept)
    student.keep(estimator if isinstance(estimator, Pipeline) else kept, np.arange(rows.n_columns))
    student.n_iter_ = epoch


class _Training:
    """A classifier in training; `last` is the step of a pipeline that learns."""

    def __init__(
        self,
        student: WeightedStudent,
        estimator: Any,
        look: Look,
        class_weights: Floats,
        copies: float,
        seed: int,
    ) -> None:
        self.student, self.class_weights, self.copies = student, class_weights, copies
        self.n_classes = look.sample[1].shape[1]
        self.last, self._before = estimator, None
        if isinstance(estimator, Pipeline):
            self.last, self._before = estimator[-1], estimator[:-1]
            # the steps are those of the pipeline, so they are fitted there too
            fit_foreign(self._before, look.sample[0], look.sample[1].argmax(axis=1))
        self._takes_weights = "sample_weight" in inspect.signature(self.last.partial_fit).parameters
        self._random = np.random.default_rng(seed)
        self._measured = None if look.measured is None else self._read(look.measured)

    def learn(self, part: Part, *, own: bool) -> None:
        """Learn from a chunk of rows; `own` predictions of the classifier may weigh its soft labels."""
        X, shares, by_row = self._read(part)
        by_class = self.class_weights
        if own:
            target, mass = weigh(shares, by_class)
            shares, by_class = responsibilities(self._predict(X), target), np.ones(self.n_classes)
            by_row = by_row * mass
        weights = targets(shares, by_class, float(self.student.min_label)) * by_row[:, None]
        if not weights.any():
            return
        most = math.ceil(min(self.copies, self.n_classes if self._takes_weights else COPIES) * len(weights))
        options: dict[str, Any] = {}
        if self._takes_weights:
            picked, options["sample_weight"] = thin(weights.ravel(), most, self._random.random(most))
        else:
            picked = resample(weights.ravel(), self._random.random(most))
        at, labels = np.divmod(picked, self.n_classes)
        with warnings.catch_warnings(), foreign_errors():
            # scikit-learn takes an interrupt for a wish to end this call
            warnings.filterwarnings("error", message="Training interrupted by user")
            warnings.filterwarnings("ignore", message="Got `batch_size`")  # the last chunk may be small
            try:
                self.last.partial_fit(take_rows(X, at), labels, classes=np.arange(self.n_classes), **options)
            except UserWarning:
                raise KeyboardInterrupt from None

    def held_out_loss(self) -> float:
        """Return the mean loss of the held-out rows; infinite if there are none."""
        if self._measured is None:
            return np.inf
        X, soft, by_row = self._measured
        proba = self._predict(X)
        target, mass = weigh(soft, self.class_weights)
        mass = mass * by_row
        if self.student.loss == "collision":
            return mean_collision(proba, target, mass)
        logs = np.log(np.maximum(proba, np.finfo(np.float64).tiny))
        return float(-(mass * (target * logs).sum(axis=1)).sum() / mass.sum())

    def _read(self, part: Part) -> tuple[Any, Floats, Floats]:
        """Return rows as the last step sees them, their soft labels (n, L) and weights (n,)."""
        X, soft, weights = part
        with foreign_errors():
            X = X if self._before is None else self._before.transform(X)
        by_row = np.ones(len(soft)) if weights is None else weights.astype(np.float64)
        return X, soft.astype(np.float64), by_row

    def _predict(self, X: Any) -> Floats:
        with foreign_errors():
            return np.asarray(self.last.predict_proba(X), dtype=np.float64)


def _chunks(rows: TargetRows, random: Generator) -> Iterator[Part]:
    """Yield chunks of rows, pass after pass."""
    while True:
        for window in windows(rows, random, BUFFER):
            for start in range(0, len(window[1]), CHUNK_ROWS):
                yield take_part(window, slice(start, start + CHUNK_ROWS))

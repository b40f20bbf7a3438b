"""Texts: a small, fast classifier on character n-grams that learns from labels or soft labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from consilience._validation import as_random_state, check_count, check_fitted
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.files.disk import as_path
from consilience.files.ngram_model import (
    MAX_LENGTH,
    Packed,
    Reading,
    TextModel,
    as_texts,
    pack,
    write_model,
)
from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import one_thread
from consilience.kernels.ngrams import drop_ngrams, hash_ngrams, take_texts
from consilience.rows import as_rows
from consilience.rows.targets import (
    BUFFER,
    MOST_HELD_OUT,
    Epochs,
    Part,
    TargetRows,
    in_random_order,
    windows,
)
from consilience.run import Run
from consilience.students.options import NgramsOptions
from consilience.students.student import Student, read_soft_labels

PASSES = 10
"""The passes of a classifier that does not say how many."""


class Ngrams(ClassifierMixin, Student, NgramsOptions, BaseEstimator):
    r"""Classify texts by their character n-grams.

    Each n-gram of a word (with a space at both ends) is hashed to one of `n_buckets` vectors. The sum of a
    text's vectors, divided by the root of their number, is the input of a softmax layer. Punctuation marks
    are separate words, and digits count as spaces. The learning rate falls to 0. This is fastText's
    classifier [Joulin et al. 2017], but with n-grams only, with other steps, and with soft labels.

    Attributes
    ----------
    classes_ : (L,) array
    n_iter_ : int
        Number of epochs run.
    losses_ : list of float
        The mean loss per unit of weight in each epoch, with dropout.

    Examples
    --------
    >>> texts, y = ["the cat sat", "le chat dort", "the dog", "le chien"] * 8, ["en", "fr"] * 16
    >>> model = Ngrams(n_buckets=1000, dim=8, random_state=0).fit(texts, y)
    >>> model.predict(["the cow", "le canard"]).tolist()
    ['en', 'fr']
    """

    learns_from = "texts"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on labels, or on soft labels.

        Parameters
        ----------
        X : (n,) sequence of str
        y : (n,) sequence of labels, or (n, L) array of soft labels
            Texts without a label (None, NaN, -1) are left out. The classes of soft labels are 0 to L - 1.
        """
        texts = as_texts(X)
        classes, Q = read_soft_labels(y, None)
        if len(Q) != len(texts):
            raise InvalidInputError(f"y has {len(Q)} rows and X has {len(texts)} texts.")
        self.learn(TargetRows(as_rows(texts), Q, used=~np.isnan(Q[:, 0])), np.ones(len(classes)))
        self.classes_ = classes
        self.model_: TextModel = self.model_.named(classes, 1.0)
        return self

    def learn_rows(self, rows: TargetRows, class_weights: Floats, run: Run, key: str) -> None:
        """Train on texts and soft labels that are read block by block; the classes are 0 to L - 1.

        An epoch is a pass, or a part of one if there are more than 2^20 texts. Texts are shuffled in a
        buffer of 64 MB.
        """
        from consilience.kernels.embedding_bag import Descent  # compiles code that only training needs

        lo, hi = self.ngram_range
        reading = Reading((int(lo), int(hi)), bool(self.lowercase), int(self.max_chars))
        epochs = Epochs.of(rows.n_rows, self.max_iter or PASSES, limited=self.max_iter is None)
        random = np.random.default_rng(int(as_random_state(self.random_state).randint(2**31 - 1)))
        dim, L = int(self.dim), rows.n_columns
        E = np.zeros((int(self.n_buckets), dim), dtype=np.float32)  # n-grams never seen contribute nothing
        W = random.uniform(-1, 1, (dim, L)).astype(np.float32) / np.float32(np.sqrt(dim))
        b = np.zeros(L, dtype=np.float32)
        descent = Descent(E, W, b)
        batches = self._batches(rows, class_weights, reading, random)
        done, total, self.losses_ = 0, epochs.visits, list[float]()
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # the loss reveals an overflow
            for epoch in range(epochs.total):
                loss, mass = 0.0, 0.0
                while done < epochs.end(epoch, epochs.n_rows):
                    texts, goals = next(batches)
                    ids, bounds = hash_ngrams(*texts, lo, hi, int(self.n_buckets))
                    if self.dropout:
                        keep = random.random(len(ids), dtype=np.float32) >= self.dropout
                        ids, bounds = drop_ngrams(ids, bounds, keep)
                    lr = max(0.0, self.lr * (1 - done / total))
                    loss += descent.step(ids, bounds, goals, lr, self.loss == "collision")
                    mass += float(goals.sum())
                    done += len(goals)
                self.losses_.append(loss / max(mass, np.finfo(float).tiny))
                self._check_loss()
                run.report("training", epoch + 1, epochs.total)
        self._warn_of_loss(L)
        self.classes_, self.n_iter_ = np.arange(L), epochs.total
        self.model_ = TextModel(E, W, b, self.classes_, reading)

    def predict_all(self, X: Any, n_classes: int) -> Floats:
        """Return probabilities (n, L) of all L classes."""
        return np.asarray(self.predict_proba(X))

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, L) in the order of `classes_`. Texts without n-grams all get the same logits."""
        check_fitted(self, "model_")
        return self.model_.predict_logits(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (n, L) in the order of `classes_`."""
        return np.asarray(softmax(self.predict_logits(X), axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class (n,) of each text."""
        best = self.predict_logits(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to one ``.npz`` file, with vectors in half precision, and its card next to it.

        `consilience.load` reads it back.

        Parameters
        ----------
        path : path
            A file name that ends in ``.npz``, in a folder that exists.
        """
        check_fitted(self, "model_")
        return write_model(as_path(path), self.model_, description="", details={})

    def check_options(self) -> None:
        """Raise if an option is wrong."""
        super().check_options()
        bounds = self.ngram_range
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise InvalidInputError(
                "{argument} must be two whole numbers: fewest and most characters.",
                argument="ngram_range",
                value=bounds,
            )
        lo, hi = check_count("ngram_range[0]", bounds[0]), check_count("ngram_range[1]", bounds[1])
        if not lo <= hi <= MAX_LENGTH:
            raise InvalidInputError(
                f"{{argument}} must not fall, and must end at {MAX_LENGTH} or less.",
                argument="ngram_range",
                value=bounds,
            )

    def _batches(
        self,
        rows: TargetRows,
        class_weights: Floats,
        reading: Reading,
        random: np.random.Generator,
    ) -> Iterator[tuple[Packed, NDArray[np.float32]]]:
        """Yield batches of texts in random order, pass after pass, without end."""
        scale, size, all_of_them = _row_scale(rows, int(random.integers(2**31))), int(self.batch_size), None

        def ready(part: Part) -> tuple[Packed, NDArray[np.float32]]:
            X, soft, weights = part
            by_row = scale if weights is None else scale * weights[:, None]
            return pack(as_texts(X), reading), np.asarray(soft * by_row * class_weights, dtype=np.float32)

        if rows.n_rows * rows.row_bytes <= BUFFER / 2:
            all_of_them = [ready(rows.everything())]
        else:
            rows = in_random_order(rows, BUFFER / 2, 0)  # of texts, this only warns
        while True:
            for packed, targets in all_of_them or map(ready, windows(rows, random, BUFFER)):
                order = random.permutation(len(targets))
                for start in range(0, len(order), size):
                    chosen = order[start : start + size]
                    yield Packed(*take_texts(*packed, chosen)), targets[chosen]

    def _check_loss(self) -> None:
        """Raise if training has diverged."""
        if not np.isfinite(self.losses_[-1]):
            before = f", after {self.losses_[-2]:.4g}" if len(self.losses_) > 1 else ""
            raise InvalidInputError(
                f"Training diverged in epoch {len(self.losses_)} (loss {self.losses_[-1]}{before}); lower "
                "{remedy}.",
                remedy=("lr", self.lr),
            )

    def _warn_of_loss(self, n_classes: int) -> None:
        """Warn if training ended worse than a guess."""
        guess = np.log(n_classes)
        if self.losses_[-1] > 2 * guess + 1:
            warn(
                ConvergenceWarning(
                    f"Training ended at a loss of {self.losses_[-1]:.4g}, but a guess has {guess:.4g}; "
                    "lower {remedy}.",
                    remedy=("lr", self.lr),
                )
            )


def _row_scale(rows: TargetRows, seed: int) -> float:
    """Return what makes the mean weight of a row 1, from a sample."""
    weights = rows.sample(MOST_HELD_OUT, seed)[2]
    if weights is None:
        return 1.0
    if not weights.any():
        raise InvalidInputError("X has no texts with a weight above 0; give some to learn from.")
    return float(np.count_nonzero(weights) / weights.sum(dtype=np.float64))

"""Texts: a small, fast classifier on character n-grams that learns from labels or soft labels."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from consilience._progress import Progress, silent
from consilience._validation import (
    as_numbers,
    as_random_state,
    check_choice,
    check_count,
    check_distributions,
    check_fitted,
    check_number,
    take_rows,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.files.card import find_card
from consilience.files.ngram_model import (
    MAX_BUCKETS,
    MAX_LENGTH,
    Reading,
    TextModel,
    as_texts,
    read_model,
    write_model,
)
from consilience.kernels.compiled import one_thread
from consilience.kernels.ngrams import Bounds, Ids, drop_ngrams, hash_ngrams, take_texts
from consilience.labels import class_list, read_labels
from consilience.options import anything, count, flag, number, option, optional
from consilience.rows.targets import TargetRows
from consilience.students._tasks import Batch, Task, TextsByPasses, TextsInMemory
from consilience.students.estimator import Student

__all__ = ["Ngrams"]


PASSES = 10
"""The passes of a classifier that does not say how many."""


class Ngrams(ClassifierMixin, Student, BaseEstimator):
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

    ngram_range: tuple[int, int] = option(
        anything("(int, int)"), "The fewest and the most characters of an n-gram.", default=(1, 4)
    )
    n_buckets: int = option(
        count(at_most=MAX_BUCKETS),
        "Number of vectors. N-grams in the same bucket share a vector. A saved model takes 2 n_buckets dim "
        "bytes.",
        default=2**18,
    )
    dim: int = option(count(), "Length of a vector.", default=64)
    max_iter: int | None = option(
        optional(count()),
        "Passes over the texts; by default 10, but at most 20 million texts, and at least one pass.",
        default=None,
    )
    lr: float = option(number(above=0), "Learning rate at the start.", default=0.02)
    dropout: float = option(
        number(at_least=0, below=1), "Share of a text's n-grams that each pass leaves out.", default=0.5
    )
    lowercase: bool = option(flag(), "Whether to turn capitals into small letters.", default=True)
    max_chars: int = option(count(), "Read at most this many characters of a text.", default=1000)
    batch_size: int = option(count(), "Texts per step.", default=256)

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train on labels.

        Parameters
        ----------
        X : (n,) sequence of str
        y : (n,) sequence
            The label of each text. Texts without one (None, NaN, -1) are left out.
        sample_weight : (n,) array, optional
        """
        reading, texts = self._check_params(), as_texts(X)
        classes, codes = labels = read_labels(y, len(texts))
        weights = _check_weights("sample_weight", sample_weight, len(texts))
        if not labels.known.all():
            texts, codes, weights = take_rows(texts, labels.known), codes[labels.known], weights[labels.known]
        onehot = csr_array(
            (np.ones(len(texts)), codes, np.arange(len(texts) + 1)), shape=(len(texts), len(classes))
        )
        task = TextsInMemory(texts, onehot, classes, np.ones(len(classes)), weights)
        self._train(task, reading, False, silent)
        return self

    def fit_soft_labels(
        self,
        X: Any,
        Q: Any,
        *,
        class_weights: ArrayLike | None = None,
        row_weights: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        loss: Literal["cross-entropy", "collision"] = "cross-entropy",
        progress: Progress = silent,
    ) -> Self:
        """Train on soft labels.

        Parameters
        ----------
        X : (n,) sequence of str
        Q : (n, L) array or sparse matrix
            The probability of each class, for each text.
        class_weights : (L,) array, optional
            Multiply each class's part of the loss by these.
        row_weights : (n,) array, optional
            The weight of each text.
        classes : (L,) sequence, optional
            The class of each column. Default: 0 to L - 1.
        loss : {"cross-entropy", "collision"}
            Cross-entropy, or collision cross-entropy, which gives less weight to texts with uncertain soft
            labels.
        progress : callable
            Called as ``progress("training", epoch, max_iter)`` after each epoch.
        """
        reading, texts = self._check_params(), as_texts(X)
        check_choice("loss", loss, ("cross-entropy", "collision"))
        labels = _check_soft_labels(Q, len(texts))
        L = labels.shape[1]
        names = np.arange(L) if classes is None else np.asarray(class_list(classes))
        if len(names) != L:
            raise InvalidInputError(f"classes has {len(names)} names and Q has {L} columns.")
        by_class = _check_weights("class_weights", class_weights, L)
        by_row = _check_weights("row_weights", row_weights, len(texts))
        task = TextsInMemory(texts, labels, names, by_class, by_row)
        self._train(task, reading, loss == "collision", progress)
        return self

    def fit_by_passes(
        self,
        rows: TargetRows,
        *,
        class_weights: ArrayLike | None = None,
        loss: Literal["cross-entropy", "collision"] = "cross-entropy",
        progress: Progress = silent,
        memory: int = 2**31,
    ) -> Self:
        """Train on texts and soft labels that are read block by block; the classes are 0 to L - 1.

        An epoch is a pass, or a part of one if there are more than 2^20 texts.

        Parameters
        ----------
        rows : TargetRows
            Texts, soft labels (n, L) and perhaps weights.
        class_weights, loss, progress
            As in `fit_soft_labels`.
        memory : int
            Bytes; texts are shuffled in a quarter of it.
        """
        reading = self._check_params()
        check_choice("loss", loss, ("cross-entropy", "collision"))
        by_class = _check_weights("class_weights", class_weights, rows.n_columns)
        task = TextsByPasses(rows, np.arange(rows.n_columns), by_class, memory)
        self._train(task, reading, loss == "collision", progress)
        return self

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

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        classes: ArrayLike | None = None,
        temperature: float = 1.0,
        description: str = "",
        details: dict[str, Any] | None = None,
    ) -> Path:
        """Write the model to one ``.npz`` file, with vectors in half precision, and its card next to it.

        Parameters
        ----------
        path : path
            A file name that ends in ``.npz``, in a folder that exists.
        classes : (L,) sequence, optional
            New names for the classes.
        temperature : float
            Multiply the logits of the saved model by this.
        description : str
            A sentence for the card.
        details : mapping, optional
            Anything else for the card, as JSON values.
        """
        check_fitted(self, "model_")
        check_number("temperature", temperature, above=0)
        names = self.classes_ if classes is None else np.asarray(class_list(classes))
        if len(names) != len(self.classes_):
            raise InvalidInputError(f"classes has {len(names)} names for {len(self.classes_)} classes.")
        model = self.model_.named(names, float(temperature))
        return write_model(path, model, description=description, details=details or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. If it has a card, compare its checksum."""
        if not isinstance(path, str | os.PathLike):
            raise InvalidInputError("{argument} must be the name of a file.", argument="path", value=path)
        if Path(path).is_file():
            find_card(path)  # raises if the checksum does not match
        model = read_model(path)
        n_buckets, dim = model.embeddings.shape
        reading = model.reading
        loaded = cls(
            ngram_range=reading.ngram_range,
            n_buckets=n_buckets,
            dim=dim,
            lowercase=reading.lowercase,
            max_chars=reading.max_chars,
        )
        loaded.model_, loaded.classes_ = model, model.classes
        return loaded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def _check_params(self) -> Reading:
        """Check the parameters; return those that concern reading."""
        try:
            lo, hi = self.ngram_range
        except (TypeError, ValueError):
            raise InvalidInputError(
                "{argument} must be two whole numbers: fewest and most characters.",
                argument="ngram_range",
                value=self.ngram_range,
            ) from None
        lo, hi = check_count("ngram_range[0]", lo), check_count("ngram_range[1]", hi)
        if not lo <= hi <= MAX_LENGTH:
            raise InvalidInputError(
                f"{{argument}} must not fall, and must end at {MAX_LENGTH} or less.",
                argument="ngram_range",
                value=self.ngram_range,
            )
        self.check_options()
        return Reading((lo, hi), bool(self.lowercase), int(self.max_chars))

    def _train(self, task: Task, reading: Reading, collision: bool, progress: Progress) -> None:
        from consilience.kernels.embedding_bag import Descent  # compiles code that only training needs

        epochs = task.epochs(self.max_iter, PASSES)
        random = np.random.default_rng(int(as_random_state(self.random_state).randint(2**31 - 1)))
        dim, L = int(self.dim), len(task.classes)
        E = np.zeros((int(self.n_buckets), dim), dtype=np.float32)  # n-grams never seen contribute nothing
        W = random.uniform(-1, 1, (dim, L)).astype(np.float32) / np.float32(np.sqrt(dim))
        b = np.zeros(L, dtype=np.float32)
        descent = Descent(E, W, b)
        batches, done, total = task.batches(reading, random, int(self.batch_size)), 0, epochs.visits
        self.losses_ = []
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # the loss reveals an overflow
            for epoch in range(epochs.total):
                loss, mass = 0.0, 0.0
                while done < epochs.end(epoch, epochs.n_rows):
                    batch = next(batches)
                    lr = max(0.0, self.lr * (1 - done / total))
                    loss += descent.step(*self._ngrams(batch, reading, random), batch.targets, lr, collision)
                    mass += float(batch.targets.sum())
                    done += len(batch.rows)
                self.losses_.append(loss / max(mass, np.finfo(float).tiny))
                self._check_loss()
                progress("training", epoch + 1, epochs.total)
        if self.losses_[-1] > 2 * np.log(L) + 1:
            warnings.warn(
                ConvergenceWarning(
                    f"Training ended at a loss of {self.losses_[-1]:.4g}, but a guess has {np.log(L):.4g}; "
                    "lower {remedy}.",
                    remedy=("lr", self.lr),
                ),
                stacklevel=3,
            )
        self.model_ = TextModel(E, W, b, task.classes, reading)
        self.classes_ = task.classes
        self.n_iter_ = epochs.total

    def _check_loss(self) -> None:
        """Raise if training has diverged."""
        if not np.isfinite(self.losses_[-1]):
            before = f", after {self.losses_[-2]:.4g}" if len(self.losses_) > 1 else ""
            raise InvalidInputError(
                f"Training diverged in epoch {len(self.losses_)} (loss {self.losses_[-1]}{before}); lower "
                "{remedy}.",
                remedy=("lr", self.lr),
            )

    def _ngrams(self, batch: Batch, reading: Reading, random: np.random.Generator) -> tuple[Ids, Bounds]:
        """Return the n-grams of some texts, after dropout."""
        texts = take_texts(*batch.packed, batch.rows)
        ids, bounds = hash_ngrams(*texts, *reading.ngram_range, int(self.n_buckets))
        if self.dropout:
            keep = random.random(len(ids), dtype=np.float32) >= self.dropout
            ids, bounds = drop_ngrams(ids, bounds, keep)
        return ids, bounds


def _check_soft_labels(Q: Any, rows: int) -> Any:
    """Return soft labels (n, L) as an array or a CSR matrix, or raise."""
    if issparse(Q):
        labels = csr_array(Q)
        sums = labels.sum(axis=labels.ndim - 1)
        if not (labels.data >= 0).all() or (np.abs(sums - 1) > 1e-3).any():
            raise InvalidInputError("Q has rows that are not probabilities: expected 0 to 1, with the sum 1.")
    else:
        labels = check_distributions("Q", Q)
    if labels.ndim != 2 or labels.shape[0] != rows:
        raise InvalidInputError(f"Q has shape {labels.shape} and X has {rows} texts; expected ({rows}, L).")
    return labels


def _check_weights(name: str, values: ArrayLike | None, count: int) -> NDArray[np.float64]:
    """Return weights (count,), or ones if none are given; raise if they are wrong."""
    if values is None:
        return np.ones(count)
    expected = f"expected ({count},), numbers of at least 0"
    weights = as_numbers(name, values, expected).astype(np.float64)
    if weights.shape != (count,):
        raise InvalidInputError(f"{name} has shape {weights.shape}; {expected}.")
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(f"{name} has {weights[place]} at position {place}; {expected}.")
    return weights

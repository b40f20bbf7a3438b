"""Texts: a small, fast classifier on character n-grams that learns from labels or soft labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from consilience._validation import (
    as_random_state,
    check_count,
    check_fitted,
    check_number,
    check_weights,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.files.card import find_card
from consilience.files.ngram_model import (
    MAX_LENGTH,
    Packed,
    Reading,
    TextModel,
    as_texts,
    pack,
    read_model,
    write_model,
)
from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import one_thread
from consilience.kernels.ngrams import Bounds, Ids, drop_ngrams, hash_ngrams, take_texts
from consilience.labels import class_list
from consilience.rows import as_rows, memory_budget
from consilience.rows.targets import (
    BUFFER_SHARE,
    MOST_HELD_OUT,
    Epochs,
    Part,
    TargetRows,
    in_random_order,
    windows,
)
from consilience.run import Run, resolve_run
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

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train on labels, or on soft labels.

        Parameters
        ----------
        X : (n,) sequence of str
        y : (n,) sequence of labels, or (n, L) array of soft labels
            Texts without a label (None, NaN, -1) are left out. The classes of soft labels are 0 to L - 1.
        sample_weight : (n,) array, optional
        """
        texts = as_texts(X)
        classes, Q = read_soft_labels(y, None)
        if len(Q) != len(texts):
            raise InvalidInputError(f"y has {len(Q)} rows and X has {len(texts)} texts.")
        weights = check_weights("sample_weight", sample_weight, len(texts))
        used = ~np.isnan(Q[:, 0]) & (weights > 0)
        rows = TargetRows(as_rows(texts), Q, None if sample_weight is None else weights, used)
        self.learn(rows, np.ones(len(classes)))
        self.classes_ = classes
        self.model_: TextModel = self.model_.named(classes, 1.0)
        return self

    def learn(
        self,
        rows: TargetRows,
        class_weights: Floats,
        *,
        temperature: float = 1.0,
        run: Run | None = None,
        key: str = "",
    ) -> Self:
        """Train on texts and soft labels that are read block by block; the classes are 0 to L - 1.

        An epoch is a pass, or a part of one if there are more than 2^20 texts. Texts are shuffled in a
        quarter of the memory.
        """
        from consilience.kernels.embedding_bag import Descent  # compiles code that only training needs

        reading, run = self._check_params(), resolve_run(run)
        if rows.n_rows == 0:
            raise InvalidInputError("X has no texts with a weight above 0; give some to learn from.")
        epochs = Epochs.of(rows.n_rows, self.max_iter or PASSES, limited=self.max_iter is None)
        random = np.random.default_rng(int(as_random_state(self.random_state).randint(2**31 - 1)))
        dim, L = int(self.dim), rows.n_columns
        E = np.zeros((int(self.n_buckets), dim), dtype=np.float32)  # n-grams never seen contribute nothing
        W = random.uniform(-1, 1, (dim, L)).astype(np.float32) / np.float32(np.sqrt(dim))
        b = np.zeros(L, dtype=np.float32)
        descent = Descent(E, W, b)
        batches = self._batches(rows, class_weights, reading, random, memory_budget(run))
        done, total, self.losses_ = 0, epochs.visits, list[float]()
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # the loss reveals an overflow
            for epoch in range(epochs.total):
                loss, mass = 0.0, 0.0
                while done < epochs.end(epoch, epochs.n_rows):
                    texts, goals = next(batches)
                    ids, bounds = self._ngrams(texts, reading, random)
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
        return self

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

    def _batches(
        self,
        rows: TargetRows,
        class_weights: Floats,
        reading: Reading,
        random: np.random.Generator,
        memory: int,
    ) -> Iterator[tuple[Packed, NDArray[np.float32]]]:
        """Yield batches of texts in random order, pass after pass, without end."""
        scale, size = _row_scale(rows, int(random.integers(2**31))), int(self.batch_size)

        def ready(part: Part) -> tuple[Packed, NDArray[np.float32]]:
            X, soft, weights = part
            by_row = scale if weights is None else scale * weights[:, None]
            return pack(as_texts(X), reading), np.asarray(soft * by_row * class_weights, dtype=np.float32)

        n_bytes, all_of_them = BUFFER_SHARE * memory, None
        if rows.n_rows * rows.row_bytes <= n_bytes / 2:
            all_of_them = [ready(rows.everything())]
        else:
            rows = in_random_order(rows, n_bytes / 2, 0)  # of texts, this only warns
        while True:
            for packed, targets in all_of_them or map(ready, windows(rows, random, n_bytes)):
                order = random.permutation(len(targets))
                for start in range(0, len(order), size):
                    chosen = order[start : start + size]
                    yield Packed(*take_texts(*packed, chosen)), targets[chosen]

    def _ngrams(self, texts: Packed, reading: Reading, random: np.random.Generator) -> tuple[Ids, Bounds]:
        """Return the n-grams of some texts, after dropout."""
        ids, bounds = hash_ngrams(*texts, *reading.ngram_range, int(self.n_buckets))
        if self.dropout:
            keep = random.random(len(ids), dtype=np.float32) >= self.dropout
            ids, bounds = drop_ngrams(ids, bounds, keep)
        return ids, bounds

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

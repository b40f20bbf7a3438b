"""Find the models that may help with a task, from their descriptions: no model runs.

A regression from the inputs of the reference rows to a model's kept answers stands for the model on the rows
of the task. `rank_teachers` then judges the stand-ins as it would judge the models. The weights of the
regression do not depend on the model, so hundreds of models cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import rankdata

from consilience._validation import as_random_state, check_choice, n_rows
from consilience.exceptions import InvalidInputError, InvalidTypeError, shown
from consilience.kernels.arrays import Floats
from consilience.kernels.rank.probe import (
    gaussian_kernel,
    kernel_width,
    mean_discrepancies,
    neighbour_weights,
    ridge_weights,
)
from consilience.kernels.transport.centres import class_means
from consilience.labels import read_labels
from consilience.rank.metrics import otce_rows
from consilience.rank.options import OTCE
from consilience.rank.rank import rank_teachers
from consilience.repository.description import Description
from consilience.repository.signature import look_at, plain_rows
from consilience.teachers import as_teacher

__all__ = ["METHODS", "comparable_rows", "shortlist"]

RIDGE = 1e-3  # penalty per reference row
NEIGHBOURS = 5
FLOOR = 1e-6  # of a stand-in's probability
TEXT_COLUMNS = 1024  # of hashed n-grams
MOST_COLUMNS = 200_000


def shortlist(
    descriptions: Mapping[str, Description],
    reference_rows: Any,
    X: Any,
    y: Any,
    *,
    method: str = "auto",
    random_state: int | None = 0,
) -> dict[str, float]:
    """Score models by how much each may help with a task. No model runs.

    Parameters
    ----------
    descriptions : mapping of str to Description
        By name; all of the same reference rows.
    reference_rows : array, data frame or list
        The r rows that were described, in the same order.
    X : array, data frame or list
        Rows of the task, in the same form.
    y : (n,) sequence
        Their classes, which need not be those of any model; None, NaN or -1 where there is no label.
    method : str
        ``"auto"``, or a key of `METHODS`; see docs/repository-search.md.
    random_state : int, optional
        Seeds the folds of the metrics.

    Returns
    -------
    dict of str to float
        The score of each model by its name, best first: higher is better. Scores of different methods, or of
        different tasks, cannot be compared.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from consilience.repository.description import describe
    >>> X, y = load_digits(return_X_y=True)
    >>> models = {f"below {k}": LogisticRegression(max_iter=500).fit(X[y < k], y[y < k]) for k in (3, 8)}
    >>> kept = {name: describe(model, X[:200]) for name, model in models.items()}
    >>> list(shortlist(kept, X[:200], X[1000:1300], y[1000:1300]))
    ['below 8', 'below 3']
    """
    check_choice("method", method, METHODS)
    _check_descriptions(descriptions, n_rows(reference_rows))
    if not descriptions:
        return {}
    labels = read_labels(y, n_rows(X), at_least=2)
    reference, rows = comparable_rows(reference_rows, X)
    seed = as_random_state(random_state).randint(2**31 - 1)
    kept, known = list(descriptions.values()), labels.known
    search = Search(kept, reference, rows[known], rows, labels.classes, labels.codes[known], seed)
    scores = METHODS[method](search)
    names = list(descriptions)
    return {names[i]: float(scores[i]) for i in np.argsort(-scores, kind="stable")}


def _check_descriptions(descriptions: Mapping[str, Description], rows: int) -> None:
    """Raise unless all are descriptions of this many reference rows."""
    described = isinstance(descriptions, Mapping) and all(
        isinstance(kept, Description) for kept in descriptions.values()
    )
    if not described:
        raise InvalidTypeError(
            f"descriptions is {shown(descriptions)}; give a mapping of names to what describe returned."
        )
    for name, kept in descriptions.items():
        if len(kept.answers) != rows:
            raise InvalidInputError(
                f"descriptions[{name!r}] is of {len(kept.answers)} reference rows, and there are {rows}. "
                "Describe the model again."
            )


@dataclass(frozen=True, eq=False)
class Search:
    """A task and the descriptions that are compared with it: the argument of every method.

    Attributes
    ----------
    descriptions : list of Description
    reference : (r, d) array
    rows : (n, d) array
        The labelled rows of the task, as numbers.
    everything : (N, d) array
        These, and those without a label.
    classes : (K,) array
    codes : (n,) array of int
    seed : int
    """

    descriptions: list[Description]
    reference: Floats
    rows: Floats
    everything: Floats
    classes: NDArray[Any]
    codes: NDArray[np.intp]
    seed: int

    @cached_property
    def width(self) -> float:
        """The width of the Gaussian kernel."""
        return kernel_width(self.reference)

    @cached_property
    def ridge(self) -> Floats:
        """Regression weights (n, r) of kernel ridge regression."""
        return ridge_weights(self.reference, self.rows, self.width, RIDGE)

    @cached_property
    def neighbours(self) -> Floats:
        """Regression weights (n, r) of nearest neighbours."""
        return neighbour_weights(self.reference, self.rows, min(NEIGHBOURS, len(self.reference)))

    def probabilities(self, i: int) -> Floats:
        """Return what model i said about the reference rows (r, k); a guess where it abstained."""
        answers = self.descriptions[i].answers.astype(np.float64)
        return np.asarray(softmax(np.where(np.isnan(answers), 0.0, answers), axis=1))

    def centres(self, i: int) -> Floats:
        """Return where model i sees its classes among the reference rows (k, d)."""
        P = self.probabilities(i)
        return np.asarray((P / np.maximum(P.sum(axis=0), FLOOR)).T @ self.reference)


def stand_ins(search: Search, weights: Floats) -> dict[str, Any]:
    """Return a teacher for each model that says what a regression expects of it on the rows of the task.

    Logarithms are averaged where weights may be negative, probabilities where they are shares.
    """
    found = {}
    shares = bool((weights >= 0).all())
    for i, kept in enumerate(search.descriptions):
        P = search.probabilities(i)
        if shares:
            logits = np.log(np.maximum(weights @ P, FLOOR))
        else:
            answers = np.log(P)
            mean = answers.mean(axis=0)
            logits = mean + weights @ (answers - mean)
        embeddings = None
        if kept.embeddings is not None:
            embeddings = weights @ kept.embeddings.astype(np.float64)
        found[str(i)] = as_teacher(logits, kept.classes, str(i), output="logits", embed=embeddings)
    return found


def _by_regression(metric: str, search: Search, weights: str = "ridge") -> Floats:
    """Return the scores (m,) of `rank_teachers` for the stand-ins; those that say nothing come last."""
    teachers, y = stand_ins(search, getattr(search, weights)), search.classes[search.codes]
    ranking = rank_teachers(
        teachers, search.rows, y, metric=metric, confidence=None, random_state=search.seed
    )
    found = {row.name: row.score for row in ranking}
    return np.array([found.get(str(i), -np.inf) for i in range(len(search.descriptions))])


def _names(search: Search) -> Floats:
    """Score by the share of the task's classes that a model names, and how near the others are to its own."""
    wanted = search.classes.tolist()
    means = class_means(search.rows, search.codes, len(wanted))
    scores = np.empty(len(search.descriptions))
    for i, kept in enumerate(search.descriptions):
        known = set(kept.classes.tolist())
        nearest = gaussian_kernel(means, search.centres(i), search.width).max(axis=1)
        scores[i] = np.mean(
            [1.0 if name in known else near for name, near in zip(wanted, nearest, strict=True)]
        )
    return scores


def _otce(search: Search) -> Floats:
    """Score by the transport between the rows of the task and a model's class centres over the reference."""
    scores = np.empty(len(search.descriptions))
    for i in range(len(scores)):
        S, share = search.centres(i), search.probabilities(i).mean(axis=0)
        classes = (np.arange(len(S)), len(S))
        scores[i] = otce_rows(S, classes, share / share.sum(), search.rows, search.codes, None, OTCE()).mean()
    return scores


def _kernel_means(search: Search) -> Floats:
    """Score by the distance of kernel means: the rows that a model is sure of against those of the task."""
    K = gaussian_kernel(search.reference, search.reference, search.width)
    towards = gaussian_kernel(search.reference, search.everything, search.width).mean(axis=1)
    sure = np.array([search.probabilities(i).max(axis=1) for i in range(len(search.descriptions))])
    return -mean_discrepancies(K, sure / sure.sum(axis=1, keepdims=True), towards)


def _mean_rank(search: Search) -> Floats:
    """Score by the mean rank in three methods, from 0 (last) to 1 (first)."""
    ranks = [rankdata(METHODS[name](search)) for name in ("leep", "transport", "names")]
    return np.asarray((np.mean(ranks, axis=0) - 1) / max(len(ranks[0]) - 1, 1))


METHODS: dict[str, Callable[[Search], Floats]] = {
    "names": _names,
    "otce": _otce,
    "kernel-means": _kernel_means,
    **{name: partial(_by_regression, name) for name in ("leep", "nce", "transport", "logme", "h_score")},
    "neighbours": partial(_by_regression, "leep", weights="neighbours"),
    "mean": _mean_rank,
    # chosen by benchmarks/repository on other data than its tables show
    "auto": partial(_by_regression, "leep"),
}


def comparable_rows(reference: Any, X: Any) -> tuple[Floats, Floats]:
    """Return reference rows (r, d) and rows of a task (n, d) as numbers on one scale.

    Texts become hashed character n-grams. A missing number becomes the mean of its column. All columns share
    one scale, so that principal components and embeddings keep their shape.

    Parameters
    ----------
    reference, X : array, sparse matrix, data frame or list of texts
        With the same columns.
    """
    R, T = _numbers(reference, "The reference"), _numbers(X, "X")
    if R.shape[1] != T.shape[1]:
        raise InvalidInputError(
            f"X has {T.shape[1]} columns and the reference has {R.shape[1]}. Search with rows like those "
            "that the repository keeps, or set another reference."
        )
    if not np.isfinite(R).any():
        raise InvalidInputError("The reference has no finite number; set another one.")
    known = np.where(np.isfinite(R), R, np.nan)
    largest = float(np.nanmax(np.abs(known))) or 1.0  # squares of large numbers would overflow
    empty = np.isnan(known).all(axis=0)
    known[:, empty] = 0.0
    mean = np.nanmean(known / largest, axis=0)
    rows = [np.where(np.isfinite(part), part / largest - mean, 0.0) for part in (known, T)]
    spread = float(np.sqrt(np.mean(rows[0] ** 2))) or 1.0
    return rows[0] / spread, rows[1] / spread


def _numbers(X: Any, what: str) -> Floats:
    """Return rows as an array (n, d) of floats, or raise."""
    X = plain_rows(X)
    count = n_rows(X)
    if count == 0:
        raise InvalidInputError(f"{what} has no rows; give some.")
    if look_at(X)[0] == "texts":
        from sklearn.feature_extraction.text import HashingVectorizer

        hashing = HashingVectorizer(n_features=TEXT_COLUMNS, analyzer="char_wb", ngram_range=(2, 4))
        return np.asarray(hashing.transform(map(str, X)).toarray(), dtype=np.float64)
    if hasattr(X, "toarray"):
        X = X.toarray() if X.shape[1] <= MOST_COLUMNS else X
    try:
        flat = np.asarray(X).reshape(count, -1).astype(np.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(
            f"{what} cannot be read as numbers ({error}); a search compares arrays, images, tables of "
            "numbers or texts. Encode columns of words first."
        ) from None
    if not 1 <= flat.shape[1] <= MOST_COLUMNS:
        raise InvalidInputError(f"{what} has {flat.shape[1]:,} columns; expected 1 to {MOST_COLUMNS:,}.")
    return np.asarray(flat)

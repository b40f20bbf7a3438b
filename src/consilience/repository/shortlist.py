"""Find the models that may help with a task, from their descriptions: no model runs.

A regression from the inputs of the reference rows to a model's kept answers stands for the model on the rows
of the task. `rank_teachers` then judges the stand-ins as it would judge the models. The weights of the
regression do not depend on the model, so hundreds of models cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import rankdata

from consilience._validation import as_random_state, check_choice, n_rows
from consilience.exceptions import InvalidInputError, InvalidTypeError
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
from consilience.repository.numbers import comparable_rows
from consilience.teachers import as_teacher

__all__ = ["METHODS", "Match", "shortlist"]

RIDGE = 1e-3  # penalty per reference row
NEIGHBOURS = 5
FLOOR = 1e-6  # of a stand-in's probability


@dataclass(frozen=True)
class Match:
    """A model that may help.

    Attributes
    ----------
    name : str
    score : float
        Higher is better. Scores of different methods, or of different tasks, cannot be compared.
    """

    name: str
    score: float


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


def shortlist(
    descriptions: Mapping[str, Description],
    reference_rows: Any,
    X: Any,
    y: Any,
    *,
    method: str = "auto",
    random_state: int | None = 0,
) -> list[Match]:
    """Sort models by how much each may help with a task, best first. No model runs.

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
    list of Match

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from consilience.repository.description import describe
    >>> X, y = load_digits(return_X_y=True)
    >>> models = {f"below {k}": LogisticRegression(max_iter=500).fit(X[y < k], y[y < k]) for k in (3, 8)}
    >>> kept = {name: describe(model, X[:200]) for name, model in models.items()}
    >>> [match.name for match in shortlist(kept, X[:200], X[1000:1300], y[1000:1300])]
    ['below 8', 'below 3']
    """
    check_choice("method", method, METHODS)
    _check_descriptions(descriptions, n_rows(reference_rows))
    if not descriptions:
        return []
    labels = read_labels(y, n_rows(X), at_least=2)
    reference, rows = comparable_rows(reference_rows, X)
    seed = as_random_state(random_state).randint(2**31 - 1)
    search = Search(
        list(descriptions.values()),
        reference,
        rows[labels.known],
        rows,
        labels.classes,
        labels.codes[labels.known],
        seed,
    )
    scores = METHODS[method](search)
    order = np.argsort(-scores, kind="stable")
    names = list(descriptions)
    return [Match(names[i], float(scores[i])) for i in order]


def _check_descriptions(descriptions: Mapping[str, Description], rows: int) -> None:
    """Raise unless all are descriptions of this many reference rows."""
    if not isinstance(descriptions, Mapping):
        raise InvalidTypeError(
            f"descriptions is a {type(descriptions).__name__}; give a mapping of names to descriptions."
        )
    for name, kept in descriptions.items():
        if not isinstance(kept, Description):
            raise InvalidTypeError(f"descriptions[{name!r}] is a {type(kept).__name__}; use describe().")
        if len(kept.answers) != rows:
            raise InvalidInputError(
                f"descriptions[{name!r}] is of {len(kept.answers)} reference rows, and there are {rows}. "
                "Describe the model again."
            )


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


def _ranked(search: Search, weights: Floats, metric: str) -> Floats:
    """Return the scores (m,) of `rank_teachers` for the stand-ins; those that say nothing come last."""
    y = search.classes[search.codes]
    ranking = rank_teachers(
        stand_ins(search, weights), search.rows, y, metric=metric, confidence=None, random_state=search.seed
    )
    scores = np.full(len(search.descriptions), -np.inf)
    for row in ranking:
        scores[int(row.name)] = row.score
    return scores


def _by_regression(metric: str) -> Callable[[Search], Floats]:
    return lambda search: _ranked(search, search.ridge, metric)


def _by_neighbours(metric: str) -> Callable[[Search], Floats]:
    return lambda search: _ranked(search, search.neighbours, metric)


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


def _rank_mean(*methods: Callable[[Search], Floats]) -> Callable[[Search], Floats]:
    """Return a method that scores by the mean rank in several others, from 0 (last) to 1 (first)."""

    def score(search: Search) -> Floats:
        ranks = [rankdata(method(search)) for method in methods]
        return np.asarray((np.mean(ranks, axis=0) - 1) / max(len(ranks[0]) - 1, 1))

    return score


METHODS: dict[str, Callable[[Search], Floats]] = {
    "names": _names,
    "otce": _otce,
    "kernel-means": _kernel_means,
    "leep": _by_regression("leep"),
    "nce": _by_regression("nce"),
    "transport": _by_regression("transport"),
    "logme": _by_regression("logme"),
    "h_score": _by_regression("h_score"),
    "neighbours": _by_neighbours("leep"),
    "mean": _rank_mean(_by_regression("leep"), _by_regression("transport"), _names),
}
# chosen by benchmarks/repository on other data than its tables show
METHODS["auto"] = METHODS["leep"]

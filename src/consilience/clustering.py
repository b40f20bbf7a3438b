"""Cluster: classes from rows without labels, or with few."""

from __future__ import annotations

import warnings
from itertools import count
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from consilience._progress import Progress, silent
from consilience._validation import check_choice, check_count, check_number
from consilience.clustering_losses import LOSSES, Problem, with_labels
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.neighbours import nearest_neighbours
from consilience.kernels.self_labelling import (
    Relabel,
    Round,
    Run,
    Schedule,
    alternate,
    descend,
    start_from_centres,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Loss = Literal["collision", "mi", "sela", "mi-adm", "iic"]

# More numbers than this are trained on in single precision: half the time, and no label depends on the rest.
_SINGLE_PRECISION = 1_000_000
_LEARNING_RATE = 0.1  # of the paper's protocol


class CollisionClustering(ClusterMixin, BaseEstimator):
    r"""Cluster rows with a discriminative model that labels them itself.

    A softmax model sigma and pseudo-labels y are found in turns, so that they collide in every row and every
    cluster gets its share (eq. 11 of the paper):

    .. math:: \overline{H_2(y, \sigma)} + \lambda\, KL(u \| \bar y)

    Features are centred, and divided by one number, their root-mean-square length: distances keep their
    proportions. Predictions are averaged over each row's nearest neighbours before labels are made of them,
    the labels of all rows are solved for at once and exactly, and the model takes a few steps of L-BFGS
    towards them; the best of several starts, by the objective, is kept.

    Parameters
    ----------
    n_clusters : int
        K.
    lam : float, optional
        Weight of fairness. 100 by default, which asks for clusters of nearly equal size (or of the sizes of
        `prior`); take about 1 where sizes may differ. The default is 1 for ``loss="iic"``, where it is
        the exponent of the marginals; ``loss="sela"`` has none: its shares are exact.
    loss : {"collision", "mi", "sela", "mi-adm", "iic"}
        What is minimised: the collision loss above, or one that the paper compares with, with the same care
        for neighbours and starts: mutual information (eq. 1; the entropies of MI-GD and IMSAT), equipartition
        (eq. 4), Shannon's cross-entropy with a divergence (eq. 5), invariant information.
    model : {"linear"}
        The model on the features, eq. (3).
    neighbors : int
        Nearest neighbours of each row to average predictions over; 0 for none.
    n_init : int
        Starts; each begins with random rows as centres, chosen as k-means++ does.
    prior : (K,) array, optional
        u, the share of each cluster; equal by default.
    solver : str
        Of the pseudo-labels; see `collision_pseudo_labels`.
    protocol : {"full-batch", "paper"}
        ``"paper"`` trains as Appendix E.2 does: stochastic gradient steps of size 0.1 on batches, labels made
        within a batch, one random start, no neighbours. It is there to reproduce; it finds worse clusters.
    batch_size : int, optional
        Of ``protocol="paper"``, 250 by default.
    max_epochs : int, optional
        Most rounds of labelling and training: 100 by default, 10 with ``protocol="paper"``.
    weight_decay : float
        Half of it times the squared weights is added to the objective.
    label_weight : float
        Weight of the cross-entropy on labelled rows, where there are some.
    tol : float
        Stop when at most this share of rows, or a single one, changes its cluster in a round.
    n_jobs : int, optional
        Starts at a time, in threads.
    progress : function, optional
        Called as ``progress(task, done, total)``.
    random_state : int, RandomState or None
        Makes the result reproducible; it does not depend on `n_jobs`.

    Attributes
    ----------
    labels_ : (n,) array of int
        The cluster of each row: ``predict(X)``.
    objective_ : float
        Of the best start, at its end.
    objective_history_ : (n_iter_ + 1,) array
        The objective before each round and at the end. It need not fall in every round, since labels come
        from averaged predictions and the model is trained on its own.
    coef_ : (K, d) array
    intercept_ : (K,) array
        The model, for rows as they come.
    n_iter_ : int
        Rounds of the best start.
    n_features_in_ : int

    Notes
    -----
    Above 8,192 rows neighbours are found among the rows of nearby cells, which misses a few (docs/cluster.md
    says how many). Memory grows with n (d + K + neighbors); time with n^1.5 d for the neighbours, and with
    n K (d + K) for each round of each start.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clusters = CollisionClustering(3, random_state=0).fit_predict(X)
    >>> np.bincount(clusters).tolist()
    [50, 50, 50]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        lam: float | None = None,
        loss: Loss = "collision",
        model: Any = "linear",
        neighbors: int = 10,
        n_init: int = 10,
        prior: ArrayLike | None = None,
        solver: str = "auto",
        *,
        protocol: Literal["full-batch", "paper"] = "full-batch",
        batch_size: int | None = None,
        max_epochs: int | None = None,
        weight_decay: float = 5e-4,
        label_weight: float = 2.0,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.lam = lam
        self.loss = loss
        self.model = model
        self.neighbors = neighbors
        self.n_init = n_init
        self.prior = prior
        self.solver = solver
        self.protocol = protocol
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.weight_decay = weight_decay
        self.label_weight = label_weight
        self.tol = tol
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> CollisionClustering:
        """Find the clusters of X.

        Parameters
        ----------
        X : (n, d) array
        y : (n,) array of int, optional
            Labels where they are known, from 0 to n_clusters - 1, and -1 elsewhere. Clusters with labelled
            rows then have the numbers of these labels.
        """
        self._check_params()
        rows = validate_data(self, X, dtype=(np.float64, np.float32))
        if len(rows) < self.n_clusters:
            raise InvalidInputError(
                f"X has n_samples={len(rows)}, fewer than n_clusters={self.n_clusters}; ask for fewer."
            )
        fixed = _check_labels(y, len(rows), self.n_clusters)
        random = check_random_state(self.random_state)
        mean = rows.mean(axis=0, dtype=np.float64)
        Z, scale = _scaled(rows, mean)
        seeds = random.randint(np.iinfo(np.int32).max, size=self.n_init + 1)
        problem = self._problem(Z, fixed, int(seeds[0]))
        best = self._best_run(Z, problem, seeds[1:])
        self.coef_ = best.W[:-1].T / scale
        self.intercept_ = best.W[-1] - self.coef_ @ mean
        self.objective_ = best.history[-1]
        self.objective_history_ = np.array(best.history)
        self.n_iter_ = best.n_iter
        self.labels_ = self._logits(rows).argmax(axis=1)
        return self

    def predict(self, X: ArrayLike) -> Ints:
        """Return the cluster of each row (n,)."""
        return np.asarray(self._logits(self._rows(X)).argmax(axis=1))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each cluster for each row (n, K)."""
        return np.asarray(softmax(self._logits(self._rows(X)), axis=1))

    def _rows(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def _logits(self, rows: NDArray[Any]) -> Floats:
        return np.asarray(rows.astype(np.float64, copy=False) @ self.coef_.T + self.intercept_)

    def _check_params(self) -> None:
        check_count("n_clusters", self.n_clusters)
        if self.lam is not None:
            check_number("lam", self.lam, at_least=0)
        check_choice("loss", self.loss, LOSSES)
        check_choice("model", self.model, ("linear",))
        check_count("neighbors", self.neighbors, at_least=0)
        check_count("n_init", self.n_init)
        check_choice("protocol", self.protocol, ("full-batch", "paper"))
        for name in ("batch_size", "max_epochs"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("weight_decay", "label_weight", "tol"):
            check_number(name, getattr(self, name), at_least=0)

    def _problem(self, Z: NDArray[Any], fixed: Ints, seed: int) -> Problem:
        lam = LOSSES[self.loss].lam if self.lam is None else float(self.lam)
        k = 0 if self.protocol == "paper" else min(self.neighbors, len(Z) - 1)
        neighbours = nearest_neighbours(Z, k, seed) if k else np.empty((len(Z), 0), np.int32)
        return Problem(lam, _check_prior(self.prior, self.n_clusters), fixed, neighbours, self.solver)

    def _best_run(self, Z: NDArray[Any], problem: Problem, seeds: Ints) -> Run:
        """Train from every start and return the run of least objective."""
        paper = self.protocol == "paper"
        rounds = self.max_epochs or (10 if paper else 100)
        # a single row may go to and fro for ever
        tol = max(float(self.tol), 1.5 / len(Z))
        plan = Schedule(float(self.weight_decay), LOSSES[self.loss].steps, rounds, tol)
        if paper:
            return self._run_paper(Z, problem, plan, int(seeds[0]))
        # where every class has a labelled row, these are the start, and there is only one
        settled = len(np.unique(problem.fixed[problem.fixed >= 0])) == self.n_clusters
        seeds = seeds[:1] if settled else seeds
        report, done, total = self.progress or silent, count(1), len(seeds) * (rounds + 1)

        def run(seed: int) -> Run:
            relabel = self._relabel(problem)

            def reported(S: Floats, A: Floats) -> Round:
                report("clustering", next(done), total)
                return relabel(S, A)

            W = start_from_centres(Z, _centres(Z, problem.fixed, self.n_clusters, seed))
            return alternate(Z, W, problem.neighbours, reported, plan)

        runs = Parallel(n_jobs=self.n_jobs, require="sharedmem")(delayed(run)(int(seed)) for seed in seeds)
        report("clustering", total, total)
        best: Run = min(runs, key=lambda one: one.history[-1])
        if best.changed > plan.tol:
            warnings.warn(
                f"Clustering stopped at max_epochs={rounds}, with {best.changed:.2%} of rows changing their "
                f"cluster in the last round (tol {plan.tol:.2%}). Raise max_epochs or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return best

    def _run_paper(self, Z: NDArray[Any], problem: Problem, plan: Schedule, seed: int) -> Run:
        rng = np.random.default_rng(seed)
        W = np.zeros((Z.shape[1] + 1, self.n_clusters))
        # He's initialisation, uniform, as torch sets linear layers
        W[:-1] = rng.uniform(-1, 1, size=W[:-1].shape) * np.sqrt(6.0 / Z.shape[1])
        return descend(
            Z,
            W,
            lambda index: self._relabel(problem.rows(index)),
            plan,
            self.batch_size or 250,
            _LEARNING_RATE,
            rng,
        )

    def _relabel(self, problem: Problem) -> Relabel:
        relabel = LOSSES[self.loss].make(problem)
        return with_labels(relabel, problem.fixed, float(self.label_weight), self.n_clusters)


def _scaled(rows: NDArray[Any], mean: Floats) -> tuple[NDArray[Any], float]:
    """Return rows centred and of root-mean-square length 1, and the length they had."""
    Z = rows - mean
    if Z.size > _SINGLE_PRECISION:
        Z = Z.astype(np.float32)
    scale = float(np.sqrt(np.einsum("ij,ij->", Z, Z, dtype=np.float64) / len(Z)))
    scale = scale if scale > 0 else 1.0
    Z /= scale
    return np.ascontiguousarray(Z), scale


def _centres(Z: NDArray[Any], fixed: Ints, n_clusters: int, seed: int) -> Floats:
    """Return K rows to start from, far from each other; means of labelled rows where there are some."""
    centres = np.asarray(kmeans_plusplus(Z, n_clusters, random_state=seed)[0], dtype=np.float64)
    known = np.unique(fixed[fixed >= 0])
    if len(known) == 0:
        return centres
    means = np.stack([Z[fixed == c].mean(axis=0, dtype=np.float64) for c in known])
    # of the random rows, those farthest from the labelled ones are for clusters without labels
    distance = ((centres[:, None] - means) ** 2).sum(axis=2).min(axis=1)
    others = np.setdiff1d(np.arange(n_clusters), known)
    out = np.empty_like(centres)
    out[known] = means
    out[others] = centres[np.argsort(-distance)[: len(others)]]
    return out


def _check_prior(prior: ArrayLike | None, n_clusters: int) -> Floats:
    if prior is None:
        return np.full(n_clusters, 1.0 / n_clusters)
    shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (n_clusters,) or not np.all(shares > 0) or not np.isfinite(shares).all():
        raise InvalidInputError(
            f"prior has shape {shares.shape}; expected ({n_clusters},), a positive share for each cluster."
        )
    return np.asarray(shares / shares.sum())


def _check_labels(y: ArrayLike | None, n: int, n_clusters: int) -> Ints:
    if y is None:
        return np.full(n, -1, dtype=np.intp)
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise InvalidInputError(f"y has shape {labels.shape}; expected ({n},), a label or -1 for each row.")
    if labels.dtype.kind not in "iuf" or not np.all(labels == np.floor(labels)):
        raise InvalidInputError(
            "Unknown label type in y: give whole numbers, the labels of some rows, and -1 for the others."
        )
    whole = labels.astype(np.intp)
    if whole.min() < -1 or whole.max() >= n_clusters:
        raise InvalidInputError(
            f"y has labels from {whole.min()} to {whole.max()}; "
            f"expected 0 to {n_clusters - 1} (n_clusters={n_clusters}), and -1 for rows without one."
        )
    return whole

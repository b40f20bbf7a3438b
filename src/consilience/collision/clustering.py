"""Cluster: classes from rows without labels, or with few."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.utils.validation import validate_data

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience._validation import as_random_state, check_choice, check_count, check_fitted, check_number
from consilience.collision.losses import LOSSES, Problem, with_labels
from consilience.collision.pseudo_labels import SOLVERS
from consilience.collision.rounds import (
    Relabel,
    Round,
    Run,
    Schedule,
    alternate,
    descend,
    start_from_centres,
)
from consilience.exceptions import ConvergenceWarning, CoverageWarning, InvalidInputError
from consilience.kernels.collision.neighbours import mean_of_neighbours, nearest_neighbours
from consilience.kernels.columns import column_moments
from consilience.kernels.linear_model import LogitLoss, linear_logits
from consilience.labels import read_labels
from consilience.students.make import check_model

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Loss = Literal["collision", "mi", "sela", "mi-adm", "iic"]

# More numbers than this are trained on in single precision: half the time, and no label depends on the rest.
_SINGLE_PRECISION = 1_000_000
_LEARNING_RATE = 0.1  # of the paper's protocol
# Above this many rows starts are trained on a sample of as many; the best goes on with all for some rounds.
_SAMPLE_ROWS = 8_192
_LAST_ROUNDS = 10


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
        the exponent of the marginals, and 4 for a network with ``loss="mi"``; ``loss="sela"`` has none: its
        shares are exact.
    loss : {"collision", "mi", "sela", "mi-adm", "iic"}
        What is minimised: the collision loss above, or one that the paper compares with, with the same care
        for neighbours and starts: mutual information (eq. 1; the entropies of MI-GD and IMSAT), equipartition
        (eq. 4), Shannon's cross-entropy with a divergence (eq. 5), invariant information.
    model : "linear", torch.nn.Module, factory of one, or TorchStudent
        A linear model on the features, eq. (3), or a network, eq. (2), such as `consilience.nn.VGG4`, with
        logits (n, K) for output; it is copied, never changed. A network is trained with Adam on batches, a
        pass over the rows in each round (`docs/cluster.md`); give a TorchStudent for another optimiser,
        learning rate (0.001; 0.0001 with ``protocol="paper"``), weight decay or device.
    n_neighbors : int
        Nearest neighbours of each row to average predictions over; 0 for none, and never more than the others
        of a cluster of n / K rows. For a network they are neighbours by the values of X, and with 0 it starts
        from its own predictions.
    n_init : int
        Starts; each begins with random rows as centres, chosen as k-means++ does. A network is trained once:
        it starts from the best of so many linear models.
    prior : (K,) array, optional
        u, the share of each cluster; equal by default.
    solver : str
        Of the pseudo-labels; see `collision_pseudo_labels`.
    protocol : {"full-batch", "paper"}
        ``"paper"`` trains as Appendix E.2 does: stochastic gradient steps of size 0.1 on batches, labels made
        within a batch, one random start, no neighbours. It is there to reproduce; it finds worse clusters.
        A network takes steps of Adam, and two augmentations of each row where `augment` is given.
    max_iter : int, optional
        Most rounds of labelling and training: 100 by default, 10 with ``protocol="paper"``, 50 for networks.
    augment : {"images", "rows"} or function, optional
        For networks: what may happen to a row without changing its class, as ``augment(batch, generator)``;
        by name `consilience.nn.augment_images` or `augment_rows`. Predictions become
        E_t[sigma(t(X))], and the network is trained on augmented rows.
    weight_decay : float
        Half of it times the squared weights is added to the objective; for networks it is the optimiser's.
    label_weight : float
        Weight of the cross-entropy on labelled rows, where there are some.
    tol : float
        Stop when at most this share of rows, or a single one, changes its cluster in a round.
    n_jobs : int, optional
        Starts at a time, in threads.
    batch_size : int, optional
        Of ``protocol="paper"`` and of networks: 250 by default, for networks less with fewer than 2,500 rows.
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
        The objective before each round and at the end; the mean loss of each epoch, (n_iter_,), with
        ``protocol="paper"``. It need not fall in every round, since labels come
        from averaged predictions and the model is trained on its own.
    coef_ : (K, d) array
    intercept_ : (K,) array
        The linear model, for rows as they come.
    module_ : torch.nn.Module
        The network, in eval mode.
    n_iter_ : int
        Rounds of the best start.
    n_features_in_ : int

    Notes
    -----
    Above 8,192 rows starts are trained on a random sample of as many, and the best goes on with all rows for
    ten rounds at most: `n_iter_` and `objective_history_` are those of these rounds. Neighbours are then
    found among the rows of nearby cells, which misses a few (docs/cluster.md says how many). Memory grows
    with n (d + K + n_neighbors); time with n^1.5 d for the neighbours, and with n K (d + K) for each round.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clusters = CollisionClustering(3, random_state=0).fit_predict(X)
    >>> bool(np.abs(np.bincount(clusters) - 50).max() <= 2)  # clusters of nearly equal size
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        lam: float | None = None,
        loss: Loss = "collision",
        model: Any = "linear",
        n_neighbors: int = 10,
        n_init: int = 10,
        prior: ArrayLike | None = None,
        solver: str = "auto",
        *,
        protocol: Literal["full-batch", "paper"] = "full-batch",
        max_iter: int | None = None,
        augment: Any = None,
        weight_decay: float = 5e-4,
        label_weight: float = 2.0,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.lam = lam
        self.loss = loss
        self.model = model
        self.n_neighbors = n_neighbors
        self.n_init = n_init
        self.prior = prior
        self.solver = solver
        self.protocol = protocol
        self.max_iter = max_iter
        self.augment = augment
        self.weight_decay = weight_decay
        self.label_weight = label_weight
        self.tol = tol
        self.n_jobs = n_jobs
        self.batch_size = batch_size
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> CollisionClustering:
        """Find the clusters of X.

        Parameters
        ----------
        X : (n, d) array, or (n, ...) for networks
        y : (n,) array of int or str, optional
            Labels where they are known; None, NaN or -1 elsewhere. Numbers are those of clusters, from 0 to
            n_clusters - 1. Names, sorted, are those of clusters 0, 1, and so on.
        """
        self._check_params()
        rows = self._check_rows(X, reset=True)
        if len(rows) < self.n_clusters:
            raise InvalidInputError(
                f"X has n_samples={len(rows)}, fewer than {{argument}}; ask for fewer.",
                argument="n_clusters",
                value=self.n_clusters,
            )
        fixed = _fixed_clusters(y, len(rows), self.n_clusters)
        random = as_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=self.n_init + 1)
        if self._is_linear:
            self._fit_linear(rows, fixed, seeds)
        else:
            self._fit_network(rows, fixed, seeds)
        self.labels_ = self._logits(rows).argmax(axis=1)
        _warn_of_empty(self.labels_, self.n_clusters)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> Ints:
        """Find the clusters of X, with the labels y as in `fit`, and return the cluster of each row (n,)."""
        # scikit-learn's own leaves y out
        return np.asarray(self.fit(X, y).labels_)

    def predict(self, X: ArrayLike) -> Ints:
        """Return the cluster of each row (n,)."""
        return np.asarray(self._logits(self._check_rows(X)).argmax(axis=1))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each cluster for each row (n, K)."""
        return np.asarray(softmax(self._logits(self._check_rows(X)), axis=1))

    @property
    def _is_linear(self) -> bool:
        return isinstance(self.model, str)

    def _check_rows(self, X: ArrayLike, *, reset: bool = False) -> NDArray[Any]:
        if not reset:
            check_fitted(self, "labels_")
        if self._is_linear:
            return np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=reset))
        # integers stay integers, for embeddings
        return np.asarray(validate_data(self, X, dtype=None, allow_nd=True, reset=reset))

    def _logits(self, rows: NDArray[Any]) -> Floats:
        if not self._is_linear:
            return np.asarray(self.student_.predict_logits(rows))
        return np.asarray(rows.astype(np.float64, copy=False) @ self.coef_.T + self.intercept_)

    def _check_params(self) -> None:
        check_count("n_clusters", self.n_clusters)
        if self.lam is not None:
            check_number("lam", self.lam, at_least=0)
        check_choice("loss", self.loss, LOSSES)
        if self._is_linear:
            check_choice("model", self.model, ("linear",))
            if self.augment is not None:
                raise InvalidInputError("augment is for networks; a linear model has n_neighbors instead.")
        else:
            check_model(self.model)
        check_choice("solver", self.solver, SOLVERS)
        if self.loss == "sela" and self.lam is not None:
            raise InvalidInputError(
                "{argument} has no lam: its shares are exact. Use 'mi-adm' with it.",
                argument="loss",
                value="sela",
            )
        if self.loss == "iic" and self.prior is not None:
            raise InvalidInputError(
                "{argument} has no prior; it asks for equal shares. Use another loss.",
                argument="loss",
                value="iic",
            )
        if self.batch_size is not None and self._is_linear and self.protocol != "paper":
            raise InvalidInputError("batch_size is for networks and protocol='paper'; leave it out.")
        check_count("n_neighbors", self.n_neighbors, at_least=0)
        check_count("n_init", self.n_init)
        check_choice("protocol", self.protocol, ("full-batch", "paper"))
        if self.n_jobs is not None:
            check_count("n_jobs", self.n_jobs, at_least=-1024)  # joblib counts back from all cores
        for name in ("batch_size", "max_iter"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("weight_decay", "label_weight", "tol"):
            check_number(name, getattr(self, name), at_least=0)

    def _problem(self, Z: NDArray[Any], fixed: Ints, seed: int) -> Problem:
        loss = LOSSES[self.loss]
        default = loss.lam if self._is_linear else loss.network_lam
        # more neighbours than a fair cluster has rows would make all rows alike
        most = max(0, len(Z) // self.n_clusters - 1)
        k = 0 if self.protocol == "paper" else min(self.n_neighbors, most)
        neighbours = nearest_neighbours(Z, k, seed) if k else np.empty((len(Z), 0), np.int32)
        prior = _check_prior(self.prior, self.n_clusters)
        lam = default if self.lam is None else float(self.lam)
        return Problem(lam, prior, fixed, neighbours, self.solver)

    def _fit_linear(self, rows: NDArray[Any], fixed: Ints, seeds: Ints) -> None:
        Z, mean, scale = _scaled(rows)
        problem = self._problem(Z, fixed, int(seeds[0]))
        if self.protocol == "paper":
            best = self._run_paper(Z, problem, self._schedule(len(Z), self.max_iter or 10), int(seeds[1]))
        else:
            plan = self._schedule(len(Z), self.max_iter or 100)
            best = self._best_run(Z, problem, plan, seeds[1:], self.loss)
            _warn_unless_settled(best.changed, plan)
        self.coef_ = best.W[:-1].T / scale
        self.intercept_ = best.W[-1] - self.coef_ @ mean
        self._record(best)

    def _fit_network(self, rows: NDArray[Any], fixed: Ints, seeds: Ints) -> None:
        """Train a network by rounds, or as the paper does."""
        require("skorch", extra="torch", purpose="Clustering with a network")
        from consilience.collision.network import SETTLED_FALL, train_batches, train_rounds, warm_up_epochs
        from consilience.nn.augment import as_augmentation
        from consilience.nn.student import as_rows

        X, K, augment = as_rows(rows), self.n_clusters, as_augmentation(self.augment)
        report, student = self.progress or silent, self._student(int(seeds[0]), len(rows))
        Z = _flat(rows) if self.n_neighbors and self.protocol != "paper" else np.empty((len(rows), 0))
        problem = self._problem(Z, fixed, int(seeds[0]))
        best: Any
        if self.protocol == "paper":

            def relabel_batch(index: Ints, views: NDArray[np.int32]) -> Relabel:
                return self._relabel(problem.rows(index)._replace(neighbours=views), self.loss)

            best = train_batches(student, X, K, relabel_batch, augment=augment, progress=report)
        else:
            plan = self._schedule(len(X), student.max_iter)
            start = None
            if Z.shape[1]:
                start = self._linear_start(Z, problem, seeds[1:])
                student.max_iter += warm_up_epochs(len(X), student.batch_size)
            relabel, near = self._relabel(problem, self.loss), problem.neighbours
            best = train_rounds(
                student, X, K, near, relabel, start=start, augment=augment, tol=plan.tol, progress=report
            )
            _warn_unless_settled(best.changed, plan)
            if best.changed <= plan.tol and best.fell > SETTLED_FALL:
                warnings.warn(
                    ConvergenceWarning(
                        "Clustering stopped at {argument} while the objective still fell, by "
                        f"{best.fell:.2g} in the last round (tol {SETTLED_FALL:g}). Raise max_iter.",
                        argument="max_iter",
                        value=plan.max_rounds,
                    ),
                    stacklevel=3,
                )
        self.student_, self.module_ = best.student, best.student.module_
        self._record(best)

    def _student(self, seed: int, n_rows: int) -> Any:
        """Return an unfitted TorchStudent around the model, with this estimator's options."""
        from consilience.nn import TorchStudent, as_torch_student

        student = as_torch_student(self.model, seed)
        if not isinstance(self.model, TorchStudent):
            paper = self.protocol == "paper"
            # few rows in batches of 250 would make too few steps an epoch
            batch_size = 250 if paper else min(250, max(16, n_rows // 10))
            student.set_params(
                lr=1e-4 if paper else 1e-3,
                weight_decay=self.weight_decay,
                batch_size=batch_size,
                max_iter=50,
            )
        given = {name: getattr(self, name) for name in ("batch_size", "max_iter")}
        return student.set_params(**{name: value for name, value in given.items() if value is not None})

    def _linear_start(self, Z: NDArray[Any], problem: Problem, seeds: Ints) -> LogitLoss:
        """Return the collision loss towards the labels of the best linear model, for every loss alike."""
        if self.loss != "collision":
            problem = problem._replace(lam=LOSSES["collision"].lam)
        run = self._best_run(Z, problem, self._schedule(len(Z), 100), seeds, "collision")
        S = softmax(linear_logits(Z, run.W).astype(np.float64), axis=1)
        return self._relabel(problem, "collision")(S, mean_of_neighbours(S, problem.neighbours)).loss

    def _record(self, best: Any) -> None:
        self.objective_ = best.history[-1]
        self.objective_history_ = np.array(best.history)
        self.n_iter_ = best.n_iter

    def _schedule(self, n_rows: int, rounds: int) -> Schedule:
        # a single row may go to and fro for ever
        tol = max(float(self.tol), 1.5 / n_rows)
        return Schedule(float(self.weight_decay), LOSSES[self.loss].steps, rounds, tol)

    def _best_run(self, Z: NDArray[Any], problem: Problem, plan: Schedule, seeds: Ints, loss: str) -> Run:
        """Train a linear model from every start and return the run of least objective.

        Of many rows a sample does, which tells good starts from bad ones as well and takes a tenth of the
        time; the best model then goes on with all rows.
        """
        if len(Z) <= _SAMPLE_ROWS:
            return self._best_start(Z, problem, plan, seeds, loss)
        sample = _sample(problem.fixed, int(seeds[0]))
        part = self._problem(Z[sample], problem.fixed[sample], int(seeds[0]))._replace(lam=problem.lam)
        best = self._best_start(Z[sample], part, plan, seeds, loss)
        last = plan._replace(max_rounds=min(plan.max_rounds, _LAST_ROUNDS))
        relabel = self._reported(self._relabel(problem, loss), "all rows", last.max_rounds + 1, count(1))
        run = alternate(Z, best.W, problem.neighbours, relabel, last)
        return run._replace(changed=best.changed)

    def _best_start(self, Z: NDArray[Any], problem: Problem, plan: Schedule, seeds: Ints, loss: str) -> Run:
        # where every class has a labelled row, these are the start, and there is only one
        settled = len(np.unique(problem.fixed[problem.fixed >= 0])) == self.n_clusters
        seeds = seeds[:1] if settled else seeds
        done, total = count(1), len(seeds) * (plan.max_rounds + 1)

        def run(seed: int) -> Run:
            relabel = self._reported(self._relabel(problem, loss), "clustering", total, done)
            W = start_from_centres(Z, _centres(Z, problem.fixed, self.n_clusters, seed))
            return alternate(Z, W, problem.neighbours, relabel, plan)

        runs = Parallel(n_jobs=self.n_jobs, require="sharedmem")(delayed(run)(int(seed)) for seed in seeds)
        (self.progress or silent)("clustering", total, total)
        best: Run = min(runs, key=lambda one: one.history[-1])
        return best

    def _reported(
        self, relabel: Relabel, task: str, total: int, done: Iterator[int] | None = None
    ) -> Relabel:
        """Tell the progress at every round."""
        report, rounds = self.progress or silent, count(1) if done is None else done

        def reported(S: Floats, A: Floats) -> Round:
            report(task, next(rounds), total)
            return relabel(S, A)

        return reported

    def _run_paper(self, Z: NDArray[Any], problem: Problem, plan: Schedule, seed: int) -> Run:
        rng = np.random.default_rng(seed)
        W = np.zeros((Z.shape[1] + 1, self.n_clusters))
        # He's initialisation, uniform
        W[:-1] = rng.uniform(-1, 1, size=W[:-1].shape) * np.sqrt(6.0 / Z.shape[1])
        return descend(
            Z,
            W,
            lambda index: self._relabel(problem.rows(index), self.loss),
            plan,
            self.batch_size or 250,
            _LEARNING_RATE,
            rng,
        )

    def _relabel(self, problem: Problem, loss: str) -> Relabel:
        relabel = LOSSES[loss].make(problem)
        return with_labels(relabel, problem.fixed, float(self.label_weight), self.n_clusters)


def _sample(fixed: Ints, seed: int) -> Ints:
    """Return the rows to train starts on: labelled ones, up to half of them, and random others."""
    order = np.random.default_rng(seed).permutation(len(fixed))
    labelled = order[fixed[order] >= 0][: _SAMPLE_ROWS // 2]
    others = order[~np.isin(order, labelled)]
    return np.sort(np.concatenate([labelled, others[: _SAMPLE_ROWS - len(labelled)]]))


def _warn_of_empty(labels: Ints, n_clusters: int) -> None:
    found = len(np.unique(labels))
    if found < n_clusters:
        warnings.warn(
            f"Only {found} of {n_clusters} clusters have rows. Raise lam or n_init, lower n_neighbors, "
            "or ask for fewer clusters.",
            CoverageWarning,
            stacklevel=3,
        )


def _warn_unless_settled(changed: float, plan: Schedule) -> None:
    if changed > plan.tol:
        warnings.warn(
            ConvergenceWarning(
                f"Clustering stopped at {{argument}}, with {changed:.2%} of rows changing their "
                f"cluster in the last round (tol {plan.tol:.2%}). Raise max_iter or tol.",
                argument="max_iter",
                value=plan.max_rounds,
            ),
            stacklevel=4,
        )


def _flat(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows of any shape (n, ...) as scaled features (n, d)."""
    features = rows.reshape(len(rows), -1)
    features = features if features.dtype.kind == "f" else features.astype(np.float32)
    return _scaled(features)[0]


def _scaled(rows: NDArray[Any]) -> tuple[NDArray[Any], Floats, float]:
    """Return rows centred and of root-mean-square length 1, their mean and the length they had.

    Rows that are all alike, up to rounding, are only centred.
    """
    mean, spread = column_moments(rows)
    Z = rows - mean
    if Z.size > _SINGLE_PRECISION:
        Z = Z.astype(np.float32)
    scale = float(np.sqrt(np.einsum("ij,ij->", Z, Z, dtype=np.float64) / len(Z)))
    scale = scale if spread.any() else 1.0
    Z /= scale
    return np.ascontiguousarray(Z), mean, scale


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
    shares = np.asarray(prior)
    if shares.dtype.kind not in "biuf" or shares.shape != (n_clusters,):
        raise InvalidInputError(
            f"prior has type {shares.dtype} and shape {shares.shape}; expected numbers ({n_clusters},), "
            "a share for each cluster."
        )
    if not np.all(shares > 0) or not np.isfinite(shares).all():
        raise InvalidInputError(f"prior is {shares.tolist()}; expected a positive share for each cluster.")
    return np.asarray(shares / shares.sum())


def _fixed_clusters(y: Any, n: int, n_clusters: int) -> Ints:
    """Return the cluster (n,) that each label fixes, -1 for rows without a label."""
    if y is None:
        return np.full(n, -1, dtype=np.intp)
    classes, codes = read_labels(y, n, at_least=0)
    if classes.dtype.kind == "f" and len(classes):
        raise InvalidInputError(
            f"Unknown label type: continuous. y has the label {classes[classes != np.floor(classes)][0]}; "
            "give numbers of clusters or names, and None or -1 for rows without a label."
        )
    numbers = classes if classes.dtype.kind in "iu" else np.arange(len(classes))  # names: in sorted order
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < n_clusters:
        hint = (
            f" They name {len(classes)} classes: ask for as many clusters." if numbers is not classes else ""
        )
        raise InvalidInputError(
            f"y has labels from {classes[0]} to {classes[-1]}; expected 0 to {n_clusters - 1}, or at most "
            f"{n_clusters} names ({{argument}}), and None or -1 for rows without one.{hint}",
            argument="n_clusters",
            value=n_clusters,
        )
    return np.where(codes >= 0, np.append(numbers, -1)[codes], -1).astype(np.intp)

"""Cluster: classes from rows without labels, or with few."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from consilience._optional import require
from consilience._validation import as_random_state, check_fitted
from consilience.cluster.losses import Problem, clustering_loss
from consilience.cluster.options import MI, ClusteringOptions, Collision, Linear, Network
from consilience.cluster.report import report
from consilience.cluster.rounds import (
    BATCH_SIZE,
    LinearModel,
    Schedule,
    Search,
    Trained,
    alternate,
    best_linear,
    descend,
)
from consilience.cluster.starts import random_weights
from consilience.collision.pseudo_labels import read_prior
from consilience.exceptions import (
    ConvergenceWarning,
    CoverageWarning,
    InvalidInputError,
    InvalidTypeError,
    warn,
)
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.linear_model import LogitLoss, scaled
from consilience.kernels.neighbours import mean_of_neighbours, near_rows
from consilience.labels import read_labels
from consilience.rows.tables import as_values, in_order, number_advice
from consilience.run import Run, resolve_run

# A cluster with less than this part of its share of rows has died.
DEAD_SHARE = 0.05
# Squares of larger entries have no sum.
LARGEST = 1e150
# Defaults of `tol`: from the graph, and otherwise.
GRAPH_TOL, TOL = 0.01, 0.001
# Defaults of the linear model's `max_iter`, and of the paper's, and of networks.
ROUNDS, PAPER_ROUNDS, NETWORK_ROUNDS = 100, 10, 50


class CollisionClustering(ClusteringOptions, ClusterMixin, BaseEstimator):
    r"""Cluster rows with a discriminative model that labels them itself.

    A softmax model sigma and pseudo-labels y are found in turns. They should agree in every row, and every
    cluster should get its share (eq. 11 of the paper):

    .. math:: \overline{H_2(y, \sigma)} + \lambda\, KL(u \| \bar y)

    Features are centred and divided by one number, their root-mean-square length, so distances keep their
    proportions. Predictions are averaged over each row's nearest neighbours before labels are made of them.
    The labels of all rows are solved for at once and exactly. Then the model takes a few steps of L-BFGS
    towards them. The start is the best of several clusterings of the graph of neighbours.

    Attributes
    ----------
    labels_ : (n,) array of int
        The cluster of each row: ``predict(X)``.
    objective_ : float
        The final objective. Compare it between runs of the same loss.
    objective_history_ : (T + 1,) array
        The objective before each round and at the end; with ``protocol="paper"`` the mean loss of each of
        the `n_iter_` epochs. It need not fall in every round: labels come from averaged predictions, but the
        model is trained without averages.
    coef_ : (K, d) array
    intercept_ : (K,) array
        The linear model, for rows as you give them.
    module_ : torch.nn.Module
        The network, in eval mode.
    n_iter_ : int
        Rounds of the best model.
    n_features_in_ : int
    feature_names_in_ : (d,) array
        The names of the columns, if X is a table with names. New rows may have them in any order.

    Notes
    -----
    Above 8,192 rows, starts are trained on a random sample of that size, and the best continues on all rows
    for at most ten rounds; `n_iter_` and `objective_history_` are those of these rounds. Neighbours are then
    found among the rows of nearby cells, which misses a few (docs/how/clustering.md says how many). Memory
    grows with n (d + K + n_neighbors). Time grows with n^1.5 d for the neighbours, and with n K (d + K) per
    round.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clusters = CollisionClustering(3, random_state=0).fit_predict(X)
    >>> bool((clusters[:50] == clusters[0]).all() and (clusters[50:] != clusters[0]).all())  # one species
    True
    """

    report = report

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> CollisionClustering:
        """Find the clusters of X.

        Parameters
        ----------
        X : (n, d) array, or (n, ...) for networks
        y : (n,) array of int or str, optional
            Labels where they are known; None, NaN or -1 elsewhere. Numbers are those of clusters, from 0 to
            n_clusters - 1. Names, sorted, are those of clusters 0, 1, and so on.
        """
        self.check_options()
        run, loss, self.model_ = resolve_run(self.run), self.resolved("loss"), self.resolved("model")
        if self.prior is not None and not loss.takes_prior:
            raise InvalidInputError(
                f"The loss {type(loss).__name__} takes no prior; leave {{argument}} out, or use another.",
                argument="prior",
                value=self.prior,
            )
        if isinstance(loss, MI) and loss.lam is None and isinstance(self.model_, Network):
            loss = MI(lam=4.0, label_weight=loss.label_weight)
        rows = self._check_rows(X, reset=True)
        if len(rows) < self.n_clusters:
            raise InvalidInputError(
                f"X has n_samples={len(rows)}, fewer than {{argument}}; ask for fewer.",
                argument="n_clusters",
                value=self.n_clusters,
            )
        fixed = fixed_clusters(y, len(rows), self.n_clusters)
        prior = read_prior(self.prior, self.n_clusters, "cluster", positive=True)
        problem = Problem(loss, prior, fixed, np.empty((len(rows), 0), np.int32))
        seeds = as_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.n_init + 1)
        fit = self._fit_linear if isinstance(self.model_, Linear) else self._fit_network
        trained = fit(self.model_, rows, problem, seeds, run)
        self.objective_, self.n_iter_ = trained.history[-1], trained.n_iter
        self.objective_history_ = np.array(trained.history)
        self.labels_ = self._logits(rows).argmax(axis=1)
        self._warn_of_empty(problem)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> Ints:
        """Find the clusters of X, with the labels y as in `fit`, and return the cluster of each row (n,)."""
        # scikit-learn's own version ignores y.
        return np.asarray(self.fit(X, y).labels_)

    def predict(self, X: ArrayLike) -> Ints:
        """Return the cluster of each row (n,)."""
        return np.asarray(self._logits(self._check_rows(X)).argmax(axis=1))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each cluster for each row (n, K)."""
        return np.asarray(softmax(self._logits(self._check_rows(X)), axis=1))

    def _check_rows(self, X: ArrayLike, *, reset: bool = False) -> NDArray[Any]:
        if not reset:
            check_fitted(self, "labels_")
        linear = isinstance(self.model_, Linear)
        dtype = (np.float64, np.float32) if linear else None  # integers stay integers, for embeddings
        return validated_rows(self, X, dtype=dtype, allow_nd=not linear, reset=reset)

    def _logits(self, rows: NDArray[Any]) -> Floats:
        if isinstance(self.model_, Network):
            return np.asarray(self.student_.predict_logits(rows))
        return np.asarray(rows.astype(np.float64, copy=False) @ self.coef_.T + self.intercept_)

    @property
    def _by_paper(self) -> bool:
        return bool(self.protocol == "paper")

    def _prepared(
        self, model: Linear | Network, Z: NDArray[Any], problem: Problem, seeds: Ints, run: Run
    ) -> tuple[Problem, Search]:
        """Return the problem with the neighbours of features Z (n, d), and how a linear model is found."""
        if self.n_neighbors and not self._by_paper:
            run.report("neighbours", 0, 1)
            near = near_rows(Z, self.n_neighbors, self.n_clusters, int(seeds[0]))
            run.report("neighbours", 1, 1)
            problem = problem._replace(neighbours=near)
        rounds = model.max_iter if isinstance(model, Linear) else None
        decay = Linear.weight_decay if model.weight_decay is None else model.weight_decay
        from_graph = self.init == "graph" and problem.neighbours.shape[1] and not (problem.fixed >= 0).any()
        tol = _tol(model, len(Z), GRAPH_TOL if from_graph and isinstance(model, Linear) else TOL)
        search = Search(seeds[1:], Schedule(rounds or ROUNDS, tol), float(decay), run, self.init == "graph")
        return problem, search

    def _fit_linear(
        self, options: Linear, rows: NDArray[Any], problem: Problem, seeds: Ints, run: Run
    ) -> Trained:
        Z, mean, scale = scaled(rows)
        if self._by_paper:
            rng = np.random.default_rng(int(seeds[1]))
            W = random_weights(Z.shape[1], self.n_clusters, rng)
            model = LinearModel(Z, W, float(options.weight_decay), rng=rng)
            trained = descend(model, problem, options.max_iter or PAPER_ROUNDS)
        else:
            problem, search = self._prepared(options, Z, problem, seeds, run)
            model, trained = best_linear(Z, problem, search)
            _warn_unless_settled(trained, search.plan)
        self.coef_ = model.W[:-1].T / scale
        self.intercept_ = model.W[-1] - self.coef_ @ mean
        return trained

    def _fit_network(
        self, options: Network, rows: NDArray[Any], problem: Problem, seeds: Ints, run: Run
    ) -> Trained:
        """Train a network by rounds, or as the paper does."""
        require("torch", extra="torch", purpose="Clustering with a network")
        from consilience.cluster.network import SETTLED_FALL, network, warm_up_epochs
        from consilience.nn.augment import as_augmentation

        student = self._student(int(seeds[0]), len(rows))
        warm_up = warm_up_epochs(len(rows), student.batch_size)
        # a round of one step or two changes little in any case
        plan = Schedule(student.max_iter, _tol(options, len(rows), TOL), SETTLED_FALL, warm_up)
        start = None
        if self.n_neighbors and not self._by_paper:
            Z = scaled(rows.reshape(len(rows), -1))[0]
            problem, search = self._prepared(options, Z, problem, seeds, run)
            start = self._linear_start(Z, problem, search)
            student.max_iter += warm_up
        with network(
            student,
            rows,
            self.n_clusters,
            augment=as_augmentation(options.augment),
            paper=self._by_paper,
            run=run,
        ) as model:
            if start is not None:
                model.start(start)
            train: Any = descend if self._by_paper else alternate
            trained: Trained = train(model, problem, plan.max_rounds if self._by_paper else plan)
        if not self._by_paper and not model.stopped:
            _warn_unless_settled(trained, plan)
        self.student_, self.module_ = student, student.module_
        return trained

    def _student(self, seed: int, n_rows: int) -> Any:
        """Return an unfitted student around the module, with the model's options."""
        from consilience import students
        from consilience.students.make import make_student

        options: Network = self.resolved("model")
        student = make_student(options.module, random_state=seed)
        if not isinstance(options.module, students.Network):
            # With few rows, batches of 250 would give too few steps per epoch.
            few = BATCH_SIZE if self._by_paper else min(BATCH_SIZE, max(16, n_rows // 10))
            lr = 1e-4 if self._by_paper else 1e-3
            student.set_params(lr=lr, weight_decay=Linear.weight_decay, batch_size=few)
        student.max_iter = student.max_iter or NETWORK_ROUNDS
        given = {name: getattr(options, name) for name in ("batch_size", "max_iter", "weight_decay")}
        return student.set_params(**{name: value for name, value in given.items() if value is not None})

    def _linear_start(self, Z: NDArray[Any], problem: Problem, search: Search) -> LogitLoss:
        """Return the collision loss towards the labels of the best linear model, for every loss alike."""
        if not isinstance(problem.loss, Collision):
            problem = problem._replace(loss=Collision(label_weight=problem.loss.label_weight))
        S, _ = best_linear(Z, problem, search)[0].predict()
        return clustering_loss(problem)(S, mean_of_neighbours(S, problem.neighbours)).loss

    def _warn_of_empty(self, problem: Problem) -> None:
        """Warn of clusters that died: those without rows, or with next to none."""
        n, K, sizes = len(self.labels_), self.n_clusters, np.bincount(self.labels_, minlength=self.n_clusters)
        few = np.flatnonzero((sizes > 0) & (sizes < DEAD_SHARE * n * problem.prior)).tolist()
        found = [f"Only {np.sum(sizes > 0)} of {K} clusters have rows"] if (sizes == 0).any() else []
        if few:
            listed = ", ".join(f"{k} ({sizes[k]})" for k in few)
            share = f"{DEAD_SHARE:.0%} of their share of {n} rows"
            found.append(f"{len(few)} of {K} clusters have under {share}: {listed}")
        if found:
            lam = "lam or " if "lam" in problem.loss.declared() else ""
            raised = lam + ("max_iter" if self._by_paper else "n_init")
            lowered = ", lower n_neighbors" if self.n_neighbors and not self._by_paper else ","
            advice = f"Raise {raised}{lowered} or ask for fewer clusters."
            warn(CoverageWarning(f"{'. '.join(found)}. {advice}"))


def validated_rows(estimator: Any, X: Any, **options: Any) -> NDArray[Any]:
    """Check X as scikit-learn does, which also sets `n_features_in_` and `feature_names_in_`.

    Columns that come in another order than in `fit` are put in order. What scikit-learn raises becomes ours.
    """
    X = as_values(X)
    if not options.get("reset", True):
        X = in_order(X, getattr(estimator, "feature_names_in_", None))
    try:
        rows = np.asarray(validate_data(estimator, X, **options))
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        kind = InvalidTypeError if isinstance(error, TypeError) else InvalidInputError
        raise kind(" ".join(str(error).split()) + number_advice(X)) from error
    largest = max(rows.max(initial=0.0), -rows.min(initial=0.0)) if rows.dtype == np.float64 else 0.0
    if largest > LARGEST:
        raise InvalidInputError(
            f"X reaches {largest:g} in size, and squares of numbers above {LARGEST:g} have no sum. Divide "
            "its column by a number, or leave it out."
        )
    return rows


def fixed_clusters(y: Any, n: int, n_clusters: int) -> Ints:
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


def _tol(model: Linear | Network, n_rows: int, default: float) -> float:
    """Return the share of rows that may still change: more than one, which may go back and forth for ever."""
    return max(default if model.tol is None else float(model.tol), 1.5 / n_rows)


def _warn_unless_settled(trained: Trained, plan: Schedule) -> None:
    share = (
        f", with {trained.changed:.2%} of rows changing their cluster in the last round (tol {plan.tol:.2%})"
    )
    fall = (
        f" while the objective still fell, by {trained.fell:.2g} in the last round (tol {plan.most_fall:g})"
    )
    changing = trained.changed > plan.tol
    if changing or trained.fell > plan.most_fall:
        problem = f"{share}. Raise max_iter or tol." if changing else f"{fall}. Raise max_iter."
        warn(
            ConvergenceWarning(
                f"Clustering stopped at {{argument}}{problem}", argument="max_iter", value=plan.max_rounds
            )
        )

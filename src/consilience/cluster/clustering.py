"""Cluster: classes from rows without labels, or with few."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClusterMixin

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    check_number,
    validated_rows,
)
from consilience.cluster.given import fixed_clusters
from consilience.cluster.losses import LOSSES, OWN_STEPS, OwnLoss, Problem, clustering_loss
from consilience.cluster.rounds import (
    LinearModel,
    Run,
    Schedule,
    Starts,
    alternate,
    best_linear,
    descend,
    find_neighbours,
)
from consilience.cluster.starts import flat, random_weights, scaled
from consilience.collision.prior import read_prior
from consilience.collision.pseudo_labels import LARGEST_LAM, SOLVERS
from consilience.exceptions import ConvergenceWarning, CoverageWarning, InvalidInputError
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.linear_model import LogitLoss
from consilience.kernels.neighbours import mean_of_neighbours
from consilience.students.make import check_model

Loss = Literal["collision", "mi", "sela", "mi-adm", "iic"]

INITS = ("graph", "k-means++")
# A cluster with less than this part of its share of rows has died.
DEAD_SHARE = 0.05
# Defaults of `tol`: from the graph, and otherwise.
GRAPH_TOL, TOL = 0.01, 0.001
# Larger weights of a part of the objective overflow.
LARGEST_WEIGHT = 1e15


class CollisionClustering(ClusterMixin, BaseEstimator):
    r"""Cluster rows with a discriminative model that labels them itself.

    A softmax model sigma and pseudo-labels y are found in turns. They should agree in every row, and every
    cluster should get its share (eq. 11 of the paper):

    .. math:: \overline{H_2(y, \sigma)} + \lambda\, KL(u \| \bar y)

    Features are centred and divided by one number, their root-mean-square length, so distances keep their
    proportions. Predictions are averaged over each row's nearest neighbours before labels are made of them.
    The labels of all rows are solved for at once and exactly. Then the model takes a few steps of L-BFGS
    towards them. The start is the best of several clusterings of the graph of neighbours.

    Parameters
    ----------
    n_clusters : int
        K.
    lam : float, optional
        Weight of fairness. The default of 100 asks for clusters of nearly equal size (or of the sizes in
        `prior`); use about 1 if sizes may differ. For ``loss="iic"`` it is the exponent of the marginals, 1
        by default. For a network with ``loss="mi"`` the default is 4. ``loss="sela"`` has none, since its
        shares are exact.
    loss : {"collision", "mi", "sela", "mi-adm", "iic"} or function
        What to minimise: the collision loss above, or one that the paper compares with, with the same
        neighbours and starts. These are mutual information (eq. 1; the entropies of MI-GD and IMSAT),
        equipartition (eq. 4), Shannon's cross-entropy with a divergence (eq. 5) and invariant information.
        Or your own: ``loss(proba, mean_proba)`` gets predictions (n, K) and their means over neighbours, and
        returns the value, its gradient by `proba` and its gradient by `mean_proba`, each (n, K) or 0.0.
    model : "linear", torch.nn.Module, factory of one, or Network
        A linear model on the features, eq. (3), or a network, eq. (2), such as `consilience.nn.VGG4`. A
        network returns logits (n, K); it is copied, never changed. It is trained with Adam on batches, a pass
        over the rows in each round (`docs/how/clustering.md`). Give a Network for another optimiser,
        learning rate (0.001; 0.0001 with ``protocol="paper"``), weight decay or device.
    n_neighbors : int
        Nearest neighbours of each row to average predictions over; 0 for none. At most as many are used as a
        cluster of n / K rows has other rows. For a network they are neighbours by the values of X, and with 0
        it starts from its own predictions.
    n_init : int
        Starts; `init` says what they are. A network is trained once: it starts from the best linear model.
    prior : (K,) array, optional
        u, the share of each cluster; equal by default.
    solver : str
        Solver of the pseudo-labels; see `collision_pseudo_labels`.
    init : {"graph", "k-means++"}
        With ``"graph"``, a start is a run of k-means on a diffusion map of the graph of neighbours; half as
        many more are on the features. The best start is found by mutual information between neighbours, and
        one model is trained from it. With the collision loss and `lam` of 100 or more, a second model is
        trained towards exact shares for a few rounds, and kept if neighbours agree with it as well.
        With ``"k-means++"``, a start takes random rows far from each other as centres, a model is trained
        from each, and the one with the least objective is kept. That takes many times as long. It is also
        what ``n_neighbors=0`` and labelled rows use.
    protocol : {"full-batch", "paper"}
        ``"paper"`` trains as Appendix E.2 does: stochastic gradient steps of size 0.1 on batches, labels made
        within a batch, one random start, no neighbours. Use it to reproduce the paper; it finds worse
        clusters. A network takes steps of Adam, with two augmentations of each row if `augment` is given.
    max_iter : int, optional
        Most rounds of labelling and training: 100 by default, 10 with ``protocol="paper"``, 50 for networks.
    augment : {"images", "rows"} or function, optional
        For networks: a change of rows that leaves their classes as they are, ``augment(batch, generator)``.
        The names mean `consilience.nn.augment_images` and `augment_rows`. Predictions become
        E_t[sigma(t(X))], and the network is trained on augmented rows.
    weight_decay : float
        Half of it times the squared weights is added to the objective; for networks it is the optimiser's.
    label_weight : float
        Weight of the cross-entropy on labelled rows, if there are some.
    tol : float, optional
        Stop when at most this share of rows, or a single row, changes its cluster in a round. The default is
        0.01 for a linear model that starts from the graph, where more rounds do harm, and 0.001 otherwise.
    n_jobs : int, optional
        Models to train at a time, in threads, if `init` asks for several.
    batch_size : int, optional
        For ``protocol="paper"`` and networks: 250 by default; for networks less with fewer than 2,500 rows.
    progress : function, optional
        Called as ``progress(task, done, total)``: for the neighbours, and in each round.
    random_state : int, RandomState or None
        Makes the result reproducible; it does not depend on `n_jobs`.

    Attributes
    ----------
    labels_ : (n,) array of int
        The cluster of each row: ``predict(X)``.
    objective_ : float
        The final objective. Compare it between runs of the same loss and `lam`.
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

    def __init__(
        self,
        n_clusters: int = 8,
        lam: float | None = None,
        loss: Loss | OwnLoss = "collision",
        model: Any = "linear",
        n_neighbors: int = 10,
        n_init: int = 10,
        prior: ArrayLike | None = None,
        solver: str = "auto",
        *,
        init: Literal["graph", "k-means++"] = "graph",
        protocol: Literal["full-batch", "paper"] = "full-batch",
        max_iter: int | None = None,
        augment: Any = None,
        weight_decay: float = 5e-4,
        label_weight: float = 2.0,
        tol: float | None = None,
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
        self.init = init
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
        fixed = fixed_clusters(y, len(rows), self.n_clusters)
        random = as_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=self.n_init + 1)
        if self._is_linear:
            self._fit_linear(rows, fixed, seeds)
        else:
            self._fit_network(rows, fixed, seeds)
        self.labels_ = self._logits(rows).argmax(axis=1)
        self._warn_of_empty()
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

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None) -> Path:
        """Write the clusters as one page, an HTML file (docs/report.md): sizes, how sure, and hard rows of X.

        With y (n,), the classes of the rows of X, it also tells how well clusters and classes agree.
        """
        from consilience.cluster.report import write_report

        return write_report(self, path, X, y)

    @property
    def _is_linear(self) -> bool:
        return isinstance(self.model, str)

    def _check_rows(self, X: ArrayLike, *, reset: bool = False) -> NDArray[Any]:
        if not reset:
            check_fitted(self, "labels_")
        if self._is_linear:
            return validated_rows(self, X, dtype=(np.float64, np.float32), reset=reset)
        # Integers stay integers, for embeddings.
        return validated_rows(self, X, dtype=None, allow_nd=True, reset=reset)

    def _logits(self, rows: NDArray[Any]) -> Floats:
        if not self._is_linear:
            return np.asarray(self.student_.predict_logits(rows))
        return np.asarray(rows.astype(np.float64, copy=False) @ self.coef_.T + self.intercept_)

    def _check_params(self) -> None:
        check_count("n_clusters", self.n_clusters)
        if self.lam is not None:
            check_number("lam", self.lam, at_least=0, at_most=LARGEST_LAM)
        if callable(self.loss):
            for name in ("lam", "prior"):
                if getattr(self, name) is not None:
                    raise InvalidInputError(
                        f"loss is a function, which is not given {name}; leave {name} out and bind what the "
                        "function needs with functools.partial."
                    )
        else:
            check_choice("loss", self.loss, tuple(LOSSES))
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
        check_choice("init", self.init, INITS)
        check_choice("protocol", self.protocol, ("full-batch", "paper"))
        if self.n_jobs is not None:
            check_count("n_jobs", self.n_jobs, at_least=-1024)  # joblib counts back from all cores
            if self.n_jobs == 0:
                raise InvalidInputError("{argument} must not be 0.", argument="n_jobs", value=self.n_jobs)
        for name in ("batch_size", "max_iter"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("weight_decay", "label_weight"):
            check_number(name, getattr(self, name), at_least=0, at_most=LARGEST_WEIGHT)
        if self.tol is not None:
            check_number("tol", self.tol, at_least=0)

    def _problem(self, Z: NDArray[Any], fixed: Ints, seed: int) -> Problem:
        loss, lam = self.loss, self.lam
        if callable(loss):
            lam = 0.0
        elif lam is None:
            lam = LOSSES[loss].lam if self._is_linear else LOSSES[loss].network_lam
        wanted, report = 0 if self.protocol == "paper" else self.n_neighbors, self.progress or silent
        if wanted:
            report("neighbours", 0, 1)
        neighbours = find_neighbours(Z, wanted, self.n_clusters, seed)
        if wanted:
            report("neighbours", 1, 1)
        return Problem(
            loss,
            float(lam),
            read_prior(self.prior, self.n_clusters, "cluster", positive=True),
            fixed,
            neighbours,
            self.solver,
            float(self.label_weight),
        )

    def _fit_linear(self, rows: NDArray[Any], fixed: Ints, seeds: Ints) -> None:
        Z, mean, scale = scaled(rows)
        problem = self._problem(Z, fixed, int(seeds[0]))
        if self.protocol == "paper":
            rng = np.random.default_rng(int(seeds[1]))
            W = random_weights(Z.shape[1], self.n_clusters, rng)
            model = LinearModel(Z, W, float(self.weight_decay), batch_size=self.batch_size or 250, rng=rng)
            run = descend(model, problem, self.max_iter or 10)
            W = model.W
        else:
            by_graph = self.init == "graph" and problem.neighbours.shape[1] and not (fixed >= 0).any()
            plan = self._schedule(len(Z), self.max_iter or 100, GRAPH_TOL if by_graph else TOL)
            W, run = best_linear(Z, problem, self._starts(problem.loss, seeds[1:], plan))
            _warn_unless_settled(run, plan)
        self.coef_ = W[:-1].T / scale
        self.intercept_ = W[-1] - self.coef_ @ mean
        self._record(run)

    def _fit_network(self, rows: NDArray[Any], fixed: Ints, seeds: Ints) -> None:
        """Train a network by rounds, or as the paper does."""
        require("skorch", extra="torch", purpose="Clustering with a network")
        from consilience.cluster.network import SETTLED_FALL, network, warm_up_epochs
        from consilience.nn.augment import as_augmentation
        from consilience.students._rows import as_tensor

        X, paper, student = as_tensor(rows), self.protocol == "paper", self._student(int(seeds[0]), len(rows))
        Z = flat(rows) if self.n_neighbors and not paper else np.empty((len(rows), 0))
        problem = self._problem(Z, fixed, int(seeds[0]))
        warm_up = warm_up_epochs(len(X), student.batch_size)
        # a round of one step or two changes little in any case
        plan = self._schedule(len(X), student.max_iter, TOL)._replace(
            most_fall=SETTLED_FALL, settled_rounds=warm_up
        )
        start = None
        if Z.shape[1]:
            start = self._linear_start(Z, problem, seeds[1:])
            student.max_iter += warm_up
        with network(
            student,
            X,
            self.n_clusters,
            augment=as_augmentation(self.augment),
            paper=paper,
            progress=self.progress or silent,
        ) as model:
            if start is not None:
                model.start(start)
            run = descend(model, problem, plan.max_rounds) if paper else alternate(model, problem, plan)
        if not paper and not model.stopped:
            _warn_unless_settled(run, plan)
        self.student_, self.module_ = student, student.module_
        self._record(run)

    def _student(self, seed: int, n_rows: int) -> Any:
        """Return an unfitted Network around the model, with this estimator's options."""
        from consilience.students import Network
        from consilience.students.network import as_torch_student

        student = as_torch_student(self.model, seed)
        if not isinstance(self.model, Network):
            paper = self.protocol == "paper"
            # With few rows, batches of 250 would give too few steps per epoch.
            batch_size = 250 if paper else min(250, max(16, n_rows // 10))
            student.set_params(
                lr=1e-4 if paper else 1e-3,
                weight_decay=self.weight_decay,
                batch_size=batch_size,
            )
        student.max_iter = student.max_iter or 50
        given = {name: getattr(self, name) for name in ("batch_size", "max_iter")}
        return student.set_params(**{name: value for name, value in given.items() if value is not None})

    def _linear_start(self, Z: NDArray[Any], problem: Problem, seeds: Ints) -> LogitLoss:
        """Return the collision loss towards the labels of the best linear model, for every loss alike."""
        if self.loss != "collision":
            problem = problem._replace(loss="collision", lam=LOSSES["collision"].lam)
        W, _ = best_linear(Z, problem, self._starts(self.loss, seeds, self._schedule(len(Z), 100, TOL)))
        S, _ = LinearModel(Z, W, 0.0).predict()
        return clustering_loss(problem)(S, mean_of_neighbours(S, problem.neighbours)).loss

    def _warn_of_empty(self) -> None:
        """Warn of clusters that died: those without rows, or with next to none."""
        sizes = np.bincount(self.labels_, minlength=self.n_clusters)
        fair = len(self.labels_) * read_prior(self.prior, self.n_clusters, "cluster", positive=True)
        empty, few = sizes == 0, (sizes > 0) & (sizes < DEAD_SHARE * fair)
        problems = []
        if empty.any():
            problems.append(f"Only {np.sum(~empty)} of {self.n_clusters} clusters have rows")
        if few.any():
            listed = ", ".join(f"{k} ({sizes[k]})" for k in np.flatnonzero(few))
            problems.append(
                f"{few.sum()} of {self.n_clusters} clusters have under {DEAD_SHARE:.0%} of their share of "
                f"{len(self.labels_)} rows: {listed}"
            )
        if not problems:
            return
        paper, has_lam = self.protocol == "paper", not callable(self.loss) and self.loss != "sela"
        raised = " or ".join([*(["lam"] if has_lam else []), "max_iter" if paper else "n_init"])
        lowered = ", lower n_neighbors" if self.n_neighbors and not paper else ","
        warnings.warn(
            f"{'. '.join(problems)}. Raise {raised}{lowered} or ask for fewer clusters.",
            CoverageWarning,
            stacklevel=3,
        )

    def _record(self, run: Run) -> None:
        self.objective_ = run.history[-1]
        self.objective_history_ = np.array(run.history)
        self.n_iter_ = run.n_iter

    def _schedule(self, n_rows: int, rounds: int, default_tol: float) -> Schedule:
        tol = default_tol if self.tol is None else float(self.tol)
        # a single row may go back and forth for ever
        return Schedule(rounds, max(tol, 1.5 / n_rows))

    def _starts(self, loss: str | OwnLoss, seeds: Ints, plan: Schedule) -> Starts:
        steps = OWN_STEPS if callable(loss) else LOSSES[loss].steps
        return Starts(
            seeds,
            plan,
            float(self.weight_decay),
            steps,
            self.n_jobs,
            self.progress or silent,
            by_graph=self.init == "graph",
        )


def _warn_unless_settled(run: Run, plan: Schedule) -> None:
    if run.changed > plan.tol:
        share = f"{run.changed:.2%} of rows"
        problem = f", with {share} changing their cluster in the last round (tol {plan.tol:.2%})"
        remedy = "Raise max_iter or tol."
    elif run.fell > plan.most_fall:
        fall = f"{run.fell:.2g} in the last round (tol {plan.most_fall:g})"
        problem = f" while the objective still fell, by {fall}"
        remedy = "Raise max_iter."
    else:
        return
    warnings.warn(
        ConvergenceWarning(
            f"Clustering stopped at {{argument}}{problem}. {remedy}",
            argument="max_iter",
            value=plan.max_rounds,
        ),
        stacklevel=4,
    )

"""Soft labels over all classes from the packed outputs of the teachers, and weights that balance them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._validation import as_numbers, check_distributions
from consilience.exceptions import ConvergenceWarning, InvalidInputError, shown, warn
from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.compiled import one_thread
from consilience.kernels.linear_model import inverse
from consilience.kernels.unify.packed import make_layout
from consilience.kernels.unify.ranks import RankTable, rank_scores
from consilience.labels import LabelSpace, check_packed_logits
from consilience.methods import CE, MFLF, Method, Own, as_method
from consilience.run import Progress, silent
from consilience.soft_labels.agreement import agreement_temperatures, divide_by_temperatures
from consilience.soft_labels.pool import ESTIMATES, choose_pool
from consilience.soft_labels.solvers import SOLVERS, estimate_by_ranks, estimate_rows

# Rows solved at a time: it bounds the memory of intermediate arrays, and the time between progress reports.
CHUNK_ROWS = 2**14
# Rows are compared with at most so many others, and with fewer if these had more logits than the second.
MOST_ROWS = 2**16
MOST_NUMBERS = 2**24
# Draws the rows to compare with. They depend on the number of rows and columns alone, so that rows in memory
# and rows that are streamed get the same soft labels.
SEED = 0
# Largest logit, also over the temperature, for methods that add logits up: such sums stay finite.
LARGEST_LOGIT = 1e300


def estimate_soft_labels(
    logits: ArrayLike,
    space: LabelSpace,
    method: Any = "mf-lf",
    *,
    reference: ArrayLike | None = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Estimate probabilities over all classes from what each teacher says about its own.

    A teacher's p_i is read as q, given that the class is one of the teacher's own, eq. (6):
    ``p_i(l) = q(l) / sum of q(k) over k in L_i``. The methods find the q that fits best.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits, teacher after teacher. A teacher that abstains on a row has NaN in its whole block.
        For ``"ce"`` (without off-set weighting), ``"mf-lv"``, ``"mf-lf"`` and ``"auto"`` they are at most
        1e300 in size, also when divided by the temperature.
    space : LabelSpace
        Where each teacher's columns are.
    method : str, Method or callable
        The name of a method: ``"mf-lf"``, ``"ce"``, ``"mf-p"``, ``"mf-lv"``, ``"sd"``, ``"ranks"`` or
        ``"auto"``; one with options, such as ``methods.CE(off_set=True)``, see `consilience.methods`; or a
        function of your own, ``method(logits, space, temperature)``. ``"auto"`` and ``"ranks"`` look at many
        rows, the others at each by itself.
    reference : (r, m) array, optional
        Packed logits of other rows to rank against, for ``"ranks"`` and ``"auto"``. By default rows are
        ranked among themselves, or among 65,536 random ones of them if there are more. Give it to label a few
        new rows: with some thousand rows as the reference, they get nearly the soft labels that they would
        have among all of these. Teachers that answer on the new rows must answer on some of these.
    progress : callable
        Called with ("soft labels", rows done, rows in all).

    Returns
    -------
    (n, L) array
        Probabilities in the order of ``space.classes``. If the teachers that answer on a row leave groups of
        classes unconnected, the paper's methods give each group mass in proportion to its number of classes;
        ``"ranks"`` and ``"auto"`` compare the groups by ranks. A row on which every teacher abstains is
        uniform. (``"sd"`` has no such freedom: mass is where the teachers put it.)

    Warns
    -----
    ConvergenceWarning
        With the number of rows that stopped before `tol`.

    Notes
    -----
    ``"ranks"`` replaces the score of teacher i for class l by how high the row ranks in that column over all
    rows, z_il = -1/2 log a_il - 1/2 log b_il. Here a_il is the rank in the column over n + 1, and b_il that
    among all k columns of the teacher over n k + 1; rank 1 is the surest, and ties share their mean rank. A
    row that is of class l is among the most l-like rows that the teacher has seen, whatever its temperature
    and kind. Then q = softmax(u), where u and c minimise the sum of (u_l + c_i - z_il)^2 with the smallest c,
    so that teachers without a common class are compared, too. This assumes that every class occurs among the
    rows: some row is always first in a column.

    ``"auto"`` adds up the unified logits of ``"ranks"``, ``"mf-lf"`` and ``"ce"`` (at T = 1), each divided by
    its standard deviation, with weights that best predict the decisions of each teacher from the others. It
    is as sure as ``"ranks"`` on average. Between groups of teachers without a common class, ranks decide. A
    single teacher is taken at its word.

    With ``CE(off_set=True)``, q minimises eq. (9) with each teacher's term weighted by w_i = q(L_i), where
    the weights are held fixed: it is the fixed point of solving for q and weighting anew. There ``N_l q(l) =
    sum over the teachers that know l of q(L_i) p_i(l)``, with N_l the number of these teachers. This is
    linear in q and is solved exactly: w is the stationary distribution of a Markov chain on the teachers,
    which draws a class from the teacher it is at and moves to any teacher that knows this class.

    It is also a step of EM. Let a teacher answer by q given L_i with probability q(L_i); with probability
    1 - q(L_i) the row is none of its classes, and it answers in the same proportions. Then q(L_i) is the
    responsibility of the first case. (What EM adds to the step, w log q(L_i) + (1 - w) log(1 - q(L_i)), is
    stationary at q(L_i) = w and moves no fixed point.) If the p_i are the conditionals of one q, both
    ``"ce"`` and off-set weighting give that q.

    Examples
    --------
    >>> from consilience.methods import MFLF
    >>> space = LabelSpace([["cat", "dog"], ["dog", "bird"]])
    >>> logits = np.log([[0.8, 0.2, 0.5, 0.5]])  # cat 4 : 1 dog, dog 1 : 1 bird
    >>> estimate_soft_labels(logits, space, MFLF(temperature=1.0)).round(3)  # bird, cat, dog
    array([[0.167, 0.667, 0.167]])
    """
    method = as_method(method)
    if method.n_neighbors:
        raise InvalidInputError(
            "{argument} compares rows of X, and there are only logits; use {remedy}.",
            argument="n_neighbors",
            value=method.n_neighbors,
            remedy=("n_neighbors", 0),
        )
    packed = check_packed_logits(logits, space)
    if reference is None:
        some = rows_to_compare(*packed.shape)
        compared, ranked = packed if some is None else packed[some], some is None
    else:
        compared, ranked = _check_reference(reference, packed, space, method), False
        check_size("reference logits", compared, method)
    if method.teacher_temperatures is not None:
        temperatures = agreement_temperatures(compared, space, progress=progress)
        packed, compared = (divide_by_temperatures(z, temperatures, space) for z in (packed, compared))
    Q = np.empty((len(packed), space.n_classes))
    fill_soft_labels(Q, packed.__getitem__, compared, space, method, ranked=ranked, progress=progress)
    return Q


def fill_soft_labels(
    Q: NDArray[Any],
    logits: Callable[[slice], Floats],
    compared: Floats,
    space: LabelSpace,
    method: Method,
    *,
    ranked: bool,
    progress: Progress = silent,
) -> dict[str, float] | None:
    """Write soft labels to Q (n, L), some rows at a time; return the share of each estimate in the pool.

    Parameters
    ----------
    Q : (n, L) array
    logits : callable
        From a slice of rows to their packed logits (k, m), which are checked.
    compared : (r, m) array
        Packed logits of the rows to compare with.
    space : LabelSpace
    method : Method
        Your own is called with some thousand rows at a time.
    ranked : bool
        Whether the rows to compare with are all rows: their ranks are known then.
    progress : callable
        Called with ("soft labels", rows done, rows in all).
    """
    solver = None if isinstance(method, Own) else SoftLabelSolver(compared, space, method)
    ranks = solver.ranks if solver is not None and ranked else None
    norms = [np.zeros(0)]  # what the stopping rule reached
    for start in range(0, len(Q), CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, len(Q)))
        packed = logits(rows)
        if isinstance(method, Own):
            Q[rows] = own_soft_labels(method, packed, space)
        elif solver is not None:
            check_size("logits", packed, method)
            Q[rows], reached = solver.solve(packed, None if ranks is None else ranks[rows])
            norms += [] if reached is None else [reached]
        progress("soft labels", rows.stop, len(Q))
    _warn_of_late(method, np.concatenate(norms))
    return None if solver is None else solver.weights


def _warn_of_late(method: Any, reached: Floats) -> None:
    """Warn if rows stopped before their tolerance."""
    late = int((~(reached <= getattr(method, "tol", 0.0))).sum())
    if late:
        name = method.name if method.name in SOLVERS else "ce"  # the pool's
        warn(
            ConvergenceWarning(
                f"{name} stopped at {{argument}} in {late} of {len(reached)} rows, with a "
                f"{SOLVERS[name].reached} of up to {reached.max():.1e} (tol {method.tol:.1e}). "
                "Raise it, or tol.",
                argument="max_iter",
                value=method.max_iter,
            )
        )


def rows_to_compare(n_rows: int, n_columns: int) -> Ints | None:
    """Return the positions of the rows that others are compared with, in order; None means all.

    A random sample does for what depends on all rows: ranks, the weights of a pool, temperatures, neighbours.
    """
    most = max(1, min(MOST_ROWS, MOST_NUMBERS // max(1, n_columns)))
    if n_rows <= most:
        return None
    return np.sort(np.random.default_rng(SEED).choice(n_rows, most, replace=False, shuffle=False))


class SoftLabelSolver:
    """Makes soft labels of rows, block by block.

    Parameters
    ----------
    compared : (r, m) array
        Packed logits of the rows to compare with: among these rows are ranked, and from these the weights of
        a pool are chosen.
    space : LabelSpace
    method : Method
        One with a name: no function.

    Attributes
    ----------
    weights : dict or None
        The share of each estimate in the pool.
    ranks : (r, m) array or None
        Scores by rank of the rows to compare with, if the method uses them.
    """

    def __init__(self, compared: Floats, space: LabelSpace, method: Any) -> None:
        self.layout = make_layout(space.columns, space.offsets, space.n_classes)
        self.weights: dict[str, float] | None = None
        self.ranks: Floats | None = None
        self._compared, self._method = compared, method
        answering = (~np.isnan(compared[:, self.layout.offsets[:-1]])).any(axis=0)
        if method.name == "auto" and answering.sum() <= 1:  # nobody to compare it with: take its word
            self.weights = {name: float(name == "mf-lf") for name in ESTIMATES}
            self._method = MFLF(method.temperature)
        if self._method.name in SOLVERS:
            return
        self.ranks = rank_scores(compared, self.layout.offsets)
        if self._method.name == "auto":
            with one_thread():  # its products are small
                self._pool = choose_pool(self.ranks, compared, self.layout, method)
            self.weights = dict(zip(ESTIMATES, self._pool.weights.tolist(), strict=True))

    @cached_property
    def _table(self) -> RankTable:
        return RankTable(self._compared, self.layout.offsets)

    def solve(self, packed: Floats, ranks: Floats | None = None) -> tuple[Floats, Floats | None]:
        """Return soft labels (k, L) and what the stopping rule reached (k,), if the method has one.

        Parameters
        ----------
        packed : (k, m) array
            Packed logits.
        ranks : (k, m) array, optional
            Their scores by rank, if these are known: of rows among those to compare with.
        """
        if self._method.name in SOLVERS:
            return estimate_rows(packed, self.layout, self._method)
        z = self._table.scores(packed) if ranks is None else ranks
        if self._method.name == "ranks":
            return estimate_by_ranks(z, self.layout, self._method.temperature), None
        ce = CE(1.0, tol=self._method.tol, max_iter=self._method.max_iter)
        pooled = self._pool.logits(z, packed, self.layout, ce)
        return pooled.soft_labels(self._method.temperature), pooled.reached


def check_size(what: str, packed: Floats, method: Method) -> None:
    """Raise if logits are so large that sums of them, over the temperature, would overflow."""
    adds_logits = method.name == "auto" or (method.name in SOLVERS and SOLVERS[method.name].adds_logits)
    if not adds_logits or getattr(method, "off_set", False):
        return
    largest = max(float(packed.max(initial=0.0)), -float(packed.min(initial=0.0)))
    if np.isnan(largest):  # somebody abstains: fmax and fmin skip NaN, at several times the cost
        top, bottom = (float(f.reduce(packed, axis=None, initial=0.0)) for f in (np.fmax, np.fmin))
        largest = max(top, -bottom)
    limit = LARGEST_LOGIT * min(method.temperature, 1.0)
    if largest > limit:
        raise InvalidInputError(
            f"{what} reach {largest:g} in size; at temperature {method.temperature:g} the most is {limit:g}."
            " Clip them, or divide them by a number."
        )


def _check_reference(reference: ArrayLike, packed: Floats, space: LabelSpace, method: Method) -> Floats:
    """Return the rows to rank against, or say why they will not do."""
    if method.name not in ("auto", "ranks"):
        raise InvalidInputError(
            f"{{argument}} is for methods that rank rows, 'auto' and 'ranks'; method is {method.name!r}.",
            argument="reference",
        )
    rows = check_packed_logits(reference, space, what="reference logits")
    answers, has_ranks = ((~np.isnan(z[:, space.offsets[:-1]])).any(axis=0) for z in (packed, rows))
    if (answers & ~has_ranks).any():
        name = space.names[int(np.argmax(answers & ~has_ranks))]
        raise InvalidInputError(
            f"Teacher {shown(name)} answers on no row of {{argument}}, so its answers have no rank. "
            "Give rows on which it answers.",
            argument="reference",
        )
    return rows


def own_soft_labels(method: Own, packed: Floats, space: LabelSpace) -> Floats:
    """Return what a function of the user's gives, or say what is wrong with it."""
    given = packed.view()
    given.flags.writeable = False  # they may be the user's own array, which estimating must not change
    name, shape = f"method {method.name} returned", (len(packed), space.n_classes)
    expected = f"expected probabilities {shape}, in the order of space.classes"
    try:
        found = method.function(given, space, method.temperature)
    except TypeError as error:
        raise InvalidInputError(
            f"method {method.name} failed ({error}). Its arguments are logits, space, temperature."
        ) from error
    Q = as_numbers(f"What {name}", found, expected)
    if Q.shape != shape:
        raise InvalidInputError(f"The {name} shape {Q.shape}; {expected}.")
    return check_distributions(f"What {name}", Q).copy()


def balance_weights(Q: ArrayLike) -> NDArray[np.float64]:
    """Return class weights that make up for imbalanced soft labels (Sec. 3.5.2).

    The weight of class l is 1 / mean of q(l) over the rows, or 0 if the class has no mass at all.

    Parameters
    ----------
    Q : (n, L) array
        Soft labels.

    Examples
    --------
    >>> balance_weights([[0.5, 0.5], [0.0, 1.0]]).round(3)
    array([4.   , 1.333])
    """
    expected = "expected (n, L), a row of probabilities per sample"
    soft = np.asarray(as_numbers("Q", Q, expected), dtype=np.float64)
    if soft.ndim != 2:
        raise InvalidInputError(f"Q has shape {soft.shape}; {expected}.")
    if not ((soft >= 0) & (soft <= 1e100)).all():  # larger ones have no mean
        raise InvalidInputError("Q has entries that are negative or not finite; expected probabilities.")
    return inverse(soft.sum(axis=0) / max(1, len(soft)))

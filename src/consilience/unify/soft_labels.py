"""Soft labels over all classes from the packed outputs of the teachers, and the weights that balance them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._progress import Progress, silent
from consilience._validation import check_choice, check_count, check_number, check_packed_logits
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.unify.balance import inverse_mean
from consilience.kernels.unify.cross_entropy import ce_logits
from consilience.kernels.unify.distillation import sd
from consilience.kernels.unify.factorisation import (
    abstention_patterns,
    mf_lf_logits,
    mf_lv_logits,
    mf_p_probabilities,
)
from consilience.kernels.unify.packed import Floats, Ints, Layout, make_layout, softmax_by_component
from consilience.kernels.unify.walk import walk_logits
from consilience.labels import LabelSpace, connected_by_pattern

Method = Literal["sd", "ce", "mf-p", "mf-lv", "mf-lf"]

# Rows solved at a time: bounds the memory of intermediate arrays, and how often progress is told.
CHUNK_ROWS = 32_768


@dataclass(frozen=True)
class _Settings:
    temperature: float
    tol: float
    max_iter: int
    ridge: float
    off_set: bool


class _Solution(NamedTuple):
    U: Floats  # unified logits
    reached: Floats  # what the solver's stopping rule looks at, per row
    n_iter: Ints


def _solve_ce(logits: Floats, layout: Layout, s: _Settings) -> _Solution:
    if s.off_set:
        return _exact(walk_logits(logits, layout, s.temperature))
    return _Solution(*ce_logits(logits, layout, s.temperature, s.tol, s.max_iter))


def _solve_mf_p(logits: Floats, layout: Layout, s: _Settings) -> _Solution:
    U, _, changes, n_iter = mf_p_probabilities(logits, layout, s.temperature, s.tol, s.max_iter)
    with np.errstate(divide="ignore"):
        return _Solution(np.log(U), changes, n_iter)


def _solve_mf_lv(logits: Floats, layout: Layout, s: _Settings) -> _Solution:
    U, _, changes, n_iter = mf_lv_logits(logits, layout, s.temperature, s.ridge, s.tol, s.max_iter)
    return _Solution(U, changes, n_iter)


def _solve_mf_lf(logits: Floats, layout: Layout, s: _Settings) -> _Solution:
    return _exact(mf_lf_logits(logits, layout, s.temperature))


def _exact(U: Floats) -> _Solution:
    """Return unified logits (k, L) that are found without iterations."""
    return _Solution(U, np.zeros(len(U)), np.zeros(len(U), dtype=np.intp))


_SOLVERS: dict[str, Callable[[Floats, Layout, _Settings], _Solution]] = {
    "ce": _solve_ce,
    "mf-p": _solve_mf_p,
    "mf-lv": _solve_mf_lv,
    "mf-lf": _solve_mf_lf,
}
METHODS: tuple[str, ...] = ("sd", *_SOLVERS)
# what `reached` measures, for the warning; and the default stopping rule (tol, max_iter) of each method
_STOPPING: dict[str, tuple[str, float, int]] = {
    "sd": ("", 0.0, 0),
    "ce": ("gradient norm", 1e-8, 200),
    "mf-p": ("change per iteration", 1e-3, 3000),
    "mf-lv": ("change per iteration", 1e-3, 3000),
    "mf-lf": ("", 0.0, 0),
}


def estimate_soft_labels(
    logits: ArrayLike,
    space: LabelSpace,
    method: Method = "mf-lf",
    *,
    temperature: float = 3.0,
    tol: float | None = None,
    max_iter: int | None = None,
    ridge: float = 0.01,
    off_set: bool = False,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Estimate probabilities over all classes from what each teacher says of its own.

    Every teacher's p_i is taken as q given that the class is one of the teacher's own, eq. (6):
    ``p_i(l) = q(l) / sum of q(k) over k in L_i``. The methods find the q that fits best.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits, teacher after teacher. A teacher that abstains on a row has NaN in its whole block.
    space : LabelSpace
        Where each teacher's columns lie.
    method : {"mf-lf", "ce", "mf-p", "mf-lv", "sd"}
        ``"mf-lf"``: least squares on logits, eq. (17) with v = 1, in closed form. ``"ce"``: cross-entropy,
        eq. (9), by Newton's method. ``"mf-p"``, ``"mf-lv"``: Algorithms 1 and 2, alternating least squares.
        ``"sd"``: the mean of the zero-padded p_i, the naive baseline.
    temperature : float
        T of eq. (2), applied to every teacher's logits.
    tol : float, optional
        When to stop: the gradient's norm for ``"ce"`` (1e-8), the root-mean-square change of u and of v in
        one iteration for ``"mf-p"`` and ``"mf-lv"`` (1e-3).
    max_iter : int, optional
        Most iterations: 200 for ``"ce"``, 3000 for ``"mf-p"`` and ``"mf-lv"``.
    ridge : float
        Regularisation of ``"mf-lv"``, lambda of eq. (15).
    off_set : bool
        Off-set weighting, for ``"ce"`` only: a teacher has as much say on a row as the estimate gives mass to
        its own classes there. What a teacher says of a row that none of its classes fits is noise; plain
        ``"ce"`` gives it a full vote. See Notes.
    progress : callable
        Called with ("soft labels", rows done, rows in all).

    Returns
    -------
    (n, L) array
        Probabilities in the order of ``space.classes``. Where the active teachers of a row leave groups of
        classes unconnected, each group has mass in proportion to its number of classes; a row on which
        every teacher abstains is uniform. (``"sd"`` has no such freedom: mass is where the teachers put it.)

    Warns
    -----
    ConvergenceWarning
        With the number of rows that stopped before `tol`.

    Notes
    -----
    With `off_set`, q minimises eq. (9) with each teacher's term weighted by w_i = q(L_i), its own value held
    fixed in the weights: the fixed point of solving for q and weighting anew. There ``N_l q(l) = sum over the
    teachers that know l of q(L_i) p_i(l)``, with N_l the number of them, which is linear in q and solved
    exactly: w is the stationary distribution of a walk that draws a class from the teacher it is at, and
    goes on to any teacher that knows that class. It is also the step of an EM: let a teacher answer by
    q given L_i with probability q(L_i), and in the same proportions though the row is none of its classes
    with probability 1 - q(L_i); then q(L_i) is the responsibility of the former. (What EM adds to the
    step, w log q(L_i) + (1 - w) log(1 - q(L_i)), is stationary at q(L_i) = w and moves no fixed point.)
    Teachers that agree are believed as by ``"ce"``: for p_i that are conditionals of one q both give that q.

    Examples
    --------
    >>> space = LabelSpace([["cat", "dog"], ["dog", "bird"]])
    >>> logits = np.log([[0.8, 0.2, 0.5, 0.5]])  # cat 4 : 1 dog, dog 1 : 1 bird
    >>> estimate_soft_labels(logits, space, temperature=1.0).round(3)  # bird, cat, dog
    array([[0.167, 0.667, 0.167]])
    """
    check_choice("method", method, METHODS)
    what, default_tol, default_max_iter = _STOPPING[method]
    settings = _Settings(
        temperature=check_number("temperature", temperature, above=0),
        tol=default_tol if tol is None else check_number("tol", tol, above=0),
        max_iter=default_max_iter if max_iter is None else check_count("max_iter", max_iter),
        ridge=check_number("ridge", ridge, above=0),
        off_set=check_off_set(off_set, method),
    )
    packed = check_packed_logits(logits, space)
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    Q = np.empty((len(packed), space.n_classes))
    late, worst = 0, 0.0
    for start in range(0, len(packed), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        Q[rows], reached = _estimate_chunk(packed[rows], layout, method, settings)
        late += int((~(reached <= settings.tol)).sum())
        worst = max(worst, float(reached.max()))
        progress("soft labels", min(rows.stop, len(packed)), len(packed))
    if late:
        warnings.warn(
            f"{method} stopped at max_iter={settings.max_iter} in {late} of {len(packed)} rows, "
            f"with a {what} of up to {worst:.1e} (tol {settings.tol:.1e}). Raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Q


def check_off_set(off_set: object, method: str) -> bool:
    """Return `off_set`, or raise unless it is True or False, and False for methods other than ce."""
    check_choice("off_set", off_set, (True, False))
    if off_set and method != "ce":
        raise InvalidInputError(
            f"{{argument}} weights the terms of {{remedy}}; method is {method!r}.",
            argument="off_set",
            value=True,
            remedy=("method", "ce"),
        )
    return bool(off_set)


def _estimate_chunk(
    logits: Floats, layout: Layout, method: str, settings: _Settings
) -> tuple[Floats, Floats]:
    """Return soft labels (k, L) and what the stopping rule reached (k,)."""
    if method == "sd":
        return sd(logits, layout, settings.temperature), np.zeros(len(logits))
    solution = _SOLVERS[method](logits, layout, settings)
    patterns, of_row = abstention_patterns(logits, layout.offsets)
    component = connected_by_pattern(layout.columns, layout.offsets, solution.U.shape[1], patterns)
    return softmax_by_component(solution.U, component, of_row), solution.reached


def balance_weights(Q: ArrayLike) -> NDArray[np.float64]:
    """Return a weight for each class that makes up for imbalanced soft labels (Sec. 3.5.2).

    The weight of class l is 1 / mean of q(l) over the rows; 0 for a class that has no mass at all.

    Parameters
    ----------
    Q : (n, L) array
        Soft labels.

    Examples
    --------
    >>> balance_weights([[0.5, 0.5], [0.0, 1.0]]).round(3)
    array([4.   , 1.333])
    """
    soft = np.asarray(Q, dtype=np.float64)
    if soft.ndim != 2:
        raise InvalidInputError(
            f"Q has shape {soft.shape}; expected (n, L), a row of probabilities per sample."
        )
    if not (np.isfinite(soft).all() and (soft >= 0).all()):
        raise InvalidInputError("Q has entries that are negative or not finite; expected probabilities.")
    return inverse_mean(soft)

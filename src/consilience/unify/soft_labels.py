"""Soft labels over all classes from the packed outputs of the teachers, and weights that balance them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._components import connected_by_pattern
from consilience._progress import Progress, silent
from consilience._validation import (
    as_numbers,
    check_choice,
    check_count,
    check_distributions,
    check_number,
    check_packed_logits,
    check_temperature,
)
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.balance import inverse_mean
from consilience.kernels.unify.cross_entropy import ce_logits
from consilience.kernels.unify.distillation import sd
from consilience.kernels.unify.factorisation import (
    abstention_patterns,
    mf_lf_logits,
    mf_lv_logits,
    mf_p_probabilities,
)
from consilience.kernels.unify.off_set import off_set_logits
from consilience.kernels.unify.packed import Layout, make_layout, softmax_by_component
from consilience.labels import LabelSpace

Method = Literal["sd", "ce", "mf-p", "mf-lv", "mf-lf"]
OwnMethod = Callable[[Floats, LabelSpace, float], ArrayLike]

# Rows solved at a time: it bounds the memory of intermediate arrays, and the time between progress reports.
CHUNK_ROWS = 32_768
# Largest logit, also over the temperature, for methods that add logits up: such sums stay finite.
LARGEST_LOGIT = 1e300


@dataclass(frozen=True)
class Options:
    """What a solver is told."""

    temperature: float
    tol: float
    max_iter: int
    ridge: float
    off_set: bool


class Solution(NamedTuple):
    """What a solver finds for k rows."""

    values: Floats  # (k, L) unified logits, or probabilities: see `Solver.gives`
    reached: Floats | None = None  # (k,) what the stopping rule compares with tol; None from a closed form


@dataclass(frozen=True)
class Solver:
    """One method: how it is solved, and when it stops."""

    solve: Callable[[Floats, Layout, Options], Solution]
    tol: float = 0.0
    max_iter: int = 0
    reached: str = ""  # what `Solution.reached` measures, for the warning
    gives: Literal["logits", "probabilities"] = "logits"
    adds_logits: bool = False  # if so, they must not be too large


def _solve_sd(logits: Floats, layout: Layout, o: Options) -> Solution:
    return Solution(sd(logits, layout, o.temperature))


def _solve_ce(logits: Floats, layout: Layout, o: Options) -> Solution:
    if o.off_set:
        return Solution(off_set_logits(logits, layout, o.temperature))
    U, norms, _ = ce_logits(logits, layout, o.temperature, o.tol, o.max_iter)
    return Solution(U, norms)


def _solve_mf_p(logits: Floats, layout: Layout, o: Options) -> Solution:
    u, _, changes, _ = mf_p_probabilities(logits, layout, o.temperature, o.tol, o.max_iter)
    with np.errstate(divide="ignore"):
        return Solution(np.log(u), changes)


def _solve_mf_lv(logits: Floats, layout: Layout, o: Options) -> Solution:
    U, _, changes, _ = mf_lv_logits(logits, layout, o.temperature, o.ridge, o.tol, o.max_iter)
    return Solution(U, changes)


def _solve_mf_lf(logits: Floats, layout: Layout, o: Options) -> Solution:
    return Solution(mf_lf_logits(logits, layout, o.temperature))


METHODS: dict[str, Solver] = {
    "sd": Solver(_solve_sd, gives="probabilities"),
    "ce": Solver(_solve_ce, 1e-8, 200, "gradient norm", adds_logits=True),
    "mf-p": Solver(_solve_mf_p, 1e-3, 3000, "change per iteration"),
    "mf-lv": Solver(_solve_mf_lv, 1e-3, 3000, "change per iteration", adds_logits=True),
    "mf-lf": Solver(_solve_mf_lf, adds_logits=True),
}
"""Every method by its name. A new one is a kernel and a line here."""


def estimate_soft_labels(
    logits: ArrayLike,
    space: LabelSpace,
    method: Method | OwnMethod = "mf-lf",
    *,
    temperature: float = 3.0,
    tol: float | None = None,
    max_iter: int | None = None,
    ridge: float = 0.01,
    off_set: bool = False,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Estimate probabilities over all classes from what each teacher says about its own.

    A teacher's p_i is read as q, given that the class is one of the teacher's own, eq. (6):
    ``p_i(l) = q(l) / sum of q(k) over k in L_i``. The methods find the q that fits best.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits, teacher after teacher. A teacher that abstains on a row has NaN in its whole block.
        For ``"ce"`` (without `off_set`), ``"mf-lv"`` and ``"mf-lf"`` they are at most 1e300 in size, also
        when divided by the temperature.
    space : LabelSpace
        Where each teacher's columns are.
    method : {"mf-lf", "ce", "mf-p", "mf-lv", "sd"} or callable
        ``"mf-lf"``: least squares on logits, eq. (17) with v = 1, in closed form. ``"ce"``: cross-entropy,
        eq. (9), by Newton's method. ``"mf-p"``, ``"mf-lv"``: Algorithms 1 and 2, alternating least squares.
        ``"sd"``: the mean of the zero-padded p_i, the naive baseline. Or a function of your own,
        ``method(logits, space, temperature)``, that returns probabilities (n, L) in the order of
        ``space.classes``. Its logits (n, m) are float64, checked and read-only.
    temperature : float
        T of eq. (2), applied to every teacher's logits. From 1e-6 to 1e6.
    tol : float, optional
        When to stop: the norm of the gradient for ``"ce"`` (1e-8), the root-mean-square change of u and of v
        in one iteration for ``"mf-p"`` and ``"mf-lv"`` (1e-3). Methods in closed form do not use it.
    max_iter : int, optional
        The most iterations: 200 for ``"ce"``, 3000 for ``"mf-p"`` and ``"mf-lv"``.
    ridge : float
        Regularisation of ``"mf-lv"``, lambda of eq. (15).
    off_set : bool
        Off-set weighting, for ``"ce"`` only. A teacher's weight on a row is the mass that the estimate gives
        to its classes there. If none of its classes fits the row, its answer is noise, and plain ``"ce"``
        would give that noise a full vote. See Notes.
    progress : callable
        Called with ("soft labels", rows done, rows in all).

    Returns
    -------
    (n, L) array
        Probabilities in the order of ``space.classes``. If the teachers that answer on a row leave groups of
        classes unconnected, each group has mass in proportion to its number of classes. A row on which every
        teacher abstains is uniform. (``"sd"`` has no such freedom: mass is where the teachers put it.)

    Warns
    -----
    ConvergenceWarning
        With the number of rows that stopped before `tol`.

    Notes
    -----
    With `off_set`, q minimises eq. (9) with each teacher's term weighted by w_i = q(L_i), where the weights
    are held fixed: it is the fixed point of solving for q and weighting anew. There ``N_l q(l) = sum over the
    teachers that know l of q(L_i) p_i(l)``, with N_l the number of these teachers. This is linear in q and is
    solved exactly: w is the stationary distribution of a Markov chain on the teachers, which draws a class
    from the teacher it is at and moves to any teacher that knows this class.

    It is also a step of EM. Let a teacher answer by q given L_i with probability q(L_i); with probability
    1 - q(L_i) the row is none of its classes, and it answers in the same proportions. Then q(L_i) is the
    responsibility of the first case. (What EM adds to the step, w log q(L_i) + (1 - w) log(1 - q(L_i)), is
    stationary at q(L_i) = w and moves no fixed point.) If the p_i are the conditionals of one q, both
    ``"ce"`` and `off_set` give that q.

    Examples
    --------
    >>> space = LabelSpace([["cat", "dog"], ["dog", "bird"]])
    >>> logits = np.log([[0.8, 0.2, 0.5, 0.5]])  # cat 4 : 1 dog, dog 1 : 1 bird
    >>> estimate_soft_labels(logits, space, temperature=1.0).round(3)  # bird, cat, dog
    array([[0.167, 0.667, 0.167]])
    """
    options = check_options(method, temperature, tol, max_iter, off_set, ridge)
    packed = check_packed_logits(logits, space)
    if callable(method):
        Q = _own_soft_labels(method, packed, space, options.temperature)
        progress("soft labels", len(Q), len(Q))
        return Q
    if METHODS[method].adds_logits and not options.off_set:
        _check_size(packed, options.temperature)
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    Q = np.empty((len(packed), space.n_classes))
    late, worst = 0, 0.0
    for start in range(0, len(packed), CHUNK_ROWS):
        rows = slice(start, start + CHUNK_ROWS)
        Q[rows], reached = _estimate_chunk(packed[rows], layout, METHODS[method], options)
        if reached is not None:
            late += int((~(reached <= options.tol)).sum())
            worst = max(worst, float(reached.max()))
        progress("soft labels", min(rows.stop, len(packed)), len(packed))
    if late:
        warnings.warn(
            ConvergenceWarning(
                f"{method} stopped at {{argument}} in {late} of {len(packed)} rows, with a "
                f"{METHODS[method].reached} of up to {worst:.1e} (tol {options.tol:.1e}). Raise it, or tol.",
                argument="max_iter",
                value=options.max_iter,
            ),
            stacklevel=2,
        )
    return Q


def check_options(
    method: Method | OwnMethod,
    temperature: float = 3.0,
    tol: float | None = None,
    max_iter: int | None = None,
    off_set: bool = False,
    ridge: float = 0.01,
) -> Options:
    """Return the options of a method, or say which is wrong; parameters as in `estimate_soft_labels`."""
    if not callable(method):
        check_choice("method", method, METHODS)
    elif tol is not None or max_iter is not None:
        raise InvalidInputError(
            "tol= and max_iter= are options of the methods with a name; give your own method its own."
        )
    check_choice("off_set", off_set, (True, False))
    if off_set and method != "ce":
        raise InvalidInputError(
            f"{{argument}} weights the terms of {{remedy}}; method is {method_name(method)!r}.",
            argument="off_set",
            value=True,
            remedy=("method", "ce"),
        )
    solver = METHODS["sd" if callable(method) else method]  # a function has no stopping rule of ours, like sd
    return Options(
        temperature=check_temperature(temperature),
        tol=solver.tol if tol is None else check_number("tol", tol, above=0),
        max_iter=solver.max_iter if max_iter is None else check_count("max_iter", max_iter),
        ridge=check_number("ridge", ridge, above=0),
        off_set=bool(off_set),
    )


def method_name(method: Method | OwnMethod) -> str:
    """Return the name of a method, or that of the function."""
    return method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)


def _check_size(packed: Floats, temperature: float) -> None:
    """Raise if logits are so large that sums of them, over the temperature, would overflow."""
    largest = max(float(packed.max(initial=0.0)), -float(packed.min(initial=0.0)))
    if np.isnan(largest):  # somebody abstains: fmax and fmin skip NaN, at several times the cost
        top, bottom = (float(f.reduce(packed, axis=None, initial=0.0)) for f in (np.fmax, np.fmin))
        largest = max(top, -bottom)
    limit = LARGEST_LOGIT * min(temperature, 1.0)
    if largest > limit:
        raise InvalidInputError(
            f"logits reach {largest:g} in size; at temperature {temperature:g} the most is {limit:g}. "
            "Clip them, or divide them by a number."
        )


def _own_soft_labels(method: OwnMethod, packed: Floats, space: LabelSpace, temperature: float) -> Floats:
    """Return what a function of the user's gives, or say what is wrong with it."""
    given = packed.view()
    given.flags.writeable = False  # they may be the user's own array, which estimating must not change
    name, shape = f"method {method_name(method)} returned", (len(packed), space.n_classes)
    expected = f"expected probabilities {shape}, in the order of space.classes"
    try:
        found = method(given, space, temperature)
    except TypeError as error:
        raise InvalidInputError(
            f"method {method_name(method)} failed ({error}). Its arguments are logits, space, temperature."
        ) from error
    Q = as_numbers(f"What {name}", found, expected)
    if Q.shape != shape:
        raise InvalidInputError(f"The {name} shape {Q.shape}; {expected}.")
    return check_distributions(f"What {name}", Q).copy()


def _estimate_chunk(
    logits: Floats, layout: Layout, solver: Solver, options: Options
) -> tuple[Floats, Floats | None]:
    """Return soft labels (k, L), and what the stopping rule reached (k,)."""
    solution = solver.solve(logits, layout, options)
    if solver.gives == "probabilities":
        return solution.values, solution.reached
    patterns, of_row = abstention_patterns(logits, layout.offsets)
    component = connected_by_pattern(layout.columns, layout.offsets, solution.values.shape[1], patterns)
    return softmax_by_component(solution.values, component, of_row), solution.reached


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
    return inverse_mean(soft)

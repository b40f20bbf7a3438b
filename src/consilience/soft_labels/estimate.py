"""Soft labels over all classes from the packed outputs of the teachers, and weights that balance them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import inverse
from consilience.labels import LabelSpace
from consilience.soft_labels.methods import METHODS, Lateness, Options
from consilience.soft_labels.solver import SoftLabelSolver, check_size, rows_to_compare

Method = Literal["auto", "ranks", "sd", "ce", "mf-p", "mf-lv", "mf-lf"]
OwnMethod = Callable[[Floats, LabelSpace, float], ArrayLike]
METHOD_NAMES = ("auto", "ranks", *METHODS)
"""Every method by its name: two that compare rows with each other, and the paper's."""

# Rows solved at a time: it bounds the memory of intermediate arrays, and the time between progress reports.
CHUNK_ROWS = 2**14
# T of eq. (2): the paper's, and that of methods whose soft labels are as sharp as they should be already.
TEMPERATURE = 3.0
OWN_TEMPERATURE = 1.0


def estimate_soft_labels(
    logits: ArrayLike,
    space: LabelSpace,
    method: Method | OwnMethod = "mf-lf",
    *,
    temperature: float | Literal["auto"] = "auto",
    tol: float | None = None,
    max_iter: int | None = None,
    ridge: float = 0.01,
    off_set: bool = False,
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
        For ``"ce"`` (without `off_set`), ``"mf-lv"``, ``"mf-lf"`` and ``"auto"`` they are at most 1e300 in
        size, also when divided by the temperature.
    space : LabelSpace
        Where each teacher's columns are.
    method : {"mf-lf", "ce", "mf-p", "mf-lv", "sd", "ranks", "auto"} or callable
        ``"mf-lf"``: least squares on logits, eq. (17) with v = 1, in closed form. ``"ce"``: cross-entropy,
        eq. (9), by Newton's method. ``"mf-p"``, ``"mf-lv"``: Algorithms 1 and 2, alternating least squares.
        ``"sd"``: the mean of the zero-padded p_i, the naive baseline. These are the paper's, and solve each
        row by itself. ``"ranks"``: least squares on ranks over the rows. ``"auto"``, the default of
        `Unifier`: ranks, ``"mf-lf"`` and ``"ce"`` pooled; see Notes. Or a function of your own,
        ``method(logits, space, temperature)``, that returns probabilities (n, L) in the order of
        ``space.classes``. Its logits (n, m) are float64, checked and read-only.
    temperature : float or "auto"
        T of eq. (2), applied to every teacher's logits. From 1e-6 to 1e6. ``"auto"`` is 1 for ``"ranks"`` and
        ``"auto"``, whose own soft labels it softens, and the paper's 3 for the others.
    tol : float, optional
        When to stop: the norm of the gradient for ``"ce"`` (1e-8), the root-mean-square change of u and of v
        in one iteration for ``"mf-p"`` and ``"mf-lv"`` (1e-3). Methods in closed form do not use it.
    max_iter : int, optional
        The most iterations: 200 for ``"ce"``, 3000 for ``"mf-p"`` and ``"mf-lv"``. With ``"auto"``, `tol` and
        `max_iter` are those of its ``"ce"``.
    ridge : float
        Regularisation of ``"mf-lv"``, lambda of eq. (15).
    off_set : bool
        Off-set weighting, for ``"ce"`` only. A teacher's weight on a row is the mass that the estimate gives
        to its classes there. If none of its classes fits the row, its answer is noise, and plain ``"ce"``
        would give that noise a full vote. See Notes.
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
    if reference is None:
        compared, ranked = compared_rows(packed)
    else:
        compared, ranked = _check_reference(reference, packed, space, method), False
        check_size("reference logits", compared, method_name(method), options)
    Q = np.empty((len(packed), space.n_classes))
    fill_soft_labels(
        Q, packed.__getitem__, compared, space, method, options, ranked=ranked, progress=progress
    )
    return Q


def compared_rows(logits: Any) -> tuple[Any, bool]:
    """Return the packed logits of the rows that others are compared with, and whether these are all rows."""
    some = rows_to_compare(*logits.shape)
    return (logits, True) if some is None else (logits[some], False)


def fill_soft_labels(
    Q: NDArray[Any],
    logits: Callable[[slice], Floats],
    compared: Floats,
    space: LabelSpace,
    method: Method | OwnMethod,
    options: Options,
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
    space, method, options
        As in `estimate_soft_labels`. Your own method is called with some thousand rows at a time.
    ranked : bool
        Whether the rows to compare with are all rows: their ranks are known then.
    progress : callable
        Called with ("soft labels", rows done, rows in all).
    """
    solver = None if callable(method) else SoftLabelSolver(compared, space, method, options)
    ranks, late = solver.ranks if solver is not None and ranked else None, Lateness()
    for start in range(0, len(Q), CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, len(Q)))
        packed, reached = logits(rows), None
        if solver is None:
            Q[rows] = own_soft_labels(method, packed, space, options.temperature)  # type: ignore[arg-type]
        else:
            check_size("logits", packed, method_name(method), options)
            Q[rows], reached = solver.solve(packed, None if ranks is None else ranks[rows])
        late.count(reached, options.tol, rows.stop - start)
        progress("soft labels", rows.stop, len(Q))
    late.warn("ce" if method == "auto" else method_name(method), options)
    return None if solver is None else solver.weights


def check_options(
    method: Method | OwnMethod,
    temperature: float | Literal["auto"] = "auto",
    tol: float | None = None,
    max_iter: int | None = None,
    off_set: bool = False,
    ridge: float = 0.01,
) -> Options:
    """Return the options of a method, or say which is wrong; parameters as in `estimate_soft_labels`."""
    if not callable(method):
        check_choice("method", method, METHOD_NAMES)
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
    # "auto" has the stopping rule of its ce; ranks and functions have none of ours, like sd
    solver = METHODS.get("ce" if method == "auto" else method_name(method), METHODS["sd"])
    return Options(
        temperature=resolve_temperature(method, temperature),
        tol=solver.tol if tol is None else check_number("tol", tol, above=0),
        max_iter=solver.max_iter if max_iter is None else check_count("max_iter", max_iter),
        ridge=check_number("ridge", ridge, above=0),
        off_set=bool(off_set),
    )


def resolve_temperature(method: Method | OwnMethod, temperature: float | Literal["auto"] = "auto") -> float:
    """Return the temperature as a number, or say what is wrong with it."""
    if (
        isinstance(temperature, str) and temperature == "auto"
    ):  # an array compares with "auto" in its own ways
        return OWN_TEMPERATURE if method in ("auto", "ranks") else TEMPERATURE
    return check_temperature(temperature)


def method_name(method: Method | OwnMethod) -> str:
    """Return the name of a method, or that of the function."""
    return method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)


def _check_reference(
    reference: ArrayLike, packed: Floats, space: LabelSpace, method: Method | OwnMethod
) -> Floats:
    """Return the rows to rank against, or say why they will not do."""
    if method not in ("auto", "ranks"):
        raise InvalidInputError(
            f"{{argument}} is for methods that rank rows, 'auto' and 'ranks'; "
            f"method is {method_name(method)!r}.",
            argument="reference",
        )
    rows = check_packed_logits(reference, space, what="reference logits")
    answers, has_ranks = ((~np.isnan(z[:, space.offsets[:-1]])).any(axis=0) for z in (packed, rows))
    if (answers & ~has_ranks).any():
        name = space.names[int(np.argmax(answers & ~has_ranks))]
        raise InvalidInputError(
            f"Teacher {name!r} answers on no row of {{argument}}, so its answers have no rank. "
            "Give rows on which it answers.",
            argument="reference",
        )
    return rows


def own_soft_labels(method: OwnMethod, packed: Floats, space: LabelSpace, temperature: float) -> Floats:
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

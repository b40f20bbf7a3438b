"""What teachers agree on: a temperature for each, from rows without labels, and how often two agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._validation import check_count, check_weights
from consilience._words import shorten
from consilience.exceptions import ConvergenceWarning, CoverageWarning, warn
from consilience.kernels.arrays import Floats
from consilience.kernels.unify.packed import make_layout
from consilience.kernels.unify.temperature import fit_temperature, is_at_bound
from consilience.labels import LabelSpace, check_packed_logits
from consilience.labels.space import connected_classes
from consilience.methods import CE
from consilience.run import Progress, silent
from consilience.soft_labels.solvers import estimate_rows, spread_out

# How sure every teacher is of its decisions on average, for the first soft labels.
SURE = 0.9
# Weight of a further row in which all classes are equally right: Laplace's rule, see `fit_temperature`.
PRIOR = 1.0
# Margins smaller than this are ties, up to rounding.
TIE = 1e-9
# A teacher keeps its own temperature if the rows on which it can be compared weigh less than this.
LEAST_ROWS = 10.0


def agreement_temperatures(
    logits: ArrayLike,
    space: LabelSpace,
    *,
    rounds: int = 3,
    max_rows: int = 5000,
    progress: Progress = silent,
) -> Floats:
    """Estimate the temperature of each teacher from how often the others agree with it.

    A teacher that is surer than it is accurate outvotes the others where it is wrong. This can be seen
    without labels: if the others decide for one of its classes, a calibrated teacher has given that class the
    probability with which they do so. With p_i = softmax(z_i / T_i) over its K_i classes, T_i maximises, over
    rows r,

        sum_r m_r log(c_r p_i(y_r) + (1 - c_r) / K_i) + one row's worth of sum_k log p_i(k) / K_i

    Here y_r is the class that the others' soft labels (`estimate_soft_labels` with ``"ce"`` and `off_set`,
    at their present temperatures) make most probable, c_r is its probability there, and m_r is how much more
    probable it is than the second, so that ties decide nothing. A row counts if y_r is a class of teacher i
    and the others that answer there know at least two classes: with only one, they decide nothing.
    The others may be wrong: with probability 1 - c_r, and then y_r may be any class. The last term is
    Laplace's rule: a teacher that was right n times out of n may still be wrong.

    The first soft labels are made with all teachers equally sure of their decisions, 90 % on average. Each
    round then takes one EM step for all temperatures (rows weigh m_r times the probability, by the present
    p_i, that y_r is right), and makes new soft labels.

    A teacher is compared with decisions, not with soft labels. Soft labels agree best if all teachers are
    unsure, and the temperatures would grow without end.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits, teacher after teacher. A teacher that abstains on a row has NaN in its whole block.
    space : LabelSpace
        Where each teacher's columns are.
    rounds : int
        How often all temperatures are estimated.
    max_rows : int
        Use at most this many of the rows on which two teachers answer, evenly spaced.
    progress : callable
        Called with ("calibration", estimates done, estimates in all).

    Returns
    -------
    (N,) array
        T_i, the number to divide teacher i's logits by. It does not depend on the order of the teachers. If
        a teacher's logits are multiplied by a factor, so is its T_i. T_i is 1 if the rows on which the
        teacher can be compared weigh less than ten in all, or if its logits never differ.

    Warns
    -----
    CoverageWarning
        With the names of teachers that could not be compared.
    ConvergenceWarning
        With the names of teachers whose temperature is as high (or low) as it may be. A teacher that is right
        no more often than by chance, as far as the others know, is muted.

    Examples
    --------
    >>> space = LabelSpace([["a", "b", "c"]] * 3)
    >>> rng = np.random.default_rng(0)
    >>> truth = np.eye(3)[rng.integers(3, size=2000)]
    >>> honest = [2 * (truth + rng.normal(size=truth.shape) / 2**0.5) for _ in range(3)]
    >>> boast = [1, 1, 5] * np.stack(honest, axis=2)  # the third multiplies its logits by five
    >>> T = agreement_temperatures(np.concatenate(list(boast.transpose(2, 0, 1)), axis=1), space)
    >>> (T / T[0]).round()
    array([1., 1., 5.])
    """
    check_count("rounds", rounds)
    check_count("max_rows", max_rows)
    packed = check_packed_logits(logits, space)
    n_answers = (~np.isnan(packed[:, space.offsets[:-1]])).sum(axis=1)
    # with one answer there is nobody to agree with
    rows = spread_out(np.flatnonzero(n_answers >= 2), max_rows)
    packed = packed[rows]
    answered = ~np.isnan(packed[:, space.offsets[:-1]])
    start = temperatures = _equally_sure(packed, answered, space)
    for done in range(rounds):
        present = divide_by_temperatures(packed, temperatures, space)
        found = []
        for i in range(space.n_teachers):
            found.append(_estimate(i, packed, present, answered, space))
            progress("calibration", done * space.n_teachers + i + 1, rounds * space.n_teachers)
        estimates = np.array([estimate.temperature for estimate in found])
        temperatures = np.where(np.isfinite(estimates), estimates, start)
    _warn(found, space.names)
    return np.where(np.isfinite(estimates), estimates, 1.0)


class _Estimate(NamedTuple):
    """The temperature of one teacher in one round."""

    temperature: float  # infinite if none makes a difference, NaN with too few rows
    weight: float  # of all rows that it is estimated from
    at_bound: bool = False


def _warn(estimates: Sequence[_Estimate], names: Sequence[str]) -> None:
    """Name the teachers that could not be compared, and those whose temperature is at its bound."""
    named = list(zip(names, estimates, strict=True))
    left = [f"{name} ({found.weight:.3g})" for name, found in named if np.isnan(found.temperature)]
    if left:
        warn(
            CoverageWarning(
                f"Calibration by agreement left {shorten(left)} at temperature 1. In brackets is the weight "
                "of the rows on which the others decide for one of its classes; at least "
                f"{LEAST_ROWS:g} is needed. Give more rows, or teachers that share more classes."
            )
        )
    extreme = [f"{name} ({found.temperature:.4g})" for name, found in named if found.at_bound]
    if extreme:
        warn(
            ConvergenceWarning(
                f"Calibration by agreement found temperatures at their bound, of {shorten(extreme)}: the "
                "others agree with such a teacher no more often than by chance, or always. Check its outputs "
                "and the names of its classes, or leave it out."
            )
        )


def divide_by_temperatures(logits: Floats, temperatures: Floats, space: LabelSpace) -> Floats:
    """Divide each teacher's block of packed logits (n, m) by its temperature (N,).

    Examples
    --------
    >>> from consilience import LabelSpace
    >>> space = LabelSpace([["a", "b"], ["b", "c"]])
    >>> divide_by_temperatures(np.array([[2.0, 4.0, 6.0, 9.0]]), np.array([2.0, 3.0]), space).tolist()
    [[1.0, 2.0, 2.0, 3.0]]
    """
    packed = check_packed_logits(logits, space)
    each = check_weights("temperatures", temperatures, space.n_teachers)
    divided: Floats = packed / np.repeat(each, np.diff(space.offsets))
    return divided


def _equally_sure(packed: Floats, answered: NDArray[np.bool_], space: LabelSpace) -> Floats:
    """Return the temperatures (N,) at which all teachers are equally sure of their decisions: `SURE`."""
    temperatures = np.ones(space.n_teachers)
    for i in range(space.n_teachers):
        block = packed[answered[:, i], space.block(i)]
        if len(block):
            # As if its decision were right in this share of rows, and any class were right in the others.
            prior = len(block) * (1 - SURE) / SURE
            T = fit_temperature(block, block.argmax(axis=1), np.ones(len(block)), prior)
            temperatures[i] = T if np.isfinite(T) else 1.0
    return temperatures


def _estimate(
    i: int, packed: Floats, present: Floats, answered: NDArray[np.bool_], space: LabelSpace
) -> _Estimate:
    """Return the temperature of teacher i, while the others keep their present ones."""
    others = np.arange(space.n_teachers) != i
    both = answered[:, i] & answered[:, others].any(axis=1)
    if not both.any():
        return _Estimate(np.nan, 0.0)
    masked = present[both]
    masked[:, space.block(i)] = np.nan
    layout = make_layout(space.columns, space.offsets, space.n_classes)
    Q, _ = estimate_rows(masked, layout, CE(temperature=1.0, off_set=True))
    # Classes that none of the others knows, and those of other groups, have mass by default: no votes.
    known = answered[both].astype(np.float32) @ (space.mask & others).T.astype(np.float32) > 0
    group = connected_classes(space.columns, space.offsets, space.n_classes)
    columns = space.columns[space.block(i)]
    Q[~known | (group != group[columns[0]])] = 0.0
    decision = Q.argmax(axis=1)
    column = np.full(space.n_classes, -1, dtype=np.intp)
    column[columns] = np.arange(len(columns))
    weight = _margins(Q)
    decidable = known.sum(axis=1) >= min(2, len(columns))  # with one class there is no choice
    use = np.flatnonzero((column[decision] >= 0) & (weight > TIE) & decidable)
    codes = column[decision[use]]
    right = Q[use, decision[use]] / Q[use].sum(axis=1)
    fits = right * softmax(present[both][use, space.block(i)], axis=1)[np.arange(len(use)), codes]
    weight = weight[use] * fits / (fits + np.maximum(1 - right, TIE) / len(columns))
    if weight.sum() < LEAST_ROWS:
        return _Estimate(np.nan, float(weight.sum()))
    own = packed[both][use, space.block(i)]
    T = fit_temperature(own, codes, weight, PRIOR)
    return _Estimate(T, float(weight.sum()), bool(np.isfinite(T)) and is_at_bound(own, T))


def _margins(Q: Floats) -> Floats:
    """Return how far the largest of each row is above the second, as a share of the row's sum."""
    total = Q.sum(axis=1)
    if Q.shape[1] == 1:
        return np.asarray(total > 0, dtype=np.float64)
    largest = np.partition(Q, -2, axis=1)
    margins: Floats = np.divide(largest[:, -1] - largest[:, -2], total, out=np.zeros(len(Q)), where=total > 0)
    return margins


class TeacherAgreement(NamedTuple):
    """How often two teachers decide for the same class, on rows where both decide for a class they share."""

    share: Floats  # (N, N), NaN where they share fewer than two classes or have no such row
    n_rows: NDArray[np.intp]  # (N, N) such rows
    n_shared: NDArray[np.intp]  # (N, N) classes that both know


def teacher_agreement(logits: Floats, space: LabelSpace) -> TeacherAgreement:
    """Compare the decisions of all pairs of teachers.

    A row counts for two teachers if both answer and each decides for a class that the other knows, too. One
    that does not know birds is not wrong to call a bird a cat.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits.
    space : LabelSpace

    Examples
    --------
    >>> space = LabelSpace([["cat", "dog"], ["cat", "dog", "bird"]])
    >>> found = teacher_agreement(np.array([[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 1.0]]), space)
    >>> float(found.share[0, 1]), int(found.n_rows[0, 1])  # the third row is a bird
    (0.5, 2)
    """
    N, known = space.n_teachers, space.mask
    decided = np.full((N, len(logits)), -1)
    for i in range(N):
        block = logits[:, space.block(i)]
        answered = ~np.isnan(block[:, 0])
        decided[i, answered] = space.columns[space.block(i)][block[answered].argmax(axis=1)]
    answers = decided >= 0
    n_shared = known.T.astype(np.intp) @ known.astype(np.intp)
    share, n_rows = np.full((N, N), np.nan), np.zeros((N, N), dtype=np.intp)
    for i in range(N):
        for j in range(i + 1, N):
            both = answers[i] & answers[j] & known[decided[i], j] & known[decided[j], i]
            n_rows[i, j] = n_rows[j, i] = both.sum()
            if n_shared[i, j] >= 2 and both.any():
                share[i, j] = share[j, i] = (decided[i] == decided[j])[both].mean()
    return TeacherAgreement(share, n_rows, n_shared)

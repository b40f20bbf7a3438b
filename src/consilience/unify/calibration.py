"""Calibrate teachers against each other: a temperature for each, from rows without labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._progress import Progress, silent
from consilience._validation import check_count, check_packed_logits
from consilience.exceptions import ConvergenceWarning, CoverageWarning
from consilience.kernels.unify.temperature import fit_temperature, is_at_bound
from consilience.labels import LabelSpace, connected_classes, shorten
from consilience.unify.soft_labels import estimate_soft_labels

__all__ = ["agreement_temperatures", "divide_by_temperatures"]

Floats = NDArray[np.float64]

# How sure every teacher is of its decisions, on average, for the first soft labels.
SURE = 0.9
# Weight of the row in which every class is as right: Laplace's rule, see `fit_temperature`.
PRIOR = 1.0
# Margins of less than this are ties, but for rounding.
TIE = 1e-9
# A teacher that can be compared with the others on less than so many rows keeps its own temperature.
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

    A teacher that is surer than it is often right outvotes the others where it is wrong. No label is needed
    to see that: where the others decide for one of its classes, a calibrated teacher has given that class the
    probability with which they do so. With p_i = softmax(z_i / T_i) over its K_i classes, T_i maximises, over
    rows r,

        sum_r m_r log(c_r p_i(y_r) + (1 - c_r) / K_i) + one row's worth of sum_k log p_i(k) / K_i

    where y_r is the class that the others' soft labels (`estimate_soft_labels` with ``"ce"`` and `off_set`,
    at their present temperatures) make most probable, c_r its probability there, m_r how much more probable
    it is than the second (so that ties decide nothing), and rows count whose y_r is a class of teacher i, if
    the others that speak there know two classes at least: with one alone they decide nothing. The others
    may be wrong: with probability 1 - c_r, and then y_r may be any class. The last term is
    Laplace's rule: right n times out of n is not never wrong.

    For the first soft labels each teacher is made as sure of its decisions as the others, 90 % on average.
    Each round then takes one EM step for all temperatures (rows weigh m_r times the probability, by p_i as it
    is, that y_r is right), and makes soft labels anew.

    Decisions, not soft labels, are what a teacher is compared to: soft labels of teachers that are all unsure
    agree best, and the temperatures would grow without end.

    Parameters
    ----------
    logits : (n, m) array
        Packed logits, teacher after teacher. A teacher that abstains on a row has NaN in its whole block.
    space : LabelSpace
        Where each teacher's columns lie.
    rounds : int
        How often all temperatures are estimated.
    max_rows : int
        Of more rows than this on which two teachers speak, evenly spaced ones are used.
    progress : callable
        Called with ("calibration", estimates done, estimates in all).

    Returns
    -------
    (N,) array
        T_i, by which teacher i's logits are to be divided. It does not depend on the order of teachers, and
        a teacher whose logits are multiplied by a factor has its T_i multiplied by it. 1 for a teacher whose
        rows that can be compared with the others weigh less than ten, or whose logits never differ.

    Warns
    -----
    CoverageWarning
        With the names of teachers that could not be compared.
    ConvergenceWarning
        With those of teachers whose temperature is as high (or low) as it may be: one that is right no more
        often than by chance, as far as the others know, is muted.

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
    rows = np.flatnonzero((~np.isnan(packed[:, space.offsets[:-1]])).sum(axis=1) >= 2)  # others tell nothing
    if len(rows) > max_rows:
        rows = rows[np.linspace(0, len(rows) - 1, max_rows).astype(np.intp)]
    packed = packed[rows]
    active = ~np.isnan(packed[:, space.offsets[:-1]])
    start = temperatures = _equally_sure(packed, active, space)
    for done in range(rounds):
        present = divide_by_temperatures(packed, temperatures, space)
        found = []
        for i in range(space.n_teachers):
            found.append(_estimate(i, packed, present, active, space))
            progress("calibration", done * space.n_teachers + i + 1, rounds * space.n_teachers)
        estimates = np.array([estimate.temperature for estimate in found])
        temperatures = np.where(np.isfinite(estimates), estimates, start)
    _warn(found, space.names)
    return np.where(np.isfinite(estimates), estimates, 1.0)


class _Estimate(NamedTuple):
    """The temperature of one teacher in one round."""

    temperature: float  # infinite where none matters, NaN with too few rows
    weight: float  # of the rows that tell it, in all
    at_bound: bool = False


def _warn(estimates: Sequence[_Estimate], names: Sequence[str]) -> None:
    """Say which teachers could not be compared, and whose temperature is at its bound."""
    named = list(zip(names, estimates, strict=True))
    left = [f"{name} ({found.weight:.3g})" for name, found in named if np.isnan(found.temperature)]
    if left:
        warnings.warn(
            f"Calibration by agreement left {shorten(left)} at temperature 1: in brackets, what the rows "
            f"weigh on which the others decide for a class that it knows, sure ones more; {LEAST_ROWS:g} is "
            "the least. Give more rows, or teachers that share more classes.",
            CoverageWarning,
            stacklevel=3,
        )
    extreme = [f"{name} ({found.temperature:.4g})" for name, found in named if found.at_bound]
    if extreme:
        warnings.warn(
            f"Calibration by agreement found temperatures at their bound, of {shorten(extreme)}: the others "
            "agree with such a teacher no more often than by chance, or always. Look at what it says, and at "
            "the names of its classes.",
            ConvergenceWarning,
            stacklevel=3,
        )


def divide_by_temperatures(logits: Floats, temperatures: Floats, space: LabelSpace) -> Floats:
    """Return packed logits (n, m) with each teacher's divided by its temperature (N,)."""
    divided: Floats = logits / np.repeat(temperatures, np.diff(space.offsets))
    return divided


def _equally_sure(packed: Floats, active: NDArray[np.bool_], space: LabelSpace) -> Floats:
    """Return the temperatures (N,) at which every teacher is about as sure of its decisions: `SURE`."""
    temperatures = np.ones(space.n_teachers)
    for i in range(space.n_teachers):
        block = packed[active[:, i], space.block(i)]
        if len(block):
            # as if its decision were right in that many rows, and any class in the others
            prior = len(block) * (1 - SURE) / SURE
            T = fit_temperature(block, block.argmax(axis=1), np.ones(len(block)), prior)
            temperatures[i] = T if np.isfinite(T) else 1.0
    return temperatures


def _estimate(
    i: int, packed: Floats, present: Floats, active: NDArray[np.bool_], space: LabelSpace
) -> _Estimate:
    """Return the temperature of teacher i, where the others have the present ones."""
    others = np.arange(space.n_teachers) != i
    heard = active[:, i] & active[:, others].any(axis=1)
    if not heard.any():
        return _Estimate(np.nan, 0.0)
    masked = present[heard]
    masked[:, space.block(i)] = np.nan
    Q = estimate_soft_labels(masked, space, "ce", temperature=1.0, off_set=True)
    # a class that none of the others knows has a share of the mass, and nobody's vote; so have other groups
    known = active[heard].astype(np.float32) @ (space.mask & others).T.astype(np.float32) > 0
    group = connected_classes(space.columns, space.offsets, space.n_classes)
    columns = space.columns[space.block(i)]
    Q[~known | (group != group[columns[0]])] = 0.0
    decision = Q.argmax(axis=1)
    column = np.full(space.n_classes, -1, dtype=np.intp)
    column[columns] = np.arange(len(columns))
    weight = _margins(Q)
    told_apart = known.sum(axis=1) >= min(2, len(columns))  # else there is nothing to decide
    use = np.flatnonzero((column[decision] >= 0) & (weight > TIE) & told_apart)
    codes = column[decision[use]]
    right = Q[use, decision[use]] / Q[use].sum(axis=1)
    fits = right * softmax(present[heard][use, space.block(i)], axis=1)[np.arange(len(use)), codes]
    weight = weight[use] * fits / (fits + np.maximum(1 - right, TIE) / len(columns))
    if weight.sum() < LEAST_ROWS:
        return _Estimate(np.nan, float(weight.sum()))
    own = packed[heard][use, space.block(i)]
    T = fit_temperature(own, codes, weight, PRIOR)
    return _Estimate(T, float(weight.sum()), bool(np.isfinite(T)) and is_at_bound(own, T))


def _margins(Q: Floats) -> Floats:
    """Return by how much the largest of each row is above the second, as a part of the row's sum."""
    total = Q.sum(axis=1)
    if Q.shape[1] == 1:
        return np.asarray(total > 0, dtype=np.float64)
    largest = np.partition(Q, -2, axis=1)
    margins: Floats = np.divide(largest[:, -1] - largest[:, -2], total, out=np.zeros(len(Q)), where=total > 0)
    return margins

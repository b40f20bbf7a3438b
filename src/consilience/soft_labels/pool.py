"""The default way to soft labels: pool the ranks with the paper's two best estimates.

Ranks make teachers of different kinds comparable, and throw away how sure each teacher is. Where teachers are
alike already, that is a loss. Whether they are shows without labels: leave a teacher out, and see which of
the estimates from the others predicts its decisions. The pool weights the estimates by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.factorisation import mf_lf_logits
from consilience.kernels.unify.packed import Indices, Layout, softmax_by_component
from consilience.labels.space import connected_classes
from consilience.methods import CE
from consilience.soft_labels.solvers import SOLVERS, Groups, rank_logits, spread_out

ESTIMATES = ("ranks", "mf-lf", "ce")
"""The estimates that are pooled."""

# Rows for choosing the weights, and rows times teachers that are left out.
MOST_ROWS = 2000
MOST_SOLUTIONS = 10_000
FEWEST_ROWS = 50
# Packed logits that are solved at once, without some teacher: 32 MB.
MOST_NUMBERS = 2**22
# The weights lean towards equal ones as if by this many decisions.
PRIOR = 20.0
# Logits that differ by less, relative to their size, are ties.
TIE = 1e-9
# Precise enough to compare estimates by.
TOLERANCE = 1e-4
# The paper's temperature. The pool is never less sure than mf-lf at this temperature.
PAPER_TEMPERATURE = 3.0
# The pool is made at most 1000 times as sharp, or as flat.
LOG_SHARPEST = float(np.log(1e3))


@dataclass(frozen=True)
class Pool:
    """How the estimates are pooled.

    Attributes
    ----------
    weights : (3,) array
        The share of each of `ESTIMATES`; they sum to one.
    scales : (3, L) array
        What unified logits are multiplied by before they are added: the weights, on the scale of the ranks.
        Groups of classes that share no teacher have scales of their own.
    sharpness : float
        What their sum is multiplied by.
    """

    weights: Floats
    scales: Floats
    sharpness: float = 1.0

    def logits(self, z: Floats, logits: Floats, layout: Layout, method: Any) -> Pooled:
        """Return pooled logits (k, L) from scores by rank and logits, (k, m) each."""
        estimates, groups, reached = estimate_all(z, logits, layout, method)
        return Pooled(self.add(estimates, groups), groups, reached)

    def add(self, estimates: Sequence[Floats], groups: Groups) -> Floats:
        """Return pooled logits (k, L) from the unified logits (k, L) of each estimate."""
        U = sum(scale * u for scale, u in zip(self.scales, estimates, strict=True))
        if not _is_connected(groups):
            U = _share_by_ranks(U, estimates[0], groups)
        return self.sharpness * np.asarray(U)


def _share_by_ranks(U: Floats, ranks: Floats, groups: Groups) -> Floats:
    """Return log-probabilities (k, L): U decides within each group of classes, the ranks between groups.

    Only ranks say how the mass splits between groups that share no class.
    """
    between = softmax_by_component(ranks, groups.answered_as_one, groups.pattern)
    Q = softmax_by_component(U, groups.component, groups.pattern)
    k, n_classes = Q.shape
    cell = groups.component[groups.pattern] + n_classes * np.arange(k)[:, None]  # of each row and group
    ours, theirs = (np.bincount(cell.ravel(), mass.ravel(), k * n_classes) for mass in (Q, between))
    Q *= theirs[cell] / ours[cell]
    return np.log(np.maximum(Q, np.finfo(np.float64).tiny))


class Pooled(NamedTuple):
    """Pooled logits of k rows."""

    U: Floats  # (k, L)
    groups: Groups
    reached: Floats | None  # (k,) the gradient norms of ce

    def soft_labels(self, temperature: float) -> Floats:
        """Return soft labels (k, L). A class about which nobody answers has mass 1 / L."""
        return softmax_by_component(self.U / temperature, self.groups.answered_as_one, self.groups.pattern)


def choose_pool(z: Floats, logits: Floats, layout: Layout, method: Any) -> Pool:
    """Choose how to pool the estimates for scores by rank and logits, (n, m) each.

    The weights maximise how well the teachers other than i predict the decision of teacher i among its own
    classes, over all teachers: sum over i and rows x of w_i(x) log q_-i(d_i(x) | L_i), where q_-i is the
    softmax of the weighted sum of the estimates without teacher i, d_i(x) is the class that teacher i finds
    most probable, and w_i(x) the mass that the ranks of the others give to its classes. This is concave in
    the weights. Classes count together only as far as the others connect them.

    The pool is then as sharp as the ranks alone are, on average over the rows: see `_sharpness`.
    """
    rows = spread_out(np.flatnonzero(~np.isnan(logits[:, layout.offsets[:-1]]).all(axis=1)), MOST_ROWS)
    z, logits = z[rows], logits[rows]
    method = CE(1.0, tol=TOLERANCE, max_iter=method.max_iter)
    estimates, groups, _ = estimate_all(z, logits, layout, method)
    component = _connected(layout.columns, layout.offsets, len(layout.class_offsets) - 1)
    units = np.stack([_deviations(u, groups, component) for u in estimates])
    unit = np.where(units[0] > 0, units[0], units[1] / PAPER_TEMPERATURE)  # a single row has no ranks
    scales = np.divide(unit, units, out=np.zeros(units.shape), where=units > 0)
    useful = units.max(axis=1) > 0
    weights = _agreement_weights(_decisions(z, logits, layout, method, scales), useful)
    pool = Pool(weights, weights[:, None] * scales)
    return replace(pool, sharpness=_sharpness(pool.add(estimates, groups), estimates, groups))


def estimate_all(
    z: Floats, logits: Floats, layout: Layout, method: Any
) -> tuple[list[Floats], Groups, Floats | None]:
    """Return the unified logits (k, L) of each of `ESTIMATES`, the groups, and what ce reached (k,)."""
    ranks, groups = rank_logits(z, layout)
    ce = SOLVERS["ce"].solve(logits, layout, method)
    return [ranks, mf_lf_logits(logits, layout, 1.0), ce.values], groups, ce.reached


class _Decisions(NamedTuple):
    """What one teacher decides between classes that the others know and connect."""

    estimates: Floats  # (3, number of classes, k) of the others, on a common scale
    decided: Floats  # (number of classes, k) 1 for the decision; ties share it
    weight: Floats  # (k,)

    def log_likelihood(self, weights: Floats) -> tuple[float, Floats]:
        """Return how well a pool with these weights (3,) predicts the decisions, and the gradient (3,)."""
        # rows are the last axis: numpy reduces along the first one many times as fast
        U = np.tensordot(weights, self.estimates, 1)
        U -= U.max(axis=0)
        q = np.exp(U)
        total = q.sum(axis=0)
        value = self.weight @ ((self.decided * U).sum(axis=0) - np.log(total))
        return float(value), np.tensordot(self.estimates, (self.decided - q / total) * self.weight, 2)


def _decisions(z: Floats, logits: Floats, layout: Layout, method: Any, scales: Floats) -> list[_Decisions]:
    """Leave each teacher out in turn, and set its decisions beside the others' estimates."""
    n_teachers = len(layout.offsets) - 1
    answers = ~np.isnan(logits[:, layout.offsets[:-1]])
    asked = []
    for i in range(n_teachers):
        shared = _shared_classes(i, layout, np.asarray(answers.any(axis=0)))
        rows = np.flatnonzero(answers[:, i] & np.delete(answers, i, axis=1).any(axis=1))
        rows = spread_out(rows, max(FEWEST_ROWS, MOST_SOLUTIONS // n_teachers))
        if shared and len(rows):
            asked.append(_LeftOut(i, shared, rows))
    found = []
    for part in _batches(asked, MOST_NUMBERS // logits.shape[1]):
        where = np.concatenate([one.rows for one in part])
        borders = np.cumsum([0, *(len(one.rows) for one in part)])
        other_z, other_logits = z[where], logits[where]
        for one, start, stop in zip(part, borders, borders[1:], strict=False):
            block = slice(layout.offsets[one.teacher], layout.offsets[one.teacher + 1])
            other_z[start:stop, block] = other_logits[start:stop, block] = np.nan
        estimates, groups, _ = estimate_all(other_z, other_logits, layout, method)
        for one, start, stop in zip(part, borders, borders[1:], strict=False):
            here = slice(start, stop)
            own = groups._replace(pattern=groups.pattern[here])
            scaled = np.stack([scale * u[here] for scale, u in zip(scales, estimates, strict=True)])
            found += _compare(one, logits, layout, estimates[0][here], scaled, own)
    return found


class _LeftOut(NamedTuple):
    """A teacher that is left out, the groups of its classes that others know, and rows to look at."""

    teacher: int
    shared: list[Ints]  # as positions in its block
    rows: Ints


def _batches(asked: Sequence[_LeftOut], most_rows: int) -> list[list[_LeftOut]]:
    """Divide the teachers so that each part has about this many rows, or a single teacher."""
    parts: list[list[_LeftOut]] = []
    room = 0
    for one in asked:
        if room < len(one.rows):
            parts.append([])
            room = most_rows
        parts[-1].append(one)
        room -= len(one.rows)
    return parts


def _compare(
    one: _LeftOut, logits: Floats, layout: Layout, ranks: Floats, scaled: Floats, groups: Groups
) -> list[_Decisions]:
    """Return the decisions of a teacher beside the scaled estimates (3, k, L) of the others."""
    block = slice(layout.offsets[one.teacher], layout.offsets[one.teacher + 1])
    mass = softmax_by_component(ranks, groups.answered_as_one, groups.pattern)
    found = []
    for classes in one.shared:
        names = layout.columns[block][classes]
        there = np.flatnonzero(_connects(groups, names)[groups.pattern])
        decided = _decide(logits[one.rows[there], block][:, classes])
        weight = mass[there][:, names].sum(axis=1)
        of_names = np.ascontiguousarray(scaled[:, there][:, :, names].transpose(0, 2, 1))
        found.append(_Decisions(of_names, np.ascontiguousarray(decided.T), weight))
    return found


def _connects(groups: Groups, classes: Indices) -> NDArray[np.bool_]:
    """Tell for each pattern whether the teachers that answer connect all these classes."""
    component = groups.component[:, classes]
    whole = (component == component[:, :1]).all(axis=1) & groups.answered[:, classes].all(axis=1)
    return np.asarray(whole)


def _shared_classes(i: int, layout: Layout, answers: NDArray[np.bool_]) -> list[Ints]:
    """Return the groups of classes of teacher i that others connect, as positions in its block.

    `answers` (N,) tells which teachers answer on any row.
    """
    kept = answers & (np.arange(len(answers)) != i)
    others = kept[layout.block_of]
    own = layout.columns[layout.offsets[i] : layout.offsets[i + 1]]
    known = np.isin(own, layout.columns[others])
    borders = np.concatenate([[0], np.cumsum(np.diff(layout.offsets)[kept])]).astype(np.intp)
    component = _connected(layout.columns[others], borders, len(layout.class_offsets) - 1)[own]
    groups = [np.flatnonzero(known & (component == group)) for group in np.unique(component[known])]
    return [group for group in groups if len(group) > 1]  # with one class there is nothing to decide


def _decide(logits: Floats) -> Floats:
    """Return 1 for the largest logit of each row (k, c); those that differ by rounding only share it."""
    top = logits.max(axis=1, keepdims=True)
    largest: Floats = (logits >= top - TIE * np.maximum(np.abs(top), 1.0)).astype(np.float64)
    return np.asarray(largest / largest.sum(axis=1, keepdims=True))


def _agreement_weights(decisions: Sequence[_Decisions], useful: NDArray[np.bool_]) -> Floats:
    """Return the weights (3,) of the estimates, by how well they predict the decisions."""
    start = useful.astype(np.float64)
    if not useful.any():
        return np.full(len(useful), 1.0 / len(useful))
    total = sum(float(d.weight.sum()) for d in decisions)
    if total > 0:

        def loss(weights: Floats) -> tuple[float, Floats]:
            centred = (weights - weights[useful].mean()) * useful
            value, slope = PRIOR * float(centred @ centred), 2 * PRIOR * centred
            for decision in decisions:
                likelihood, gradient = decision.log_likelihood(weights)
                value, slope = value - likelihood, slope - gradient
            return value / total, slope / total

        bounds = [(0.0, None if used else 0.0) for used in useful]
        found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
        if found.sum() > 0:
            start = found
    weights: Floats = start / start.sum()
    return weights


def _deviations(U: Floats, groups: Groups, component: Ints) -> Floats:
    """Return the root mean square (L,) of logits (k, L) about their mean over a group in a row.

    Groups are those that the teachers who answer connect. Classes of a component, which all teachers connect,
    have one figure.
    """
    largest = float(np.abs(U).max(initial=0.0)) or 1.0  # squares of huge logits overflow
    squares, counts = np.zeros(U.shape[1]), np.zeros(U.shape[1])
    for i, (ids, answered) in enumerate(zip(groups.component, groups.answered, strict=True)):
        rows = U[groups.pattern == i] / largest
        member = ((ids[:, None] == np.unique(ids)) & answered[:, None]).astype(np.float64)
        means = rows @ (member / np.maximum(member.sum(axis=0), 1.0))
        squares += answered * ((rows - means @ member.T) ** 2).sum(axis=0)
        counts += answered * len(rows)
    square, count = np.bincount(component, squares), np.bincount(component, counts)
    deviations = np.sqrt(square / np.maximum(count, 1.0))[component]
    # what is left of rounding says nothing
    return np.where(deviations > 1e-12, deviations * largest, 0.0)


def _sharpness(U: Floats, estimates: Sequence[Floats], groups: Groups) -> float:
    """Return what to multiply pooled logits U (k, L) by, so that they are as sure as the ranks on average.

    With few rows ranks say little. So the pool is never less sure than mf-lf at the paper's temperature.
    """
    whole = groups.answered_as_one

    def certainty(U: Floats, component: Ints) -> float:
        return float(softmax_by_component(U, component, groups.pattern).max(axis=1).mean())

    goal = certainty(estimates[0], whole)
    goal = max(goal, certainty(estimates[1] / PAPER_TEMPERATURE, groups.component))

    def missing(log_sharpness: float) -> float:
        return goal - certainty(np.exp(log_sharpness) * U, whole)

    if missing(-LOG_SHARPEST) <= 0.0:
        return float(np.exp(-LOG_SHARPEST))
    if missing(LOG_SHARPEST) >= 0.0:
        return float(np.exp(LOG_SHARPEST))
    return float(np.exp(brentq(missing, -LOG_SHARPEST, LOG_SHARPEST, xtol=1e-9)))


def _connected(columns: Indices, offsets: Ints, n_classes: int) -> Ints:
    return connected_classes(columns.astype(np.intp), offsets, n_classes)


def _is_connected(groups: Groups) -> bool:
    """Tell whether the classes that are answered are one group in every row."""
    first = groups.answered.argmax(axis=1)[:, None]
    same = groups.component == np.take_along_axis(groups.component, first, axis=1)
    return bool((same | ~groups.answered).all())

"""How methods are solved: the paper's row by row, and ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats, Ints
from consilience.kernels.unify.cross_entropy import ce_logits
from consilience.kernels.unify.factorisation import (
    abstention_patterns,
    mf_lf_logits,
    mf_lv_logits,
    mf_p_probabilities,
)
from consilience.kernels.unify.off_set import off_set_logits
from consilience.kernels.unify.packed import Layout, sd, softmax_by_component
from consilience.kernels.unify.ranks import add_smallest_shifts
from consilience.labels.space import connected_by_pattern
from consilience.methods import Method


class Solution(NamedTuple):
    """What a solver finds for k rows."""

    values: Floats  # (k, L) unified logits, or probabilities: see `Solver.gives`
    reached: Floats | None = None  # (k,) what the stopping rule compares with tol; None from a closed form


@dataclass(frozen=True)
class Solver:
    """How a method is solved."""

    solve: Callable[[Floats, Layout, Any], Solution]  # the last one is the method
    reached: str = ""  # what `Solution.reached` measures, for the warning
    gives: Literal["logits", "probabilities"] = "logits"
    adds_logits: bool = False  # if so, they must not be too large


def _solve_sd(logits: Floats, layout: Layout, o: Any) -> Solution:
    return Solution(sd(logits, layout, o.temperature))


def _solve_ce(logits: Floats, layout: Layout, o: Any) -> Solution:
    if o.off_set:
        return Solution(off_set_logits(logits, layout, o.temperature))
    U, norms, _ = ce_logits(logits, layout, o.temperature, o.tol, o.max_iter)
    return Solution(U, norms)


def _solve_mf_p(logits: Floats, layout: Layout, o: Any) -> Solution:
    u, _, changes, _ = mf_p_probabilities(logits, layout, o.temperature, o.tol, o.max_iter)
    with np.errstate(divide="ignore"):
        return Solution(np.log(u), changes)


def _solve_mf_lv(logits: Floats, layout: Layout, o: Any) -> Solution:
    U, _, changes, _ = mf_lv_logits(logits, layout, o.temperature, o.ridge, o.tol, o.max_iter)
    return Solution(U, changes)


def _solve_mf_lf(logits: Floats, layout: Layout, o: Any) -> Solution:
    return Solution(mf_lf_logits(logits, layout, o.temperature))


SOLVERS: dict[str, Solver] = {
    "sd": Solver(_solve_sd, gives="probabilities"),
    "ce": Solver(_solve_ce, "gradient norm", adds_logits=True),
    "mf-p": Solver(_solve_mf_p, "change per iteration"),
    "mf-lv": Solver(_solve_mf_lv, "change per iteration", adds_logits=True),
    "mf-lf": Solver(_solve_mf_lf, adds_logits=True),
}
"""Every method of the paper by its name. A new one is a kernel and a line here."""


def estimate_rows(logits: Floats, layout: Layout, method: Method) -> tuple[Floats, Floats | None]:
    """Return soft labels (k, L), and what the stopping rule reached (k,)."""
    solver = SOLVERS[method.name]
    solution = solver.solve(logits, layout, method)
    if solver.gives == "probabilities":
        return solution.values, solution.reached
    groups = find_groups(logits, layout)
    return softmax_by_component(solution.values, groups.component, groups.pattern), solution.reached


class Groups(NamedTuple):
    """Which classes the teachers that answer connect, for each pattern of abstentions."""

    component: Ints  # (number of patterns, L): the component of each class
    pattern: Ints  # (k,): the pattern of each row
    answered: NDArray[np.bool_]  # (number of patterns, L): whether a teacher that knows the class answers

    @property
    def answered_as_one(self) -> Ints:
        """The components if all classes that are answered were one. The others stay by themselves."""
        first = self.answered.argmax(axis=1)
        ids: Ints = np.where(self.answered, first[:, None], np.arange(self.answered.shape[1]))
        return ids


def find_groups(logits: Floats, layout: Layout) -> Groups:
    """Find the groups of classes for packed logits (k, m)."""
    n_classes = len(layout.class_offsets) - 1
    patterns, of_row = abstention_patterns(logits, layout.offsets)
    component = connected_by_pattern(layout.columns, layout.offsets, n_classes, patterns)
    answered = np.zeros((len(patterns), n_classes), dtype=bool)
    which, column = np.nonzero(patterns[:, layout.block_of])
    answered[which, layout.columns[column]] = True
    return Groups(component, of_row, answered)


def rank_logits(z: Floats, layout: Layout) -> tuple[Floats, Groups]:
    """Return unified logits (k, L) of scores by rank, and which classes are connected.

    They minimise the sum of (u_l + c_i - z_il)^2, as in mf-lf. Where teachers fall into groups that share no
    class, the shifts c are the smallest possible. So groups are compared through their ranks.

    Parameters
    ----------
    z : (k, m) array
        What `rank_scores` returns.
    layout : Layout
    """
    U, groups = mf_lf_logits(z, layout, 1.0), find_groups(z, layout)
    add_smallest_shifts(z, layout, groups.component, groups.pattern, U)
    return U, groups


def estimate_by_ranks(z: Floats, layout: Layout, temperature: float) -> Floats:
    """Return soft labels (k, L). A class about which nobody answers has mass 1 / L, as everywhere."""
    U, groups = rank_logits(z, layout)
    return softmax_by_component(U / temperature, groups.answered_as_one, groups.pattern)


def spread_out(rows: Ints, most: int) -> Ints:
    """Return at most this many of the rows, evenly spaced."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]

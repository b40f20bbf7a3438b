"""Soft labels from ranks: how high a row ranks in a teacher's column, instead of the teacher's score."""

from __future__ import annotations

from consilience.kernels.arrays import Floats
from consilience.kernels.unify.factorisation import mf_lf_logits
from consilience.kernels.unify.packed import Layout, softmax_by_component
from consilience.kernels.unify.ranks import add_smallest_shifts
from consilience.soft_labels.methods import Groups, find_groups


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

"""Off-set weighting: ce with each teacher weighted, row by row, by the estimated mass of its own classes.

Eq. (9) with a weight w_i for each teacher is stationary where, for every class l,

    sum over the i that know l of w_i (q(l) / q(L_i) - p_i(l)) = 0.

With w_i = q(L_i) this is linear in q. If N_l teachers know class l, then

    N_l q(l) = sum over the i that know l of q(L_i) p_i(l).

So w is the stationary distribution of a Markov chain on teachers. From teacher i, draw a class l from p_i,
then go to one of the N_l teachers that know l, all equally likely. And q(l) is proportional to
sum_i w_i p_i(l) / N_l. The chain is an N x N matrix per row. Eliminating teachers one by one (Grassmann,
Taksar and Heyman) gives its stationary distribution without subtraction or iteration, with every entry to
full relative accuracy.

The cost of a row is cubic in the number of teachers: elimination takes up to N^3 / 3 multiplications. That is
0.3 million a row for 100 teachers, and 0.3 billion for 1,000. `cross_entropy` avoids the cube by conjugate
gradients; this method does not.
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel, part
from consilience.kernels.elementary import FUSE, exp
from consilience.kernels.unify.packed import Layout, in_turns

# The smallest log p relative to the largest of its block. A class with less mass than exp(-100) does not
# affect any probability, but the chain can still return through it.
_FLOOR = -100.0
# The smallest probability of a transition that elimination may leave between two teachers.
_LEAST_TRANSITION = 1e-300


def off_set_logits(logits: Floats, layout: Layout, temperature: float) -> Floats:
    """Return unified logits (n, L): log q up to a shift for each component of the classes of a row.

    Parameters
    ----------
    logits : (n, m) array
        Packed teacher logits; NaN where a teacher abstains.
    layout : Layout
    temperature : float
    """
    U = np.empty((len(logits), len(layout.class_offsets) - 1))
    in_turns(lambda rows: _off_set_rows(logits[rows], layout, temperature, U[rows]), len(logits))
    return U


@kernel(fastmath=FUSE)
def _off_set_rows(logits, layout, temperature, U):  # type: ignore[no-untyped-def]
    """Fill U (n, L) with what `off_set_logits` returns."""
    N = len(layout.offsets) - 1
    p, known = np.empty(logits.shape[1]), np.empty(U.shape[1])
    transitions, mass = np.empty((N, N)), np.empty(N)
    for row in range(len(U)):
        _read_row(logits[row], layout, temperature, p, known)
        transitions[:] = 0.0
        for c in range(U.shape[1]):
            columns = layout.by_class[layout.class_offsets[c] : layout.class_offsets[c + 1]]
            for one in columns:
                for other in columns:
                    if p[one] > 0.0 and p[other] > 0.0:
                        transitions[layout.block_of[one], layout.block_of[other]] += p[one] / known[c]
        stationary(transitions, mass)
        for c in range(U.shape[1]):
            total = 0.0
            for column in layout.by_class[layout.class_offsets[c] : layout.class_offsets[c + 1]]:
                total += mass[layout.block_of[column]] * p[column]
            # no active teacher knows this class, so its logit is arbitrary
            U[row, c] = np.log(total / known[c]) if known[c] > 0.0 else 0.0


@part(fastmath=FUSE)
def _read_row(logits, layout, temperature, p, known):  # type: ignore[no-untyped-def]
    """Fill p (m,) with the teachers' probabilities (0 if a teacher abstains), and known (L,) with N_l."""
    known[:] = 0.0
    for b in range(len(layout.offsets) - 1):
        start, stop = layout.offsets[b], layout.offsets[b + 1]
        top, total = -np.inf, 0.0
        for k in range(start, stop):
            top = max(top, logits[k])
        for k in range(start, stop):
            # difference first: logits as large as 1e308 stay finite
            p[k] = exp(max((logits[k] - top) / temperature, _FLOOR))
            total += p[k]
        abstains = np.isnan(logits[start])
        for k in range(start, stop):
            p[k] = 0.0 if abstains else p[k] / total
            known[layout.columns[k]] += 0.0 if abstains else 1.0


@part(fastmath=FUSE)
def stationary(transitions: Floats, mass: Floats) -> None:
    """Fill mass (N,) with the stationary distribution of a Markov chain, up to a factor per closed group.

    Parameters
    ----------
    transitions : (N, N) array
        Entry (i, j) is proportional to the probability of a transition from i to j. The diagonal is ignored.
        If i can go to j, then j can go to i. Overwritten.
    mass : (N,) array
    """
    N = len(mass)
    for k in range(N - 1, 0, -1):
        leave = 0.0
        for j in range(k):
            leave += transitions[k, j]
        if leave == 0.0:
            continue
        for j in range(k):
            transitions[k, j] /= leave
        for i in range(k):
            through = transitions[i, k]
            transitions[i, k] /= leave
            if through > 0.0:
                for j in range(k):
                    # without a branch: the compiler makes vector instructions of it
                    ahead = max(through * transitions[k, j], _LEAST_TRANSITION)
                    transitions[i, j] += ahead if transitions[k, j] > 0.0 else 0.0
    for k in range(N):
        mass[k], alone = 0.0, True
        for i in range(k):
            alone = alone and transitions[i, k] == 0.0
            mass[k] += mass[i] * transitions[i, k]
        # the first node of its group: no earlier node leads to it
        mass[k] = 1.0 if alone else mass[k]
        if mass[k] > 1.0:
            for i in range(k):
                mass[i] /= mass[k]
            mass[k] = 1.0

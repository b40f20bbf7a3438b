r"""Train a softmax layer on the sum of embeddings, on soft labels.

Legend: B texts of a batch, L classes, d dimensions, E (n_buckets, d) embeddings, W (d, L) and b (L,) the last
layer, h (B, d) what enters it, T (B, L) targets: soft labels times the weights of class and row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.bags import bag_inputs, bag_scales
from consilience.kernels.ngrams import Bounds, Ids

Array = NDArray[np.float32]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Gradient(NamedTuple):
    """The loss of a batch, summed over its rows, and its gradient."""

    loss: float
    h: Array  # (B, d)
    W: Array  # (d, L)
    b: Array  # (L,)


def batch_gradient(h: Array, W: Array, b: Array, target: Array, collision: bool) -> Gradient:
    r"""Return the loss and its gradient by everything that depends on the batch.

    .. math:: - \sum_{ik} t_{ik} \ln p_{ik}, \qquad p_i = \sigma(h_i W + b)

    or, with `collision`, :math:`-\sum_i m_i \ln \sum_k t_{ik} p_{ik} / m_i` with :math:`m_i = \sum_k t_{ik}`,
    of which the gradient is that of the first with t replaced by m r, r the responsibilities.
    """
    z = h @ W
    z += b
    z -= z.max(axis=1, keepdims=True)
    p = np.exp(z)
    total = p.sum(axis=1, keepdims=True)
    p /= total
    mass = target.sum(axis=1, keepdims=True)
    tiny = np.finfo(np.float32).tiny
    if collision:
        joint = target * p
        hit = np.maximum(joint.sum(axis=1, keepdims=True), tiny)
        loss = -float((mass * np.log(hit / np.maximum(mass, tiny))).sum())
        target = joint * (mass / hit)
    else:
        loss = -float((target * (z - np.log(total))).sum())
    g = p * mass
    g -= target
    return Gradient(loss, g @ W.T, h.T @ g, g.sum(axis=0))


class Adam:
    """Adam [Kingma and Ba 2015] for an embedding bag; rows of E that a batch lacks stay as they are."""

    def __init__(self, E: Array, W: Array, b: Array) -> None:
        self.E, self.W, self.b = E, W, b
        self._moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (E, W, b)]
        self._slots = np.full(len(E), -1, dtype=np.int32)
        self._step = 0

    def step(self, ids: Ids, bounds: Bounds, target: Array, lr: float, collision: bool) -> float:
        """Descend on one batch, by the mean over its rows; return its loss, summed over rows."""
        self._step += 1
        h = bag_inputs(self.E, ids, bounds)
        found = batch_gradient(h, self.W, self.b, target, collision)
        rate = lr * np.sqrt(1 - BETA2**self._step) / (1 - BETA1**self._step)
        part = np.float32(1 / len(target))
        for x, g, (m, v) in zip(
            (self.W, self.b), (found.W * part, found.b * part), self._moments[1:], strict=True
        ):
            m += (1 - BETA1) * (g - m)
            v += (1 - BETA2) * (g * g - v)
            x -= rate * m / (np.sqrt(v) + EPSILON)
        each = found.h * (bag_scales(bounds) * part)[:, None]
        m, v = self._moments[0]
        sums = np.zeros((min(len(ids), len(self.E)), self.E.shape[1]), np.float32)
        used = scatter(ids, bounds, each, self._slots, sums)
        adam_rows(self.E, m, v, used, sums, np.float32(rate))
        return found.loss


@njit(cache=True, nogil=True, error_model="numpy")
def scatter(ids, bounds, each, slots, sums):  # type: ignore[no-untyped-def]
    """Add each text's row of `each` (B, d) to `sums` for each of its n-grams; return whose sums these are.

    `slots` (n_buckets,) is -1 before and after.
    """
    used = np.empty(len(sums), np.int32)
    count = 0
    for i in range(len(bounds) - 1):
        for j in range(bounds[i], bounds[i + 1]):
            k = ids[j]
            s = slots[k]
            if s < 0:
                s = count
                slots[k] = s
                used[s] = k
                count += 1
            for a in range(each.shape[1]):
                sums[s, a] += each[i, a]
    for s in range(count):
        slots[used[s]] = -1
    return used[:count]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def adam_rows(E, m, v, used, sums, rate):  # type: ignore[no-untyped-def]
    """Step the rows of E that are in use."""
    b1, b2, eps = np.float32(1 - BETA1), np.float32(1 - BETA2), np.float32(EPSILON)
    for s in range(len(used)):
        k = used[s]
        for a in range(E.shape[1]):
            g = sums[s, a]
            m[k, a] += b1 * (g - m[k, a])
            v[k, a] += b2 * (g * g - v[k, a])
            E[k, a] -= rate * m[k, a] / (np.sqrt(v[k, a]) + eps)

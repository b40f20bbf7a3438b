"""Train n-gram embeddings, and a softmax layer on top of their sums, on soft labels.

Legend: B texts of a batch, L classes, d dimensions, E (n_buckets, d) embeddings, W (d, L) and b (L,) the last
layer, h (B, d) its input, t (B, L) targets: soft labels times the weights of class and row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.compiled import kernel
from consilience.kernels.ngrams import Bounds, Ids, bag_inputs, bag_scales

Array = NDArray[np.float32]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def batch_gradient(
    h: Array, W: Array, b: Array, target: Array, collision: bool
) -> tuple[float, Array, Array, Array]:
    r"""Return the loss of a batch, summed over its rows, and its gradient by h, W and b.

    .. math:: - \sum_{ik} t_{ik} \ln p_{ik}, \qquad p_i = \sigma(h_i W + b)

    With `collision` the loss is :math:`-\sum_i m_i \ln (\sum_k t_{ik} p_{ik} / m_i)`, where the row's mass
    is :math:`m_i = \sum_k t_{ik}`.
    The gradient by the logits is :math:`m_i p_i - t_i`. With `collision` it is :math:`m_i (p_i - r_i)`, where
    the responsibilities :math:`r_{ik}` are proportional to :math:`t_{ik} p_{ik}`.
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
    return loss, g @ W.T, h.T @ g, g.sum(axis=0)


class Descent:
    """Gradient steps on batches; E, W and b change in place.

    W and b take the steps of Adam [Kingma and Ba 2015]. A row of E has no first moment, and one second moment
    for all of its entries. This takes a third of Adam's memory and half its time, and learns as well. Rows
    that do not occur in a batch stay as they are, moments included.
    """

    def __init__(self, E: Array, W: Array, b: Array) -> None:
        self.E, self.W, self.b = E, W, b
        self._squares = np.zeros(len(E), dtype=np.float32)
        self._moments = [(np.zeros_like(x), np.zeros_like(x)) for x in (W, b)]
        self._slots = np.full(len(E), -1, dtype=np.int32)
        self._step = 0

    def step(self, ids: Ids, bounds: Bounds, target: Array, lr: float, collision: bool) -> float:
        """Take one step down the mean gradient of a batch; return its loss, summed over rows."""
        self._step += 1
        h = bag_inputs(self.E, ids, bounds)
        loss, by_h, by_W, by_b = batch_gradient(h, self.W, self.b, target, collision)
        part = np.float32(1 / len(target))
        rate = np.float32(lr * np.sqrt(1 - BETA2**self._step) / (1 - BETA1**self._step))
        for x, g, (m, v) in zip((self.W, self.b), (by_W * part, by_b * part), self._moments, strict=True):
            m += np.float32(1 - BETA1) * (g - m)
            v += np.float32(1 - BETA2) * (g * g - v)
            x -= rate * m / (np.sqrt(v) + np.float32(EPSILON))
        each = by_h * (bag_scales(bounds) * part)[:, None]
        sums = np.zeros((min(len(ids), len(self.E)), self.E.shape[1]), dtype=self.E.dtype)
        used = scatter(ids, bounds, each, self._slots, sums)
        step_rows(self.E, self._squares, used, sums, rate)
        return loss


@kernel()
def scatter(ids, bounds, each, slots, sums):  # type: ignore[no-untyped-def]
    """Add each text's row of `each` (B, d) to `sums` for each of its n-grams; return the bucket of each sum.

    `slots` (n_buckets,) is -1 before and after. `sums` has a row of zeros for every bucket that may occur.
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


@kernel(fastmath={"contract", "reassoc"})
def step_rows(E, squares, used, sums, rate):  # type: ignore[no-untyped-def]
    """Step the used rows of E: each by its gradient over the root of its mean square so far."""
    d = E.shape[1]
    for s in range(len(used)):
        k = used[s]
        total = np.float32(0.0)
        for a in range(d):
            total += sums[s, a] * sums[s, a]
        squares[k] += np.float32(1 - BETA2) * (total / np.float32(d) - squares[k])
        factor = rate / (np.sqrt(squares[k]) + np.float32(EPSILON))
        for a in range(d):
            E[k, a] -= factor * sums[s, a]

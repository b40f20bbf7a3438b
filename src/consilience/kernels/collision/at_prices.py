"""Fair labels of single rows, at given prices of the classes.

Fair pseudo-labels couple rows only through the column means: at the optimum, the label y of a row minimises

    -log(sigma . y) + nu . y    over the simplex,

with prices nu_k = -lam u_k / (mean label of k). So prices that were found from some rows label any others.
"""

from __future__ import annotations

import numpy as np

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel
from consilience.kernels.unify.packed import in_turns


def fair_prices(labels: Floats, prior: Floats, lam: float) -> Floats:
    """Return the prices (K,) at which labels (M, K) are fair: those of classes without a share are 0."""
    mean = labels.mean(axis=0)
    return np.asarray(-lam * np.divide(prior, mean, out=np.zeros_like(mean), where=mean > 0))


def labels_at_prices(sigma: Floats, prices: Floats) -> Floats:
    """Return the labels (n, K) of rows with predictions sigma (n, K) at prices (K,).

    With s = 1 / (sigma . y), the dual of a row is max over s of min_k (nu_k - s sigma_k) + log s. It is found
    by cutting planes: of all lines, only the two that meet at the optimum matter, and these are the support.
    """
    labels = np.zeros(sigma.shape)
    in_turns(lambda rows: _label_rows(sigma[rows], prices, labels[rows]), len(sigma))
    return labels


@kernel()
def _label_rows(sigma, prices, labels):  # type: ignore[no-untyped-def]
    """Fill labels (n, K), which are zero, as in `labels_at_prices`."""
    n, K = sigma.shape
    for row in range(n):
        b = 0  # the line that is lowest for large s
        for k in range(1, K):
            if sigma[row, k] > sigma[row, b] or (sigma[row, k] == sigma[row, b] and prices[k] < prices[b]):
                b = k
        if sigma[row, b] <= 0.0:  # no class has mass: the cheapest
            labels[row, np.argmin(prices)] = 1.0
            continue
        s = 1.0 / sigma[row, b]
        a, share = b, 1.0  # the support is a and b, and b has this share
        for _ in range(K + 1):
            lowest, value = b, prices[b] - s * sigma[row, b]
            for k in range(K):
                if prices[k] - s * sigma[row, k] < value - 1e-12 * (1.0 + abs(value)):
                    lowest, value = k, prices[k] - s * sigma[row, k]
            if lowest in (a, b):
                break
            if sigma[row, lowest] * s < 1.0:
                a = lowest
            else:
                b = lowest
            if a == b:
                s, share = 1.0 / sigma[row, b], 1.0
                continue
            meet = (prices[b] - prices[a]) / (sigma[row, b] - sigma[row, a])  # below it, a is lower than b
            if sigma[row, b] * meet <= 1.0:
                s, share = 1.0 / sigma[row, b], 1.0
            elif sigma[row, a] * meet >= 1.0:
                s, share = 1.0 / sigma[row, a], 0.0
            else:
                s = meet
                share = (1.0 / meet - sigma[row, a]) / (sigma[row, b] - sigma[row, a])
        labels[row, a] += 1.0 - share
        labels[row, b] += share

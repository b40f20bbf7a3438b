"""Clustering losses that need no labels: mutual information (MI, IMSAT) and invariant information (IIC).

Legend: S (n, K) predictions sigma; A (n, K) predictions of other views of the same rows, such as means over
neighbours; u the prior. Each function returns the loss and its gradient by the predictions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import kernel

_TINY = 1e-300


def mutual_information(S: Floats, prior: Floats, lam: float) -> tuple[float, Floats]:
    r"""Return the entropy of rows and, weighted, the unfairness of their mean, with the gradient by S.

    .. math:: \overline{H(\sigma)} + \lambda\, KL(\bar\sigma \| u)

    For lambda = 1 and a uniform prior this is eq. (1), the negative mutual information, plus ln K.
    """
    mean = np.einsum("ij->j", S) / len(S)
    log_S, log_mean = np.log(np.maximum(S, _TINY)), np.log(np.maximum(mean, _TINY) / prior)
    value = lam * float(mean @ log_mean) - float(np.vdot(S, log_S)) / len(S)
    log_S *= -1.0 / len(S)
    log_S += (lam * (log_mean + 1.0) - 1.0) / len(S)
    return value, log_S


def invariant_information(S: Floats, A: Floats, lam: float) -> tuple[float, Floats, Floats]:
    r"""Return the negative mutual information between two views' classes, with the gradients by S and by A.

    .. math:: P = \tfrac{1}{2n} \sum_i (\sigma_i a_i^\top + a_i \sigma_i^\top), \qquad
              -\sum_{kl} P_{kl} \big( \ln P_{kl} - \lambda \ln P_{k \cdot} - \lambda \ln P_{\cdot l} \big)

    (Ji, Henriques and Vedaldi, 2019; lambda > 1 asks for equal shares more strongly.)
    """
    joint = S.T @ A / len(S)
    P = np.maximum((joint + joint.T) / 2, _TINY)
    share = P.sum(axis=0)
    log_P, log_share = np.log(P), np.log(share)
    value = -float((P * (log_P - lam * (log_share[:, None] + log_share))).sum())
    # d/dP_kl, each marginal depending on a whole row or column of P
    slope = -(log_P + 1.0) + lam * (log_share[:, None] + log_share + 2.0)
    return value, A @ slope / len(S), S @ slope / len(S)


def softmax_rows(logits: NDArray[Any]) -> Floats:
    """Return the softmax of each row (n, K) in double precision; numpy is slow at maxima of short rows."""
    out: Floats = _below_top(logits)
    np.exp(out, out=out)
    out /= np.einsum("ij->i", out)[:, None]
    return out


def through_softmax(S: Floats, gradient: Floats) -> Floats:
    """Return the gradient by the logits from that by the predictions S = softmax(logits)."""
    out: Floats = S * (gradient - np.einsum("ij,ij->i", S, gradient)[:, None])
    return out


@kernel()
def _below_top(logits):  # type: ignore[no-untyped-def]
    """Return the logits less the largest of their row."""
    out = np.empty(logits.shape)
    for i in range(len(logits)):
        top = logits[i, 0]
        for k in range(1, logits.shape[1]):
            top = max(top, logits[i, k])
        for k in range(logits.shape[1]):
            out[i, k] = np.float64(logits[i, k]) - np.float64(top)
    return out

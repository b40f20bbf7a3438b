"""A linear softmax model sigma(v^T x), eq. (3) of the collision cross-entropy paper, and its training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.kernels.arrays import Floats

# logits (n, K) -> (mean loss, its gradient (n, K))
LogitLoss = Callable[[Floats], tuple[float, Floats]]


class LinearFit(NamedTuple):
    """The result of `minimise_linear`."""

    W: Floats  # (d + 1, K)
    objective: float
    n_iter: int
    converged: bool
    gradient: float  # the largest entry of the gradient at W


def linear_logits(X: NDArray[Any], W: Floats) -> NDArray[Any]:
    """Return X v + b (n, K) in X's precision, for X (n, d) and W (d + 1, K), which ends in the bias row b."""
    out: NDArray[Any] = X @ W[:-1].astype(X.dtype, copy=False)
    out += W[-1].astype(X.dtype, copy=False)
    return out


def minimise_linear(
    X: NDArray[Any],
    W: Floats,
    loss: LogitLoss,
    *,
    weight_decay: float,
    max_iter: int,
    tol: float,
) -> LinearFit:
    """Minimise loss(X v + b) + weight_decay / 2 ||v||^2 over W = (v, b) by L-BFGS.

    It takes any loss of the logits, convex or not, with soft labels, from any start, and keeps X's precision.
    For plain cross-entropy with hard labels, `fit_softmax_regression` is faster: it uses the curvature of
    that loss to choose its start, its coordinates and its last steps.

    Parameters
    ----------
    X : (n, d) array
        float64, or float32, which halves the time of the products. The model itself is float64.
    W : (d + 1, K) array
        The start. Its last row is the bias, which does not decay.
    loss : function
        Takes logits (n, K) in X's precision; returns the mean loss and its gradient (n, K).
    weight_decay : float
    max_iter : int
        Steps of L-BFGS.
    tol : float
        Stop when no entry of the gradient exceeds this.
    """

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        at = flat.reshape(W.shape)
        value, slope = loss(linear_logits(X, at))
        gradient = np.empty_like(at)
        gradient[:-1] = X.T @ slope.astype(X.dtype, copy=False)
        gradient[:-1] += weight_decay * at[:-1]
        gradient[-1] = slope.sum(axis=0)
        return float(value) + 0.5 * weight_decay * float(np.vdot(at[:-1], at[:-1])), gradient.ravel()

    result = minimize(
        value_and_gradient,
        np.ascontiguousarray(W, dtype=np.float64).ravel(),
        jac=True,
        method="L-BFGS-B",
        # ftol stops when the value only changes by rounding: float32 products resolve no smaller gradient
        options={"maxiter": max_iter, "gtol": tol, "ftol": np.finfo(X.dtype).eps, "maxfun": 20 * max_iter},
    )
    gradient = float(np.abs(result.jac).max())
    return LinearFit(
        result.x.reshape(W.shape), float(result.fun), int(result.nit), bool(result.status == 0), gradient
    )

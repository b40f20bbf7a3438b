r"""Multinomial logistic regression in float32, made for many fits in a row: the "fictitious student".

L-BFGS needs some ten steps instead of some fifty when it starts near the solution and in coordinates in
which the loss is about as curved in every direction. Both come from the Gram matrix of the features: at equal
probabilities the curvature of the loss is G / K, with G the covariance of the features, so that one solve
gives the start (a ridge regression, its length found by trial) and a Cholesky factor the coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from consilience.kernels.linear_model import LinearFit
from consilience.kernels.threads import threads_for
from consilience.kernels.unify.packed import Floats

Features = NDArray[np.float32]

# lengths of the ridge solution, in units of the Newton step from equal probabilities
_LENGTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def fit_softmax_regression(
    X: Features,
    codes: NDArray[np.intp],
    n_classes: int,
    *,
    l2: float,
    tol: float = 1e-4,
    max_iter: int = 200,
) -> LinearFit:
    r"""Minimise the regularised cross-entropy of a linear softmax model with an intercept.

    .. math:: \frac{1}{n} \sum_i -\ln \sigma(x_i v + b)_{y_i} + \frac{l_2}{2} \lVert v \rVert^2

    This is what scikit-learn's ``LogisticRegression(C=1 / (n l2), tol=tol)`` minimises, and where it stops.

    Parameters
    ----------
    X : (n, d) array
        Products are taken in float32.
    codes : (n,) array of int
        Classes from 0 to `n_classes` - 1; not all need to occur.
    l2 : float
        At least 0. The intercept is not decayed.
    tol : float
        Stop when no entry of the gradient is above this.
    max_iter : int
        Steps of L-BFGS.

    Returns
    -------
    LinearFit
        Its `W` (d + 1, n_classes) has the intercept in the last row: `linear_logits(X, W)` are the logits.
    """
    with threads_for(X.size * n_classes):
        return _fit(X, codes, n_classes, l2, tol, max_iter)


def _fit(
    X: Features, codes: NDArray[np.intp], n_classes: int, l2: float, tol: float, max_iter: int
) -> LinearFit:
    """Fit features that need not be centred; of fewer rows than columns, in the span of the rows."""
    n, d = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    Z = X - mean.astype(np.float32)
    if n < d:  # weights lie in the span of the rows: rotate them into n columns
        basis, triangle = np.linalg.qr(Z.T)
        fit = _fit_centred(np.ascontiguousarray(triangle.T), codes, n_classes, l2, tol, max_iter)
        fit = fit._replace(W=np.vstack([basis @ fit.W[:-1], fit.W[-1:]]))
    else:
        fit = _fit_centred(Z, codes, n_classes, l2, tol, max_iter)
    fit.W[-1] -= mean @ fit.W[:-1]
    return fit


def _fit_centred(
    Z: Features, codes: NDArray[np.intp], n_classes: int, l2: float, tol: float, max_iter: int
) -> LinearFit:
    """Fit centred features; find the coordinates, then minimise."""
    gram: Floats = (Z.T @ Z).astype(np.float64) / len(Z)
    spread = float(np.trace(gram)) / max(len(gram), 1)
    start, curvature = _ridge_start(Z, gram, codes, n_classes, n_classes * l2 + 1e-4 * spread + 1e-12, l2)
    # a floor for directions without spread; it concerns the coordinates, not the solution
    floor = max(l2, 1e-4 * curvature * spread, 1e-12)
    factor = np.linalg.cholesky(curvature * gram + floor * np.eye(len(gram))).astype(np.float64, copy=False)
    return _minimise(Z, codes, start, Coordinates(factor, curvature, floor), l2, tol, max_iter)


def softmax_in_place(logits: NDArray[np.float32], codes: NDArray[np.intp]) -> float:
    """Turn logits (n, K) into probabilities; return the mean cross-entropy to the classes `codes`."""
    logits -= logits.max(axis=1, keepdims=True)
    own = logits[np.arange(len(codes)), codes].mean(dtype=np.float64)
    np.exp(logits, out=logits)
    total = logits.sum(axis=1)
    logits /= total[:, None]
    return float(np.log(total).mean(dtype=np.float64) - own)


def _ridge_start(
    Z: Features, gram: Floats, codes: NDArray[np.intp], n_classes: int, ridge: float, l2: float
) -> tuple[Floats, float]:
    """Return a start W (d + 1, K) for centred features, and the mean curvature p (1 - p) there."""
    n, d = Z.shape
    counts = np.bincount(codes, minlength=n_classes)
    targets = np.zeros((n, n_classes), dtype=np.float32)
    targets[np.arange(n), codes] = 1.0
    v = cho_solve(cho_factor(gram + ridge * np.eye(d)), (Z.T @ targets).astype(np.float64)) * (n_classes / n)
    bias = np.log(np.maximum(counts, 0.5) / n)
    direction, squares = Z @ v.astype(np.float32), float(np.vdot(v, v))
    best, length, curvature = np.inf, _LENGTHS[0], 0.0
    for trial in _LENGTHS:
        proba = np.float32(trial) * direction
        proba += bias.astype(np.float32)
        value = softmax_in_place(proba, codes) + 0.5 * l2 * trial**2 * squares
        if value >= best:
            break
        best, length = value, trial
        curvature = float((1.0 - np.einsum("ik,ik->i", proba, proba)).mean()) / n_classes
    # where rows are fitted perfectly nothing is curved, and the way there still is
    return np.vstack([length * v, bias]), max(curvature, 1e-2 / n_classes)


class Coordinates(NamedTuple):
    """U = (factor^T v, sqrt(curvature) b), with factor factor^T = curvature * gram + floor."""

    factor: Floats
    curvature: float
    floor: float

    def of(self, W: Floats) -> Floats:
        """Return U (d + 1, K) for weights W (d + 1, K)."""
        return np.vstack([self.factor.T @ W[:-1], W[-1:] * np.sqrt(self.curvature)])

    def weights(self, U: Floats) -> Floats:
        """Return the weights W (d + 1, K) at U."""
        v = solve_triangular(self.factor, U[:-1], lower=True, trans="T")
        return np.vstack([v, U[-1:] / np.sqrt(self.curvature)])

    def largest(self, gradient: Floats) -> float:
        """Return the largest entry, by the weights, of a gradient (d + 1, K) by U."""
        by_bias = np.abs(gradient[-1]).max() * np.sqrt(self.curvature)
        return max(float(np.abs(self.factor @ gradient[:-1]).max(initial=0.0)), float(by_bias))


def _minimise(
    Z: Features,
    codes: NDArray[np.intp],
    start: Floats,
    at: Coordinates,
    l2: float,
    tol: float,
    max_iter: int,
) -> LinearFit:
    """Run L-BFGS over U for centred features Z.

    The decay costs no product of its own: ||U||^2 = ||v||^2 floor + curvature ||Z v||^2 / n, and Z v are the
    logits that are there anyway.
    """
    n, shape, root = len(Z), start.shape, np.sqrt(at.curvature)
    rows, decay = np.arange(n), l2 / at.floor
    whitened = np.ascontiguousarray(solve_triangular(at.factor.astype(np.float32), Z.T, lower=True).T)
    gradient = np.empty(shape)

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        U = flat.reshape(shape)
        scores = whitened @ U[:-1].astype(np.float32)
        proba = scores + (U[-1] / root).astype(np.float32)
        value = softmax_in_place(proba, codes)
        proba[rows, codes] -= 1.0
        gradient[-1] = proba.sum(axis=0, dtype=np.float64) / (n * root)
        spread = float(np.square(scores, dtype=np.float64).sum()) / n  # float64: a difference is to come
        norm = float(np.vdot(U[:-1], U[:-1])) - at.curvature * spread
        scores *= np.float32(decay * at.curvature)
        proba -= scores
        gradient[:-1] = whitened.T @ proba
        gradient[:-1] /= n
        gradient[:-1] += decay * U[:-1]
        return value + 0.5 * decay * norm, gradient.ravel().copy()

    def stop(_: Floats) -> None:
        if at.largest(gradient) <= tol:
            raise StopIteration

    result = minimize(
        value_and_gradient,
        at.of(start).ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=stop,
        # the callback stops, or a line search that sees nothing but rounding
        options={"maxiter": max_iter, "gtol": 0.0, "ftol": 0.0, "maxfun": 20 * max_iter},
    )
    U = result.x.reshape(shape)
    value_and_gradient(result.x)
    slope = at.largest(gradient)
    return LinearFit(at.weights(U), float(result.fun), int(result.nit), bool(slope <= tol), slope)

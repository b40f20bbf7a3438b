r"""Multinomial logistic regression on soft labels that are read block by block.

The loss is convex and a sum over rows, so sums over blocks give the exact value and gradient. Each evaluation
is a pass over the rows. A start near the solution, such as the fit to a sample, and coordinates in which the
curvature is about the same in every direction (`Coordinates`) keep the passes few.

Passes use float32 products. Where rounding hides the slope above the tolerance, float64 ones go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.optimize import minimize

from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import LinearFit, linear_logits
from consilience.kernels.softmax_regression import Coordinates, Features, normalise_exp
from consilience.kernels.threads import threads_for

Blocks = Callable[[], Iterable[tuple[Features, Features]]]


class _Sums(NamedTuple):
    """What a pass adds up at weights W, and what does not depend on them."""

    mass: float  # of all labels
    mean: Floats  # (d,): of the rows, by mass
    gram: Floats  # (d, d): the covariance of the rows
    curvature: float  # mean p (1 - p)


def fit_softmax_by_blocks(
    blocks: Blocks,
    start: Floats,
    *,
    weight_decay: float,
    tol: float,
    max_iter: int,
    progress: Callable[[int], None] = lambda passes: None,
) -> LinearFit:
    r"""Minimise the loss of `fit_softmax_regression`, in passes over the rows.

    Parameters
    ----------
    blocks : callable
        Starts a pass: yields rows (b, d) and soft labels (b, K), not negative; the weight of a row is its
        sum. Rows should be standardized, since products are in single precision.
    start : (d + 1, K) array
        Weights to start from, with the intercepts in the last row.
    weight_decay, tol
        As in `fit_softmax_regression`.
    max_iter : int
        The most passes.
    progress : callable
        Called with the number of passes so far.
    """
    passes = 1
    sums = _moments(blocks, start)
    progress(passes)
    spread = float(np.trace(sums.gram)) / max(len(sums.gram), 1)
    floor = max(weight_decay, 1e-4 * sums.curvature * spread, 1e-12)
    factor: Floats = cholesky(sums.curvature * sums.gram + floor * np.eye(len(sums.gram)), lower=True)
    at = Coordinates(factor, sums.curvature, floor, None)
    W = start.astype(np.float64)
    W[-1] += sums.mean @ W[:-1]  # the intercepts of centred rows
    gradient = np.empty_like(W)

    def value_and_gradient(flat: Floats, precision: type) -> tuple[float, Floats]:
        nonlocal passes
        W = at.weights(flat.reshape(start.shape))
        value, gradient[:] = _pass(blocks, sums, W, weight_decay, precision)
        passes += 1
        progress(passes)
        return value, np.asarray(at.by_coordinates(gradient).ravel())

    def stop(_: Floats) -> None:
        if np.abs(gradient).max() <= tol:
            raise StopIteration

    U = at.of(W).ravel()
    for precision in (np.float32, np.float64):
        left = max(max_iter - passes, 1)
        result = minimize(
            value_and_gradient,
            U,
            args=(precision,),
            jac=True,
            method="L-BFGS-B",
            callback=stop,
            options={"maxiter": left, "gtol": 0.0, "ftol": 0.0, "maxfun": left, "maxcor": 20, "maxls": 5},
        )
        U = result.x
        slope = at.largest(result.jac.reshape(start.shape), tol)
        if slope <= tol or passes >= max_iter:
            break
    W = at.weights(U.reshape(start.shape))
    W[-1] -= sums.mean @ W[:-1]
    return LinearFit(W, float(result.fun), passes, slope <= tol, slope)


def _moments(blocks: Blocks, W: Floats) -> _Sums:
    """Return mass, mean and covariance of the rows, and the curvature at weights W (d + 1, K)."""
    d, K = len(W) - 1, W.shape[1]
    mass, spread, first, second = 0.0, 0.0, np.zeros(d), np.zeros((d, d))
    for X, labels in blocks():
        with threads_for(X.size * max(d, K)):
            by_row = labels.sum(axis=1)
            proba = _logits(X, W)
            normalise_exp(proba)
            mass += float(by_row.sum(dtype=np.float64))
            spread += float((by_row * (1.0 - np.einsum("ik,ik->i", proba, proba))).sum(dtype=np.float64))
            first += by_row @ X
            second += X.T @ (X * by_row[:, None])
    mean = first / mass
    # perfectly fitted rows have no curvature, but the way there has some
    curvature = max(spread / (mass * K), 1e-2 / K)
    return _Sums(mass, mean, second / mass - np.outer(mean, mean), curvature)


def _pass(
    blocks: Blocks, sums: _Sums, W: Floats, weight_decay: float, precision: type
) -> tuple[float, Floats]:
    """Return the loss at weights W (d + 1, K) of centred rows and its gradient; products have a precision."""
    plain = W.copy()
    plain[-1] -= sums.mean @ W[:-1]
    value, by_weight, by_bias = 0.0, np.zeros((len(W) - 1, W.shape[1])), np.zeros(W.shape[1])
    for X, labels in blocks():
        with threads_for(X.size * W.shape[1]):
            X = X.astype(precision, copy=False)
            by_row = labels.sum(axis=1, dtype=precision)
            proba = _logits(X, plain)
            value -= float(np.einsum("ik,ik->", labels, proba, dtype=np.float64))
            value += float((by_row * np.log(normalise_exp(proba))).sum(dtype=np.float64))
            proba *= by_row[:, None]
            proba -= labels
            by_weight += X.T @ proba
            by_bias += proba.sum(axis=0, dtype=np.float64)
    by_weight -= np.outer(sums.mean, by_bias)
    value = value / sums.mass + 0.5 * weight_decay * float(np.vdot(W[:-1], W[:-1]))
    return value, np.vstack([by_weight / sums.mass + weight_decay * W[:-1], by_bias / sums.mass])


def _logits(X: NDArray[Any], W: Floats) -> NDArray[Any]:
    """Return logits (b, K) with a largest entry of 0 in each row, in X's precision."""
    logits = linear_logits(X, W)
    logits -= logits.max(axis=1, keepdims=True)
    return logits

"""Linear softmax models: columns on one scale, soft labels as targets, and training.

`minimise_linear` takes any loss of the logits of a model sigma(v^T x), convex or not, and a given start.

`fit_softmax_regression` is for cross-entropy with hard or soft labels, in passes over blocks of rows. The
loss is a convex sum over rows, so sums over blocks give its exact value and gradient. A first pass adds up
the covariance G of the rows and their products with the labels: the labels' part of the loss is linear, and
known from then on. The curvature of the loss is about G times the mean of p (1 - p). A Cholesky factor of
that gives coordinates in which the loss curves about equally in all directions. There L-BFGS takes about
twenty steps, each of a pass, instead of hundreds.

Passes use float32 products until they reach the tolerance, or until rounding hides the slope. Then float64
ones go on, in coordinates for the curvature of each row, which are found anew where progress ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cholesky, solve_triangular
from scipy.optimize import minimize

from consilience.kernels.arrays import Floats
from consilience.kernels.compiled import threads_for

# logits (n, K) -> (mean loss, its gradient (n, K))
LogitLoss = Callable[[Floats], tuple[float, Floats]]
# rows (b, d), and their soft labels (b, K)
Block = tuple[NDArray[Any], NDArray[Any]]
# blocks with rows in a given precision
Read = Callable[[Any], Iterable[Block]]

# the largest number of entries in a float64 copy of a block of columns
_BLOCK = 2**22
# more numbers than this are scaled in single precision: half the time in training, and no label changes
_SINGLE_PRECISION = 100_000
# mean of p (1 - p) in a fitted model, over that of equal probabilities
_CURVATURE = 0.1
# Times that coordinates are chosen, and most passes in one choice after the first.
_ROUNDS, _PASSES = 12, 60
# Entries of the gradient from float32 products err by up to this times the spread of a column.
_ROUNDING = 20 * float(np.finfo(np.float32).eps)
# The share of a column's curvature that is added to it, where rounding could hide that.
_FLOOR = {np.float32: 1e-5, np.float64: 1e-12}


def column_moments(X: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the mean (d,) and the standard deviation (d,) of the columns of X (n, d), n at least 1.

    The deviation is 0 if the entries differ by no more than rounding. Dividing by that rounding would turn a
    constant column into noise. Means are taken over differences from the first row, which makes them exact
    for constant columns, for any number of rows.
    """
    n, d = X.shape
    mean, spread = np.empty(d), np.empty(d)
    width = max(1, _BLOCK // n)
    for start in range(0, d, width):
        columns = slice(start, start + width)
        first = X[0, columns].astype(np.float64)
        differences = X[:, columns] - first
        shift = differences.mean(axis=0)
        differences -= shift
        mean[columns] = first + shift
        spread[columns] = np.sqrt(np.einsum("ij,ij->j", differences, differences) / n)
    spread[spread <= rounding_of(X.dtype) * np.abs(mean)] = 0.0
    return mean, spread


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Return the largest relative difference that rounding explains; integers are exact."""
    return 10.0 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def scaled(rows: NDArray[Any]) -> tuple[NDArray[Any], Floats, float]:
    """Return rows centred and of root-mean-square length 1, their mean, and the length they had.

    Rows that are all alike, up to rounding, are only centred.
    """
    mean, spread = column_moments(rows)
    Z = rows - mean
    if Z.size > _SINGLE_PRECISION:
        Z = Z.astype(np.float32)
    scale = float(np.sqrt(np.einsum("ij,ij->", Z, Z, dtype=np.float64) / len(Z))) if spread.any() else 1.0
    Z /= scale
    return np.ascontiguousarray(Z), mean, scale


def targets(Q: Floats, class_weights: Floats, threshold: float) -> Floats:
    """Return what a student learns from soft labels Q (n, L): weights (n, L), not negative.

    Classes less probable than `threshold` are left out, but never the most probable class of a row. The
    others are renormalised, then multiplied by the class weights (L,).
    """
    kept = np.where((threshold <= Q) | (np.arange(Q.shape[1]) == Q.argmax(axis=1)[:, None]), Q, 0.0)
    kept /= kept.sum(axis=1, keepdims=True)
    kept *= class_weights
    return kept


def inverse(mean: Floats) -> Floats:
    """Return 1 / mean (L,), or 0 for a class without mass to speak of."""
    return np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 1e-300)


def sharpen(proba: Floats, power: float) -> Floats:
    """Return p^T / sum p^T for each row (n, k). If p is softmax(z / T), this is softmax(z); T is `power`."""
    if power == 1.0:
        return proba
    # divide by the largest first: powers of small numbers could underflow and leave a row of zeros
    raised = (proba / proba.max(axis=1, keepdims=True, initial=np.finfo(float).tiny)) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


class LinearFit(NamedTuple):
    """A linear model, and how near its minimum it is."""

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
    X: NDArray[Any], W: Floats, loss: LogitLoss, *, weight_decay: float, max_iter: int, tol: float
) -> LinearFit:
    """Minimise loss(X v + b) + weight_decay / 2 ||v||^2 over W = (v, b) by L-BFGS.

    It takes any loss of the logits, convex or not, with soft labels, from any start, and keeps X's precision.
    For plain cross-entropy, `fit_softmax_regression` is faster: it uses the curvature of that loss.

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
    largest = float(np.abs(result.jac).max())
    return LinearFit(
        result.x.reshape(W.shape), float(result.fun), int(result.nit), bool(result.status == 0), largest
    )


def fit_softmax_regression(
    X: NDArray[np.float32],
    labels: NDArray[Any],
    n_classes: int,
    *,
    weight_decay: float,
    tol: float = 1e-4,
    max_iter: int = 400,
) -> LinearFit:
    r"""Minimise the regularised cross-entropy of a linear softmax model with an intercept.

    .. math:: \frac{1}{m} \sum_i \sum_k -y_{ik} \ln \sigma(x_i v + b)_k
              + \frac{l_2}{2} \lVert v \rVert^2, \qquad m = \sum_{ik} y_{ik}

    For hard labels this is scikit-learn's ``LogisticRegression(C=1 / (n weight_decay), tol=tol)``.

    Parameters
    ----------
    X : (n, d) array
    labels : (n,) array of int or (n, n_classes) array
        Classes from 0 to `n_classes` - 1; or soft labels y, not negative. The weight of a row is its sum.
        Not all classes need to occur.
    weight_decay : float
        At least 0. The intercept is not decayed.
    tol : float
        Stop when no entry of the gradient is above this. The gradient is taken by the weights of centred
        columns. Choose no less than 1e-8 times the largest spread of a column. Without decay, columns that
        almost repeat others may keep even that out of reach: then `converged` is False.
    max_iter : int
        The most passes over the rows; the last step may take a few more.

    Returns
    -------
    LinearFit
        Its `W` (d + 1, n_classes) has the intercept in the last row: `linear_logits(X, W)` are the logits.
    """
    mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    soft = labels if labels.ndim == 2 else np.eye(n_classes, dtype=np.float32)[labels]
    basis = None
    if len(X) < X.shape[1]:  # weights lie in the span of the rows
        basis = np.linalg.qr(np.subtract(X, mean, dtype=np.float64).T)[0]

    @cache
    def centred(precision: Any) -> NDArray[Any]:
        Z = np.subtract(X, mean, dtype=precision)
        return np.asarray(Z if basis is None else Z @ basis.astype(precision))

    with threads_for(X.size * n_classes):
        fit = _minimise(
            lambda precision: [(centred(precision), soft)], None, weight_decay, tol, max_iter, basis=basis
        )
    W = fit.W if basis is None else np.vstack([basis @ fit.W[:-1], fit.W[-1:]])
    W[-1] -= mean @ W[:-1]
    return fit._replace(W=W)


def fit_softmax_by_blocks(
    blocks: Callable[[], Iterable[Block]],
    start: Floats | None = None,
    *,
    weight_decay: float,
    tol: float = 1e-4,
    max_iter: int = 400,
    progress: Callable[[int], None] = lambda passes: None,
) -> LinearFit:
    """Minimise the loss of `fit_softmax_regression` over rows that are read block by block.

    Parameters
    ----------
    blocks : callable
        Starts a pass: yields rows (b, d) and soft labels (b, K), not negative; the weight of a row is its
        sum. Rows should be standardized, since products are in single precision.
    start : (d + 1, K) array, optional
        Weights to start from, with the intercepts in the last row.
    weight_decay, tol, max_iter
        As in `fit_softmax_regression`.
    progress : callable
        Called with the number of passes so far.
    """

    def read(precision: Any) -> Iterable[Block]:
        return ((X.astype(precision, copy=False), labels) for X, labels in blocks())

    return _minimise(read, start, weight_decay, tol, max_iter, progress)


class _Sums(NamedTuple):
    """What does not depend on the weights."""

    mass: float  # of all labels
    mean: Floats  # (d,): of the rows, by mass
    gram: Floats  # (d, d): the covariance of the rows
    cross: Floats  # (d + 1, K): mean products of centred rows and labels, and the share of each class


def _coordinates(gram: Floats, curvature: float, weight_decay: float, precision: Any) -> Floats:
    """Return F (d + 1, d + 1), lower triangular: the loss curves about equally in all directions of F^T W."""
    diagonal = curvature * gram.diagonal()
    floor = weight_decay + _FLOOR[precision] * (diagonal + diagonal.mean()) + 1e-30
    return np.asarray(cholesky(block_diag(curvature * gram + np.diag(floor), curvature), lower=True))


def _minimise(
    read: Read,
    start: Floats | None,
    weight_decay: float,
    tol: float,
    max_iter: int,
    progress: Callable[[int], None] = lambda passes: None,
    basis: Floats | None = None,
) -> LinearFit:
    """Minimise the loss; with a `basis` (D, d), entries of the gradient count in the D columns it spans."""
    sums = _moments(read, np.float32)
    shape = sums.cross.shape
    if start is None:
        W = np.zeros(shape)
        W[-1] = np.log(np.maximum(sums.cross[-1], 0.5 / sums.mass))
    else:
        W = start.astype(np.float64)
        W[-1] += sums.mean @ W[:-1]  # the intercepts of centred rows
    best = LinearFit(W, np.inf, 1, False, np.inf)

    def point_at(U: Floats, factor: Floats, precision: Any) -> tuple[float, Floats]:
        nonlocal best
        progress(best.n_iter + 1)
        W = solve_triangular(factor, U.reshape(shape), lower=True, trans="T", check_finite=False)
        value, gradient = _pass(read, sums, W, weight_decay, precision)
        largest = float(np.abs(gradient).max())
        if basis is not None and largest <= tol:  # the entries by columns cost a product
            largest = max(largest, float(np.abs(basis @ gradient[:-1]).max()))
        found = LinearFit(W, value, 0, largest <= tol, largest) if largest < best.gradient else best
        best = found._replace(n_iter=best.n_iter + 1)
        return value, solve_triangular(factor, gradient, lower=True, check_finite=False).ravel()

    goal, most = tol, max_iter

    def stop_early(intermediate_result: Any) -> None:
        if best.gradient <= goal or best.n_iter >= most:
            raise StopIteration

    for number in range(_ROUNDS):
        precision = np.float64 if number else np.float32
        gram, curvature, before = sums.gram, _CURVATURE / shape[1], best.gradient
        if number:
            sums = sums if number > 1 else _moments(read, precision)
            gram, curvature = _curved_moments(read, sums, best.W)
            best = best._replace(gradient=np.inf, n_iter=best.n_iter + 1 + (number == 1))
        factor = _coordinates(gram, curvature, weight_decay, precision)
        # float32 sees no smaller gradient
        goal = tol if number else max(tol, _ROUNDING * float(np.sqrt(gram.diagonal().max(initial=0.0))))
        most = min(max_iter, best.n_iter + _PASSES) if number else max_iter
        minimize(
            point_at, (factor.T @ best.W).ravel(), (factor, precision), "L-BFGS-B", True, callback=stop_early,
            options={"maxcor": 15, "maxiter": max_iter, "gtol": 0.0, "ftol": 0.0},
        )  # fmt: skip
        stuck = number > 1 and best.gradient >= 0.9 * before
        if best.gradient <= tol == goal or best.n_iter >= max_iter or stuck:
            break
    best.W[-1] -= sums.mean @ best.W[:-1]
    return best


def _moments(read: Read, precision: Any) -> _Sums:
    """Return sums over the rows, and over their products with the labels."""
    mass, first = 0.0, np.zeros(1)
    second = cross = shares = first
    for X, labels in read(precision):
        with threads_for(X.size * max(X.shape[1], labels.shape[1])):
            by_row = labels.sum(axis=1, dtype=np.float64)
            mass += float(by_row.sum())
            first = first + by_row @ X
            second = second + X.T @ (X * by_row.astype(X.dtype)[:, None])
            cross = cross + X.T.astype(np.float64) @ labels
            shares = shares + labels.sum(axis=0, dtype=np.float64)
    mean, shares = first / mass, shares / mass
    covariance = np.vstack([cross / mass - np.outer(mean, shares), shares])
    return _Sums(mass, mean, second / mass - np.outer(mean, mean), covariance)


def _curved_moments(read: Read, sums: _Sums, W: Floats) -> tuple[Floats, float]:
    """Return the covariance (d, d) of rows that weigh as the loss curves in them at W, and mean p (1 - p)."""
    second, first, total = np.zeros_like(sums.gram), np.zeros_like(sums.mean), 0.0
    for X, labels in read(np.float64):
        with threads_for(X.size * X.shape[1]):
            proba, _ = _softmax(X, W, sums)
            curved = labels.sum(axis=1) * np.maximum(1.0 - np.einsum("ik,ik->i", proba, proba), 1e-12)
            first += curved @ X
            second += X.T @ (X * curved[:, None])
            total += float(curved.sum())
    mean = first / total
    return second / total - np.outer(mean, mean), total / (sums.mass * W.shape[1])


def _pass(read: Read, sums: _Sums, W: Floats, weight_decay: float, precision: Any) -> tuple[float, Floats]:
    """Return the loss at weights W (d + 1, K) of centred rows, and its gradient."""
    value, slope = 0.0, np.zeros_like(W)
    for X, labels in read(precision):
        with threads_for(X.size * W.shape[1]):
            proba, log_total = _softmax(X, W, sums)
            by_row = labels.sum(axis=1, dtype=precision)
            value += float((by_row * log_total).sum(dtype=np.float64))
            proba *= by_row[:, None]
            slope[:-1] += X.T @ proba
            slope[-1] += proba.sum(axis=0, dtype=np.float64)
    slope /= sums.mass
    slope[:-1] -= np.outer(sums.mean, slope[-1])
    slope -= sums.cross
    slope[:-1] += weight_decay * W[:-1]
    value = value / sums.mass - float(np.vdot(sums.cross, W))
    return value + 0.5 * weight_decay * float(np.vdot(W[:-1], W[:-1])), slope


def _softmax(X: NDArray[Any], W: Floats, sums: _Sums) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return probabilities (b, K) and log sum exp of the logits (b,) at weights W of centred rows."""
    proba = linear_logits(X, np.vstack([W[:-1], W[-1:] - sums.mean @ W[:-1]]))
    top = proba.max(axis=1, keepdims=True)
    proba -= top
    np.exp(proba, out=proba)
    total = proba.sum(axis=1, keepdims=True)
    proba /= total
    return proba, (np.log(total) + top)[:, 0]

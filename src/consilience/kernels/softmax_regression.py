r"""Multinomial logistic regression on hard or soft labels, made for many fits: the "fictitious student".

L-BFGS takes about ten steps instead of fifty when it starts near the solution, in coordinates in which the
loss has about the same curvature in every direction. The Gram matrix of the features gives both: at equal
probabilities the curvature of the loss is G / K, with G the covariance of the features. One solve gives the
start (a ridge regression, whose length is found by trial), and a Cholesky factor gives the coordinates.

The steps of L-BFGS use float32 products. They stop at the tolerance, or where rounding hides the slope of the
loss: how early that is depends on the BLAS kernels of the machine. From there Newton steps go on. Their
gradients are float64, while the products inside a step stay float32, since an error there only costs a step.

`minimise_linear` is for other problems: any loss of the logits, convex or not, and a given start.
What makes fits fast and exact here needs the curvature of cross-entropy. So the two share only `LinearFit`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from consilience.kernels.arrays import Floats
from consilience.kernels.linear_model import LinearFit, linear_logits
from consilience.kernels.threads import threads_for

Features = NDArray[np.float32]
Codes = NDArray[np.intp]

# lengths of the ridge solution, in units of the Newton step from equal probabilities
_LENGTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
# Newton steps in a row that may lower neither the loss nor the gradient: all that is left is rounding
_PATIENCE = 3
# products that a step may cost on average
_PRODUCTS = 20


def fit_softmax_regression(
    X: Features,
    labels: NDArray[Any],
    n_classes: int,
    *,
    weight_decay: float,
    tol: float = 1e-4,
    max_iter: int = 200,
    overwrite: bool = False,
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
        columns. Choose no less than 1e-10 times the largest spread of a column, or 1e-8 times with soft
        labels. Without decay, columns that
        almost repeat others may keep even that out of reach: then `converged` is False.
    max_iter : int
        The most steps, of L-BFGS and Newton together.
    overwrite : bool
        Whether X and soft labels may be changed, which saves a copy of them.

    Returns
    -------
    LinearFit
        Its `W` (d + 1, n_classes) has the intercept in the last row: `linear_logits(X, W)` are the logits.
    """
    with threads_for(X.size * n_classes):
        mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        targets = _Hard(labels, n_classes) if labels.ndim == 1 else _Soft.of(labels, overwrite)
        Z = np.subtract(X, mean, out=X if overwrite else None)
        problem = _prepare(Z, targets, weight_decay)
        # Newton steps are few. Keep some of the budget for them, since rounding can stall L-BFGS.
        fit = _descend(problem, max(tol, problem.rounding(np.zeros((X.shape[1], 1)))), (max_iter + 1) // 2)
        if not fit.converged or tol < problem.rounding(fit.W[:-1]):
            exact = Z.astype(np.float64) if overwrite else X - mean.astype(np.float64)
            fit = _polish(exact, problem, fit, tol, max_iter)
        fit.W[-1] -= mean @ fit.W[:-1]
        return fit


def _in_span(Z: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return rows and their basis: weights lie in the span of the rows, so fewer rows need fewer columns."""
    if len(Z) >= Z.shape[1]:
        return Z, None
    basis, triangle = np.linalg.qr(Z.T)
    return np.ascontiguousarray(triangle.T), basis


class _Hard(NamedTuple):
    """One class per row, as a target of the logits."""

    codes: Codes  # (n,)
    n_classes: int

    @property
    def mass(self) -> None:
        """The weights of the rows: all the same."""

    def shares(self) -> Floats:
        """Return the share (K,) of each class."""
        return np.bincount(self.codes, minlength=self.n_classes) / len(self.codes)

    def dense(self) -> Features:
        """Return soft labels (n, K)."""
        return np.eye(self.n_classes, dtype=np.float32)[self.codes]

    def softmax_in_place(self, logits: NDArray[Any]) -> float:
        """Turn logits (n, K) into probabilities; return the mean cross-entropy."""
        logits -= logits.max(axis=1, keepdims=True)
        own = logits[np.arange(len(self.codes)), self.codes].mean(dtype=np.float64)
        return float(np.log(normalise_exp(logits)).mean(dtype=np.float64) - own)

    def slope_in_place(self, proba: NDArray[Any]) -> None:
        """Turn probabilities (n, K) into the gradient of the cross-entropy by the logits, times n."""
        proba[np.arange(len(self.codes)), self.codes] -= 1.0


class _Soft(NamedTuple):
    """Soft labels as a target of the logits. Rows count by their mass, of mean one."""

    labels: NDArray[Any]  # (n, K)
    rough: Features  # the same
    mass: Floats  # (n,): their sums

    @classmethod
    def of(cls, labels: NDArray[Any], overwrite: bool) -> _Soft:
        mean = labels.sum(axis=1, dtype=np.float64).mean().astype(labels.dtype)
        labels = np.divide(labels, mean, out=labels if overwrite else None)
        mass = labels.sum(axis=1, dtype=np.float64)
        return cls(labels, labels.astype(np.float32, copy=False), mass)

    def shares(self) -> Floats:
        return np.asarray(self.labels.mean(axis=0, dtype=np.float64))

    def dense(self) -> Features:
        return self.rough

    def softmax_in_place(self, logits: NDArray[Any]) -> float:
        logits -= logits.max(axis=1, keepdims=True)
        own = np.einsum("ik,ik->i", self._as(logits), logits).mean(dtype=np.float64)
        return float((self.mass * np.log(normalise_exp(logits))).mean() - own)

    def slope_in_place(self, proba: NDArray[Any]) -> None:
        proba *= self.mass.astype(proba.dtype)[:, None]
        proba -= self._as(proba)

    def _as(self, like: NDArray[Any]) -> NDArray[Any]:
        return self.rough if like.dtype == np.float32 else self.labels


def normalise_exp(logits: NDArray[Any]) -> NDArray[Any]:
    """Turn logits (n, K) with a largest entry of 0 in each row into probabilities; return the sums."""
    np.exp(logits, out=logits)
    total: NDArray[Any] = logits.sum(axis=1)
    logits /= total[:, None]
    return total


class Coordinates(NamedTuple):
    """U = (factor^T basis^T v, sqrt(curvature) b), with factor factor^T = curvature * gram + floor."""

    factor: Floats  # (r, r)
    curvature: float
    floor: float
    basis: NDArray[Any] | None  # (d, r), orthonormal: the span of the rows, if fewer than columns

    def of(self, W: Floats) -> Floats:
        """Return U (r + 1, K) for weights W (r + 1, K) in the basis."""
        return np.vstack([self.factor.T @ W[:-1], W[-1:] * np.sqrt(self.curvature)])

    def inside(self, U: Floats) -> Floats:
        """Return the weights (r + 1, K) at U, in the basis."""
        v = solve_triangular(self.factor, U[:-1], lower=True, trans="T")
        return np.vstack([v, U[-1:] / np.sqrt(self.curvature)])

    def weights(self, U: Floats) -> Floats:
        """Return the weights (d + 1, K) at U."""
        W = self.inside(U)
        return W if self.basis is None else np.vstack([self.basis @ W[:-1], W[-1:]])

    def largest(self, gradient: Floats, enough: float) -> float:
        """Return the largest entry, by the weights, of a gradient (r + 1, K) by U.

        Entries outside the basis cost a product, so they only count once those inside are small `enough`.
        """
        inside = self.factor @ gradient[:-1]
        by_bias = float(np.abs(gradient[-1]).max() * np.sqrt(self.curvature))
        largest = max(float(np.abs(inside).max(initial=0.0)), by_bias)
        if self.basis is None or largest > enough:
            return largest
        return max(largest, float(np.abs(self.basis @ inside.astype(self.basis.dtype)).max(initial=0.0)))

    def by_coordinates(self, gradient: Floats) -> Floats:
        """Return the gradient (r + 1, K) by U for one (d + 1, K) by the weights."""
        if self.basis is not None:
            gradient = np.vstack([self.basis.T @ gradient[:-1], gradient[-1:]])
        return self.pull(gradient)

    def pull(self, gradient: Floats) -> Floats:
        """Return the gradient (r + 1, K) by U for one (r + 1, K) by the weights in the basis."""
        by_v = solve_triangular(self.factor, gradient[:-1], lower=True)
        return np.vstack([by_v, gradient[-1:] / np.sqrt(self.curvature)])


class Problem(NamedTuple):
    """Features in coordinates that suit them, and where to start."""

    Z: NDArray[Any]  # (n, r): centred, in the basis; float32, or float64 where that is not enough
    gram: Floats  # (r, r): Z^T Z / n
    whitened: Features  # (n, r): Z times the weights at U is whitened times U
    targets: _Hard | _Soft
    weight_decay: float
    at: Coordinates
    start: Floats  # U (r + 1, K)
    spreads: Floats  # (d,): the root mean square of each column

    def rounding(self, weights: Floats) -> float:
        """Return the size below which a gradient of float32 products is only rounding, at weights (d, K)."""
        size = float(np.linalg.norm(self.spreads[:, None] * weights, axis=0).max())  # of a logit
        return float(np.finfo(np.float32).eps * self.spreads.max(initial=1e-30)) * (10.0 + size)


def _prepare(Z: Features, targets: _Hard | _Soft, weight_decay: float) -> Problem:
    """Find coordinates and a start for centred features Z (n, d)."""
    spreads = np.sqrt(np.einsum("ij,ij->j", Z, Z).astype(np.float64) / len(Z))
    Z, basis = _in_span(Z)
    gram: Floats = (Z.T @ Z).astype(np.float64) / len(Z)
    spread = float(np.trace(gram)) / max(len(gram), 1)
    start, curvature = _ridge_start(Z, gram, targets, 1e-4 * spread + 1e-12, weight_decay)
    # a floor for directions without spread; it concerns the coordinates, not the solution
    floor = max(weight_decay, 1e-4 * curvature * spread, 1e-12)
    factor = np.linalg.cholesky(curvature * gram + floor * np.eye(len(gram))).astype(np.float64, copy=False)
    at = Coordinates(factor, curvature, floor, basis)
    whitened = np.ascontiguousarray(solve_triangular(factor.astype(np.float32), Z.T, lower=True).T)
    return Problem(Z, gram, whitened, targets, weight_decay, at, at.of(start), spreads)


def _ridge_start(
    Z: Features, gram: Floats, targets: _Hard | _Soft, ridge: float, weight_decay: float
) -> tuple[Floats, float]:
    """Return a start W (d + 1, K) for centred features, and the mean curvature p (1 - p) there."""
    n, d = Z.shape
    shares = targets.shares()
    n_classes = len(shares)
    curved = gram + (n_classes * weight_decay + ridge) * np.eye(d)
    v = cho_solve(cho_factor(curved), (Z.T @ targets.dense()).astype(np.float64)) * (n_classes / n)
    bias = np.log(np.maximum(shares, 0.5 / n))
    direction, squares = Z @ v.astype(np.float32), float(np.vdot(v, v))
    best, length, curvature = np.inf, _LENGTHS[0], 0.0
    for trial in _LENGTHS:
        proba = np.float32(trial) * direction
        proba += bias.astype(np.float32)
        value = targets.softmax_in_place(proba) + 0.5 * weight_decay * trial**2 * squares
        if value >= best:
            break
        best, length = value, trial
        curvature = float((1.0 - np.einsum("ik,ik->i", proba, proba)).mean()) / n_classes
    # the loss has no curvature where rows are fitted perfectly, but it has some on the way there
    return np.vstack([length * v, bias]), max(curvature, 1e-2 / n_classes)


def _descend(problem: Problem, tol: float, max_iter: int) -> LinearFit:
    """Run L-BFGS over U with float32 products, to the tolerance or until rounding stops it.

    The decay costs no product of its own: ||U||^2 = ||v||^2 floor + curvature ||Z v||^2 / n, and Z v are the
    logits that are there anyway.
    """
    whitened, targets, at, shape = problem.whitened, problem.targets, problem.at, problem.start.shape
    n, root, decay = len(whitened), np.sqrt(at.curvature), problem.weight_decay / at.floor
    gradient = np.empty(shape)

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        U = flat.reshape(shape)
        scores = whitened @ U[:-1].astype(np.float32)
        proba = scores + (U[-1] / root).astype(np.float32)
        value = targets.softmax_in_place(proba)
        targets.slope_in_place(proba)
        gradient[-1] = proba.sum(axis=0, dtype=np.float64) / (n * root)
        # float64: a difference is to come
        spread = float(np.einsum("ik,ik->", scores, scores, dtype=np.float64)) / n
        norm = float(np.vdot(U[:-1], U[:-1])) - at.curvature * spread
        scores *= np.float32(decay * at.curvature)
        proba -= scores
        gradient[:-1] = whitened.T @ proba
        gradient[:-1] /= n
        gradient[:-1] += decay * U[:-1]
        return value + 0.5 * decay * norm, gradient.ravel().copy()

    def stop(_: Floats) -> None:
        if at.largest(gradient, tol) <= tol:
            raise StopIteration

    result = minimize(
        value_and_gradient,
        problem.start.ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=stop,
        # the callback stops, or a line search that sees nothing but rounding
        options={"maxiter": max_iter, "gtol": 0.0, "ftol": 0.0, "maxfun": _PRODUCTS * max_iter},
    )
    slope = at.largest(result.jac.reshape(shape), tol)
    W = at.weights(result.x.reshape(shape))
    return LinearFit(W, float(result.fun), int(result.nit), slope <= tol, slope)


class Point(NamedTuple):
    """The loss at weights W, in float64."""

    W: Floats  # (d + 1, K)
    value: float
    gradient: Floats  # (d + 1, K)
    proba: Floats  # (n, K)

    @property
    def largest(self) -> float:
        """The largest entry of the gradient."""
        return float(np.abs(self.gradient).max())


def _polish(Z: Floats, problem: Problem, fit: LinearFit, tol: float, max_iter: int) -> LinearFit:
    """Take Newton steps from where float32 has stopped, with float64 gradients."""
    point, n_iter = _point(Z, problem.targets, fit.W, problem.weight_decay), fit.n_iter
    best, left, idle = point, _PRODUCTS * max_iter, 0
    while best.largest > tol and n_iter < max_iter and left > 0 and idle < _PATIENCE:
        if idle and problem.Z.dtype == np.float32:
            problem, point, idle = _in_full_precision(problem, Z), best, 0
        direction, products = _newton_direction(problem, point, tol, min(left, 200))
        last, point = point, _search(Z, problem, point, direction)
        n_iter, left = n_iter + 1, left - products
        idle = 0 if point.largest < best.largest or point.value < last.value else idle + 1
        best = point if point.largest < best.largest else best
    return LinearFit(best.W, best.value, n_iter, best.largest <= tol, best.largest)


def _in_full_precision(problem: Problem, Z: Floats) -> Problem:
    """Return the problem with float64 products, for curvatures too unequal for float32."""
    Z, basis = _in_span(Z)
    mass = problem.targets.mass
    gram = (Z if mass is None else Z * mass[:, None]).T @ Z / len(Z)
    return problem._replace(Z=Z, gram=gram, at=problem.at._replace(basis=basis))


def _point(Z: Floats, targets: _Hard | _Soft, W: Floats, weight_decay: float) -> Point:
    proba = linear_logits(Z, W)
    value = targets.softmax_in_place(proba) + 0.5 * weight_decay * float(np.vdot(W[:-1], W[:-1]))
    slope = proba.copy()
    targets.slope_in_place(slope)
    slope /= len(Z)
    return Point(W, value, np.vstack([Z.T @ slope + weight_decay * W[:-1], slope.sum(axis=0)]), proba)


def _search(Z: Floats, problem: Problem, point: Point, direction: Floats) -> Point:
    """Go along the direction, but not to where the loss rises steeply again.

    Near the minimum the loss changes by less than its rounding, but its slope is still exact. So slopes
    decide, as in the approximate Wolfe conditions of Hager and Zhang (2005). The loss is convex: slopes only
    rise.
    """
    steep = -float(np.vdot(point.gradient, direction))
    length, rounding = 1.0, 1e-12 * max(1.0, abs(point.value))
    if not steep > 0.0:
        return point
    for _ in range(50):
        new = _point(Z, problem.targets, point.W + length * direction, problem.weight_decay)
        slope = float(np.vdot(new.gradient, direction))
        if slope <= 0.8 * steep and new.value <= point.value + rounding:
            return new
        length *= max(0.1, steep / (steep + slope)) if slope > 0 else 0.5
    return point


def _newton_direction(problem: Problem, point: Point, tol: float, most: int) -> tuple[Floats, int]:
    """Return the direction (d + 1, K), by at most so many conjugate gradients, and how many it took.

    Products in float32 are good enough for them.
    """
    Z, weight_decay, proba, shape = problem.Z, problem.weight_decay, point.proba, problem.start.shape
    curved = proba if problem.targets.mass is None else proba * problem.targets.mass[:, None]
    at = _newton_coordinates(problem, proba)
    gradient = at.by_coordinates(point.gradient)
    norm = float(np.linalg.norm(gradient))
    least = 1e-3 * norm  # of the curvature: there is none where all classes move together

    products = 0

    def curve(flat: Floats) -> Floats:
        nonlocal products
        products += 1
        S = flat.reshape(shape)
        W = at.inside(S)
        moved = (Z @ W[:-1].astype(Z.dtype)) + W[-1]
        moved -= np.einsum("ik,ik->i", proba, moved)[:, None]  # float64: sure rows leave a small difference
        moved *= curved
        moved /= len(Z)
        pulled = np.vstack([Z.T @ moved.astype(Z.dtype) + weight_decay * W[:-1], moved.sum(axis=0)])
        return np.asarray((at.pull(pulled) + least * S).ravel())

    operator = LinearOperator((gradient.size, gradient.size), matvec=curve, dtype=np.float64)
    enough = float(np.clip(0.3 * tol / point.largest, 1e-3, 0.1))
    solution, _ = cg(operator, -gradient.ravel() / norm, rtol=enough, maxiter=most)
    direction = at.weights(norm * solution.reshape(shape))
    if at.basis is not None and weight_decay > 0:
        # the gradient outside the basis is rounding, and the only curvature there is the decay
        inside = at.basis @ (at.basis.T @ point.gradient[:-1])
        direction[:-1] -= (point.gradient[:-1] - inside) / weight_decay
    return direction, products


def _newton_coordinates(problem: Problem, proba: Floats) -> Coordinates:
    """Return coordinates for the present curvature, which suit columns of unequal spread better."""
    curvature = max(float((1.0 - np.einsum("ik,ik->i", proba, proba)).mean()) / proba.shape[1], 1e-30)
    gram = curvature * problem.gram
    rounding = 1e-5 if problem.Z.dtype == np.float32 else 1e-13  # of the Gram matrix
    floor = (
        problem.weight_decay
        + rounding * gram.diagonal()
        + max(1e-12 * float(gram.diagonal().max(initial=0.0)), 1e-30)
    )
    return problem.at._replace(factor=np.linalg.cholesky(gram + np.diag(floor)), curvature=curvature)

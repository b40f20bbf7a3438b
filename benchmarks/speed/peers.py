"""What a competent user would write without this library: torch, scipy and vectorised numpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from benchmarks.speed.problem import TEMPERATURE, Problem

Floats = NDArray[np.float64]
# Settings that need more steps are given up.
MAX_STEPS = 3000


def teacher_probabilities(problem: Problem) -> Floats:
    """Return the packed p_i of eq. (2)."""
    blocks = [problem.logits[:, problem.space.block(i)] for i in range(problem.space.n_teachers)]
    return np.concatenate([softmax(block / TEMPERATURE, axis=1) for block in blocks], axis=1)


def sum_by_class(problem: Problem, packed: Floats) -> Floats:
    """Return sums (n, L) of packed values."""
    total = np.zeros((len(packed), problem.space.n_classes))
    for k, c in enumerate(problem.space.columns):
        total[:, c] += packed[:, k]
    return total


class Descent:
    """Batched gradient descent in torch on an objective of u (n, L), to within 1e-6 of a known minimum.

    `prepared` is the time to prepare the objective's data from the packed logits. Our time includes this too.
    """

    def __init__(self, start: Floats, target: float, prepared: float) -> None:
        import torch

        self.torch = torch
        self.start = torch.from_numpy(start)
        self.goal = target + 1e-6 * abs(target)
        self.prepared = prepared
        self.best = {"autograd": np.inf, "by hand": np.inf}  # seconds; slower settings are given up

    def by_autograd(self, objective: Callable, make_optimiser: Callable) -> float | None:
        """Return the seconds taken, or None if `MAX_STEPS` are not enough."""
        u = self.start.clone().requires_grad_()
        optimiser = make_optimiser([u])
        began = time.perf_counter() - self.prepared
        for _ in range(MAX_STEPS):
            optimiser.zero_grad(set_to_none=True)
            value = objective(u)
            seconds = time.perf_counter() - began
            if self._over("autograd", value.item(), seconds):
                return seconds if value.item() <= self.goal else None
            value.backward()
            optimiser.step()
        return None

    def by_hand(self, value_and_gradient: Callable, lr: float, momentum: float) -> float | None:
        """Descend with a hand-written gradient and momentum, in place."""
        torch = self.torch
        with torch.no_grad():
            u = self.start.clone()
            velocity = torch.zeros_like(u)
            began = time.perf_counter() - self.prepared
            for _ in range(MAX_STEPS):
                value, gradient = value_and_gradient(u)
                seconds = time.perf_counter() - began
                if self._over("by hand", value.item(), seconds):
                    return seconds if value.item() <= self.goal else None
                velocity.mul_(momentum).sub_(gradient, alpha=lr)
                u.add_(velocity)
        return None

    def _over(self, kind: str, value: float, seconds: float) -> bool:
        """Say whether to stop: it converged, diverged, or is slower than another setting."""
        if value <= self.goal:
            self.best[kind] = min(self.best[kind], seconds)
            return True
        return not np.isfinite(value) or seconds > self.best[kind]


def ce_descents(problem: Problem, target: float) -> dict[str, Callable[[], float | None]]:
    """Return the settings of gradient descent on eq. (9), the paper's way.

    The objective is the cheap form: sum_i log sum_{k in L_i} exp(u_k) - sum_l a_l u_l, one matrix product.
    """
    import torch

    began = time.perf_counter()
    mask = torch.from_numpy(problem.space.mask.astype(float))
    a = torch.from_numpy(sum_by_class(problem, teacher_probabilities(problem)))
    start = np.zeros((len(problem.logits), problem.space.n_classes))
    descent = Descent(start, target, time.perf_counter() - began)

    def objective(u: torch.Tensor) -> torch.Tensor:
        top = u.detach().amax(dim=1, keepdim=True)
        return (torch.log((u - top).exp() @ mask) + top).sum() - (a * u).sum()

    def value_and_gradient(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        top = u.amax(dim=1, keepdim=True)
        e = (u - top).exp()
        total = e @ mask
        value = (torch.log(total) + top).sum() - (a * u).sum()
        return value, e.mul_(total.reciprocal_() @ mask.T).sub_(a)

    settings: dict[str, Callable[[], float | None]] = {}
    # the most promising first: later ones are given up when they take longer
    for lr, momentum in product((1.0, 2.0, 0.5), (0.95, 0.98, 0.9)):
        sgd = partial(torch.optim.SGD, lr=lr, momentum=momentum)
        name = f"SGD {lr}, momentum {momentum}"
        settings[f"autograd, {name}"] = partial(descent.by_autograd, objective, sgd)
        settings[f"by hand, {name}"] = partial(descent.by_hand, value_and_gradient, lr, momentum)
    for lr in (0.1, 0.3):
        adam = partial(torch.optim.Adam, lr=lr)
        settings[f"autograd, Adam {lr}"] = partial(descent.by_autograd, objective, adam)
    return settings


def mf_lf_descents(problem: Problem, target: float) -> dict[str, Callable[[], float | None]]:
    """Return the settings of gradient descent on eq. (17) with v = 1, the paper's way.

    ``as printed``: autograd on the residuals of all packed columns, minus each teacher's mean. One (L, m)
    matrix both selects the columns and projects. ``reduced``: uses the fact that the gradient is Hu - b with
    a fixed (L, L) matrix H, which is halfway to the closed form.
    """
    import torch

    began = time.perf_counter()
    space = problem.space
    H = np.zeros((space.n_classes, space.n_classes))
    projected = np.empty_like(problem.logits)
    for i in range(space.n_teachers):
        block, columns = space.block(i), space.columns[space.block(i)]
        z = problem.logits[:, block] / TEMPERATURE
        projected[:, block] = z - z.mean(axis=1, keepdims=True)
        H[np.ix_(columns, columns)] += np.eye(len(columns)) - 1.0 / len(columns)
    constant = float((projected**2).sum())
    H_, b = torch.from_numpy(H), torch.from_numpy(sum_by_class(problem, projected))
    choose = np.eye(space.n_classes)[space.columns].T
    for i in range(space.n_teachers):
        choose[:, space.block(i)] -= choose[:, space.block(i)].mean(axis=1, keepdims=True)
    z, S = torch.from_numpy(projected), torch.from_numpy(choose)
    start = np.zeros((len(problem.logits), space.n_classes))
    descent = Descent(start, target, time.perf_counter() - began)

    def as_printed(u: torch.Tensor) -> torch.Tensor:
        return ((z - u @ S) ** 2).sum()

    def reduced(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gradient = (u @ H_).sub_(b)
        return (u * (gradient - b)).sum() + constant, gradient

    steepest = 1.0 / float(np.linalg.eigvalsh(H)[-1])
    settings: dict[str, Callable[[], float | None]] = {}
    for factor, momentum in product((1.0, 1.8), (0.6, 0.8, 0.9)):
        name = f"SGD {factor} / largest eigenvalue, momentum {momentum}"
        # autograd's gradient of the squares is twice that of the reduced form
        sgd = partial(torch.optim.SGD, lr=0.5 * factor * steepest, momentum=momentum)
        settings[f"as printed, {name}"] = partial(descent.by_autograd, as_printed, sgd)
        settings[f"reduced, {name}"] = partial(descent.by_hand, reduced, factor * steepest, momentum)
    return settings


def ce_by_scipy(problem: Problem, rows: int) -> float:
    """Return the seconds that L-BFGS-B takes for the first `rows`, one by one, with the analytic gradient."""
    P = teacher_probabilities(problem)
    a = sum_by_class(problem, P)
    lists = [problem.space.columns[problem.space.block(i)] for i in range(problem.space.n_teachers)]

    def objective(u: Floats, a: Floats) -> tuple[float, Floats]:
        value, gradient = -float(a @ u), -a
        for columns in lists:
            shift = logsumexp(u[columns])
            value += float(shift)
            gradient[columns] += np.exp(u[columns] - shift)
        return value, gradient

    began = time.perf_counter()
    for row in range(rows):
        minimize(
            objective, np.zeros(a.shape[1]), (a[row],), "L-BFGS-B", jac=True,
            options={"gtol": 1e-8, "ftol": 0.0, "maxiter": 1000},
        )  # fmt: skip
    return time.perf_counter() - began


def alternate_by_numpy(problem: Problem, logits: bool, lam: float, tol: float, max_iter: int) -> Floats:
    """Run Algorithm 1 or 2 on all rows at once, dense (n, N, L). Drop the rows that are done."""
    M = problem.space.mask.T.astype(float)  # (N, L)
    n, (N, L) = len(problem.logits), M.shape
    source = problem.logits / TEMPERATURE if logits else teacher_probabilities(problem)
    P = np.zeros((n, N, L))
    P[:, problem.layout.block_of, problem.space.columns] = source
    size = M.sum(axis=1)
    mean = P.sum(axis=2) / size
    if logits:
        P = (P - mean[:, :, None]) * M
    out, rows, open_ = np.zeros((n, L)), np.arange(n), np.ones(n, dtype=bool)
    u, v, c = np.zeros((n, L)), np.ones((n, N)), np.zeros((n, N))
    for iteration in range(max_iter):
        above = (v[:, None, :] @ P)[:, 0]
        if logits:
            above -= (v * c) @ M
        new_u = above / (lam + (v * v) @ M)
        if not logits:
            new_u /= new_u.sum(axis=1, keepdims=True)
        above = (P @ new_u[:, :, None])[:, :, 0]
        if logits:
            above -= c * (new_u @ M.T)
        new_v = np.maximum(0.0, above / (lam + (new_u * new_u) @ M.T))
        if logits:
            c = -new_v * (new_u @ M.T) / size
        done = np.maximum(((new_u - u) ** 2).mean(axis=1), ((new_v - v) ** 2).mean(axis=1)) < tol**2
        u, v = new_u, new_v
        if iteration == 0:
            continue
        out[rows[done & open_]] = u[done & open_]
        open_ &= ~done
        # dropping rows copies the big array, so wait until it pays off
        if open_.mean() < 0.7:
            rows, u, v, c, P = rows[open_], u[open_], v[open_], c[open_], P[open_]
            open_ = np.ones(len(rows), dtype=bool)
            if not len(rows):
                break
    out[rows[open_]] = u[open_]
    return out

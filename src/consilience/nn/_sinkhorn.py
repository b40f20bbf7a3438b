"""Sinkhorn's iteration on tensors: the numpy kernel on the CPU, its torch twin on other devices.

Letters as in that kernel: a = p_T (n, m), b = p_S (n, k), scalings u and v. On a CPU, the kernel takes the
tensors as arrays, and copies nothing that is in double precision. It is faster there than separate torch
operations. Both do the same iterations, and a test compares them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from consilience.kernels.transport import sinkhorn as kernels


class Duals(NamedTuple):
    """The fields of `consilience.kernels.transport.sinkhorn.Solution` for a batch, without alpha."""

    beta: Tensor  # (n, k)
    value: Tensor  # (n,)
    residual: Tensor  # (n,)
    n_iter: Tensor  # (n,)


def solve(
    a: Tensor, b: Tensor, cost: Tensor, epsilon: float, tol: float, max_iter: int, start: Tensor | None
) -> Duals:
    """Solve eq. (13) in each row of predictions, in double precision for any type of tensor."""
    a, b, cost = a.detach().double(), b.detach().double(), cost.detach().double()
    # float32 rows sum to one only up to 1e-7; if two sums differ, no exact plan exists
    a, b = a / a.sum(dim=1, keepdim=True), b / b.sum(dim=1, keepdim=True)
    start = None if start is None else start.detach().double()
    if a.device.type != "cpu":
        return solve_on_device(a, b, cost, epsilon, tol, max_iter, start)
    begin = None if start is None else start.numpy()
    solved = kernels.solve(a.numpy(), b.numpy(), cost.numpy(), epsilon, tol, max_iter, begin)
    return Duals(*(torch.from_numpy(part) for part in solved[1:]))


def solve_on_device(
    a: Tensor, b: Tensor, cost: Tensor, epsilon: float, tol: float, max_iter: int, start: Tensor | None
) -> Duals:
    """Solve like the kernel's `solve`, with torch operations and in one precision."""
    lowest = cost.min()
    log_k = (lowest - cost) / epsilon
    if bool(-log_k.min() > kernels.RANGE["float64"]):
        # too sharp for scalings: this is rare, and a device would be no faster than the kernel
        begin = None if start is None else start.cpu()
        solved = solve(a.cpu(), b.cpu(), cost.cpu(), epsilon, tol, max_iter, begin)
        return Duals(*(part.to(a.device) for part in solved))
    v = b.clone()
    if start is not None:
        warm = (start - start.amax(dim=1, keepdim=True)) / epsilon
        v = torch.where(warm.isfinite().all(dim=1, keepdim=True), warm.exp(), v)
    kernel = log_k.exp()
    v, n_iter = _iterate(a, b, kernel, v, tol, max_iter - 1)
    product_u = v @ kernel.T
    u = a / product_u
    product_v = u @ kernel
    residual = (v * product_v - b).abs().sum(dim=1)
    log_u = _log_scaling(a, product_u)
    log_v = _log_scaling(b, product_v)
    mean = log_v.mean(dim=1, keepdim=True)
    alpha, beta = epsilon * (log_u + mean) + lowest, epsilon * (log_v - mean)
    value = (alpha * a).sum(dim=1) + (beta * b).sum(dim=1) - epsilon
    return Duals(beta, value, residual, n_iter + 1)


def _log_scaling(marginal: Tensor, product: Tensor) -> Tensor:
    """Return log(marginal / product), or log(1 / product) where the marginal is zero."""
    return torch.where(marginal > 0, marginal, 1.0).log() - product.log()


def _iterate(
    a: Tensor, b: Tensor, kernel: Tensor, v: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Return v (n, k) and the iterations (n,). Iterations are over-relaxed, and finished rows drop out."""
    result, counts, live = v.clone(), np.zeros(len(a), dtype=np.int64), np.arange(len(a))
    u, control, gaps = torch.ones_like(a), kernels.new_control(len(a), np.float64), kernels.check_gaps()
    while True:
        stopped = kernels.review(control, counts, live, tol, kernels.FLOOR["float64"], max_iter, next(gaps))
        if 8 * stopped >= len(live):
            result[torch.from_numpy(live).to(a.device)] = v
            working = ~kernels.has_stopped(control)
            if not working.any():
                return result, torch.from_numpy(counts).to(a.device)
            control, live = control[working], live[working]
            a, b, u, v = (part[torch.from_numpy(working).to(a.device)] for part in (a, b, u, v))
        step = torch.from_numpy(control[:, kernels.STEP, None]).to(a)
        u, _, after = _relax(a, v @ kernel.T, u, step)
        v, before, _ = _relax(b, u @ kernel, v, step)
        control[:, kernels.ERROR] = (before + after).cpu().numpy()


def _relax(marginal: Tensor, product: Tensor, scaling: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return over-relaxed scalings, and the errors of the marginals before and after the step."""
    plain = marginal / product
    middle, tilt = plain + scaling + 1e-37, step * (plain - scaling)
    new = plain * (middle + tilt) / (middle - tilt)
    before, after = ((s * product - marginal).abs().sum(dim=1) for s in (scaling, new))
    return new, before, after


def to_kl(a: Tensor, b: Tensor, epsilon: float, value: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return value and gradient with the regularizer epsilon KL(T || a b^T), given those of eq. (5).

    The gradient is beta - epsilon log b, minus its mean. It is finite where b is zero, because beta is the
    c-transform there.
    """
    a, b = a.detach().to(value.dtype), b.detach().to(value.dtype)
    value = value + epsilon * (1 - torch.xlogy(a, a).sum(dim=1) - torch.xlogy(b, b).sum(dim=1))
    gradient = beta - epsilon * b.where(b > 0, 1.0).log()
    return value, gradient - gradient.mean(dim=1, keepdim=True)


def unrolled(
    a: Tensor, b: Tensor, cost: Tensor, epsilon: float, tol: float, max_iter: int, kl: bool
) -> Tensor:
    """Return the result of Alg. 3 in each row (n,). Autograd can differentiate through its plain iterations.

    They start from v = 1 and stop when all rows meet `tol`, or after `max_iter`. They are in scaling form if
    the exponentials fit in the tensors' type, else in the log domain: m k numbers per row and iteration.
    """
    a, b = a.detach(), b / b.sum(dim=1, keepdim=True)
    lowest = cost.min()
    log_k = (lowest - cost) / epsilon
    fits = bool(-log_k.min() <= kernels.RANGE["float64" if b.dtype == torch.float64 else "float32"])
    run = _unroll_scalings if fits else _unroll_logs
    log_u, log_v, row_sums = run(a, b, log_k.to(b.dtype), tol, max_iter)
    # <T, M> - epsilon H(T) with log T = log u + log v + log K; column sums are b after the last step
    value = (row_sums * log_u).sum(dim=1) + (b * log_v).sum(dim=1) - row_sums.sum(dim=1)
    if kl:
        value = value + 1 - torch.xlogy(a, a).sum(dim=1) - (b * b.where(b > 0, 1.0).log()).sum(dim=1)
    return epsilon * value + lowest.to(b.dtype) * row_sums.sum(dim=1)


def _unroll_scalings(
    a: Tensor, b: Tensor, log_k: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log u and log v (zero where a and b are zero), and the plan's row sums, in scaling form."""
    kernel = log_k.exp()
    v = torch.ones_like(b)
    for _ in range(max_iter):
        u = a / (v @ kernel.T)
        product = u @ kernel
        error = (v * product - b).detach().abs().sum(dim=1).max()
        v = b / product
        if not bool(error > tol):  # the negation catches NaN too
            break
    return u.where(a > 0, 1.0).log(), v.where(b > 0, 1.0).log(), u * (v @ kernel.T)


def _unroll_logs(
    a: Tensor, b: Tensor, log_k: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same as `_unroll_scalings`, computed in the log domain."""
    log_a, log_b = _log(a), _log(b)
    log_v = torch.zeros_like(b)
    for _ in range(max_iter):
        log_u = log_a - torch.logsumexp(log_k + log_v[:, None, :], dim=2)
        log_product = torch.logsumexp(log_k + log_u[:, :, None], dim=1)
        error = ((log_v + log_product).exp() - b).detach().abs().sum(dim=1).max()
        log_v = log_b - log_product
        if not bool(error > tol):
            break
    row_sums = (log_u + torch.logsumexp(log_k + log_v[:, None, :], dim=2)).exp()
    return log_u.masked_fill(a == 0, 0.0), log_v.masked_fill(b == 0, 0.0), row_sums


def _log(p: Tensor) -> Tensor:
    """Return the logarithm; where p is zero, minus infinity without a gradient."""
    return p.where(p > 0, 1.0).log().masked_fill(p == 0, -torch.inf)

"""Sinkhorn distances: ours against OTT-JAX, POT and autograd through the iterations, on one thread.

Each problem is a batch of predictions over 100 classes, with one cost matrix of clustered class centres,
epsilon 0.1 and marginals met to 1e-6. OTT's solver is compiled for a fixed number of iterations: the number
that the slowest row of the batch needs. POT's solvers stop by themselves. Results are checked against double
precision, and this check is not timed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.speed.measures import Options, Result
from benchmarks.speed.problem import best_of
from consilience.transport.distance import sinkhorn

Floats = NDArray[np.float64]

CLASSES, CLUSTERS, EPSILON, TOL = 100, 20, 0.1, 1e-6
GOAL_OTT, GOAL_ADAPTIVE, GOAL_BACKWARD, GOAL_MEMORY = 1.5, 20.0, 2.5, 100.0


class Batch(NamedTuple):
    """Logits and predictions of a student and a teacher, the cost, and the result of plain iterations."""

    teacher: Floats  # (n, 100)
    student: Floats  # (n, 100)
    source: Floats  # p_T
    target: Floats  # p_S
    cost: Floats  # (100, 100)
    iterations: int
    value: Floats  # (n,) in double precision
    beta: Floats  # (n, 100)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes, for the record."""
        return {"n": len(self.source), "classes": CLASSES, "iterations": self.iterations}


def make_batch(n: int, seed: int) -> Batch:
    """Draw class centres in clusters on a sphere, as many as CIFAR-100 has, and predictions of two networks.

    The costs have a standard deviation of about 0.13. This does not settle how hard the problem is: with the
    same spread, other numbers of clusters need as few as 27 iterations, and this one needs 49 to 72. Ratios
    to work that grows with iterations, such as the memory that autograd saves, grow with their number.
    """
    rng = np.random.default_rng(seed)
    clusters = rng.normal(size=(CLUSTERS, 128)) / np.sqrt(128)
    centres = clusters[rng.integers(CLUSTERS, size=2 * CLASSES)] + 0.07 * rng.normal(size=(2 * CLASSES, 128))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    cost = np.linalg.norm(centres[:CLASSES, None] - centres[None, CLASSES:], axis=2)
    label = rng.integers(CLASSES, size=(n, 1)) == np.arange(CLASSES)
    teacher, student = (3.0 * rng.normal(size=(n, CLASSES)) + 6.0 * label for _ in range(2))
    p_T, p_S = (_softmax(logits / 3.0) for logits in (teacher, student))
    return Batch(teacher, student, p_T, p_S, cost, *_plainly(p_T, p_S, cost))


def _softmax(logits: Floats) -> Floats:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _plainly(a: Floats, b: Floats, cost: Floats) -> tuple[int, Floats, Floats]:
    """Return how many iterations of eq. (20) from v = 1 meet the marginals, then value and beta at 1e-13."""
    kernel = np.exp(-cost / EPSILON)
    v, needed = np.ones_like(b), 0
    for iteration in range(1, 100_000):
        u = a / (v @ kernel.T)
        v = b / (u @ kernel)
        error = np.abs(u * (v @ kernel.T) - a).sum(axis=1).max()
        if error <= TOL and not needed:
            needed = iteration
        if error <= 1e-13:
            break
    value = EPSILON * ((a * np.log(u)).sum(axis=1) + (b * np.log(v)).sum(axis=1) - 1.0)
    beta = EPSILON * np.log(v)
    return needed, value, beta - beta.mean(axis=1, keepdims=True)


def transport(options: Options) -> Iterator[Result]:
    """Compare values and duals of a small and a large batch, then the loss forward and backward."""
    with _one_thread():
        for n in (256,) if options.quick else (256, 4096):
            batch = make_batch(n, options.seed)
            single = [array.astype(np.float32) for array in (batch.source, batch.target, batch.cost)]
            result = sinkhorn(*single, EPSILON, tol=TOL)
            off = max(np.abs(result.value - batch.value).max(), np.abs(result.beta - batch.beta).max())
            assert result.converged.all()
            assert off <= 1e-5
            ours = best_of(options.repeats, lambda single=single: sinkhorn(*single, EPSILON, tol=TOL))
            note = f"value and beta within {off:.1g} of double precision"
            yield from _against_jax(batch, single, ours, options, note)
            yield from _against_pot(batch, ours, options)
            yield from _against_autograd(batch, options)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Give all libraries one thread. XLA reads its flags when jax is first imported."""
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    with threadpool_limits(1):
        try:
            import torch
        except ModuleNotFoundError:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)


def _against_jax(
    batch: Batch, single: list[Any], ours: float, options: Options, note: str
) -> Iterator[Result]:
    try:
        runs = _jax_runs(batch, single)
    except ModuleNotFoundError:
        yield Result(
            f"sinkhorn, batch {len(batch.source)}", ours, "s", ours=ours, sizes=batch.sizes,
            note=f"{note}; OTT-JAX is not installed: pip install 'consilience[benchmarks]'",
        )  # fmt: skip
        return
    for name, run in runs.items():
        seconds = best_of(options.repeats, run)
        goal = GOAL_OTT if name.startswith("OTT") else None
        yield Result(
            f"sinkhorn vs {name}, batch {len(batch.source)}", seconds / ours, "x", goal, True, ours, seconds,
            f"{batch.iterations} iterations, what the slowest row needs; {note}", batch.sizes,
        )  # fmt: skip


def _jax_runs(batch: Batch, single: list[Any]) -> dict[str, Callable[[], Any]]:
    """Return OTT's solver in scaling form, vmapped and jitted, and the bare loop of products in JAX."""
    import jax
    import jax.numpy as jnp
    from ott.geometry import geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn as ott_sinkhorn

    count = batch.iterations
    solver = ott_sinkhorn.Sinkhorn(
        lse_mode=False, threshold=TOL, min_iterations=count, max_iterations=count, inner_iterations=count
    )

    @jax.jit
    def by_ott(a: Any, b: Any, cost: Any) -> Any:
        shared = geometry.Geometry(cost_matrix=cost, epsilon=EPSILON)

        def one(p: Any, q: Any) -> Any:
            solved = solver(linear_problem.LinearProblem(shared, p, q))
            return solved.reg_ot_cost, solved.g

        return jax.vmap(one)(a, b)

    @jax.jit
    def by_loop(a: Any, b: Any, cost: Any) -> Any:
        kernel = jnp.exp(-cost / EPSILON)

        def body(_: Any, scalings: Any) -> Any:
            u = a / (scalings[1] @ kernel.T)
            return u, b / (u @ kernel)

        u, v = jax.lax.fori_loop(0, count, body, (jnp.ones_like(a), jnp.ones_like(b)))
        return (a * jnp.log(u)).sum(axis=1) + (b * jnp.log(v)).sum(axis=1), EPSILON * jnp.log(v)

    arrays = [jnp.asarray(array) for array in single]
    g = np.asarray(by_ott(*arrays)[1], dtype=np.float64)
    off = g - g.mean(axis=1, keepdims=True) - batch.beta
    assert np.abs(off).max() < 1e-3, "OTT solved another problem"
    runs = {"OTT-JAX, jitted, fixed iterations": by_ott, "a jitted loop in JAX": by_loop}
    return {name: lambda run=run: jax.block_until_ready(run(*arrays)) for name, run in runs.items()}


def _against_pot(batch: Batch, ours: float, options: Options) -> Iterator[Result]:
    """Compare with the fastest adaptive peer, timed on some rows and scaled up."""
    try:
        import ot
    except ModuleNotFoundError:
        return
    n = len(batch.source)
    rows = 16 if options.quick else 64
    a, b = batch.source[:rows], batch.target[:rows]
    costs = np.broadcast_to(batch.cost, (rows, CLASSES, CLASSES)).copy()

    def one_by_one() -> None:
        for p, q in zip(a, b, strict=True):
            ot.sinkhorn(p, q, batch.cost, EPSILON, stopThr=TOL, numItermax=100_000, warn=False)

    runs: dict[str, Callable[[], Any]] = {
        "ot.sinkhorn, row by row": one_by_one,
        "ot.solve_batch, sinkhorn": lambda: ot.solve_batch(
            costs, EPSILON, a, b, max_iter=100_000, tol=TOL, method="sinkhorn", grad="detach"
        ),
        "ot.solve_batch, log_sinkhorn": lambda: ot.solve_batch(
            costs, EPSILON, a, b, max_iter=100_000, tol=TOL, method="log_sinkhorn", grad="detach"
        ),
    }
    times = {name: best_of(2, run) * n / rows for name, run in runs.items()}
    name = min(times, key=lambda key: times[key])
    yield Result(
        f"sinkhorn vs POT, adaptive, batch {n}", times[name] / ours, "x", GOAL_ADAPTIVE, True, ours,
        times[name], f"{name}, the fastest of {len(runs)}; {rows} rows timed, scaled up", batch.sizes,
    )  # fmt: skip


def _against_autograd(batch: Batch, options: Options) -> Iterator[Result]:
    """Compare the loss and its gradient with autograd through the products."""
    try:
        import torch
    except ModuleNotFoundError:
        return
    from consilience.nn import SinkhornLoss

    teacher, cost = (torch.from_numpy(array).float() for array in (batch.teacher, batch.cost))
    student = torch.from_numpy(batch.student).float().requires_grad_()
    loss = SinkhornLoss(cost, EPSILON, 3.0, "sum", tol=TOL)
    kernel = torch.exp(-cost / EPSILON)

    def unrolled() -> Any:
        a, b = torch.softmax(teacher / 3.0, dim=1), torch.softmax(student / 3.0, dim=1)
        v = torch.ones_like(b)
        for _ in range(batch.iterations):
            u = a / (v @ kernel.T)
            v = b / (u @ kernel)
        return EPSILON * ((a * u.log()).sum() + (b * v.log()).sum() - len(a))

    def gradient(value: Callable[[], Any]) -> Any:
        return torch.autograd.grad(value(), student)[0]

    def ours() -> Any:
        return loss(student, teacher)

    assert torch.allclose(gradient(ours), gradient(unrolled), atol=1e-6)
    fast, slow = (best_of(options.repeats, lambda run=run: gradient(run)) for run in (ours, unrolled))
    n, where = len(teacher), f"{batch.iterations} iterations unrolled"
    yield Result(
        f"SinkhornLoss vs unrolled autograd, batch {n}", slow / fast, "x", GOAL_BACKWARD, True, fast, slow,
        f"forward and backward; {where}", batch.sizes,
    )  # fmt: skip
    saved, theirs = _saved_bytes(ours), _saved_bytes(unrolled)
    yield Result(
        f"SinkhornLoss: saved memory vs unrolled autograd, batch {n}", theirs / saved, "x", GOAL_MEMORY, True,
        note=f"{saved / 1e6:.2g} and {theirs / 1e6:.3g} MB saved for the backward pass; {where}, "
        "and the ratio is about twice their number",
        sizes=batch.sizes,
    )  # fmt: skip


def _saved_bytes(value: Callable[[], Any]) -> int:
    """Return how many bytes autograd keeps from the forward to the backward pass, each storage once."""
    import torch

    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


MEASURES = {"transport": transport}

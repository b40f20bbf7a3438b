"""The exact solver: certified, in little memory, with any threads; compiled as in plain Python."""

import json
import os
import subprocess
import sys
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import softmax

from consilience.kernels.collision import interior_point as module
from consilience.kernels.collision.entropy import lower_bound, total_loss
from consilience.kernels.collision.interior_point import interior_point

SHARPNESS = {"classifier": 1.0, "nearly uniform": 0.005, "confident": 20.0}


class Case(NamedTuple):
    sigma: np.ndarray
    start: np.ndarray
    weight: np.ndarray
    offset: np.ndarray

    def solve(self, tol: float, max_iter: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        return interior_point(self.sigma, self.start.copy(), self.weight, self.offset, tol, max_iter)

    def certify(self, Y: np.ndarray, pi: np.ndarray, nu: np.ndarray) -> tuple[float, float]:
        """Return the mean-form loss and its distance to the minimum at most."""
        loss = total_loss(self.sigma, Y, self.weight, self.offset)
        return loss / len(Y), (loss - lower_bound(self.sigma, pi, nu, self.weight, self.offset)) / len(Y)


def make_case(sharpness: float, seed: int, M: int = 300, K: int = 12, lam: float | None = None) -> Case:
    draw = np.random.default_rng(seed)
    shares = draw.dirichlet(np.full(K, 0.2))  # many classes are nearly empty
    classes = draw.choice(K, M, p=shares)
    logits = 1.5 * draw.normal(size=(M, K)) + 0.7 * np.log(shares + 1e-6)
    logits[np.arange(M), classes] += draw.gamma(1.5, 4, size=M)
    sigma = softmax(sharpness * logits, axis=1)
    lam = float(draw.choice([0.01, 0.4, 3.0, 100.0])) if lam is None else lam
    u = np.full(K, 1 / K)
    if seed % 3 == 1:
        u = draw.dirichlet(np.ones(K))
        u[draw.integers(K)] = 0.0
        u /= u.sum()
    offset = draw.integers(0, 9, K).astype(float) if seed % 4 == 2 else np.zeros(K)
    return Case(sigma, 0.5 * sigma + 0.5 / K, (M + offset.sum()) * lam * u, offset)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sharpness", SHARPNESS.values(), ids=SHARPNESS)
def test_the_gap_is_certified(sharpness: float, seed: int) -> None:
    case = make_case(sharpness, seed)
    Y, pi, nu, n_iter = case.solve(1e-9)
    assert Y.min() >= 0
    np.testing.assert_allclose(Y.sum(axis=1), 1, atol=1e-12)
    assert (nu[case.weight == 0] == 0).all()
    loss, gap = case.certify(Y, pi, nu)
    assert gap <= 2e-9 * max(1.0, loss)
    assert n_iter <= 60


def test_the_number_of_threads_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(1.0, 3)
    monkeypatch.setattr(module, "_CHUNK", 600)  # six chunks
    results = []
    for n_threads in (1, 3):
        monkeypatch.setattr(module, "kernel_threads", lambda n=n_threads: n)
        results.append(case.solve(1e-6))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    monkeypatch.setattr(module, "_CHUNK", 10**9)
    whole = case.solve(1e-6)
    assert case.certify(*whole[:3])[0] == pytest.approx(case.certify(*results[0][:3])[0], abs=3e-6)


def test_it_keeps_one_array_besides_predictions_and_labels() -> None:
    case = make_case(1.0, 0, 20_000, 50, lam=1.0)
    case.solve(1e-3)
    labels = case.start.copy()
    tracemalloc.start()
    Y, *_ = interior_point(case.sigma, labels, case.weight, case.offset, 1e-3, 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert Y is labels
    assert peak < 1.5 * labels.nbytes


SOLVE = """
import json
import numpy as np
from consilience.kernels.collision.first_order import expectation_maximisation
from consilience.kernels.collision.interior_point import interior_point
from consilience.kernels.collision.first_order import projected_gradient

sigma = np.random.default_rng(0).dirichlet(np.full(20, 0.5), size=30)
start = 0.5 * sigma + 0.5 / 20
weight = np.r_[0.0, np.full(19, 3.0)]
offset = np.r_[np.zeros(15), np.ones(5)]
exact, pi, nu, n_iter = interior_point(sigma, start.copy(), weight, offset, 1e-8, 50)
em, em_iter = expectation_maximisation(sigma, start, weight, offset, 1e-3, 40)
descent, _ = projected_gradient(sigma, start, weight, offset, False, 0.5, 1e-3, 10)
print(json.dumps([exact.tolist(), pi.tolist(), nu.tolist(), n_iter, em.tolist(), em_iter, descent.tolist()]))
"""


def test_compiled_and_plain_python_agree(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SOLVE, {})  # noqa: S102 - the code above
    solved = json.loads(capsys.readouterr().out)
    done = subprocess.run(
        [sys.executable, "-c", SOLVE],
        capture_output=True,
        text=True,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for compiled, plain in zip(solved, json.loads(done.stdout), strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-5, atol=1e-8)

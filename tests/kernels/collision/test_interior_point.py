"""The solvers compiled and in plain Python: the same steps, the same labels."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

SOLVE = """
import json
import numpy as np
from consilience.kernels.collision.expectation_maximisation import expectation_maximisation
from consilience.kernels.collision.interior_point import interior_point
from consilience.kernels.collision.long_steps import long_steps
from consilience.kernels.collision.projected_gradient import projected_gradient

sigma = np.random.default_rng(0).dirichlet(np.full(20, 0.5), size=30)
start = 0.5 * sigma + 0.5 / 20
weight = np.r_[0.0, np.full(19, 3.0)]
offset = np.r_[np.zeros(15), np.ones(5)]
exact, pi, nu, n_iter = interior_point(sigma, start, weight, offset, 1e-8, 50)
long, *multipliers, long_iter = long_steps(sigma, start.copy(), weight, offset, 1e-8, 50)
em, em_iter = expectation_maximisation(sigma, start, weight, offset, 1e-3, 40)
descent, _ = projected_gradient(sigma, start, weight, offset, False, 0.5, 1e-3, 10)
print(json.dumps([exact.tolist(), pi.tolist(), nu.tolist(), n_iter, em.tolist(), em_iter, descent.tolist()]
    + [long.tolist(), [array.tolist() for array in multipliers][1], long_iter]))
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

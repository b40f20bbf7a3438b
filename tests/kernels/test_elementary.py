"""exp and log against numpy's, over all that the solvers give them."""

import numpy as np
import pytest

from consilience.kernels.compiled import kernel
from consilience.kernels.elementary import FUSE, exp, log


# in loops, where they compile to vector instructions
@kernel(fastmath=FUSE)
def exp_along(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = exp(x[i])


@kernel(fastmath=FUSE)
def log_along(x, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = log(x[i])


def test_exp_is_right_to_the_last_bits() -> None:
    x = np.concatenate(
        [np.linspace(-708.0, 700.0, 200_001), [0.0, -0.0, 1e-300, -1e-17], np.arange(-700, 700.0)]
    )
    out = np.empty_like(x)
    exp_along(x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=5e-16)


@pytest.mark.parametrize(("x", "expected"), [(-708.1, 0.0), (-1e300, 0.0), (-np.inf, 0.0), (np.nan, np.nan)])
def test_exp_at_its_borders(x: float, expected: float) -> None:
    np.testing.assert_array_equal(kernel()(exp)(x), expected)


def test_log_is_right_to_the_last_bits() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            np.exp(rng.uniform(-707, 709, 200_000)),
            rng.uniform(0.5, 2.0, 200_000),
            2.0 ** np.arange(-1022, 1023),
        ]
    )
    out = np.empty_like(x)
    log_along(x, out)
    np.testing.assert_allclose(out, np.log(x), rtol=5e-16, atol=0)
    assert kernel()(log)(1.0) == 0.0

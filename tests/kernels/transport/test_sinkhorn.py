"""What is said of rows that did not converge."""

import numpy as np
import pytest

from consilience.kernels.transport.sinkhorn import shortfall


@pytest.mark.parametrize("error", [2e-6, np.inf, np.nan])
def test_any_other_row_is(error: float) -> None:
    said = shortfall(np.array([0.0, error, 0.0]), np.array([3, 10, 3]), 1e-6, 10)
    assert said.startswith(f"Sinkhorn stopped at max_iter=10 with marginal error {error:.1e} (tol 1e-06)")
    assert "in 1 of 3 rows" in said
    assert said.endswith("Raise max_iter, epsilon or tol.")


def test_more_iterations_are_no_remedy_where_they_were_not_used_up() -> None:
    said = shortfall(np.array([0.5]), np.array([9]), 1e-6, 10, ("max_iter", "epsilon"))
    assert said.startswith("Sinkhorn stalled at rounding with marginal error 5.0e-01")
    assert said.endswith("Raise epsilon.")

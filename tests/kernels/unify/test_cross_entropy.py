import numpy as np
import pytest
from scipy.special import softmax

from consilience.kernels.unify import cross_entropy
from consilience.kernels.unify.cross_entropy import ce_logits
from consilience.kernels.unify.packed import make_layout


def lanes_at(u: float, trial: float, value: float, trial_value: float, step: float) -> cross_entropy._Lanes:
    z = cross_entropy._make_lanes(2, 1, 2, 2, 1)
    z.u[:], z.trial[:] = u, trial
    z.numbers[cross_entropy._VALUE], z.numbers[cross_entropy._TRIAL_VALUE] = value, trial_value
    z.numbers[cross_entropy._STEP], z.state[:] = step, cross_entropy._TEST
    return z


def test_a_step_that_raises_j_is_halved() -> None:
    z = lanes_at(u=1.0, trial=3.0, value=5.0, trial_value=6.0, step=1.0)
    assert cross_entropy._reject(z, 0)
    assert z.trial.tolist() == [[2.0], [2.0]]
    assert z.numbers[cross_entropy._STEP, 0] == 0.5
    assert z.numbers[cross_entropy._VALUE, 0] == 5.0


@pytest.mark.parametrize(("trial_value", "step"), [(4.0, 1.0), (5.0 + 1e-13, 1.0), (6.0, 1e-7)])
def test_other_steps_are_taken(trial_value: float, step: float) -> None:
    """J falls, or rises by no more than rounding, or there is no shorter step."""
    z = lanes_at(u=1.0, trial=3.0, value=5.0, trial_value=trial_value, step=step)
    assert not cross_entropy._reject(z, 0)
    assert z.trial.tolist() == [[3.0], [3.0]]
    assert z.numbers[cross_entropy._VALUE, 0] == trial_value


def test_a_row_gives_the_same_whatever_the_other_lanes_hold() -> None:
    """Mix rows that need two iterations with rows that need fifty: each has the result it has alone."""
    rng = np.random.default_rng(0)
    columns = np.array([0, 1, 2, 1, 2, 3, 3, 4, 0])
    layout = make_layout(columns, np.array([0, 3, 6, 9]), 5)
    Z = 10.0 ** rng.uniform(-1, 3, size=(200, 1)) * rng.normal(size=(200, 9))
    U, norms, n_iter = ce_logits(Z, layout, 1.0, 1e-8, 200)
    assert (norms <= 1e-8).all()
    assert n_iter.max() > 2 * np.median(n_iter)
    for row in rng.choice(200, 20, replace=False):
        alone, _, iterations = ce_logits(Z[row : row + 1], layout, 1.0, 1e-8, 200)
        assert iterations[0] == n_iter[row]
        np.testing.assert_allclose(softmax(alone[0]), softmax(U[row]), rtol=1e-6, atol=1e-12)

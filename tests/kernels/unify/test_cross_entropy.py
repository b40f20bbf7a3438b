import numpy as np
from scipy.special import softmax

from consilience.kernels.unify.cross_entropy import ce_logits
from consilience.kernels.unify.packed import make_layout


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

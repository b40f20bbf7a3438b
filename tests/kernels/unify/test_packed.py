"""The packed layout: blocks of logits, one per teacher."""

import numpy as np
from scipy.special import logsumexp, softmax

from consilience.kernels.unify.packed import floor_blocks


def test_no_class_is_less_probable_than_its_share_of_the_smoothing() -> None:
    logits = np.array([[0.0, 50.0, 1.0, -30.0, 0.0], [np.nan, np.nan, 4.0, 4.0, 4.0]])
    floored = floor_blocks(logits, np.array([0, 2, 5]), np.full(2, 0.06))
    assert np.isnan(floored[1, :2]).all()
    for row, columns in ((0, slice(0, 2)), (0, slice(2, 5)), (1, slice(2, 5))):
        z = logits[row, columns]
        assert softmax(floored[row, columns]).min() > 0.9 * 0.06 / len(z)
        expected = np.maximum(z - logsumexp(z), np.log(0.06 / len(z)))
        np.testing.assert_allclose(floored[row, columns], expected, rtol=1e-12)

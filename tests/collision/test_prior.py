from __future__ import annotations

import numpy as np
import pytest

from consilience.collision.prior import read_prior
from consilience.collision.pseudo_labels import collision_pseudo_labels
from consilience.exceptions import InvalidInputError


@pytest.mark.parametrize("scale", [1, 7, 1e-320, 1e-3, 1e99])
def test_shares_of_any_scale_sum_to_one(scale: float) -> None:
    shares = read_prior(np.array([3.0, 1.0, 0.0]) * scale, 3)
    assert shares.sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(shares, [0.75, 0.25, 0], atol=2e-3 if scale < 1e-300 else 1e-15)


def test_a_share_of_zero_is_refused_where_it_must_be_positive() -> None:
    with pytest.raises(InvalidInputError, match=r"prior is \[1, 0\]; expected a positive share for each clu"):
        read_prior([1, 0], 2, "cluster", positive=True)
    assert read_prior([1, 0], 2).tolist() == [1, 0]


@pytest.mark.parametrize("prior", [[np.inf, 1], [1e200, 1], [np.nan, 1], [-1, 2], [0, 0]])
def test_what_is_no_share_is_refused(prior: list[float]) -> None:
    with pytest.raises(InvalidInputError, match=r"prior is .* expected a share from 0 for each class, not"):
        read_prior(prior, 2)


def test_counts_are_shares() -> None:
    sigma = np.random.default_rng(0).dirichlet(np.ones(3), size=40)
    counts, shares = (collision_pseudo_labels(sigma, 5.0, prior) for prior in ([2, 1, 1], [0.5, 0.25, 0.25]))
    np.testing.assert_allclose(counts.labels, shares.labels, atol=1e-12)
    assert counts.objective == pytest.approx(shares.objective)

"""Class means and distances between centres, against scikit-learn and plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.kernels.transport import centres
from consilience.kernels.transport.centres import centre_distances, class_means, nearest_other_mean, unit_rows


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([1, 7, 1 << 16]))
@settings(max_examples=25, deadline=None)
def test_means_are_those_of_the_rows(n: int, n_classes: int, seed: int, chunk: int) -> None:
    rng = np.random.default_rng(seed)
    rows, codes = rng.normal(size=(n, 3)), rng.integers(-1, n_classes, n)
    rows[rng.random(n) < 0.1] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(centres, "_CHUNK", chunk)
        means = class_means(rows, codes, n_classes)
    for k in range(n_classes):
        mine = rows[(codes == k) & ~np.isnan(rows[:, 0])]
        if len(mine):
            np.testing.assert_allclose(means[k], mine.mean(axis=0), atol=1e-12)
        else:
            assert np.isnan(means[k]).all()


@given(st.integers(0, 10**6), st.sampled_from([1e-200, 1.0, 1e200]))
@settings(max_examples=25, deadline=None)
def test_normalised_costs_lie_between_0_and_2_and_forget_lengths(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    cost = centre_distances(source * scale, target, True)
    assert cost.shape == (4, 5)
    assert (cost >= 0).all()
    assert (cost <= 2 + 1e-12).all()
    np.testing.assert_allclose(cost, centre_distances(source, target * rng.uniform(0.1, 9, (5, 1)), True))
    cosine = (source @ target.T) / np.linalg.norm(source, axis=1)[:, None] / np.linalg.norm(target, axis=1)
    np.testing.assert_allclose(cost**2, 2 - 2 * cosine, atol=1e-12)


def test_a_row_of_zeros_stays_one() -> None:
    np.testing.assert_array_equal(unit_rows(np.array([[0.0, 0.0], [0.0, 2.0]])), [[0, 0], [0, 1]])


@pytest.mark.parametrize("normalize", [True, False])
def test_a_row_is_judged_by_the_means_of_the_others(normalize: bool) -> None:
    rng = np.random.default_rng(0)
    rows, codes = (
        rng.normal(size=(40, 5)),
        rng.integers(0, 12, 40),
    )  # classes of three rows: its own would tell
    found = nearest_other_mean(rows, codes, 12, normalize)
    for i in range(40):
        rest = np.arange(40) != i
        with_rows = np.unique(codes[rest])
        means = np.stack([rows[rest & (codes == k)].mean(axis=0) for k in with_rows])
        point = rows[i]
        if normalize:
            means, point = unit_rows(means), unit_rows(point[None])[0]
        assert found[i] == with_rows[np.linalg.norm(means - point, axis=1).argmin()]

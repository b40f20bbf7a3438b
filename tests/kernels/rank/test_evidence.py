"""Metrics of rank on rows that are held out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.kernels.held_out import held_out_folds
from consilience.kernels.rank.evidence import (
    SHRINKAGES,
    entropy_rows,
    feature_spectrum,
    held_out_h_score,
    leep_rows,
    transrate_above_chance,
    transrate_value,
)


def problem(seed: int, n: int = 60, d: int = 6, m: int = 5, K: int = 4, signal: float = 1.0):
    """Return features and probabilities that know something, codes, and folds; class K - 1 has one row."""
    rng = np.random.default_rng(seed)
    some = rng.integers(K - 1, size=n - 2 * K + 1)
    codes = np.concatenate([np.arange(K - 1), np.arange(K - 1), some, [K - 1]])  # the others have two or more
    F = signal * rng.normal(size=(K, d))[codes] + rng.normal(size=(n, d)) * np.linspace(0.3, 2, d) + 1.0
    logits = 2 * signal * rng.normal(size=(K, m))[codes] + rng.normal(size=(n, m))
    theta = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    folds = held_out_folds(codes, 3, np.random.RandomState(seed))
    assert (folds < 0).sum() == 1
    return F, theta, codes, folds


def plain_shares(weights: np.ndarray, codes: np.ndarray, folds: np.ndarray, fold: int, K: int) -> np.ndarray:
    """Count P(y | z) (K, m) row by row outside a fold, with one more row of the labels' shares."""
    others = [i for i in range(len(codes)) if folds[i] != fold]
    joint, labels = np.zeros((K, weights.shape[1])), np.zeros(K)
    for i in others:
        joint[codes[i]] += weights[i]
        labels[codes[i]] += 1 / len(others)
    for z in range(weights.shape[1]):
        joint[:, z] = (joint[:, z] + labels) / (joint[:, z].sum() + 1)
    return joint


@pytest.mark.parametrize("seed", range(4))
def test_leep_nce_and_the_entropy_count_other_folds(seed: int) -> None:
    _, theta, codes, folds = problem(seed)
    hard = np.eye(5)[theta.argmax(axis=1)]
    expected = np.full((3, len(codes)), -np.log(4))
    for i in np.flatnonzero(folds >= 0):
        for row, weights in enumerate((theta, hard)):
            P = plain_shares(weights, codes, folds, folds[i], 4)
            expected[row, i] = np.log(sum(P[codes[i], z] * weights[i, z] for z in range(5)))
        P = plain_shares(theta, codes, folds, folds[i], 4)
        expected[2, i] = sum(theta[i, z] * np.log(P[codes[i], z]) for z in range(5))
    assert leep_rows(theta, codes, 4, folds) == pytest.approx(expected[0], abs=1e-12)
    assert leep_rows(hard, codes, 4, folds) == pytest.approx(expected[1], abs=1e-12)
    assert entropy_rows(theta.T, codes, 4, folds) == pytest.approx(expected[2], abs=1e-12)


def plain_h_score(F: np.ndarray, codes: np.ndarray, folds: np.ndarray, K: int, shrinkage: float) -> float:
    """Return the variance of the scaled one-hot labels that a linear model of the other folds explains."""
    d = F.shape[1]
    covariance = np.cov(F, rowvar=False, bias=True)
    C = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    targets, fitted = [], []
    for i in np.flatnonzero(folds >= 0):
        others = folds != folds[i]
        p = np.bincount(codes[others], minlength=K) / others.sum()
        targets.append(((codes[i] == np.arange(K)) - p) / np.sqrt(p))
        m = F[others].mean(axis=0)
        g = np.array([F[others & (codes == k)].mean(axis=0) - m for k in range(K)])
        fitted.append(np.sqrt(p) * (g @ np.linalg.solve(C, F[i] - m)))
    t, f = np.array(targets), np.array(fitted)
    grid = np.linspace(0, 1, 2001)
    return max(((t**2).sum() - ((t - s * f) ** 2).sum()) / len(codes) for s in grid)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d"), [(60, 6), (30, 50)])
def test_the_h_score_is_the_variance_explained_on_other_folds(seed: int, n: int, d: int) -> None:
    F, _, codes, folds = problem(seed, n, d)
    expected = max(plain_h_score(F, codes, folds, 4, share) for share in SHRINKAGES)
    rows = held_out_h_score(F, codes, 4, feature_spectrum(F, centred=True), folds)
    assert rows.mean() == pytest.approx(expected, abs=1e-5)
    assert expected > 0.2
    assert rows[folds < 0] == pytest.approx(0.0)


@pytest.mark.parametrize("seed", range(3))
def test_transrate_above_chance_is_transrate_less_that_of_shuffled_labels(seed: int) -> None:
    F, _, codes, _ = problem(seed)
    spectrum, rng = feature_spectrum(F, centred=True), np.random.RandomState(seed)
    shuffled = [transrate_value(F, rng.permutation(codes), 4, spectrum, 1e-3) for _ in range(3)]
    expected = transrate_value(F, codes, 4, spectrum, 1e-3) - np.mean(shuffled)
    got = transrate_above_chance(F, codes, 4, 1e-3, 3, np.random.RandomState(seed))
    assert got == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_names_and_order_do_not_matter_and_neither_does_the_basis(seed: int, data: st.DataObject) -> None:
    F, theta, codes, folds = problem(seed)
    rng = np.random.default_rng(seed)
    rows, renamed = rng.permutation(len(codes)), np.array(data.draw(st.permutations(range(4))))
    leep = leep_rows(theta, codes, 4, folds)
    again = leep_rows(theta[rows][:, ::-1], renamed[codes][rows], 4, folds[rows])
    assert again == pytest.approx(leep[rows], abs=1e-10)
    value = held_out_h_score(F, codes, 4, feature_spectrum(F, centred=True), folds).mean()
    rotation, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    G = 100.0 * (F @ rotation)[rows] - 7.0
    turned = held_out_h_score(G, renamed[codes][rows], 4, feature_spectrum(G, centred=True), folds[rows])
    assert turned.mean() == pytest.approx(value, abs=1e-6)
    rate = transrate_above_chance(F, codes, 4, 1e-3, 2, np.random.RandomState(0))
    assert transrate_above_chance(
        100.0 * F @ rotation - 7.0, codes, 4, 1e-3, 2, np.random.RandomState(0)
    ) == pytest.approx(rate, abs=1e-6)

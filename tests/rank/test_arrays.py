"""Metrics against plain transcriptions of their definitions, and what must not change them."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience import InvalidInputError
from consilience.exceptions import ConvergenceWarning
from consilience.kernels.rank.evidence import (
    evidence_rows,
    feature_spectrum,
    h_score_rows,
    maximum_evidence,
)
from consilience.kernels.transport.centres import class_sums
from consilience.rank import GBC, LEEP, NCE, NLEEP, OTCE, HScore, LogME, TransRate
from consilience.rank.metrics import EVIDENCE_TOL, warn_of_evidence
from consilience.rank.options import METRICS

FEATURE_METRICS = ("logme", "h_score", "transrate", "gbc")


def features(n: int = 120, d: int = 8, n_classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features that know something about the labels, far from zero and with unequal spreads."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
    F = rng.normal(size=(n_classes, d))[codes] + rng.normal(size=(n, d)) * np.linspace(0.3, 2, d) + 1.0
    return F, codes


def probabilities(n: int = 120, m: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(m, 0.5), n)


def plain_leep(theta: np.ndarray, y: np.ndarray) -> float:
    n, m = theta.shape
    joint = {label: np.zeros(m) for label in set(y.tolist())}
    for row, label in zip(theta, y.tolist(), strict=True):
        joint[label] += row / n
    marginal = sum(joint.values())
    total = 0.0
    for row, label in zip(theta, y.tolist(), strict=True):
        total += np.log(sum(joint[label][z] / marginal[z] * row[z] for z in range(m)))
    return total / n


def plain_nce(theta: np.ndarray, y: np.ndarray) -> float:
    z = theta.argmax(axis=1)
    pairs = list(zip(z.tolist(), y.tolist(), strict=True))
    return sum(np.log(pairs.count(pair) / (z == pair[0]).sum()) for pair in pairs) / len(pairs)


def plain_logme(F: np.ndarray, codes: np.ndarray) -> float:
    """Maximise the evidence of each class over alpha and beta with a general optimiser."""
    n, d = F.shape

    def negative(parameters: np.ndarray, t: np.ndarray) -> float:
        alpha, beta = np.exp(parameters)
        A = alpha * np.eye(d) + beta * F.T @ F
        w = beta * np.linalg.solve(A, F.T @ t)
        fit = beta / 2 * ((F @ w - t) ** 2).sum() + alpha / 2 * (w**2).sum()
        value = n / 2 * np.log(beta) + d / 2 * np.log(alpha) - n / 2 * np.log(2 * np.pi)
        return -(value - fit - np.linalg.slogdet(A)[1] / 2) / n

    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000}
    found = [
        minimize(negative, np.zeros(2), ((codes == c).astype(float),), method="Nelder-Mead", options=options)
        for c in range(codes.max() + 1)
    ]
    return float(np.mean([-one.fun for one in found]))


def plain_h_score(F: np.ndarray, codes: np.ndarray) -> float:
    centres = np.stack([F[codes == c].mean(axis=0) for c in range(codes.max() + 1)])[codes]
    covariance = np.cov(F, rowvar=False, bias=True)
    return float(np.trace(np.linalg.pinv(covariance, rcond=1e-10) @ np.cov(centres, rowvar=False, bias=True)))


def plain_transrate(F: np.ndarray, codes: np.ndarray, epsilon: float = 1e-4) -> float:
    Z = F - F.mean(axis=0)
    Z = Z / np.sqrt((Z**2).sum(axis=1).mean())

    def rate(rows: np.ndarray) -> float:
        gram = rows.T @ rows / (len(rows) * epsilon)
        return 0.5 * np.linalg.slogdet(np.eye(gram.shape[0]) + gram)[1]

    return rate(Z) - sum((codes == c).mean() * rate(Z[codes == c]) for c in range(codes.max() + 1))


def plain_gbc(F: np.ndarray, codes: np.ndarray) -> float:
    total = 0.0
    for c, k in permutations(range(codes.max() + 1), 2):
        a, b = F[codes == c], F[codes == k]
        one, other = (np.eye(F.shape[1]) * part.var(axis=0).mean() for part in (a, b))
        gap, middle = a.mean(axis=0) - b.mean(axis=0), (one + other) / 2
        volume = np.linalg.slogdet(one)[1] + np.linalg.slogdet(other)[1]
        distance = gap @ np.linalg.solve(middle, gap) / 8 + 0.5 * np.linalg.slogdet(middle)[1] - 0.25 * volume
        total -= np.exp(-distance)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_leep_and_nce_are_their_definitions(seed: int) -> None:
    theta, (_, y) = probabilities(seed=seed), features(seed=seed)
    assert LEEP().score(theta, y) == pytest.approx(plain_leep(theta, y), abs=1e-12)
    assert NCE().score(theta, y) == pytest.approx(plain_nce(theta, y), abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "plain", "n", "d", "tolerance"),
    [
        *((LogME(), plain_logme, n, d, 1e-6) for n, d in ((120, 8), (60, 25), (20, 30))),
        *((HScore(), plain_h_score, n, d, 1e-8) for n, d in ((120, 8), (20, 30))),
        *((TransRate(), plain_transrate, n, d, 1e-8) for n, d in ((120, 8), (20, 30))),
        (GBC(n_components=None), plain_gbc, 120, 8, 1e-10),
        (GBC(n_components=8), plain_gbc, 120, 8, 1e-8),  # a rotation, which spheres do not notice
    ],
)
def test_metrics_of_embeddings_are_their_definitions(
    metric: Any, plain: Any, n: int, d: int, tolerance: float
) -> None:
    F, codes = features(n, d, n_classes=3)
    if n < d and plain is plain_logme:  # labels that a linear model fits without error have no maximum
        F[:, : d - 5] = 0.0
    assert metric.score(F, codes) == pytest.approx(plain(F, codes), abs=tolerance)


def test_shrinkage_helps_the_h_score_where_features_outnumber_rows() -> None:
    rng = np.random.default_rng(0)
    noise, codes = rng.normal(size=(40, 100)), np.arange(40) % 4
    assert HScore().score(noise, codes) == pytest.approx(3.0, abs=1e-6)
    assert HScore(shrinkage=True).score(noise, codes) < 0.5


def test_otce_prefers_the_domain_and_the_task_that_are_near() -> None:
    F, codes = features(60)
    near = OTCE().score(F, codes, F, codes)
    rng = np.random.default_rng(0)
    assert near > OTCE().score(F + 1.0, codes, F, codes)
    assert near > OTCE().score(F, rng.permutation(codes), F, codes)


def test_n_leep_sees_clusters_that_are_classes() -> None:
    F, codes = features(200, seed=1)
    F += 5.0 * np.eye(8)[codes]
    blind = NLEEP().score(np.random.default_rng(0).normal(size=F.shape), codes)
    assert NLEEP().score(F, codes) > blind + 0.5
    assert NLEEP().score(F, codes) == NLEEP().score(F, codes)


def test_the_evidence_of_a_row_is_the_formula_with_a_dense_inverse() -> None:
    F, codes = features(40, 5, 3)
    spectrum = feature_spectrum(F)
    found = maximum_evidence(spectrum, *class_sums(F, codes, 3))
    rows = np.empty((40, 3))
    for k in range(3):
        alpha, beta, y = found.alpha[k], found.beta[k], (codes == k).astype(float)
        inverse = np.linalg.inv(alpha * np.eye(5) + beta * F.T @ F)
        error = F @ (beta * inverse @ F.T @ y) - y
        spread = np.einsum("ij,jk,ik->i", F, inverse, F)
        rows[:, k] = 0.5 * np.log(beta / (2 * np.pi)) - 0.5 * beta * (error**2 + spread)
    expected = rows.mean(axis=1)
    got = evidence_rows(F, codes, spectrum, found)
    assert got - got.mean() == pytest.approx(expected - expected.mean(), abs=1e-9)
    assert np.ptp(got) > 0.1
    assert got.mean() == pytest.approx(found.values.mean())


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_names_and_order_of_labels_and_rows_do_not_matter(seed: int, data: st.DataObject) -> None:
    F, codes = features(50, 5, 3, seed)
    theta = probabilities(50, 4, seed)
    names = np.array(data.draw(st.permutations(["owl", "auk", "emu"])))
    rows = np.random.default_rng(seed).permutation(50)
    for metric in ("leep", "nce"):
        score = METRICS[metric]().score
        expected = pytest.approx(score(theta, codes), abs=1e-10)
        assert score(theta[rows], names[codes][rows]) == expected
        assert score(theta[:, ::-1], codes) == expected
    for metric in FEATURE_METRICS:
        score = METRICS[metric]().score
        assert score(F[rows], names[codes][rows]) == pytest.approx(score(F, codes), abs=1e-6)


def test_rows_without_a_label_are_left_out() -> None:
    F, codes = features()
    known = np.arange(len(codes)) % 4 > 0
    partial = np.where(known, codes, -1)
    for metric in ("logme", "h_score", "transrate", "gbc", "n_leep", "nce"):
        score = METRICS[metric]().score
        assert score(F, partial) == pytest.approx(score(F[known], codes[known]), abs=1e-12)
    proba = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
    expected = LEEP().score(proba[known], codes[known])
    assert LEEP().score(proba, partial) == pytest.approx(expected, abs=1e-12)
    source = F[known], codes[known]
    assert OTCE().score(*source, F, partial) == pytest.approx(OTCE().score(*source, *source))
    with pytest.raises(InvalidInputError, match="source_y has rows without a label; leave these rows out"):
        OTCE().score(F, partial, *source)


def test_the_evidence_is_at_its_maximum_or_a_warning_says_so() -> None:
    for seed in range(20):
        F = np.random.default_rng(seed).normal(size=(40, 12))
        found = maximum_evidence(feature_spectrum(F), *class_sums(F, np.arange(40) % 4, 4))
        assert found.change.max() <= EVIDENCE_TOL
    early = maximum_evidence(feature_spectrum(F), *class_sums(F, np.arange(40) % 4, 4), max_iter=2)
    with pytest.warns(ConvergenceWarning, match="was still changing"):
        warn_of_evidence(early)


def test_what_rows_add_is_the_derivative_by_their_weight() -> None:
    """Weigh a row by counting it many times: the score follows the influence to first order."""
    F, codes = features(60, 4, 3)
    variance = h_score_rows(F, codes, feature_spectrum(F, centred=True), *class_sums(F, codes, 3))
    copies = 200
    big, big_codes = np.repeat(F, copies, axis=0), np.repeat(codes, copies)
    own = feature_spectrum(big)  # many copies have another evidence: compare with their own derivative
    evidence = evidence_rows(big, big_codes, own, maximum_evidence(own, *class_sums(big, big_codes, 3)))
    for row in (0, 7, 31):
        more = np.append(np.repeat(np.arange(60), copies), row)
        for rows, score in ((evidence[::copies], LogME().score), (variance, HScore().score)):
            slope = (score(F[more], codes[more]) - score(big, big_codes)) * (60 * copies)
            assert slope == pytest.approx(rows[row] - rows.mean(), rel=0.02, abs=0.02)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: LEEP().score([[0.5, 0.6]], [1]), "sums to 1.1 in row 0"),
        (lambda: LEEP().score(np.full((3, 2), 0.5), [1, 2]), "y has 2 labels and X has 3 rows"),
        (
            lambda: LogME().score(np.zeros((3, 2)), [1, 1, 1]),
            "y has one class, 1",
        ),
        (lambda: LogME().score([[1.0, np.nan], [1, 2]], [0, 1]), "NaN, infinity or .* in row 0"),
        (lambda: LogME().score(np.zeros(3), [0, 1, 0]), "expected numbers"),
        (lambda: LogME().score(np.zeros((0, 3)), []), "expected numbers"),
        (lambda: LogME().score([["a", "b"]], [0]), "expected numbers"),
        (lambda: NCE().score(np.eye(2), [None, "a"]), "y "),
        (
            lambda: GBC(covariance="full").score(np.eye(3), [0, 1, 0]),
            "covariance='full' is unknown",
        ),
        (
            lambda: OTCE().score(np.eye(3), [0, 1, 2], np.eye(2), [0, 1]),
            "3 columns, but embeddings have 2",
        ),
        (
            lambda: OTCE().score(np.eye(2), [0, 1], np.eye(2), [0, 1], source_weight=[0.0, 0.0]),
            "source_weight is 0 for every row",
        ),
        (
            lambda: OTCE().score(np.eye(2), [0, 1], np.eye(2), [0, 1], source_weight=[1.0, -1.0]),
            "source_weight has -1.0 at position 1",
        ),
        (
            lambda: OTCE().score(np.eye(2), [0, 1], np.eye(2), [0, 1], source_weight=["a", "b"]),
            "source_weight has shape",
        ),
        (lambda: NCE().score(np.eye(4), [0, 1, 0, 1], folds=0), "folds=0"),
        (lambda: NCE().score(np.eye(4), [0, 1, 2, 3], folds=2), "no row can be held out. Use folds=1"),
        (lambda: TransRate(n_shuffles=0).score(np.eye(4), [0, 1, 0, 1]), "n_shuffles=0"),
        (lambda: NLEEP(energy=80).score(np.eye(10), [0, 1] * 5), "energy=80 must be at most 1"),
    ],
)
def test_bad_input_gets_one_sentence(call: Callable[[], float], expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        call()

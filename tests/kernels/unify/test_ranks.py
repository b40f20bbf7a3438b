"""Agreement of columns and the joining of groups, against plain loops."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.stats import rankdata

from consilience.kernels.unify.ranks import (
    SHOULDER,
    column_ranks,
    join_groups,
    rank_agreement,
    shared_agreement,
)

OFFSETS = np.array([0, 3, 5, 9])
bounded = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def logits_with_gaps(seed: int = 0, rows: int = 40) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, 9)) * 2
    logits[rng.uniform(size=rows) < 0.3, 3:5] = np.nan
    logits[rng.uniform(size=rows) < 0.2, 5:9] = np.nan
    return logits


def plain_ranks(logits: np.ndarray) -> np.ndarray:
    ranks = np.full(logits.shape, np.nan)
    for start, stop in pairwise(OFFSETS):
        for k in range(start, stop):
            log_p = log_softmax(logits[:, start:stop], axis=1)
            odds = log_p[:, k - start] - np.log1p(-np.exp(log_p[:, k - start]))
            scores = odds + 0.3 * (logits[:, k] - logits[:, start:stop].mean(axis=1))
            known = ~np.isnan(scores)
            ranks[known, k] = rankdata(-scores[known].round(5)) / (known.sum() + 1)
    return ranks


def test_ranks_are_those_of_a_plain_loop() -> None:
    logits = logits_with_gaps()
    logits[3] = logits[4]  # a tie
    np.testing.assert_allclose(column_ranks(logits, OFFSETS), plain_ranks(logits))


@pytest.mark.parametrize("gaps", [False, True])
def test_agreement_is_the_correlation_over_common_rows(gaps: bool) -> None:
    logits = logits_with_gaps() if gaps else np.nan_to_num(logits_with_gaps())
    ranks = column_ranks(logits, OFFSETS)
    found = rank_agreement(ranks, OFFSETS, 7.0)
    weights = 1 / (ranks + SHOULDER / 7)
    for i in range(9):
        for j in range(9):
            both = ~np.isnan(ranks[:, i]) & ~np.isnan(ranks[:, j])
            expected = np.corrcoef(weights[both, i], weights[both, j])[0, 1]
            assert found.correlation[i, j] == pytest.approx(expected)
            assert found.n_common[np.searchsorted(OFFSETS, i, "right") - 1].max() >= both.sum()
    assert found.n_common[0, 1] == (~np.isnan(logits[:, 0]) & ~np.isnan(logits[:, 3])).sum()


def test_a_column_that_never_changes_agrees_with_nothing() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 4))
    logits[:, 3] = 2.0  # a teacher with one class
    found = rank_agreement(column_ranks(logits, np.array([0, 3, 4])), np.array([0, 3, 4]), 4.0).correlation
    assert np.isnan(found[3]).all()
    assert not np.isnan(found[:3, :3]).any()


def plain_join(evidence: np.ndarray, groups: list[int], owners: list[int]) -> list[int]:
    """Average linkage that recomputes every mean from its columns."""
    groups = list(groups)
    while True:
        best, pair = -1.0, None
        for a in set(groups):
            for b in set(groups) - {a}:
                one = [k for k, g in enumerate(groups) if g == a]
                two = [k for k, g in enumerate(groups) if g == b]
                values = [evidence[i, j] for i in one for j in two if not np.isnan(evidence[i, j])]
                clash = {owners[k] for k in one} & {owners[k] for k in two}
                if values and not clash and np.mean(values) >= 0 and np.mean(values) > best:
                    best, pair = float(np.mean(values)), (a, b)
        if pair is None:
            return groups
        groups = [pair[0] if g == pair[1] else g for g in groups]


def same(groups: np.ndarray | list[int]) -> np.ndarray:
    return np.asarray(groups)[:, None] == np.asarray(groups)


@bounded
@given(seed=st.integers(0, 10_000))
def test_groups_are_those_of_plain_average_linkage(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(4), rng.integers(1, 4, 4))
    m = len(owners)
    evidence = rng.uniform(-1.2, 0.8, size=(m, m))
    evidence[rng.uniform(size=(m, m)) < 0.2] = np.nan
    evidence = (evidence + evidence.T) / 2
    groups = np.arange(m)
    if owners[-1] != owners[0]:
        groups[-1] = 0  # two that begin together
    found = join_groups(evidence, groups, owners)
    expected = plain_join(evidence, groups.tolist(), owners.tolist())
    assert (same(found) == same(expected)).all()
    assert not (same(found) & same(owners) & ~np.eye(m, dtype=bool)).any()
    order = rng.permutation(m)
    # whatever the order of columns: the means are equal up to rounding, and no two are tied
    places = np.ix_(order, order)
    moved = join_groups(evidence[places], groups[order], owners[order])
    assert (same(moved) == same(found)[places]).all()


def test_what_is_shared_counts_third_groups_and_leaves_out_what_is_alone() -> None:
    owners = np.arange(5)
    correlation = np.full((5, 5), np.nan)
    correlation[:4, :4] = np.eye(4)
    correlation[0, 1] = correlation[0, 2] = correlation[1, 2] = 0.6
    correlation = np.fmax(correlation, correlation.T)
    found = shared_agreement(correlation, np.arange(5), owners)
    assert found.n_things == 1
    expected = np.zeros((5, 5))
    expected[:3, :3] = 1.0  # 3 is alone, and nothing is known about 4
    np.testing.assert_allclose(found.agreement, expected, atol=1e-9)
    correlation[0, 3] = correlation[3, 0] = 0.2
    correlation[3, 4] = correlation[4, 3] = 0.7
    found = shared_agreement(correlation, np.arange(5), owners)
    assert found.n_things == 2
    assert (
        found.agreement[1, 2] > 0.99 > 0.5 > found.agreement[0, 3]
    )  # they agree with the same others, or not
    values, vectors = np.linalg.eigh(np.nan_to_num(correlation) + np.diag([0, 0, 0, 0, 1]))
    part = vectors @ np.diag(np.maximum(1 - 1 / values, 0)) @ vectors.T
    length = np.sqrt(part.diagonal())
    np.testing.assert_allclose(found.agreement, part / length[:, None] / length)

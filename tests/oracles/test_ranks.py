"""Ranks against scipy's `rankdata`, and their least squares against a dense pseudo-inverse."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import rankdata

from consilience import LabelSpace, estimate_soft_labels
from consilience.kernels.unify.ranks import RankTable, log_odds, rank_scores

LISTS = {
    "connected": [["a", "b", "c"], ["c", "d"], ["d", "a", "e"]],
    "groups": [["a", "b", "c"], ["d", "e"], ["e", "f", "g"]],
    "one class": [["a", "b"], ["c"], ["b", "c"]],
}


def make(name: str, rows: int, seed: int) -> tuple[LabelSpace, np.ndarray]:
    space = LabelSpace(LISTS[name], disconnected="ignore")
    logits = 3.0 * np.random.default_rng(seed).normal(size=(rows, space.n_columns))
    return space, logits.round(1)  # rounding makes ties


def plain_scores(space: LabelSpace, logits: np.ndarray) -> np.ndarray:
    z = np.empty(logits.shape)
    for i in range(space.n_teachers):
        own = logits[:, space.block(i)]
        k = own.shape[1]
        others = [logsumexp(np.delete(own, j, axis=1), axis=1) if k > 1 else own[:, j] for j in range(k)]
        odds = (own - np.stack(others, axis=1)).astype(
            np.float32
        )  # as in `log_odds`, ties in spite of rounding
        column = rankdata(-odds, axis=0) / (len(own) + 1)
        pooled = rankdata(-odds.ravel()).reshape(odds.shape) / (odds.size + 1)
        z[:, space.block(i)] = -0.5 * np.log(column) - 0.5 * np.log(pooled)
    return z


def plain_soft_labels(space: LabelSpace, z: np.ndarray) -> np.ndarray:
    """Minimise the sum of (u + c - z)^2 for each row, with the smallest c: eliminate u, then pinv."""
    of_class = np.eye(space.n_classes)[space.columns]
    of_teacher = np.eye(space.n_teachers)[np.repeat(np.arange(space.n_teachers), np.diff(space.offsets))]
    mean = (of_class / of_class.sum(axis=0)).T
    rest = np.eye(space.n_columns) - of_class @ mean
    c = np.linalg.pinv(rest @ of_teacher) @ rest @ z.T
    return np.asarray(softmax((mean @ (z.T - of_teacher @ c)).T, axis=1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LISTS)
def test_scores_are_those_of_rankdata(name: str, seed: int) -> None:
    space, logits = make(name, 60, seed)
    np.testing.assert_allclose(rank_scores(logits, space.offsets), plain_scores(space, logits), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LISTS)
def test_rows_rank_among_others_as_if_they_were_added_one_by_one(name: str, seed: int) -> None:
    space, others = make(name, 45, seed)
    rows = make(name, 7, seed + 10)[1]
    rows[::3, space.block(0)] = np.nan
    rows[1] = others[3]  # a tie in every column
    others[::5, space.block(1)] = np.nan
    table = RankTable(others, space.offsets)
    for row, found in zip(rows, table.scores(rows), strict=True):
        above, ties, counts = [], [], []
        odds, column = log_odds(others, space.offsets), log_odds(row[None], space.offsets)[0]
        for k in range(space.n_columns):
            block = next(i for i in range(space.n_teachers) if k < space.offsets[i + 1])
            for values in (odds[:, k], odds[:, space.block(block)]):
                answers = values[~np.isnan(values)]
                above.append((answers > column[k]).sum())
                ties.append((answers == column[k]).sum())
                counts.append(answers.size)
        ranks = (np.array(above) + 0.5 * (np.array(ties) + 1)) / (np.array(counts) + 1)
        expected = -0.5 * np.log(ranks).reshape(-1, 2).sum(axis=1)
        np.testing.assert_allclose(found, np.where(np.isnan(row), np.nan, expected), atol=1e-12)


@pytest.mark.parametrize("name", LISTS)
def test_rows_rank_among_themselves_as_among_a_table_of_them(name: str) -> None:
    space, logits = make(name, 60, 0)
    logits[::7, space.block(1)] = np.nan
    np.testing.assert_array_equal(
        RankTable(logits, space.offsets).scores(logits), rank_scores(logits, space.offsets)
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LISTS)
def test_soft_labels_have_the_smallest_shifts(name: str, seed: int) -> None:
    space, logits = make(name, 40, seed)
    expected = plain_soft_labels(space, plain_scores(space, logits))
    np.testing.assert_allclose(estimate_soft_labels(logits, space, "ranks"), expected, atol=1e-10)


def test_many_unconnected_teachers_have_the_smallest_shifts() -> None:
    """With many teachers and few rows the least squares are solved in another way."""
    lists = [[f"{i // 2}", f"{i // 2} {i}", f"only {i}"] for i in range(80)]
    space = LabelSpace(lists, disconnected="ignore")
    logits = np.random.default_rng(0).normal(size=(5, space.n_columns))
    expected = plain_soft_labels(space, plain_scores(space, logits))
    np.testing.assert_allclose(estimate_soft_labels(logits, space, "ranks"), expected, atol=1e-8)

"""What the default of `Unifier` gains over the paper's methods on digits; docs/unify.md has more data."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from benchmarks.papers.default import CROWDS, make_task, run_trial, table

pytestmark = pytest.mark.slow

SEEDS = range(8)
PAPER = ("sd-bs", "ce-bs", "mf-lv-bs", "mf-lf-bs")


@pytest.fixture(scope="module")
def gains() -> dict[tuple[str, str], tuple[float, float]]:
    """Return, for each setting and crowd, the mean gain of auto and of ranks over the best of the paper."""
    X, y = table("digits", None)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # teachers may stop early, and label sets may share nothing
        for setting, crowd in product(("connected", "disjoint"), CROWDS):
            trials = [
                run_trial(make_task(X, y, "digits", setting, crowd, seed), seed, (*PAPER, "auto", "ranks"))
                for seed in SEEDS
            ]
            mean = {name: 100 * float(np.mean([trial[name] for trial in trials])) for name in trials[0]}
            best = max(mean[name] for name in PAPER)
            found[setting, crowd] = (mean["auto"] - best, mean["ranks"] - best)
    return found


def test_teachers_of_mixed_kinds_gain(gains: dict[tuple[str, str], tuple[float, float]]) -> None:
    assert min(gains["connected", "mixed"]) > 1.5


@pytest.mark.parametrize("crowd", CROWDS)
def test_label_sets_without_a_common_class_gain(
    gains: dict[tuple[str, str], tuple[float, float]], crowd: str
) -> None:
    assert min(gains["disjoint", crowd]) > 1.5


def test_teachers_of_one_kind_lose_nothing_to_speak_of(
    gains: dict[tuple[str, str], tuple[float, float]],
) -> None:
    auto, ranks = gains["connected", "logistic"]
    assert auto > -1.5
    assert auto > ranks - 0.5

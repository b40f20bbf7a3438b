"""What the default of `Unifier` gains over the paper's methods on digits; docs/how/default.md has more."""

import warnings
from itertools import product

import numpy as np
import pytest
from benchmarks.papers.default import CROWDS, make_task, run_trial, table

pytestmark = pytest.mark.slow

SEEDS = range(4)
OURS = ("auto", "auto, without neighbours", "ranks")
PAPER = ("sd-bs", "ce-bs", "mf-lv-bs", "mf-lf-bs")


Gains = dict[tuple[str, str], dict[str, float]]


@pytest.fixture(scope="module")
def gains() -> Gains:
    """Return, for each setting and crowd, the mean gain of each of ours over the best of the paper."""
    X, y = table("digits", None)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # teachers may stop early, and label sets may share nothing
        for setting, crowd in product(("connected", "disjoint"), CROWDS):
            trials = [
                run_trial(make_task(X, y, "digits", setting, crowd, seed), seed, (*PAPER, *OURS))
                for seed in SEEDS
            ]
            mean = {name: 100 * float(np.mean([trial[name] for trial in trials])) for name in trials[0]}
            best = max(mean[name] for name in PAPER)
            found[setting, crowd] = {name: mean[name] - best for name in OURS}
    return found


@pytest.mark.parametrize("where", [("connected", "mixed"), *(("disjoint", crowd) for crowd in CROWDS)])
def test_mixed_teachers_and_label_sets_without_a_common_class_gain(
    gains: Gains, where: tuple[str, str]
) -> None:
    assert min(gains[where].values()) > 1.5


def test_teachers_of_one_kind_lose_nothing_to_speak_of_and_neighbours_gain(gains: Gains) -> None:
    found = gains["connected", "logistic"]
    assert found["auto"] > 0.0
    assert found["auto, without neighbours"] > max(-1.5, found["ranks"] - 0.5)
    gained = [each["auto"] - each["auto, without neighbours"] for each in gains.values()]
    assert min(gained) > 0.0
    assert np.mean(gained) > 1.0

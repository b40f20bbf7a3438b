"""SCTD, Sec. 6.2 scaled down: does the metric know which teacher makes the best student?

A double sliding window over the digits in two random orders: windows of five classes, two kinds of networks
as teachers, students of eight rows per class trained with the loss (11) and each teacher. The seeds are not
those by which the metric was chosen.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.papers.assess import SETTINGS, correlations
from benchmarks.papers.sources import load
from benchmarks.papers.windows import make_repository, student_accuracy

from consilience import rank_teachers

pytestmark = pytest.mark.slow

SEEDS = (0, 1)
TASKS = (0, 2, 5)


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    """Pearson correlations between scores and accuracies, mean over the tasks of all seeds."""
    source, setting, each = load("digits"), SETTINGS["digits"], []
    for seed in SEEDS:
        repository = make_repository(source, setting, seed)
        for task in (repository.tasks[place] for place in TASKS):
            truth = {
                name: student_accuracy(task, setting, seed, teacher)
                for name, teacher in repository.teachers.items()
            }
            ranking = rank_teachers(
                repository.teachers, task.X, task.y, ["transport", "logme", "leep"], n_bootstrap=0
            )
            each.append(correlations(ranking, truth))
    return {metric: float(np.mean([one[metric] for one in each])) for metric in each[0]}


def test_transport_knows_the_teachers_that_make_good_students(found: dict[str, float]) -> None:
    assert found["transport"] > 0.4, found


def test_transport_is_no_worse_than_logme(found: dict[str, float]) -> None:
    assert found["transport"] >= found["logme"] - 0.05, found

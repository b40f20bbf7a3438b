"""SCTD, Sec. 6.2 scaled down: does the metric know which teacher makes the best student?

A double sliding window over the digits in a random order: windows of five classes, two kinds of networks
as teachers, students of eight rows per class trained with the loss (11) and each teacher. The seeds are not
those by which the metric was chosen.
"""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.papers import assess

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Pearson correlations between scores and accuracies, mean over two tasks."""
    results = tmp_path_factory.mktemp("results") / "assess.jsonl"
    options = ["--data", "digits", "--trials", "1", "--tasks", "0", "5", "--results", str(results.parent)]
    assess.main([*options, "--only", "transport", "logme", "leep"])
    trials = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    each = [task["pearson"] for trial in trials for task in trial["tasks"]]
    assert len(each) == 2
    return {metric: float(np.mean([one[metric] for one in each])) for metric in each[0]}


def test_transport_knows_the_teachers_that_make_good_students(found: dict[str, float]) -> None:
    assert found["transport"] > max(0.4, found["logme"] - 0.05), found

"""The other protocols of SCTD, Sec. 6.2, on the digits and small: they compute what they say."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from consilience import cost_matrix, sinkhorn

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def papers() -> Iterator[Any]:
    """Return a function that imports a module of the benchmarks, which are not installed."""
    sys.path.insert(0, str(ROOT))
    yield lambda name: import_module(f"benchmarks.papers.{name}")
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def trial(papers: Any) -> dict[str, Any]:
    """Three teachers, one task, and what was found about them."""
    windows, assess = papers("windows"), papers("assess")
    setting = windows.Window(5, 2, 8, 10.0, 0, ((16,),), students=2, steps=30, teacher_steps=60)
    repository = windows.make_repository(papers("sources").load("digits"), setting, 0)
    found = assess.run_task(repository, 0, setting, 0, list(papers("render_assess").FORMS.values()))
    return {"found": {"task": 0, **found}, "repository": repository, "setting": setting}


def test_the_exact_form_scores_the_students_of_each_teacher(papers: Any, trial: dict[str, Any]) -> None:
    task = trial["repository"].tasks[0]
    for name, teacher in trial["repository"].teachers.items():
        students = papers("windows").train_students(task, trial["setting"], 0, teacher)
        assert students.accuracy == trial["found"]["accuracy"][name]
        M = cost_matrix(teacher, task.X, task.y)
        p_T = softmax(teacher.predict_logits(task.X) / 3, axis=1)
        distances = [
            sinkhorn(p_T, softmax(logits.astype(float) / 3, axis=1), M, 0.1).value.mean()
            for logits in students.logits
        ]
        score = trial["found"]["scores"]["eq. (24), exact"][name]
        assert score == pytest.approx(-np.mean(distances), abs=1e-4)

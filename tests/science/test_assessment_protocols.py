"""The exact form of SCTD, Sec. 6.2, on the digits and small: it computes what it says."""

import numpy as np
import pytest
from scipy.special import softmax

from consilience import cost_matrix, sinkhorn

pytest.importorskip("torch")

from benchmarks.papers import assess, render_assess, sources, windows


@pytest.mark.slow
def test_the_exact_form_scores_the_students_of_each_teacher() -> None:
    setting = windows.Window(5, 2, 8, 10.0, 0, ((16,),), students=2, steps=30, teacher_steps=60)
    repository = windows.make_repository(sources.load("digits"), setting, 0)
    found = assess.run_task(repository, 0, setting, 0, list(render_assess.FORMS.values()))
    task = repository.tasks[0]
    for name, teacher in repository.teachers.items():
        students = windows.train_students(task, setting, 0, teacher)
        assert students.accuracy == found["accuracy"][name]
        M = cost_matrix(teacher, task.X, task.y)
        p_T = softmax(teacher.predict_logits(task.X) / 3, axis=1)
        distances = [
            sinkhorn(p_T, softmax(logits.astype(float) / 3, axis=1), M, 0.1).value.mean()
            for logits in students.logits
        ]
        assert found["scores"]["eq. (24), exact"][name] == pytest.approx(-np.mean(distances), abs=1e-4)

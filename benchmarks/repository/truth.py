"""What every model would have given: its answers, and the students that were trained with it.

This is what a search tries to spare. It takes minutes for 200 models, so it is kept in a folder that you
name; the files hold plain arrays.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.repository.problem import Codes, Floats, Problem, Task, make_problem
from consilience import CrossTaskDistiller, Teacher, as_teacher

# What the student of a model is worth. "distil" is CrossTaskDistiller as it comes, which may drop a teacher.
# "paper" has the weight of the paper and drops none. "reuse" is a logistic regression on the embedding.
TRUTHS: dict[str, Mapping[str, Any]] = {"distil": {}, "paper": {"teacher_weight": 10.0}, "reuse": {}}
PLACES = ("reference", "task")


@dataclass(frozen=True)
class Shelf:
    """All that the methods and their judge need: no model has to run again.

    Attributes
    ----------
    about : list of dict
        Name, kind, quality and noise of each model.
    reference : (r, d) array
    reference_y : (r,) array
        Their classes, which no search may see.
    tasks : list of Task
    truth : dict of (tasks, models) arrays
        Accuracies by the keys of `TRUTHS`.
    alone : (tasks,) array
        The accuracy of a student without a teacher.
    answers : dict of arrays
    """

    about: list[dict[str, Any]]
    reference: Floats
    reference_y: Codes
    tasks: list[Task]
    truth: dict[str, NDArray[np.float64]]
    alone: NDArray[np.float64]
    answers: dict[str, NDArray[Any]]

    def teacher(self, model: int, task: int | None = None) -> Teacher:
        """Return a teacher that knows what a model said about a task, or about the reference rows."""
        place = "reference" if task is None else f"task {task}"
        rows = self.reference if task is None else self.tasks[task].X
        return recorded(self.answers, model, place, rows, self.about[model]["name"])


def load_shelf(
    data: str, folder: str | None, cache: Path, n_models: int, n_tasks: int, seed: int, *, quiet: bool = False
) -> Shelf:
    """Read what was found before, or find it."""
    path = cache / f"{data.replace(' ', '-')}-{n_models}-{n_tasks}-{seed}.npz"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        problem = make_problem(data, folder, n_models, n_tasks, seed)
        kept = _measure(problem, quiet)
        partial = path.with_suffix(".part.npz")
        np.savez(partial, **kept)
        partial.rename(path)
        print(f"{data}, seed {seed}: {n_models} models in {time.perf_counter() - started:.0f} s", flush=True)
    with np.load(path, allow_pickle=False) as file:
        kept = dict(file)
    return _shelf(kept, n_tasks)


def recorded(answers: Mapping[str, NDArray[Any]], model: int, place: str, rows: Floats, name: str) -> Teacher:
    """Return a teacher of recorded answers; the embedding of a linear model is the row itself."""
    embeddings = answers.get(f"{model} {place} embeddings")
    if f"{model} linear" in answers:
        embeddings = rows
    return as_teacher(
        answers[f"{model} {place} logits"],
        answers[f"{model} classes"],
        name,
        output="logits",
        embed=embeddings,
    )


def _measure(problem: Problem, quiet: bool) -> dict[str, NDArray[Any]]:
    """Return answers, truth and tasks as arrays by name."""
    kept: dict[str, NDArray[Any]] = {
        "reference": problem.reference,
        "reference_y": problem.reference_y,
    }
    fields = ("name", "kind", "quality", "noise")
    kept |= {field: np.array([getattr(m, field) for m in problem.models]) for field in fields}
    for t, task in enumerate(problem.tasks):
        kept |= {f"task {t} {key}": getattr(task, key) for key in ("X", "y", "X_test", "y_test")}
    for i, model in enumerate(problem.models):
        kept[f"{i} classes"] = model.classes
        places = {"reference": problem.reference} | {
            f"task {t}": task.X for t, task in enumerate(problem.tasks)
        }
        for place, rows in places.items():
            logits, embeddings = model.answer(rows)
            kept[f"{i} {place} logits"] = logits.astype(np.float32)
            if embeddings is rows:
                kept[f"{i} linear"] = np.array(True)
            elif embeddings is not None:
                kept[f"{i} {place} embeddings"] = embeddings
    found = {key: np.full((len(problem.tasks), len(problem.models)), np.nan) for key in TRUTHS}
    kept["alone"] = np.zeros(len(problem.tasks))
    for t, task in enumerate(problem.tasks):
        kept["alone"][t] = _student(None, task, problem.views, {"loss": "none"})
        for i, model in enumerate(problem.models):
            teacher = recorded(kept, i, f"task {t}", task.X, model.name)
            for key in ("distil", "paper"):
                found[key][t, i] = _student(teacher, task, problem.views, TRUTHS[key])
            found["reuse"][t, i] = _reuse(model.answer, task)
        if not quiet:
            best = found["distil"][t].max()
            print(f"  task {t}: alone {kept['alone'][t]:.3f}, best {best:.3f}", flush=True)
    return kept | {f"truth {key}": values for key, values in found.items()}


def _student(teacher: Teacher | None, task: Task, views: list[Floats], options: Mapping[str, Any]) -> float:
    """Return the mean accuracy of students that see the rows by one view each."""
    scores = []
    for seed, view in enumerate(views):
        model = CrossTaskDistiller(teacher, "logistic", random_state=seed, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # teachers may be dropped
            model.fit(task.X @ view, task.y)
        scores.append(model.score(task.X_test @ view, task.y_test))
    return float(np.mean(scores))


def _reuse(answer: Any, task: Task) -> float:
    """Return the accuracy of a logistic regression on a model's embedding, or on its probabilities."""

    def features(rows: Floats) -> Floats:
        logits, embeddings = answer(rows)
        found = np.exp(logits) ** 0.5 if embeddings is None else embeddings
        return np.asarray(found, dtype=np.float32)

    own: Codes = np.flatnonzero(task.y >= 0)
    F, T = features(task.X[own]), features(task.X_test)
    scale = F.std() or 1.0
    linear = LogisticRegression(max_iter=100, tol=1e-2).fit(F / scale, task.y[own])
    return float(linear.score(T / scale, task.y_test))


def _shelf(kept: Mapping[str, NDArray[Any]], n_tasks: int) -> Shelf:
    fields = ("name", "kind", "quality", "noise")
    columns = [kept[field].tolist() for field in fields]
    return Shelf(
        [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)],
        kept["reference"],
        kept["reference_y"],
        [Task(*(kept[f"task {t} {key}"] for key in ("X", "y", "X_test", "y_test"))) for t in range(n_tasks)],
        {key: kept[f"truth {key}"] for key in TRUTHS},
        kept["alone"],
        dict(kept),
    )

"""Measure when the weights of a last layer can replace class centres ("Selective Cross-Task Distillation").

There are two experiments. They use scikit-learn's digits, and features of CUB-200-2011 and CLINC150 from the
folder that CONSILIENCE_DATA (or ``--data-dir``) names:

- ``table``: the accuracy of a model, of the nearest true class mean, and of the nearest row of weights (Table
  2);
- ``shift``: moves the rows of a logistic regression away from the origin, step by step, without changing its
  predictions. Each step measures how often the nearest weights agree with the model on the student's rows. It
  also measures the share of common classes for which the teacher's cheapest class is the class itself, with
  the weights of eq. (8) and with centres from the teacher's predictions.

Run from the root of the repository::

    python -m benchmarks.papers.centres --data digits cub clinc
    python -m benchmarks.render

Every trial appends a line to ``centres.jsonl`` in the folder of ``--results``.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import DATA_VARIABLE, load
from benchmarks.results import source
from consilience import as_teacher, cost_matrix
from consilience.transport import Embedding, ncm_accuracy

RESULTS = records.FOLDER / "centres.jsonl"
SHIFTS = (0, 1, 2, 4, 8)  # in mean lengths of a row
ROWS_PER_CLASS = 5  # of the student
MODELS: dict[str, Callable[[int], Any]] = {
    "network": lambda seed: MLPClassifier(128, max_iter=30, random_state=seed),
    "logistic": lambda seed: LogisticRegression(max_iter=200),
}


class Task(NamedTuple):
    """Rows of a teacher, test rows, and rows of a student. A quarter of the classes are shared."""

    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    X_student: NDArray[Any]
    y_student: NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    warnings.simplefilter("ignore")  # networks may stop early
    about = records.provenance("centres")
    for data in options.data:
        X, y = _load(data, options.data_dir)
        for seed in range(options.seed, options.seed + options.trials):
            task = make_task(X, y, seed)
            trials = [table_trial(task, model, seed) for model in MODELS]
            for trial in [*trials, *shift_trials(task)]:
                records.append(options.results, {"data": data, "seed": seed, **trial, **about})
                print(data, seed, trial, flush=True)


def make_task(X: NDArray[Any], y: NDArray[Any], seed: int) -> Task:
    """Draw the classes and rows of a trial."""
    random = np.random.RandomState(seed)
    classes = random.permutation(np.unique(y))
    size = min(50, len(classes) * 4 // 7)  # two sets of this size that share a quarter
    theirs, mine = classes[:size], classes[size - max(2, size // 4) :][:size]
    first = random.rand(len(y)) < 0.6
    student = np.concatenate([np.flatnonzero(~first & (y == k))[:ROWS_PER_CLASS] for k in np.sort(mine)])
    train, test = first & np.isin(y, theirs), ~first & np.isin(y, theirs)
    return Task(X[train], y[train], X[test], y[test], X[student], y[student])


def table_trial(task: Task, name: str, seed: int) -> dict[str, Any]:
    """Return one row of Table 2."""
    teacher = as_teacher(MODELS[name](seed).fit(task.X, task.y))
    check, own = ncm_accuracy(teacher, task.X_test, task.y_test), ncm_accuracy(teacher, task.X_student)
    return {
        "experiment": "table",
        "model": name,
        "accuracy": [check.model, check.true_centres, check.weight_centres],
        "agreement": own.weight_centres,
    }


def shift_trials(task: Task) -> list[dict[str, Any]]:
    """Return the agreement and the share of common classes found, for each step away from the origin."""
    model = LogisticRegression(max_iter=200).fit(task.X, task.y)
    random = np.random.RandomState(0)
    direction = random.normal(size=task.X.shape[1])
    direction *= np.linalg.norm(task.X, axis=1).mean() / np.linalg.norm(direction)
    intercept, trials = model.intercept_.copy(), []
    for shift in SHIFTS:
        model.intercept_ = intercept - model.coef_ @ (shift * direction)
        teacher, rows = as_teacher(model), task.X_student + shift * direction
        agreement = ncm_accuracy(teacher, rows).weight_centres
        found = {
            centres: _share_found(
                cost_matrix(teacher, rows, task.y_student, cost=Embedding(centres=centres)), teacher, task
            )
            for centres in ("weights", "predictions")
        }
        trials.append({"experiment": "shift", "shift": shift, "agreement": agreement, "found": found})
    return trials


def _share_found(cost: NDArray[np.float64], teacher: Any, task: Task) -> float:
    """Return the share of common classes for which the teacher's cheapest class is the class itself."""
    names = np.unique(task.y_student)
    shared = np.flatnonzero(np.isin(names, teacher.classes))
    return float(np.mean(teacher.classes[cost[:, shared].argmin(axis=0)] == names[shared]))


def render_table(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return Table 2 as Markdown, with the published values."""
    lines = [
        "| data | teacher | whole model | nearest true centre | nearest weights | agreement on foreign rows |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for data, model in dict.fromkeys((t["data"], t["model"]) for t in trials if t["experiment"] == "table"):
        own = {t["seed"]: t for t in trials if (t["data"], t.get("model")) == (data, model)}
        means = np.mean([[*t["accuracy"], t["agreement"]] for t in own.values()], axis=0)
        lines.append(f"| {data} | {model} | " + " | ".join(f"{100 * value:.1f} %" for value in means) + " |")
    values = " | ".join(f"{100 * published[key]:.1f} %" for key in ("model", "true", "weights"))
    lines.append(f"| published: {published['source'].partition(': ')[2]} | | {values} | |")
    return "\n".join([*lines, "", _about(trials)])


def render_shift(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the experiment with rows far from the origin as Markdown."""
    chosen = [t for t in trials if t["experiment"] == "shift"]
    lines = [
        "| data | moved by | agreement | shared classes found: weights | predictions |",
        "|---|---|---|---|---|",
    ]
    for data, shift in dict.fromkeys((t["data"], t["shift"]) for t in chosen):
        own = {t["seed"]: t for t in chosen if (t["data"], t["shift"]) == (data, shift)}.values()
        means = np.mean(
            [[t["agreement"], t["found"]["weights"], t["found"]["predictions"]] for t in own], axis=0
        )
        cells = " | ".join(f"{100 * value:.0f} %" for value in means)
        lines.append(f"| {data} | {shift} lengths | {cells} |")
    return "\n".join([*lines, "", _about(trials)])


def _about(trials: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({trial["seed"] for trial in trials})
    return f"Means over seeds {seeds[0]} to {seeds[-1]}; {source(trials)}"


def _load(name: str, folder: Path | None) -> tuple[NDArray[Any], NDArray[Any]]:
    if name == "digits":
        source = load("digits")
        return source.X, source.y
    place = folder or Path(os.environ.get(DATA_VARIABLE, "."))
    file = {"cub": "cub200_efflite0.npz", "clinc": "clinc150_minilm.npz"}[name]
    with np.load(place / file, allow_pickle=False) as archive:
        return archive["x_train"].astype(np.float32), archive["y_train"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.centres", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", nargs="+", choices=("digits", "cub", "clinc"), default=["digits"])
    parser.add_argument("--data-dir", type=Path, help=f"where the data are; default: ${DATA_VARIABLE}")
    parser.add_argument("--trials", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial")
    results.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

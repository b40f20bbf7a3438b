"""Rerun the teacher assessment of "Selective Cross-Task Distillation" (SCTD, Sec. 6.2) on features.

For each student's task every teacher is scored by each metric, and a student is trained with each teacher;
the figure is Pearson's correlation between scores and the students' test accuracies (Table 11). Seconds per
teacher are recorded, too (Table 13), and for Fig. 8 the three ways to compute eq. (24).

Run from the root of the repository::

    python -m benchmarks.papers.assess --data cub --resume
    python -m benchmarks.render

Every trial appends a line to ``results/assess.jsonl``. With ``--resume``, trials that are there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.papers import records
from benchmarks.papers.sources import load
from benchmarks.papers.windows import Window, make_repository, student_accuracy
from consilience import rank_teachers
from consilience.ranking import Ranking

RESULTS = records.FOLDER / "assess.jsonl"
METRICS = ("transport", "nce", "leep", "logme", "h_score", "n_leep", "gbc", "otce", "transrate")
# the transport metric in other ways, to see what its parts are worth
VARIANTS: dict[str, dict[str, Any]] = {
    "eq. (24), as printed": {"score": "distance", "temperature": 3.0, "epsilon": 0.1},
    "eq. (24), automatic epsilon": {"score": "distance", "temperature": 3.0},
    "plain cost <T, M>": {"score": "cost", "temperature": 3.0},
    "likelihood, temperature 3": {"temperature": 3.0},
    "likelihood, l2 0.01": {"l2": 1e-2},
    "likelihood, cross-fitted": {"folds": 2},
    "likelihood, centres not normalised": {"normalise": False},
    "likelihood, Approximation I": {"approximation": "I", "student": "logistic"},
    "eq. (24), Approximation I": {
        "approximation": "I", "student": "logistic", "score": "distance", "temperature": 3.0,
    },
}  # fmt: skip
SETTINGS = {
    "digits": Window(5, 1, 8, 10.0, 0, ((64,), (128, 32)), students=3, steps=100, teacher_steps=150),
    "cub": Window(100, 25, 8, 100.0, 48, ((256,), (64,)), hidden=64, students=2),
    "cifar100": Window(50, 10, 8, 30.0, 48, ((128,), (64,)), hidden=64, students=2),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials that the command line asks for."""
    options = _parser().parse_args(arguments)
    setting = SETTINGS[options.data]
    networks = [list(hidden) for hidden in setting.networks]  # as JSON has them
    described = {"data": options.data, **asdict(setting), "networks": networks}
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    source = load(options.data, options.data_dir)
    about = records.provenance("assess")
    for seed in range(options.seed, options.seed + options.trials):
        if (described, seed) in done:
            continue
        started = time.perf_counter()
        tasks = run_trial(source, setting, seed, options.tasks, options.only)
        seconds = round(time.perf_counter() - started, 1)
        record = {"experiment": "assess", "setting": described, "seed": seed, "tasks": tasks}
        records.append(options.results, {**record, "seconds": seconds, **about})
        means = {name: np.mean([task["pearson"][name] for task in tasks]) for name in tasks[0]["pearson"]}
        shown = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
        print(f"{options.data}, seed {seed}, {seconds:.0f} s: {shown}", flush=True)


def run_trial(
    source: Any, setting: Window, seed: int, places: Sequence[int] | None, names: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return for each task the accuracies, scores, correlations and seconds per teacher."""
    repository = make_repository(source, setting, seed)
    ways = {**{metric: {"metric": metric} for metric in METRICS}, **VARIANTS}
    ways = {name: ways[name] for name in names or ways}
    tasks = []
    for place in range(len(repository.tasks)) if places is None else places:
        task = repository.tasks[place]
        alone = student_accuracy(task, setting, seed)
        truth = {
            name: student_accuracy(task, setting, seed, teacher)
            for name, teacher in repository.teachers.items()
        }
        scores: dict[str, dict[str, float]] = {}
        pearson: dict[str, float] = {}
        seconds: dict[str, float] = {}
        for name, chosen in ways.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ranking = rank_teachers(repository.teachers, task.X, task.y, n_bootstrap=0, **chosen)
            scores[name] = {row.name: row.score for row in ranking}
            pearson[name] = correlations(ranking, truth)[ranking.metric]
            seconds[name] = float(np.median([row.seconds for row in ranking]))
        tasks.append(
            {
                "task": place,
                "alone": alone,
                "accuracy": truth,
                "scores": scores,
                "pearson": pearson,
                "seconds": seconds,
            }
        )
    return tasks


def correlations(ranking: Ranking, truth: Mapping[str, float]) -> dict[str, float]:
    """Return Pearson's correlation of each metric's scores with the students' accuracies; 0 of a constant."""
    accuracy = np.array([truth[row.name] for row in ranking])
    found = {}
    for metric in ranking.rows[0].scores:
        scores = np.array([row.scores.get(metric, np.nan) for row in ranking])
        known = np.isfinite(scores)
        spread = scores[known].std() * accuracy[known].std() if known.sum() > 2 else 0.0
        found[metric] = float(np.corrcoef(scores[known], accuracy[known])[0, 1]) if spread > 0 else 0.0
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.assess", description=__doc__)
    parser.add_argument("--data", choices=sorted(SETTINGS), default="digits")
    parser.add_argument("--data-dir", help="folder of the data; default: the variable CONSILIENCE_DATA")
    parser.add_argument("--trials", type=int, default=1, help="orders of the classes (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial (0)")
    parser.add_argument("--tasks", type=int, nargs="+", help="places of the students' windows; default: all")
    parser.add_argument("--only", nargs="+", choices=[*METRICS, *VARIANTS], help="leave out other metrics")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to append to")
    parser.add_argument("--resume", action="store_true", help="skip trials that are in the file")
    return parser


if __name__ == "__main__":
    main()

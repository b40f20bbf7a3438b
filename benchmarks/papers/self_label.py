"""Measure how the collision loss and self-labelling change a unified student. No paper has tried them.

The trials follow the random-classes protocol of "Unifying Heterogeneous Classifiers" on scikit-learn's
digits, with method MF-LF and teachers of mixed families. The default seeds were not used to choose the
recipe.

Run from the root of the repository::

    python -m benchmarks.papers.self_label --trials 12
    python -m benchmarks.render

Every trial appends a line to ``self_label.jsonl`` in the folder of ``--results``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import load, split
from benchmarks.papers.trials import SIZES, random_classes
from benchmarks.papers.uhc import Setting, train_teachers
from consilience import Unifier, as_teacher
from consilience.students import Logistic, Network

RESULTS = records.FOLDER / "self_label.jsonl"
STUDENTS = {"default network": Network, "logistic": Logistic}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "collision loss": {"loss": "collision"},
    "self-labelled": {"self_label": True},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    about = records.provenance("self_label")
    warnings.simplefilter("ignore")  # teachers may stop early
    for seed in range(options.seed, options.seed + options.trials):
        started = time.perf_counter()
        accuracy = run_trial(seed)
        seconds = round(time.perf_counter() - started, 1)
        record = {"experiment": "self-label", "seed": seed, "accuracy": accuracy, "seconds": seconds}
        records.append(options.results, record | about)
        print(f"seed {seed}, {seconds:.0f} s: {accuracy}", flush=True)


def run_trial(seed: int) -> dict[str, float]:
    """Return the test accuracy of each student, trained in each way, with and without balancing."""
    source = load("digits")
    rows = split(source, seed, 600)
    trial = random_classes(rows.y_train, **SIZES["lsun"], random_state=seed)
    setting = Setting("digits", "random", (), crowd="mixed")
    teachers = []
    for teacher in train_teachers(source, rows, trial, setting, seed):
        logits = teacher.logits(rows.X_transfer)
        teachers.append(as_teacher(logits, teacher.model.classes_, output="logits"))
    known = np.isin(rows.y_test, trial.classes)
    accuracy = {}
    for name, student in STUDENTS.items():
        for balance in (True, False):
            for way, changes in WAYS.items():
                unified = Unifier(teachers, student(**changes), "mf-lf", balance=balance, random_state=seed)
                score = unified.fit(rows.X_transfer).score(rows.X_test[known], rows.y_test[known])
                accuracy[_key(name, balance, way)] = round(float(score), 5)
    return accuracy


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the comparison as Markdown."""
    latest = {trial["seed"]: trial["accuracy"] for trial in trials}
    lines = ["| student | balanced | " + " | ".join(WAYS) + " |", "|---|---|" + "---|" * len(WAYS)]
    for name in STUDENTS:
        for balance in (True, False):
            plain = _accuracies(latest, _key(name, balance, "plain"))
            cells = [f"{100 * plain.mean():.1f}"]
            for way in list(WAYS)[1:]:
                own = _accuracies(latest, _key(name, balance, way))
                better, worse = int((own > plain).sum()), int((own < plain).sum())
                cells.append(f"{100 * own.mean():.1f} ({better} better, {worse} worse)")
            lines.append(f"| {name} | {'yes' if balance else 'no'} | " + " | ".join(cells) + " |")
    seeds = f"seeds {min(latest)} to {max(latest)}"
    title = "### Self-labelled students (digits)"
    about = (
        f"Test accuracy in per cent, mean of {len(latest)} trials ({seeds}). Brackets show in how many "
        "trials it is better or worse than plain. `python -m benchmarks.papers.self_label`"
    )
    return "\n".join([title, "", about, "", *lines])


def _key(student: str, balance: bool, way: str) -> str:
    return f"{student}, {'balanced' if balance else 'unbalanced'}, {way}"


def _accuracies(latest: Mapping[int, Mapping[str, float]], key: str) -> Any:
    return np.array([accuracy[key] for accuracy in latest.values()])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.self_label", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--trials", type=int, default=12, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=200, help="seed of the first trial")
    results.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

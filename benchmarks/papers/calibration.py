"""Measure calibration by agreement and off-set weighting, on plain and on miscalibrated teachers.

The trials follow the random-classes protocol of "Unifying Heterogeneous Classifiers", with teachers of mixed
families. Miscalibrated teachers multiply their logits by 1, 3 or 1/3, in turn. The result is the accuracy of
the soft labels on the transfer set, whose labels no method sees. The default seeds were not used to choose
the recipe.

Run from the root of the repository::

    python -m benchmarks.papers.calibration --data digits --trials 20
    python -m benchmarks.papers.calibration --data letter --trials 10
    python -m benchmarks.papers.calibration --data cifar100 --trials 6
    python -m benchmarks.render

Every trial appends a line to ``calibration.jsonl`` in the folder of ``--results``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import LOADERS, Source, load, parts, split
from benchmarks.papers.trials import SIZES, random_classes
from benchmarks.papers.uhc import Setting, train_teachers
from consilience import Unifier, as_teacher
from consilience.methods import METHODS

RESULTS = records.FOLDER / "calibration.jsonl"
FACTORS = {"as they are": (1.0,), "logits times 1, 3, 1/3": (1.0, 3.0, 1 / 3)}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "off-set": {"off_set": True},
    "calibrated": {"teacher_temperatures": "agreement"},
    "both": {"off_set": True, "teacher_temperatures": "agreement"},
}
COMPARED = ("ce", "mf-lf")
MOST_ROWS = 5000  # of the transfer set


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    about = records.provenance("calibration")
    warnings.simplefilter("ignore")  # teachers may stop early
    source = load(options.data, options.data_dir)
    for seed in range(options.seed, options.seed + options.trials):
        started = time.perf_counter()
        accuracy = run_trial(source, options.data, seed)
        seconds = round(time.perf_counter() - started, 1)
        record = {"experiment": options.data, "seed": seed, "accuracy": accuracy, "seconds": seconds}
        records.append(options.results, record | about)
        print(f"seed {seed}, {seconds:.0f} s: {accuracy}", flush=True)


def run_trial(source: Source, data: str, seed: int) -> dict[str, float]:
    """Return the accuracy of soft labels for each method and way, on teachers of each kind."""
    rows = split(source, seed, MOST_ROWS)
    y = source.y[parts(source, seed, MOST_ROWS)[0]]  # no teacher and no method sees them
    trial = random_classes(rows.y_train, **SIZES[source.sizes], random_state=seed)
    setting = Setting(data, "random", (), crowd="mixed")
    teachers = train_teachers(source, rows, trial, setting, seed)
    blocks = [teacher.logits(rows.X_transfer) for teacher in teachers]
    known = np.isin(y, trial.classes)
    accuracy = {}
    for kind, factors in FACTORS.items():
        said = [
            as_teacher(block * factors[i % len(factors)], teacher.model.classes_, output="logits")
            for i, (block, teacher) in enumerate(zip(blocks, teachers, strict=True))
        ]
        for method, (way, changes) in product(COMPARED, WAYS.items()):
            if method == "ce" or not changes.get("off_set"):
                unifier = Unifier(said, None, METHODS[method](**changes))
                Q = unifier.estimate(rows.X_transfer)
                right = unifier.label_space().classes[Q.argmax(axis=1)] == y
                accuracy[_key(kind, method, way)] = round(float(right[known].mean()), 5)
    return accuracy


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the comparison as Markdown, a table per data set."""
    parts = []
    for data in dict.fromkeys(trial["experiment"] for trial in trials):
        latest = {trial["seed"]: trial["accuracy"] for trial in trials if trial["experiment"] == data}
        about = (
            f"Accuracy of the soft labels in per cent, mean of {len(latest)} trials "
            f"(seeds {min(latest)} to {max(latest)}); in brackets, against plain. "
            f"`python -m benchmarks.papers.calibration --data {data}`"
        )
        parts.append(f"### Calibrated teachers ({data})\n\n{about}\n\n{_table(list(latest.values()))}")
    return "\n\n".join(parts)


def _table(accuracies: Sequence[Mapping[str, float]]) -> str:
    """Return a row per kind of teachers and method, a column per way."""
    lines = ["| teachers | method | " + " | ".join(WAYS) + " |", "|---|---|" + "---|" * len(WAYS)]
    for kind, method in product(FACTORS, COMPARED):
        plain, cells = _column(accuracies, _key(kind, method, "plain")), []
        for way in WAYS:
            own = _column(accuracies, _key(kind, method, way))
            if not len(own):
                cells.append("")
                continue
            wins, losses = int((own > plain).sum()), int((own < plain).sum())
            against = "" if way == "plain" else f" ({wins} better, {losses} worse)"
            cells.append(f"{100 * own.mean():.1f}{against}")
        lines.append(f"| {kind} | `{method}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _column(accuracies: Sequence[Mapping[str, float]], key: str) -> NDArray[np.float64]:
    return np.array([accuracy[key] for accuracy in accuracies if key in accuracy])


def _key(kind: str, method: str, way: str) -> str:
    return f"{kind}, {method}, {way}"


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("calibration", __doc__, trials=12, seed=300)
    parser.add_argument("--data", choices=LOADERS, default="digits", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    main()

"""Measure how well `Unifier.compare` ranks settings without labels.

The trials are those of ``benchmarks.papers.default``, with other seeds. `compare` sees only the unlabelled
transfer rows. Then each of the settings is fitted on all of these, and asked about test rows. The result is
the rank correlation of support with the accuracy there, and what choosing by support costs.

Run from the root of the repository::

    python -m benchmarks.papers.compare --data digits letter clinc cifar100 --trials 2
    python -m benchmarks.render

Every trial appends a line to ``compare.jsonl`` in the folder of ``--results``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.base import clone

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.default import CROWDS, SETTINGS, SIZES, Task, make_task, table
from benchmarks.results import markdown, source
from consilience import Unifier, as_teacher
from consilience.inspect.comparison import Configuration
from consilience.kernels.compiled import one_thread
from consilience.methods import METHODS

RESULTS = records.FOLDER / "compare.jsonl"
DEFAULT = "auto, balanced"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    warnings.simplefilter("ignore")  # teachers may stop early, and label sets may share nothing
    about = records.provenance("compare")
    for seed in range(options.seed, options.seed + options.trials):
        for data in options.data:
            X, y = table(data, options.data_dir)
            for setting, crowd in product(options.settings, CROWDS):
                started = time.perf_counter()
                with one_thread():
                    found = run_trial(make_task(X, y, data, setting, crowd, seed), seed)
                record = {"data": data, "setting": setting, "crowd": crowd, "seed": seed, **found}
                record["seconds"] = round(time.perf_counter() - started, 1)
                records.append(options.results, record | about)
                rho = correlation(record, "support")
                print(f"{data} {setting} {crowd} {seed}: {rho:.2f} {record['seconds']}", flush=True)


def run_trial(task: Task, seed: int) -> dict[str, Any]:
    """Return what compare says about each of the settings, and its accuracy on test rows."""
    teachers = [
        as_teacher(block, own, output="logits") for block, own in zip(task.blocks, task.classes, strict=True)
    ]
    unifier = Unifier(teachers, "logistic", random_state=seed, disconnected="ignore")
    comparison = unifier.compare(task.X, self_label=[False])
    rows = [
        {
            "name": row.name,
            **{name: round(getattr(row, name), 5) for name in ("support", "agreement", "coverage")},
            "accuracy": round(_accuracy(unifier, row, task), 5),
        }
        for row in comparison
    ]
    return {"rows": rows, "recommended": comparison.recommended.name}


def _accuracy(unifier: Unifier, row: Configuration, task: Task) -> float:
    method = METHODS[row.method](teacher_temperatures=row.teacher_temperatures)
    fitted = clone(unifier).set_params(method=method, balance=row.balance).fit(task.X)
    return float(fitted.score(task.X_test, task.y_test))


def correlation(trial: Mapping[str, Any], criterion: str) -> float:
    """Return the rank correlation of a criterion with the accuracy."""
    figures = np.array([[row[criterion], row["accuracy"]] for row in trial["rows"]])
    return float(np.nan_to_num(spearmanr(*figures.T).statistic))


def lost(trial: Mapping[str, Any], name: str) -> float:
    """Return by how many points some settings are less accurate than the best in hindsight."""
    accuracy = {row["name"]: row["accuracy"] for row in trial["rows"]}
    return 100 * (max(accuracy.values()) - accuracy[name])


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return how well settings are ranked without labels, as Markdown."""
    latest = {tuple(t[k] for k in ("data", "setting", "crowd", "seed")): t for t in trials}
    groups: dict[str, list[Mapping[str, Any]]] = {"**all**": list(latest.values())}
    for kind, ending in (("setting", ""), ("crowd", " teachers"), ("data", "")):
        for trial in latest.values():
            groups.setdefault(f"{trial[kind]}{ending}", []).append(trial)
    choices: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "support": lambda trial: trial["rows"][0]["name"],
        "recommended": lambda trial: trial["recommended"],
        "`auto`, balanced": lambda trial: DEFAULT,
    }
    criteria = ("support", "agreement", "coverage")
    head = ["trials of", "n", *(f"rank correlation of {name}" for name in criteria)]
    head += [f"points lost by {name}" for name in choices]
    lines = []
    for name, group in groups.items():
        rho = [f"{np.mean([correlation(trial, criterion) for trial in group]):.2f}" for criterion in criteria]
        points = [np.mean([lost(trial, choose(trial)) for trial in group]) for choose in choices.values()]
        lines.append([name, str(len(group)), *rho, *(f"{value:.1f}" for value in points)])
    ways = len(next(iter(latest.values()))["rows"])
    seeds = sorted({trial["seed"] for trial in trials})
    about = (
        f"{ways} settings in each trial, seeds from {seeds[0]}. Points lost are against the best of them on "
        f"test rows, chosen in hindsight. {source(trials)}"
    )
    return about + "\n\n" + markdown(head, lines)


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("compare", __doc__, trials=1, seed=2000)
    parser.add_argument("--data", nargs="+", choices=SIZES, default=["digits"], help="default: digits")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["connected", "disjoint", "tail"])
    return parser


if __name__ == "__main__":
    main()

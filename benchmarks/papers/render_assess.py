"""Write what `benchmarks.papers.assess` found as Markdown, from the result file alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.papers import records

RESULTS = records.FOLDER / "assess.jsonl"
TITLES = {"digits": "digits", "cub": "CUB-200", "cifar100": "CIFAR-100"}


def render(found: Iterable[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return the correlations of each metric on each data set, beside Table 11, and seconds beside Table 13.

    Parameters
    ----------
    found : records
        As `benchmarks.papers.assess` wrote them.
    published : mapping
        The part of ``published.json`` about assessment.
    """
    trials: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in found:
        trials[record["setting"]["data"]].append(record)
    if not trials:
        return "Not measured yet."
    names = list(next(iter(trials.values()))[0]["tasks"][0]["pearson"])
    heads = [f"{TITLES[data]} ({_count(found)} tasks)" for data, found in trials.items()]
    lines = [["metric", *heads, "published", "seconds", "published"]]
    lines.append(["---"] * len(lines[0]))
    for name in names:
        cells = [_pearson(found, name) for found in trials.values()]
        seconds = np.median([task["seconds"][name] for task in _tasks(next(iter(trials.values())))])
        table_11, table_13 = (published[table].get(name) for table in ("table_11", "table_13"))
        lines.append(
            [
                name,
                *cells,
                "" if table_11 is None else f"{table_11:.2f}",
                f"{seconds:.3f}",
                "" if table_13 is None else f"{table_13:.2f}",
            ]
        )
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{_legend(trials, published)}"


def _tasks(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [task for trial in trials for task in trial["tasks"]]


def _count(trials: Sequence[Mapping[str, Any]]) -> int:
    return len(_tasks(trials))


def _pearson(trials: Sequence[Mapping[str, Any]], name: str) -> str:
    values = np.array([task["pearson"][name] for task in _tasks(trials) if name in task["pearson"]])
    if not len(values):
        return ""
    return f"{values.mean():.2f} ± {values.std():.2f}"


def _legend(trials: Mapping[str, Sequence[Mapping[str, Any]]], published: Mapping[str, Any]) -> str:
    gains = []
    for data, found in trials.items():
        tasks = _tasks(found)
        alone = 100 * np.mean([task["alone"] for task in tasks])
        best = 100 * np.mean([_accuracy_of_best(task) for task in tasks])
        highest = 100 * np.mean([max(task["accuracy"].values()) for task in tasks])
        gains.append(f"{TITLES[data]} {alone:.1f} %, {best:.1f} % and {highest:.1f} %")
    flat = [record for found in trials.values() for record in found]
    commands = sorted({record["command"] for record in flat})
    commits = sorted({record["commit"][:12] + record["commit"][40:] for record in flat})
    return (
        "Pearson's correlation between scores and the accuracies of the students that each teacher made: "
        f"mean and standard deviation over tasks. Published: {published['source']}, averages of Table 11 "
        "(CUB, images) and seconds per teacher of Table 13; our seconds are those of the first data set. "
        "Students alone, with the teacher that `transport` ranks first, and with the best there is: "
        f"{'; '.join(gains)}.\n\n"
        f"Commit {', '.join(commits)}:\n\n" + "\n".join(f"- `{command}`" for command in commands)
    )


def _accuracy_of_best(task: Mapping[str, Any]) -> float:
    scores = task["scores"]["transport"]
    return float(task["accuracy"][max(scores, key=scores.get)])

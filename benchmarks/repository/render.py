"""The tables of docs/repository-search.md, from the result file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.repository.run import EVERY, RESULTS, SHARE
from benchmarks.results import markdown, source

Record = Mapping[str, Any]
REGRET_GOAL, SECONDS_GOAL = 1.0, 2.0
HEAD = ["method", "best in top 5", "Pearson", "Spearman", "regret, list alone", "regret, 5 % run", "seconds"]
TRUTH_WORDS = {
    "distil": "`CrossTaskDistiller` as it comes",
    "paper": "`CrossTaskDistiller(teacher_weight=10)`",
    "reuse": "logistic regression on the embedding",
}


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the latest full record of each measurement; quick ones show only that the code runs."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    if path.exists():
        for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if not record["quick"]:
                keys = ("data", "seed", "models", "reference", "method")
                foreign = record.setdefault("foreign", False)
                found[*(record[key] for key in keys), foreign] = record
    return list(found.values())


def render(records: Sequence[Record]) -> str:
    """Return all tables as Markdown."""
    if not records:
        return "Nothing has been measured yet."
    largest = {(r["data"], r["seed"]): 0 for r in records}
    for r in records:
        key = r["data"], r["seed"]
        largest[key] = max(largest[key], r["reference"])
    whole = [r for r in records if r["reference"] == largest[r["data"], r["seed"]] and not r["foreign"]]
    fewer = [r for r in records if r not in whole]
    confirmed = [r for r in whole if r["role"] == "confirm"]
    parts = [_methods(confirmed, size) for size in sorted({r["models"] for r in confirmed}, reverse=True)]
    parts += [_by_data(whole, fewer), _truths(confirmed), source(records)]
    return "\n\n".join(part for part in parts if part)


def _methods(records: Sequence[Record], size: int) -> str:
    own = [r for r in records if r["models"] == size]
    names = list(dict.fromkeys(r["method"] for r in own))
    rows = []
    for name in names:
        chosen = [r for r in own if r["method"] == name]
        found = {key: _mean(chosen, "distil", key) for key in chosen[0]["truths"]["distil"]}
        after = "" if name == EVERY else f"{found['after']:.1f}"
        rows.append(
            [
                f"**{name}**" if name == "auto" else name,
                f"{100 * found['recall']:.0f} %",
                f"{found['pearson']:.2f}",
                f"{found['spearman']:.2f}",
                f"{found['first']:.1f}",
                after,
                f"{np.median([r['seconds'] for r in chosen]):.2f}",
            ]
        )
    one = next(r for r in own if r["method"] == "auto")
    data = sorted({f"{r['data']} (seed {r['seed']})" for r in own})
    return (
        f"**{size} models, {one['run']} of them run.** {', '.join(data)}; {one['tasks']} tasks each. A "
        f"model picked at random has a regret of {_mean(own, 'distil', 'random'):.1f} points, a student "
        f"without any teacher one of {_mean(own, 'distil', 'alone'):.1f}.\n\n{markdown(HEAD, rows)}"
    )


def _by_data(whole: Sequence[Record], fewer: Sequence[Record]) -> str:
    rows = []
    chosen = [r for r in (*whole, *fewer) if r["method"] == "auto"]
    for r in sorted(
        chosen, key=lambda r: (r["role"], r["data"], r["seed"], r["foreign"], -r["reference"], r["models"])
    ):
        found = r["truths"]["distil"]
        full = _same(whole, r)
        goals = [found["after"] <= REGRET_GOAL, r["seconds"] <= SECONDS_GOAL]
        rows.append(
            [
                f"{r['data']}, seed {r['seed']}",
                "chose the default" if r["role"] == "chosen" else "confirms",
                f"{r['models']}",
                f"{r['reference']:,}" + (", none of the task's classes" if r["foreign"] else ""),
                f"{found['first']:.1f}",
                f"{found['after']:.1f} (worst task {r['worst']:.1f})",
                "" if full is None else f"{full['truths']['distil']['after']:.1f}",
                f"{r['seconds']:.2f}",
                "met" if all(goals) else f"**not met ({'regret' if not goals[0] else 'seconds'})**",
                f"{r['bytes'] * 1e-3:.0f} kB",
            ]
        )
    head = ["data", "role", "models", "reference rows", "regret, list alone", "regret, 5 % run"]
    head += ["regret, all run", "seconds", "goal", "kept per model"]
    return (
        f"**The default, data set by data set.** The goal is a regret of at most {REGRET_GOAL:g} point with "
        f"at most {100 * SHARE:.0f} % of the models run, in at most {SECONDS_GOAL:g} s.\n\n"
        f"{markdown(head, rows)}"
    )


def _same(whole: Sequence[Record], record: Record) -> Record | None:
    """Return the run of every model in the same repository."""
    keys = ("data", "seed", "models")
    same = [r for r in whole if r["method"] == EVERY and all(r[k] == record[k] for k in keys)]
    return same[0] if same else None


def _truths(records: Sequence[Record]) -> str:
    largest = [r for r in records if r["models"] == max(r["models"] for r in records)]
    names = ("auto", "transport", "h_score", "names", EVERY)
    rows = []
    for truth, words in TRUTH_WORDS.items():
        cells = []
        for name in names:
            own = [r for r in largest if r["method"] == name]
            cells.append(
                f"{_mean(own, truth, 'spearman'):.2f}; {_mean(own, truth, 'first'):.1f}" if own else ""
            )
        rows.append([words, *cells])
    return (
        "**Other ways to use the model.** Spearman's correlation and the regret of the list alone, in the "
        f"large repositories.\n\n{markdown(['what the model is worth', *names], rows)}"
    )


def _mean(records: Sequence[Record], truth: str, key: str) -> float:
    return float(np.mean([r["truths"][truth][key] for r in records]))

"""Write the results of `benchmarks.papers.assess` and `.coarse` as Markdown, from the result files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.papers import records
from benchmarks.results import markdown, source

RESULTS = records.FOLDER / "assess.jsonl"
COARSE_RESULTS = records.FOLDER / "coarse.jsonl"
RANDOM_RESULTS = records.FOLDER / "random_teachers.jsonl"
OLD_NAMES = {"likelihood, l2 0.01": "likelihood, weight decay 0.01"}  # in older result files
TITLES = {"digits": "digits", "cub": "CUB-200", "cifar100": "CIFAR-100", "clinc": "CLINC150"}
# of the random teachers: the order of their columns, the two forms of each metric, and equal scores
KINDS = ["1,000 classes, sure", "1,000 classes, unsure", "200 classes, sure", "width 2,048"]
FORMS_OF = ("folds=1", "folds=2")
SAME = 1e-6
# the three ways to compute eq. (24): (score, source of p_S) -> name of our trial
FORMS = {
    ("eq. (24)", "exact"): "eq. (24), exact",
    ("eq. (24)", "Approximation I"): "eq. (24), Approximation I",
    ("eq. (24)", "Approximation II"): "eq. (24), as printed",
    ("likelihood", "exact"): "likelihood, exact",
    ("likelihood", "Approximation I"): "likelihood, Approximation I",
    ("likelihood", "Approximation II"): "transport",
}

BY_METRIC = ("scores", "pearson", "seconds")  # what a task has for each metric
PUBLISHED_FORM = ", as published"
UNIT = "logme"  # the metric whose time is 1

Tasks = list[Mapping[str, Any]]


def latest_tasks(found: Iterable[Mapping[str, Any]]) -> dict[str, Tasks]:
    """Return the tasks of each data set, with their origins.

    If a task was run twice, the last run counts for each metric. A run may have only some of them.
    """
    latest: dict[str, dict[tuple[int, int], dict[str, Any]]] = defaultdict(dict)
    for record in found:
        origin = (record["command"], record["commit"])
        for task in record["tasks"]:
            tasks, key = latest[record["setting"]["data"]], (record["seed"], task["task"])
            before = tasks.get(key, {"origins": []})
            by_metric = {name: before.get(name, {}) | task[name] for name in BY_METRIC if name in task}
            # of two runs the quicker one counts: the machine had other work, too
            if "seconds" in by_metric:
                for metric, seconds in before.get("seconds", {}).items():
                    by_metric["seconds"][metric] = min(seconds, by_metric["seconds"][metric])
            tasks[key] = before | task | by_metric | {"origins": [*before["origins"], origin]}
    return {data: [tasks[key] for key in sorted(tasks)] for data, tasks in latest.items()}


def render(found: Iterable[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return each metric's correlations next to Table 11, and its time over LogME's next to Table 13.

    Parameters
    ----------
    found : records
        As `benchmarks.papers.assess` wrote them.
    published : mapping
        The part of ``published.json`` about assessment.
    """
    trials = latest_tasks(found)
    if not trials:
        return "Not measured yet."
    times = _times(next(iter(trials.values())))
    found_names = dict.fromkeys(
        name for tasks in trials.values() for task in tasks for name in task["pearson"]
    )
    # the published form stands below its cross-fitted one
    names = sorted(found_names, key=lambda name: list(found_names).index(name.removesuffix(PUBLISHED_FORM)))
    columns = {head: tasks for data in trials for head, tasks in _columns(TITLES[data], trials[data]).items()}
    table_11, table_13 = published["table_11"], published["table_13"]
    rows = []
    for name in names:
        own = None if name + PUBLISHED_FORM in names else name.removesuffix(PUBLISHED_FORM)
        rows.append(
            [
                OLD_NAMES.get(name, name),
                *(_mean(tasks, name) if _run_on_all(tasks, name) else "" for tasks in columns.values()),
                f"{table_11[own]:.2f}" if own in table_11 else "",
                f"{times[name]:.2g} x" if name in times else "",
                f"{table_13[own] / table_13[UNIT]:.2g} x" if own in table_13 else "",
            ]
        )
    table = markdown(["metric", *columns, "published", f"time / {UNIT}", "published"], rows)
    return f"{table}\n\n{_legend(trials, published)}"


def _columns(title: str, tasks: Tasks) -> dict[str, Tasks]:
    """Return the tasks of a data set, and before them those on which every metric was run, if they are fewer.

    So the figures of a column are always over the same tasks.
    """
    names = {name for task in tasks for name in task["pearson"]}
    shared = [task for task in tasks if names <= task["pearson"].keys()]
    return {f"{title} ({len(part)} tasks)": part for part in (shared, tasks) if part}


def _run_on_all(tasks: Tasks, name: str) -> bool:
    return all(name in task["pearson"] for task in tasks)


def _times(tasks: Tasks) -> dict[str, float]:
    """Return the seconds of each metric's fastest task, over those of `UNIT`."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for task in tasks:
        for name, value in task["seconds"].items():
            seconds[name].append(value)
    unit = min(seconds.get(UNIT, []), default=0.0)
    return {name: min(values) / unit for name, values in seconds.items()} if unit else {}


def render_forms(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the correlations of the three ways to compute eq. (24), task by task (Fig. 8).

    Cells are means over the orders of classes that were tried.
    """
    parts = []
    for data, tasks in latest_tasks(found).items():
        known = [task for task in tasks if set(FORMS.values()) <= task["pearson"].keys()]
        if not known:
            continue
        places = sorted({task["task"] for task in known})
        heads = [f"task {place + 1}" for place in places]
        rows = []
        for (score, form), name in FORMS.items():
            by_place = [[t["pearson"][name] for t in known if t["task"] == place] for place in places]
            means = [f"{np.mean(values):.2f}" for values in by_place]
            rows.append([score, form, *means, _mean(known, name)])
        parts.append(markdown([TITLES[data], "p_S", *heads, "all"], rows))
    return "\n\n".join(parts) or "Not measured yet."


def render_gap(found: Iterable[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return how far the fictitious student is from the true ones, by the overlap of classes (Table 12)."""
    parts = []
    for data, tasks in latest_tasks(found).items():
        known = [task for task in tasks if "kl" in task]
        if not known:
            continue
        overlaps = sorted({round(value, 2) for task in known for value in task["overlap"].values()})[::-1]
        rows = []
        for network in dict.fromkeys(name.split(" on ")[0] for task in known for name in task["kl"]):
            for temperature in next(iter(known[0]["kl"].values())):
                rows.append(_gap_row(known, network, temperature, overlaps))
        if data == "cub":
            rows += [_published_row(name, kl, overlaps) for name, kl in published["table_12"].items()]
        heads = [f"{100 * overlap:.0f} %" for overlap in overlaps]
        parts.append(markdown([f"{TITLES[data]}, overlap", *heads, "correlation"], rows))
    return "\n\n".join(parts) or "Not measured yet."


def _gap_row(tasks: Tasks, network: str, temperature: str, overlaps: Sequence[float]) -> list[str]:
    """Return mean divergences by overlap, and their correlation: mean and deviation over tasks."""
    by_overlap: dict[float, list[float]] = defaultdict(list)
    correlations = []
    for task in tasks:
        names = [name for name in task["kl"] if name.split(" on ")[0] == network]
        kl = [task["kl"][name][temperature] for name in names]
        shared = [task["overlap"][name] for name in names]
        correlations.append(np.corrcoef(shared, kl)[0, 1])
        for overlap, value in zip(shared, kl, strict=True):
            by_overlap[round(overlap, 2)].append(value)
    cells = [f"{np.mean(by_overlap[overlap]):.2f}" if by_overlap[overlap] else "" for overlap in overlaps]
    spread = f"{np.mean(correlations):.2f} ± {np.std(correlations):.2f}"
    return [f"{network}, temperature {temperature}", *cells, spread]


def _published_row(name: str, kl: Sequence[float], overlaps: Sequence[float]) -> list[str]:
    """Return the published divergences. The paper has them for its first task: overlaps fall from 1 to 0."""
    cells = [f"{value:.2f}" for value in kl]
    return [f"{name} (published)", *cells, f"{np.corrcoef(overlaps, kl)[0, 1]:.2f}"]


def selected(task: Mapping[str, Any], way: str = "transport") -> str:
    """Return the teacher with the highest score."""
    scores = task["scores"][way]
    return max(scores, key=lambda name: scores[name])


def render_coarse(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the scores of all teachers for all domains, and what students gain (Fig. 10)."""
    groups: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for record in found:
        groups[record["setting"]["classes"]][record["seed"]] = record
    parts = []
    for classes, trials in groups.items():
        tasks = [task for _, trial in sorted(trials.items()) for task in trial["tasks"]]
        domains = list(dict.fromkeys(task["task"] for task in tasks))
        rows = [_coarse_row(domain, domains, tasks) for domain in domains]
        head = [f"task ({classes} classes)", *domains, "alone", "selected", "own domain", "best"]
        parts.append(f"{markdown(head, rows)}\n\n{_coarse_legend(tasks, len(trials))}")
    flat = [trial for trials in groups.values() for trial in trials.values()]
    return "\n\n".join([*parts, _source(flat)]) if parts else "Not measured yet."


def _coarse_row(domain: str, domains: Sequence[str], tasks: Tasks) -> list[str]:
    """Return mean scores, the highest in bold, and mean accuracies for one domain's task."""
    own = [task for task in tasks if task["task"] == domain]
    means = [np.mean([task["scores"]["transport"][name] for task in own]) for name in domains]
    cells = [f"**{m:.2f}**" if m == max(means) else f"{m:.2f}" for m in means]
    accuracies = (
        [task["alone"] for task in own],
        [task["accuracy"][selected(task)] for task in own],
        [task["accuracy"][domain] for task in own],
        [max(task["accuracy"].values()) for task in own],
    )
    return [domain, *cells, *(f"{100 * np.mean(values):.1f} %" for values in accuracies)]


def _coarse_legend(tasks: Tasks, n_trials: int) -> str:
    """Say how often each metric finds the domain, and how much the selected teacher helps."""
    found = [
        f"{sum(selected(task, way) == task['task'] for task in tasks)} by {way}" for way in tasks[0]["scores"]
    ]
    alone = 100 * np.mean([task["alone"] for task in tasks])
    gains = 100 * np.mean([task["accuracy"][selected(task)] for task in tasks]) - alone
    others = 100 * np.mean(
        [value for task in tasks for name, value in task["accuracy"].items() if name != selected(task)]
    )
    return (
        f"Domains found, of {len(tasks)} tasks in {n_trials} trials: {'; '.join(found)}. Students without a "
        f"teacher reach {alone:.1f} %. The selected teacher changes that by {gains:+.1f} points, other "
        f"teachers by {others - alone:+.1f}."
    )


def render_random(found: Iterable[Mapping[str, Any]]) -> str:
    """Return how often random teachers come first, and which question each metric answers."""
    latest = {(json.dumps(record["setting"]), record["seed"]): record for record in found}
    if not latest:
        return "Not measured yet."
    trials = list(latest.values())
    first = next(iter(trials[0]["scores"].values()))
    kinds = [name for name in next(iter(first.values())) if name not in trials[0]["truth"]["distil"]]
    kinds.sort(key=KINDS.index)
    questions = [("distil", "shared"), ("distil", "other"), ("reuse", "shared"), ("reuse", "other")]
    rows = []
    for metric in first:
        counts = [_both(str(_times_first(trials, form, metric, kind)) for form in FORMS_OF) for kind in kinds]
        means = [_both(_answers(trials, form, metric, *one) for form in FORMS_OF) for one in questions]
        rows.append([f"`{metric}`", *counts, *means])
    head = ["metric", *kinds, *(f"{question}, {classes} classes" for question, classes in questions)]
    data = dict.fromkeys(TITLES[trial["setting"]["data"]] for trial in trials)
    legend = (
        "Each cell has the metric as published (`folds=1`), then as `rank_teachers` computes it (`folds=2`). "
        f"The first four columns count, of {len(trials)} rankings, those in which no real teacher scores "
        "above a random one of this kind. The other columns have the mean correlation of scores and true "
        f"answers over the real teachers. Data: {', '.join(data)}."
    )
    return f"{markdown(head, rows)}\n\n{legend}\n\n{_source(trials)}"


def _both(cells: Iterable[str]) -> str:
    """Return what the published and the cross-fitted form give, once if both are the same."""
    published, cross_fitted = cells
    return published if published == cross_fitted else f"{published} → {cross_fitted}"


def _times_first(trials: Tasks, form: str, metric: str, kind: str) -> int:
    """Return in how many rankings no real teacher scores above the random one."""
    times = 0
    for trial in trials:
        scores = trial["scores"][form][metric]
        real = [scores[name] for name in trial["truth"]["distil"] if scores[name] is not None]
        times += scores[kind] is not None and scores[kind] >= max(real) - SAME
    return times


def _answers(trials: Tasks, form: str, metric: str, question: str, classes: str) -> str:
    """Return the mean correlation with one question's answers; a constant score or answer counts as 0."""
    found = []
    for trial in trials:
        if trial["setting"]["classes"] == classes:
            truth = trial["truth"][question]
            pairs = np.array([(trial["scores"][form][metric][name], truth[name]) for name in truth], float)
            pairs = pairs[np.isfinite(pairs).all(axis=1)]
            varied = len(pairs) > 2 and (np.ptp(pairs, axis=0) > SAME).all()
            found.append(np.corrcoef(pairs.T)[0, 1] if varied else 0.0)
    return f"{np.mean(found):.2f}" if found else ""


def _mean(tasks: Tasks, name: str) -> str:
    values = np.array([task["pearson"][name] for task in tasks if name in task["pearson"]])
    if not len(values):
        return ""
    return f"{values.mean():.2f} ± {values.std():.2f}"


def _legend(trials: Mapping[str, Tasks], published: Mapping[str, Any]) -> str:
    gains = []
    for data, tasks in trials.items():
        alone = 100 * np.mean([task["alone"] for task in tasks])
        best = 100 * np.mean([task["accuracy"][selected(task)] for task in tasks])
        highest = 100 * np.mean([max(task["accuracy"].values()) for task in tasks])
        gains.append(f"{TITLES[data]} {alone:.1f} %, {best:.1f} % and {highest:.1f} %")
    return (
        "The table shows Pearson's correlation between the scores of teachers and the accuracies of their "
        "students: mean and standard deviation over tasks. The published columns are the averages of "
        f"Table 11 (CUB, images) and the times per teacher of Table 13 ({published['source']}). "
        "Our times are for the first data set, the median teacher and the fastest task. They include the "
        "training of students, for metrics that need one. Accuracy of students without a teacher, with the "
        f"teacher that `transport` ranks first, and with the best teacher: {'; '.join(gains)}.\n\n"
        + _source([task for tasks in trials.values() for task in tasks])
    )


def _source(found: Sequence[Mapping[str, Any]]) -> str:
    origins = [
        origin
        for record in found
        for origin in record.get("origins", [(record.get("command"), record.get("commit"))])
    ]
    return source({"command": command, "commit": commit} for command, commit in origins)

"""Write the tables of the reproductions as Markdown, from the result files alone.

Run ``python -m benchmarks.papers.render`` to print them, or with ``--output`` to write them to a file.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from benchmarks.papers import records
from benchmarks.papers.unify import RESULTS, SENSITIVITIES
from benchmarks.results import OWN, markdown, source

PUBLISHED = Path(__file__).parent / "published.json"
ALPHA = 0.01  # the paper's
BENCHMARK = "SPV"  # not compared with the others, since it sees the labels
OLD_LOSSES = {"shannon": "cross-entropy"}  # names in older result files
# The columns of the published table with the same trial sizes as ours (Table 1).
COMPARABLE = {
    "cifar100": ("ImageNet VGG16", "ImageNet ResNet34"),
    "clinc": ("ImageNet VGG16", "ImageNet ResNet34"),
    "digits": ("LSUN VGG16", "LSUN ResNet34"),
    "letter": ("LSUN VGG16", "LSUN ResNet34"),
    "mnist": ("LSUN VGG16", "LSUN ResNet34"),
}


@dataclass(frozen=True)
class Column:
    """Accuracies (trials,) of each method in one setting."""

    title: str
    accuracy: Mapping[str, NDArray[np.float64]]
    n_trials: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.render", description=__doc__)
    parser.add_argument("--results", type=Path, default=OWN, help="folder of results; default: %(default)s")
    parser.add_argument("--output", type=Path, help="Markdown file to write; default: print")
    options = parser.parse_args(arguments)
    text = render(
        list(records.read(options.results / RESULTS.name)), json.loads(PUBLISHED.read_text(encoding="utf-8"))
    )
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text, encoding="utf-8")


def render(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return all tables as Markdown.

    Parameters
    ----------
    trials : sequence of records
        As `benchmarks.papers.unify` wrote them.
    published : mapping
        The content of ``published.json``.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for trial in trials:
        groups[trial["experiment"], _family(trial)].append(trial)
    parts = ["# Unifying heterogeneous classifiers: reproduction", _legend(published)]
    for (experiment, _), members in sorted(groups.items(), key=lambda item: item[0][0] != "table"):
        if experiment == "table":
            parts.append(_table(members, published))
        else:
            parts.append(_sensitivity(experiment, members))
    return "\n\n".join(parts) + "\n"


def render_noisy(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the noisy-label experiment as Markdown: a row per loss, a column per noise rate.

    Parameters
    ----------
    trials : sequence of records
        As `benchmarks.papers.noisy` wrote them.
    """
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for trial in trials:
        fixed = {name: value for name, value in trial["setting"].items() if name != "noise_rate"}
        accuracy = {OLD_LOSSES.get(loss, loss): value for loss, value in trial["accuracy"].items()}
        groups[json.dumps(fixed, sort_keys=True)].append({**trial, "accuracy": accuracy})
    parts = []
    for members in groups.values():
        setting = members[0]["setting"]
        by_rate = defaultdict(list)
        for trial in members:
            by_rate[trial["setting"]["noise_rate"]].append(trial)
        columns = [make_column(f"eta {rate:g}", by_rate[rate]) for rate in sorted(by_rate)]
        table = _markdown(
            [f"{column.title} ({column.n_trials} trials)" for column in columns],
            [_with_spread(column) for column in columns],
            "loss",
        )
        title = f"{setting['data']}, {setting['rows']:,} rows, {setting['epochs']} epochs"
        parts.append(f"### Noisy labels ({title})\n\n{table}\n\n{source(members)}")
    return "\n\n".join(parts)


def render_noise_rate(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table for each data set: a row per method, a column per noise rate.

    Parameters
    ----------
    trials : sequence of records
        As `benchmarks.papers.noise_rate` wrote them.
    """
    groups: dict[tuple[str, int], dict[float, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        setting = trial["setting"]
        groups[setting["data"], setting["rows"]][setting["noise_rate"]].append(trial)
    tables = []
    for (data, rows), by_rate in groups.items():
        columns = [make_column(f"eta {rate:g}", by_rate[rate]) for rate in sorted(by_rate)]
        cells = [
            _with_spread(column) | {'estimate of eta, "auto"': _estimate(by_rate[rate])}
            for column, rate in zip(columns, sorted(by_rate), strict=True)
        ]
        members = [trial for some in by_rate.values() for trial in some]
        title = f"**{data}**, at most {rows:,} rows, {columns[0].n_trials} trials"
        table = _markdown([column.title for column in columns], cells, "method")
        tables.append(f"{title}\n\n{table}\n\n{source(members)}")
    return "\n\n".join(tables)


def _estimate(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return mean and standard deviation of the estimates with the generalised loss."""
    values = np.array([trial["estimates"]['generalised-collision, "auto"'] for trial in trials])
    return f"{values.mean():.2f} ± {values.std():.2f}"


def _with_spread(column: Column) -> dict[str, str]:
    """Return mean and standard deviation of each method's accuracy in per cent, the best in bold."""
    best = max(column.accuracy, key=lambda name: float(column.accuracy[name].mean()))
    cells = {
        name: f"{100 * values.mean():.1f} ± {100 * values.std():.1f}"
        for name, values in column.accuracy.items()
    }
    return cells | {best: f"**{cells[best]}**"}


def make_column(title: str, trials: Sequence[Mapping[str, Any]]) -> Column:
    """Collect the trials of one setting. If a seed was run twice, the last run counts."""
    latest = {trial["seed"]: trial["accuracy"] for trial in trials}
    names = next(iter(latest.values()))
    accuracy = {name: np.array([row[name] for row in latest.values()]) for name in names}
    return Column(title, accuracy, len(latest))


def marked(column: Column) -> dict[str, str]:
    """Return mean accuracies: the best in bold, and a star where a method is not significantly worse."""
    compared = {name: values for name, values in column.accuracy.items() if name != BENCHMARK}
    best = max(compared, key=lambda name: float(compared[name].mean()))
    cells = {}
    for name, values in column.accuracy.items():
        text = f"{values.mean():.4f}".lstrip("0")
        if name == best:
            text = f"**{text}**"
        elif name != BENCHMARK and not differs(compared[best], values):
            text = f"{text}\\*"
        cells[name] = text
    return cells


def differs(best: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Return whether two methods differ over the same trials (Wilcoxon signed-rank, two-sided)."""
    if np.array_equal(best, other):
        return False
    return bool(wilcoxon(best, other).pvalue < ALPHA)


def _table(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return Table 2 for one data set: both configurations, next to the published columns."""
    data = trials[0]["setting"]["data"]
    titles, columns = [], []
    for configuration in ("random", "overlapping"):
        own = [trial for trial in trials if trial["setting"]["configuration"] == configuration]
        if not own:
            continue
        column = make_column(configuration, own)
        titles.append(f"{configuration} ({column.n_trials} trials)")
        columns.append(marked(column))
        for name in COMPARABLE.get(data, ()):
            titles.append(f"{configuration}: {name}, published")
            values = published["unify"][configuration][name]
            columns.append({method: f"{value:.4f}".lstrip("0") for method, value in values.items()})
    return f"## Table 2 on {_describe(trials[0])}\n\n{_markdown(titles, columns)}\n\n{source(trials)}"


def _sensitivity(experiment: str, trials: Sequence[Mapping[str, Any]]) -> str:
    """Return one analysis of Sec. 4.2: a column per value."""
    field, _ = SENSITIVITIES[experiment]
    by_value = defaultdict(list)
    for trial in trials:
        by_value[trial["setting"][field]].append(trial)
    columns = [make_column(f"{value:g}", by_value[value]) for value in sorted(by_value)]
    counts = sorted({column.n_trials for column in columns})
    table = _markdown(
        [column.title for column in columns], [marked(column) for column in columns], f"method, {field}"
    )
    configuration = trials[0]["setting"]["configuration"]
    return (
        f"## Sensitivity to {experiment} on {_describe(trials[0])}, {configuration} classes, "
        f"{' to '.join(f'{count}' for count in counts)} trials\n\n{table}\n\n{source(trials)}"
    )


def _family(trial: Mapping[str, Any]) -> str:
    """Return what the trials of one table have in common, as text."""
    varied = {"configuration"} if trial["experiment"] == "table" else {SENSITIVITIES[trial["experiment"]][0]}
    return json.dumps({k: v for k, v in trial["setting"].items() if k not in varied}, sort_keys=True)


def _describe(trial: Mapping[str, Any]) -> str:
    setting = trial["setting"]
    return (
        f"{setting['data']} ({setting['crowd']} as teachers, {setting['epochs']} epochs, "
        f"smoothing {setting['smoothing']:g})"
    )


def _markdown(titles: Sequence[str], columns: Sequence[Mapping[str, str]], corner: str = "method") -> str:
    names = list(columns[0])
    return markdown(
        [corner, *titles], [[name, *(column.get(name, "") for column in columns)] for name in names]
    )


def _legend(published: Mapping[str, Any]) -> str:
    source = published["source"]
    return (
        f"Published values: {source['authors']}, *{source['title']}*, {source['venue']}, {source['table']}. "
        "The tables show mean accuracies. **Bold** marks the best method, leaving aside SPV, which sees the "
        "labels. \\* marks methods that do not differ from it significantly (Wilcoxon signed-rank test over "
        f"trials, alpha {ALPHA:g}). With fewer than 8 trials the test cannot reject, so all are marked."
    )


if __name__ == "__main__":
    main()

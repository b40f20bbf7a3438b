"""The claims of "Unifying Heterogeneous Classifiers with Distillation", and what our trials say of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from benchmarks.evidence.claims import ALPHA, Check, Claim, Values, above
from benchmarks.evidence.figures import Curve, draw
from benchmarks.evidence.trials import point
from benchmarks.papers import records
from benchmarks.papers.render import BENCHMARK, Column, make_column
from benchmarks.papers.unify import SENSITIVITIES

FILE = "unify.jsonl"
TITLES = {
    "digits": "digits",
    "generated": "generated",
    "letter": "letters",
    "mnist": "MNIST",
    "cifar100": "CIFAR-100",
    "cub": "CUB-200",
    "clinc": "CLINC150",
}
LOSSES = ("CE", "MF-P", "MF-LV", "MF-LF")
PROPOSED = [f"{loss}-{how}" for how in ("E", "BP", "BS") for loss in LOSSES]
ALL = ["SD", *PROPOSED, "SD-BS"]
STEADY = ("MF-P-BP", "MF-LF-BP", "CE-BP")  # the methods that Fig. 3 calls robust
SHOWN = ("SD", "SD-BS", *STEADY, "MF-LF-BS")
CLOSE = 0.015  # what "about the same accuracy" and "within 1 %" may mean over a few trials
GAP = 0.04  # the largest gap to SPV that the paper names

Trials = Sequence[Mapping[str, Any]]


def claims(folder: Path, published: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of the paper, checked on the trials in `folder`."""
    trials = list(records.read(folder / FILE))
    random, overlapping = (table_columns(trials, which) for which in ("random", "overlapping"))
    own = [
        _over_sd(random, published["unify"]["random"]),
        _gap_to_supervised(random, published["unify"]["random"]),
        _best_of_all(random),
        _balancing(random, published["unify"]["random"]),
        _balanced_sd(random, published["unify"]["random"]),
        _nonconvex(random, published["unify"]["random"]),
        _all_close(overlapping, published["unify"]["overlapping"]),
        _balancing_harms(overlapping, published["unify"]["overlapping"]),
        _above_supervised(overlapping, published["unify"]["overlapping"]),
        _transfer(trials),
        _temperature(trials),
        _accuracy(trials),
    ]
    return own


def table_columns(trials: Trials, configuration: str) -> list[tuple[Column, Trials]]:
    """Return the accuracies of Table 2 for each data set, with the trials they come from."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for trial in trials:
        setting = trial["setting"]
        if trial["experiment"] == "table" and setting["configuration"] == configuration:
            groups[setting["data"]].append(trial)
    return [(make_column(TITLES[data], own), own) for data, own in sorted(groups.items())]


def sensitivity(trials: Trials, which: str) -> list[tuple[str, dict[float, Column], Trials]]:
    """Return an analysis of Sec. 4.2 for each data set: a column for each value that was varied."""
    name, _ = SENSITIVITIES[which]
    groups: dict[str, dict[float, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial["experiment"] == which:
            groups[trial["setting"]["data"]][trial["setting"][name]].append(trial)
    found = []
    for data, by_value in sorted(groups.items()):
        columns = {value: make_column(f"{value:g}", by_value[value]) for value in sorted(by_value)}
        found.append((TITLES[data], columns, [trial for own in by_value.values() for trial in own]))
    return found


def figures(folder: Path) -> dict[str, str]:
    """Return the curves of Fig. 3, by file name."""
    trials = list(records.read(folder / FILE))
    across = {
        "transfer": ("rows of the transfer set, at most", True),
        "temperature": ("temperature T", False),
        "accuracy": ("accuracy of the teachers, at most", False),
    }
    drawn = {}
    for which, (axis, log) in across.items():
        for title, columns, own in sensitivity(trials, which):
            curves = [Curve(name, _points(columns, name)) for name in SHOWN]
            heading = f"{title}, {_fewest(columns)} trials: student by {axis}"
            data = own[0]["setting"]["data"]
            drawn[f"uhc-{which}-{data}.svg"] = draw(heading, axis, "accuracy in per cent", curves, log=log)
    return drawn


def _points(columns: Mapping[float, Column], name: str) -> list[tuple[float, float, float]]:
    """Return mean and standard error of a method, in per cent, at each value."""
    return [point(value, 100 * column.accuracy[name]) for value, column in columns.items()]


def _fewest(columns: Mapping[float, Column]) -> int:
    return min(column.n_trials for column in columns.values())


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _checks(
    columns: Sequence[tuple[Column, Trials]], check: Any
) -> tuple[list[Check], list[Mapping[str, Any]]]:
    """Apply a function of accuracies, (figures, comparisons), to each data set."""
    found, looked_at = [], []
    for column, own in columns:
        words, comparisons = check(column.accuracy)
        found.append(Check(column.title, column.n_trials, words, comparisons))
        looked_at += own
    return found, looked_at


def _span(values: Sequence[float]) -> str:
    return f"{100 * min(values):.1f} to {100 * max(values):.1f}"


def _margins(published: Mapping[str, Mapping[str, float]], names: Sequence[str], base: str) -> list[float]:
    return [column[name] - column[base] for column in published.values() for name in names]


def _over_sd(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        margins = [float((accuracy[name] - accuracy["SD"]).mean()) for name in PROPOSED]
        return f"{_span(margins)} points", {name: above(accuracy[name], accuracy["SD"]) for name in PROPOSED}

    checks, own = _checks(columns, check)
    return Claim(
        "All proposed methods beat SD",
        "Table 2, random classes",
        "SD gives classes that a teacher does not know a probability of 0. All twelve proposed methods do "
        'better, "by a large margin of 9-15%".',
        f"{_span(_margins(published, PROPOSED, 'SD'))} points above SD, over methods and columns.",
        "each of the twelve methods is above SD over the trials.",
        checks,
        own,
    )


def _gap_to_supervised(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        gaps = {name: float((accuracy[BENCHMARK] - accuracy[name]).mean()) for name in ("CE-BS", "MF-LF-BS")}
        words = ", ".join(f"{name} {_percent(gap)}" for name, gap in gaps.items())
        return f"{words} points below", {name: gap <= GAP for name, gap in gaps.items()}

    checks, own = _checks(columns, check)
    gaps = [column[BENCHMARK] - column[name] for column in published.values() for name in PROPOSED]
    return Claim(
        "The gap to supervised training is small",
        "Table 2, random classes",
        "SPV trains the same student on the teachers' own labelled data. The proposed methods come within "
        '"a gap of 1-4%" of it, without any label.',
        f"{_span(gaps)} points below SPV, over methods and columns.",
        f"the mean gap of CE-BS, and that of MF-LF-BS, is at most {100 * GAP:g} points.",
        checks,
        own,
        remark=(
            "The gap is a matter of the data: how much a teacher learns from 50 to 200 rows of a class, and "
            "how many transfer rows are of its classes."
        ),
    )


def _best_of_all(columns: Sequence[tuple[Column, Trials]]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        best = max(ALL, key=lambda name: float(accuracy[name].mean()))
        gap = float((accuracy[best] - accuracy["MF-LF-BS"]).mean())
        met = best == "MF-LF-BS" or not _differs(accuracy[best], accuracy["MF-LF-BS"])
        words = "it is the best" if best == "MF-LF-BS" else f"{_percent(gap)} points below {best}"
        return words, {f"not below {best}": met}

    checks, own = _checks(columns, check)
    return Claim(
        "MF-LF-BS is always among the best",
        "Table 2, random classes",
        "MF-LF-BS performs best, or does not differ significantly from the best method, in all cases. "
        "The authors recommend it.",
        "best or not significantly different in all 6 columns.",
        f"of the paper's methods, none differs from MF-LF-BS and is better (two-sided signed-rank test, "
        f"alpha {ALPHA:g}).",
        checks,
        own,
    )


def _differs(first: Values, second: Values) -> bool:
    return not np.array_equal(first, second) and bool(wilcoxon(first, second).pvalue < ALPHA)


def _balancing(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        gains = [float((accuracy[f"{loss}-BS"] - accuracy[f"{loss}-E"]).mean()) for loss in LOSSES]
        met = {loss: above(accuracy[f"{loss}-BS"], accuracy[f"{loss}-E"]) for loss in LOSSES}
        return f"{_span(gains)} points", met

    checks, own = _checks(columns, check)
    gains = [c[f"{loss}-BS"] - c[f"{loss}-E"] for c in published.values() for loss in LOSSES]
    return Claim(
        "Balanced soft labels help",
        "Table 2, random classes",
        "Methods with balanced soft labels (BS) consistently do better than the same methods without (E), "
        "by less than 1.5 points.",
        f"{_span(gains)} points gained, over methods and columns.",
        "BS is above E over the trials, for each of CE, MF-P, MF-LV and MF-LF.",
        checks,
        own,
    )


def _balanced_sd(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        gain = float((accuracy["SD-BS"] - accuracy["SD"]).mean())
        behind = float((accuracy["MF-LF-BS"] - accuracy["SD-BS"]).mean())
        met = {
            "above SD": above(accuracy["SD-BS"], accuracy["SD"]),
            "below CE-BS": above(accuracy["CE-BS"], accuracy["SD-BS"]),
            "below MF-LF-BS": above(accuracy["MF-LF-BS"], accuracy["SD-BS"]),
        }
        return f"{_percent(gain)} points above SD, {_percent(behind)} below MF-LF-BS", met

    checks, own = _checks(columns, check)
    gains = _margins(published, ["SD-BS"], "SD")
    return Claim(
        "Balancing saves SD, but not wholly",
        "Table 2, random classes",
        "Balanced soft labels improve SD by more than 10 points. It still stays below CE and MF methods, so "
        "it pays to model how the teachers' classes relate.",
        f"SD-BS {_span(gains)} points above SD, and below CE-BS and MF-LF-BS in all 6 columns.",
        "SD-BS is above SD, and below CE-BS and MF-LF-BS, over the trials.",
        checks,
        own,
    )


def _nonconvex(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        gains = {
            loss: float((accuracy[f"{loss}-BP"] - accuracy[f"{loss}-E"]).mean()) for loss in ("MF-P", "MF-LV")
        }
        met = {loss: above(accuracy[f"{loss}-BP"], accuracy[f"{loss}-E"]) for loss in gains}
        return ", ".join(f"{loss} {100 * gain:+.1f} points" for loss, gain in gains.items()), met

    checks, own = _checks(columns, check)
    gains = [c[f"{loss}-BP"] - c[f"{loss}-E"] for c in published.values() for loss in ("MF-P", "MF-LV")]
    return Claim(
        "Non-convex losses do better by backpropagation",
        "Table 2, random classes",
        "MF-P and MF-LV have non-convex losses. They do better when the student is trained on them directly "
        "(BP) than when soft labels are estimated first (E).",
        f"BP {_span(gains)} points above E, over both methods and all columns.",
        "BP is above E over the trials, for MF-P and for MF-LV.",
        checks,
        own,
    )


def _all_close(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        means = {name: float(accuracy[name].mean()) for name in ALL}
        middle = float(np.median(list(means.values())))
        words = f"{_span(list(means.values()))} %, over methods"
        return words, {name: abs(mean - middle) <= CLOSE for name, mean in means.items()}

    checks, own = _checks(columns, check)
    spans = [max(c[m] for m in ALL) - min(c[m] for m in ALL) for c in published.values()]
    return Claim(
        "With the same classes, all methods are close",
        "Table 2, completely overlapping classes",
        "If all teachers know all classes, every method, SD among them, reaches about the same accuracy.",
        f"best and worst method are {_span(spans)} points apart.",
        f"each method is within {100 * CLOSE:g} points of the median method.",
        checks,
        own,
    )


def _balancing_harms(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    pairs = {"SD": ("SD", "SD-BS"), **{loss: (f"{loss}-E", f"{loss}-BS") for loss in LOSSES}}

    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        losses = [float((accuracy[a] - accuracy[b]).mean()) for a, b in pairs.values()]
        met = {name: above(accuracy[a], accuracy[b]) for name, (a, b) in pairs.items()}
        return f"{_span(losses)} points lost", met

    checks, own = _checks(columns, check)
    losses = [c[a] - c[b] for c in published.values() for a, b in pairs.values()]
    return Claim(
        "With the same classes, balancing does harm",
        "Table 2, completely overlapping classes",
        "Where all teachers know all classes, balanced soft labels (BS) are slightly worse than plain ones.",
        f"{_span(losses)} points lost, over methods and columns.",
        "the plain form is above BS over the trials, for SD, CE, MF-P, MF-LV and MF-LF.",
        checks,
        own,
        remark="Balancing assumes that all classes have the same share, so it helps where they do.",
    )


def _above_supervised(columns: Sequence[tuple[Column, Trials]], published: Mapping[str, Any]) -> Claim:
    def check(accuracy: Mapping[str, Values]) -> tuple[str, dict[str, bool]]:
        margins = {name: float((accuracy[name] - accuracy[BENCHMARK]).mean()) for name in ALL}
        best = max(margins, key=lambda name: margins[name])
        words = f"best: {best}, {100 * margins[best]:+.1f} points"
        return words, {f"{best} above SPV": above(accuracy[best], accuracy[BENCHMARK])}

    checks, own = _checks(columns, check)
    margins = [max(c[name] for name in ALL) - c[BENCHMARK] for c in published.values()]
    return Claim(
        "Distillation may beat supervised training",
        "Table 2, completely overlapping classes",
        "On LSUN and Places365, methods without labels often do better than SPV.",
        f"the best method is {_span(margins)} points above SPV; above it in "
        f"{sum(m > 0 for m in margins)} of {len(margins)} columns.",
        "the best method is above SPV over the trials.",
        checks,
        own,
    )


def _ends(columns: Mapping[float, Column], name: str) -> tuple[Values, Values]:
    """Return the accuracies at the smallest and at the largest value, for seeds that have both."""
    first, *_, last = columns.values()
    fewest = min(first.n_trials, last.n_trials)
    return first.accuracy[name][:fewest], last.accuracy[name][:fewest]


def _sensitive(trials: Trials, which: str, check: Any) -> tuple[list[Check], list[Mapping[str, Any]]]:
    found, looked_at = [], []
    for title, columns, own in sensitivity(trials, which):
        words, comparisons = check(columns)
        found.append(Check(title, _fewest(columns), words, comparisons))
        looked_at += own
    return found, looked_at


def _transfer(trials: Trials) -> Claim:
    def check(columns: Mapping[float, Column]) -> tuple[str, dict[str, bool]]:
        names = ("SD", "SD-BS", *STEADY)
        drops = {name: float(np.subtract(*_ends(columns, name)[::-1]).mean()) for name in names}
        met = {f"{name} falls": above(*_ends(columns, name)[::-1]) for name in names}
        for value, column in columns.items():
            worst = min(STEADY, key=lambda name: float(column.accuracy[name].mean()))
            met[f"above SD at {value:g}"] = above(column.accuracy[worst], column.accuracy["SD"])
        met["MF-P-BP falls most"] = max(STEADY, key=lambda name: drops[name]) == "MF-P-BP"
        words = ", ".join(f"{name} {_percent(drop)}" for name, drop in drops.items())
        return f"points lost from most to fewest rows: {words}", met

    checks, own = _sensitive(trials, "transfer", check)
    return Claim(
        "Fewer transfer rows cost accuracy",
        "Fig. 3a",
        "All methods get worse with fewer unlabelled rows, MF-P-BP most. All proposed methods stay above SD.",
        "curves without numbers.",
        "each method is lower with the fewest rows than with the most; of the three BP methods MF-P-BP falls "
        "most, and at each size the worst of them is above SD.",
        checks,
        own,
    )


def _temperature(trials: Trials) -> Claim:
    def check(columns: Mapping[float, Column]) -> tuple[str, dict[str, bool]]:
        low, high = _ends(columns, "SD")
        few, much = _ends(columns, "SD-BS")
        ranges = {
            name: float(np.ptp([column.accuracy[name].mean() for column in columns.values()]))
            for name in ("SD", "SD-BS", *STEADY)
        }
        met = {"SD falls at high T": above(low, high), "SD-BS falls at low T": above(much, few)}
        met |= {f"{name} varies less than SD": ranges[name] < ranges["SD"] for name in STEADY}
        words = ", ".join(f"{name} {_percent(value)}" for name, value in ranges.items())
        return f"best less worst temperature, in points: {words}", met

    checks, own = _sensitive(trials, "temperature", check)
    return Claim(
        "Only SD depends on the temperature",
        "Fig. 3b",
        "SD drops at a high temperature and SD with balanced soft labels at a low one. MF-P-BP, MF-LF-BP and "
        "CE-BP are less affected.",
        "curves without numbers.",
        "SD is lower at the highest than at the lowest temperature, SD-BS the other way round, and each of "
        "the three BP methods varies less than SD.",
        checks,
        own,
    )


def _accuracy(trials: Trials) -> Claim:
    def check(columns: Mapping[float, Column]) -> tuple[str, dict[str, bool]]:
        names = ("SD", "SD-BS", *STEADY)
        rises = {name: float(np.subtract(*_ends(columns, name)[::-1]).mean()) for name in names}
        met = {f"{name} rises": above(*_ends(columns, name)[::-1]) for name in names}
        met["MF-P-BP most affected"] = max(STEADY, key=lambda name: rises[name]) == "MF-P-BP"
        weakest = next(iter(columns.values()))
        best = max(STEADY, key=lambda name: float(weakest.accuracy[name].mean()))
        met["MF-LF-BP best with the weakest teachers"] = best == "MF-LF-BP"
        words = ", ".join(f"{name} {_percent(rise)}" for name, rise in rises.items())
        return f"points gained from the weakest to the best teachers: {words}", met

    checks, own = _sensitive(trials, "accuracy", check)
    return Claim(
        "Better teachers, better student",
        "Fig. 3c",
        "The student gets better as the teachers do. MF-P-BP suffers most from weak teachers, and MF-LF-BP "
        "is the most robust.",
        "curves without numbers.",
        "each method is higher with the best than with the weakest teachers; of the three BP methods, "
        "MF-P-BP gains most, and MF-LF-BP is best with the weakest teachers.",
        checks,
        own,
    )

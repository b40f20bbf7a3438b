"""Compare the default of `Unifier` with every method of "Unifying Heterogeneous Classifiers".

Teachers are of mixed kinds (logistic regression, forest, nearest neighbours, naive Bayes, small network), or
all logistic regressions. They know random classes: with chains of shared classes, or with none in common. How
many rows train them, and how many transfer rows are of no known class, is drawn for each trial. A logistic
student learns the soft labels of each method and is asked about test rows of the known classes. The default
seeds chose nothing.

Run from the root of the repository::

    python -m benchmarks.papers.default --data cifar100 clinc --trials 30 --resume
    python -m benchmarks.papers.default --data digits letter --settings connected disjoint small hard tail
    python -m benchmarks.render

Every trial appends a line to ``default.jsonl`` in the folder of ``--results``.
"""

from __future__ import annotations

import argparse
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import load
from benchmarks.papers.trials import Range, random_classes
from benchmarks.results import markdown, source
from consilience import Unifier, as_teacher, methods
from consilience.kernels.compiled import one_thread
from consilience.students import Logistic

RESULTS = records.FOLDER / "default.jsonl"
Floats = NDArray[np.float64]

KINDS: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=300),
    "forest": lambda seed: RandomForestClassifier(60, random_state=seed),
    "neighbours": lambda seed: KNeighborsClassifier(5),
    "bayes": lambda seed: GaussianNB(),
    "network": lambda seed: MLPClassifier((64,), max_iter=60, random_state=seed),
}
CROWDS = {"mixed": tuple(KINDS), "logistic": ("logistic",)}
SETTINGS = {
    "connected": "chains of shared classes",
    "disjoint": "no class in common",
    "small": "connected, 300 transfer rows",
    "hard": "connected, teachers name a class only",
    "tail": "connected, class shares in the transfer set from 1 to 1/20",
    "trained": "connected, teachers of 40 to 100 rows a class, no row of an unknown class",
}
PAPER: dict[str, dict[str, Any]] = {
    f"{method}{'-bs' if balance else ''}": {"method": method, "balance": balance}
    for method, balance in product(("sd", "ce", "mf-p", "mf-lv", "mf-lf"), (True, False))
    if method != "mf-p" or balance
}
OURS: dict[str, dict[str, Any]] = {
    "auto": {"method": "auto", "balance": True},
    "auto, without neighbours": {"method": methods.Auto(n_neighbors=0), "balance": True},
    **{
        f"{name}-bs, neighbours": {"method": methods.METHODS[name](n_neighbors=10), "balance": True}
        for name in ("ce", "mf-lv", "mf-lf")
    },
    "ranks": {"method": "ranks", "balance": True},
    "ce, calibrated, off-set": {
        "method": methods.CE(1.0, teacher_temperatures="agreement", off_set=True), "balance": True,
    },
    "auto, not balanced": {"method": "auto", "balance": False},
    "auto, calibrated": {"method": methods.Auto(teacher_temperatures="agreement"), "balance": True},
    "auto, self-labelled": {"method": "auto", "balance": True, "student": Logistic(self_label=True)},
}  # fmt: skip
TRANSFER_ROWS, TEST_ROWS, MOST_COLUMNS = 2000, 1500, 128


class Sizes(NamedTuple):
    """How large the trials on a data set are."""

    classes: Range
    teachers: Range
    teacher_classes: Range
    training_rows: tuple[Range, ...]  # of each class, one of them is drawn


_FEW = Sizes((8, 10), (3, 7), (2, 5), ((6, 12), (15, 30), (20, 60)))
_MANY = Sizes((20, 40), (6, 14), (5, 12), ((6, 12), (20, 60), (50, 150)))
SIZES = {
    "digits": _FEW,
    "mnist": _FEW,
    "letter": Sizes((12, 26), (5, 12), (3, 10), _MANY.training_rows),
    "cifar100": _MANY,
    "clinc": _MANY,
    "cub": _MANY._replace(training_rows=_MANY.training_rows[:1]),
}


class Task(NamedTuple):
    """One trial: what the teachers say about the transfer set, and test rows."""

    blocks: list[Floats]
    classes: list[NDArray[Any]]
    X: NDArray[np.float32]
    X_test: NDArray[np.float32]
    y_test: NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    warnings.simplefilter("ignore")  # teachers may stop early, and label sets may share nothing
    about = records.provenance("default")
    wanted = set(options.only)
    done = {
        _key(record)
        for record in records.read(options.results)
        if options.resume and wanted <= set(record["accuracy"]) and record["commit"] == about["commit"]
    }
    for data in options.data:
        X, y = table(data, options.data_dir)
        cases = product(range(options.seed, options.seed + options.trials), options.settings, CROWDS)
        for seed, setting, crowd in cases:
            record = {"data": data, "setting": setting, "crowd": crowd, "seed": seed}
            if _key(record) in done:
                continue
            started = time.perf_counter()
            with one_thread():
                task = make_task(X, y, data, setting, crowd, seed)
                record["accuracy"] = run_trial(task, seed, options.only)
            record["seconds"] = round(time.perf_counter() - started, 1)
            records.append(options.results, record | about)
            print(f"{data} {setting} {crowd} {seed}: {record['accuracy']}", flush=True)


def table(data: str, folder: str | None) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return all rows of a data set, with at most 128 principal components as columns."""
    source = load(data, folder)
    X, y = source.X, source.y
    if data == "cub" and source.X_test is not None and source.y_test is not None:
        X, y = np.vstack([X, source.X_test]), np.concatenate([y, source.y_test])
    if data == "mnist":
        X, y = X[:20_000], y[:20_000]
    if X.shape[1] > MOST_COLUMNS:
        X = PCA(MOST_COLUMNS, random_state=0).fit_transform(X)
    return (X / X.std()).astype(np.float32), y


def make_task(
    X: NDArray[np.float32], y: NDArray[np.intp], data: str, setting: str, crowd: str, seed: int
) -> Task:
    """Draw classes and rows, train the teachers and ask them."""
    random = np.random.RandomState([seed, zlib.crc32(f"{data} {setting} {crowd}".encode())])
    order = random.permutation(len(y))
    test, transfer, train = np.split(order, [min(len(y) // 4, 6000), min(len(y) // 4, 6000) + _rest(len(y))])
    sizes = SIZES[data]
    rows_per_class = sizes.training_rows[random.randint(len(sizes.training_rows))]
    if setting == "trained":
        rows_per_class = (40, 100)
    draw = _disjoint if setting == "disjoint" else _connected
    lists, own_rows = draw(y[train], sizes, rows_per_class, random)
    known = np.unique(np.concatenate(lists))
    transfer = _transfer_rows(y, transfer, known, setting, random)
    test = test[np.isin(y[test], known)][:TEST_ROWS]
    names, blocks = CROWDS[crowd], []
    for own, rows in zip(lists, own_rows, strict=True):
        kind = names[random.randint(len(names))]
        # naive Bayes needs float64: its logarithms are in the thousands
        model = make_pipeline(StandardScaler(), KINDS[kind](seed))
        model.fit(X[train[rows]].astype(np.float64), y[train[rows]])
        logits = as_teacher(model).predict_logits(X[transfer].astype(np.float64))
        if setting == "hard":
            logits = np.where(logits == logits.max(axis=1, keepdims=True), 0.0, -20.0)
        blocks.append(logits)
        assert np.array_equal(model.classes_, own)
    return Task(blocks, lists, X[transfer], X[test], y[test])


def run_trial(task: Task, seed: int, names: Sequence[str] = (*PAPER, *OURS)) -> dict[str, float]:
    """Return the test accuracy of a logistic student by each of these methods."""
    teachers = [
        as_teacher(block, own, output="logits") for block, own in zip(task.blocks, task.classes, strict=True)
    ]
    accuracy = {}
    for name in names:
        unified = Unifier(
            teachers, **{"student": "logistic", "random_state": seed, **(PAPER | OURS)[name]}
        ).fit(task.X)
        accuracy[name] = round(float(unified.score(task.X_test, task.y_test)), 5)
    return accuracy


def _rest(n_rows: int) -> int:
    """Return how many rows the transfer set is drawn from."""
    return min(int(0.35 * n_rows), 8000)


def _connected(
    y: NDArray[np.intp], sizes: Sizes, per_class: Range, random: np.random.RandomState
) -> tuple[list[NDArray[Any]], list[NDArray[np.intp]]]:
    trial = random_classes(
        y,
        n_classes=sizes.classes,
        n_teachers=sizes.teachers,
        n_teacher_classes=sizes.teacher_classes,
        n_per_class=per_class,
        random_state=random,
    )
    return list(trial.teacher_classes), list(trial.teacher_rows)


def _disjoint(
    y: NDArray[np.intp], sizes: Sizes, per_class: Range, random: np.random.RandomState
) -> tuple[list[NDArray[Any]], list[NDArray[np.intp]]]:
    """Deal random classes out to two to four teachers."""
    chosen = random.choice(
        np.unique(y), random.randint(sizes.classes[0], sizes.classes[1] + 1), replace=False
    )
    lists = [np.sort(part) for part in np.array_split(chosen, random.randint(2, 5))]

    def some(name: int) -> NDArray[np.intp]:
        rows = random.permutation(np.flatnonzero(y == name))
        return rows[: random.randint(per_class[0], per_class[1] + 1)]

    return lists, [np.concatenate([some(name) for name in part]) for part in lists]


def _transfer_rows(
    y: NDArray[np.intp],
    rows: NDArray[np.intp],
    known: NDArray[Any],
    setting: str,
    random: np.random.RandomState,
) -> NDArray[np.intp]:
    """Draw the transfer set: 0, 30 or 70 % of its rows are of no known class, as far as there are any."""
    most, share = 300 if setting == "small" else TRANSFER_ROWS, (0.0, 0.3, 0.7)[random.randint(3)]
    if setting == "trained":
        share = 0.0
    is_known = np.isin(y[rows], known)
    own, foreign = rows[is_known], rows[~is_known]
    if setting == "tail":
        shares = random.permutation(np.geomspace(1, 0.05, len(known)))
        own = own[random.uniform(size=len(own)) < shares[np.searchsorted(known, y[own])]]
    n_foreign = min(len(foreign), int(share * most))
    n_own = min(len(own), most - n_foreign)
    n_foreign = min(n_foreign, int(n_own * share / (1 - share)))
    return random.permutation(np.concatenate([own[:n_own], foreign[:n_foreign]]))


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("data", "setting", "crowd", "seed"))


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return what the default gains, and what is left of the options on top of it, as Markdown."""
    latest = dict[tuple[Any, ...], dict[str, float]]()
    for trial in trials:  # later ones may have measured only some methods
        latest[_key(trial)] = latest.get(_key(trial), {}) | trial["accuracy"]
    seeds = sorted({trial["seed"] for trial in trials})
    parts = [
        "Test accuracy in points against the best method of the paper, chosen in hindsight for each line "
        "(with and without balancing, T = 3); in brackets, trials won and lost. One column gives the paper "
        "the same neighbours: the best of `ce`, `mf-lv` and `mf-lf` in hindsight. Seeds from "
        f"{seeds[0]}.",
        _gains(latest),
        "Options on top of `auto`, in points against `auto`, over all data sets:",
        _options(latest),
        source(trials),
    ]
    return "\n\n".join(parts)


def _cells(latest: Mapping[tuple[Any, ...], Any]) -> dict[tuple[str, str, str], list[Mapping[str, float]]]:
    cells: dict[tuple[str, str, str], list[Mapping[str, float]]] = {}
    for (data, setting, crowd, _), accuracy in latest.items():
        cells.setdefault((setting, crowd, data), []).append(accuracy)
    places = [list(SETTINGS), list(CROWDS), list(SIZES)]
    return dict(
        sorted(cells.items(), key=lambda cell: [p.index(k) for p, k in zip(places, cell[0], strict=True)])
    )


def _gains(latest: Mapping[tuple[Any, ...], Any]) -> str:
    shown = ("auto", "auto, without neighbours", "best of the paper, neighbours", "ranks")
    head = [
        "setting",
        "teachers",
        "data",
        "trials",
        "best of the paper",
        *(f"`{name}`" for name in shown),
        "p",
    ]
    lines, sums = [], dict[tuple[str, str], dict[str, list[Floats]]]()
    for (setting, crowd, data), accuracies in _cells(latest).items():
        columns = {
            name: 100 * np.array([a[name] for a in accuracies])
            for name in PAPER | OURS
            if all(name in a for a in accuracies)
        }
        best = max(PAPER, key=lambda name: columns[name].mean())
        columns["best of the paper, neighbours"] = max(
            (column for name, column in columns.items() if name.endswith(", neighbours")), key=np.mean
        )
        gains = {name: columns[name] - columns[best] for name in shown}
        for name in shown:
            sums.setdefault((setting, crowd), {}).setdefault(name, []).append(gains[name])
        p = f"{wilcoxon(gains['auto']).pvalue:.1g}" if len(accuracies) >= 30 and gains["auto"].any() else ""
        cells = [setting, crowd, data, str(len(accuracies)), f"`{best}` {columns[best].mean():.1f}"]
        lines.append([*cells, *(_against(gains[name]) for name in shown), p])
    totals = []
    for (setting, crowd), parts in sums.items():
        cells = [f"**{setting}**", crowd, "**all**", str(sum(map(len, parts["auto"]))), ""]
        totals.append([*cells, *(_against(np.concatenate(parts[name])) for name in shown), ""])
    return markdown(head, [*totals, *lines])


def _options(latest: Mapping[tuple[Any, ...], Any]) -> str:
    names = [name for name in OURS if name.startswith("auto, ") and name != "auto, without neighbours"]
    head = ["setting", "teachers", *(name.removeprefix("auto, ") for name in names)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    groups: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for (setting, crowd, _), accuracies in _cells(latest).items():
        groups.setdefault((setting, crowd), []).extend(accuracies)
    for (setting, crowd), accuracies in groups.items():
        if not any(name in a for a in accuracies for name in names):
            continue
        gains = [
            100 * np.array([a[name] - a["auto"] for a in accuracies if name in a and "auto" in a])
            for name in names
        ]
        lines.append(f"| {setting} | {crowd} | " + " | ".join(map(_against, gains)) + " |")
    return "\n".join(lines)


def _against(gains: Floats) -> str:
    return f"{gains.mean():+.1f} ({int((gains > 0).sum())}/{int((gains < 0).sum())})"


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("default", __doc__, trials=10, seed=1000)
    parser.add_argument("--data", nargs="+", choices=SIZES, default=["digits"], help="default: digits")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["connected", "disjoint"])
    parser.add_argument(
        "--only", nargs="+", choices=[*PAPER, *OURS], default=[*PAPER, *OURS], help="default: all methods"
    )
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    return parser


if __name__ == "__main__":
    main()

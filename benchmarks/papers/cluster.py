"""Compare clustering losses like Tables 2 and 5 of "Collision Cross-entropy", on other data.

Table 2 clusters fixed features with a linear model. Table 5 adds labels for some rows. Every loss gets the
same features, neighbours, starts and optimiser, and k-means gets ten starts too. The seed of a trial draws
its rows. "Only seeds" is logistic regression on the labelled rows.

Run from the root of the repository::

    python -m benchmarks.papers.cluster --data digits --trials 6
    python -m benchmarks.papers.cluster --data mnist --rows 5000 --table labels --resume
    python -m benchmarks.render

Every trial appends a line to ``results/cluster.jsonl``. With ``--resume``, trials that are there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.papers import records
from benchmarks.papers.sources import load
from consilience import CollisionClustering, ConvergenceWarning, clustering_accuracy
from consilience.collision.losses import LOSSES

RESULTS = records.FOLDER / "cluster.jsonl"
RATIOS = (0.1, 0.05, 0.01)
METRICS = {"accuracy": "ACC", "nmi": "NMI", "ari": "ARI"}
# The superclass of each of CIFAR-100's classes, which are in alphabetical order.
SUPERCLASSES = (
    "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 "
    "5 19 8 8 15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 "
    "13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13"
)


class Rows(NamedTuple):
    """What a trial clusters."""

    X: NDArray[np.float32]
    y: NDArray[np.intp]


def _digits(folder: str | None) -> Rows:
    source = load("digits", folder)
    return Rows(source.X, source.y)


def _mnist(folder: str | None) -> Rows:
    source = load("mnist", folder)
    return Rows(PCA(64, random_state=0).fit_transform(source.X).astype(np.float32), source.y)


def _ten_classes(folder: str | None) -> Rows:
    source = load("cifar100", folder)
    kept = source.y % 10 == 0
    return Rows(source.X[kept][:, source.views[0]], source.y[kept] // 10)


def _superclasses(folder: str | None) -> Rows:
    source = load("cifar100", folder)
    return Rows(source.X[:, source.views[0]], np.array(SUPERCLASSES.split(), dtype=np.intp)[source.y])


DATA = {
    "digits": (_digits, "digits: 64 pixels, 10 classes"),
    "mnist": (_mnist, "MNIST: 64 principal components, 10 classes"),
    "cifar100-10": (_ten_classes, "every tenth class of CIFAR-100: EfficientNet-Lite0 features"),
    "cifar100-20": (_superclasses, "the 20 superclasses of CIFAR-100: EfficientNet-Lite0 features"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = _parser().parse_args(arguments)
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    base = {"data": options.data, "rows": options.rows, "table": options.table}
    settings = [base] if options.table == "clusters" else [base | {"ratio": ratio} for ratio in RATIOS]
    seeds = range(options.seed, options.seed + options.trials)
    todo = [(s, seed) for seed in seeds for s in settings if (s, seed) not in done]
    print(f"{len(todo)} of {len(seeds) * len(settings)} trials to run")
    if not todo:
        return
    rows = DATA[options.data][0](options.data_dir)
    about = records.provenance("cluster")
    for setting, seed in todo:
        started = time.perf_counter()
        drawn = np.random.default_rng(seed).permutation(len(rows.y))[: options.rows]
        trial = Rows(rows.X[drawn], rows.y[drawn])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if options.table == "clusters":
                scores = compare_clusters(trial, seed)
            else:
                scores = compare_labels(trial, setting["ratio"], seed)
        seconds = round(time.perf_counter() - started, 1)
        record = {"setting": setting, "seed": seed, "scores": scores, "seconds": seconds}
        records.append(options.results, record | about)
        shown = " ".join(f"{name} {score['accuracy']:.3f}" for name, score in scores.items())
        print(f"{setting}, seed {seed}, {seconds:.0f} s: {shown}", flush=True)


def compare_clusters(rows: Rows, seed: int) -> dict[str, dict[str, float]]:
    """Return accuracy, NMI and ARI of k-means and of every loss."""
    n_clusters = len(np.unique(rows.y))
    models: dict[str, Any] = {"k-means": KMeans(n_clusters, n_init=10, random_state=seed)}
    models |= {loss: CollisionClustering(n_clusters, loss=loss, random_state=seed) for loss in LOSSES}
    scores = {}
    for name, model in models.items():
        labels = model.fit_predict(rows.X)
        scores[name] = {
            "accuracy": round(clustering_accuracy(rows.y, labels), 5),
            "nmi": round(float(normalized_mutual_info_score(rows.y, labels)), 5),
            "ari": round(float(adjusted_rand_score(rows.y, labels)), 5),
        }
    return scores


def compare_labels(rows: Rows, ratio: float, seed: int) -> dict[str, dict[str, float]]:
    """Return the accuracy on unlabelled rows: from the labelled rows only, and with every loss."""
    n_clusters = len(np.unique(rows.y))
    known = np.random.default_rng(seed).permutation(len(rows.y))[
        : max(n_clusters, round(ratio * len(rows.y)))
    ]
    partial = np.full(len(rows.y), -1)
    partial[known] = rows.y[known]
    hidden = partial < 0
    only = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    predictions = {"only seeds": only.fit(rows.X[known], rows.y[known]).predict(rows.X)}
    for loss in LOSSES:
        model = CollisionClustering(n_clusters, loss=loss, random_state=seed)
        predictions[f"+ {loss}"] = model.fit(rows.X, partial).labels_
    return {
        name: {"accuracy": round(float((labels == rows.y)[hidden].mean()), 5)}
        for name, labels in predictions.items()
    }


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for each data set as Markdown: means and standard deviations in per cent."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for trial in trials:
        setting = trial["setting"]
        groups[setting["table"], setting["data"], setting["rows"]].append(trial)
    parts = []
    for (table, data, _), members in groups.items():
        by_column: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for trial in members:
            ratio = trial["setting"].get("ratio")
            by_column["" if ratio is None else f"{100 * ratio:g} % labelled"].append(trial)
        metrics = METRICS if table == "clusters" else {"accuracy": "ACC"}
        columns = {
            " ".join(filter(None, (title, short))): _cells(column, metric)
            for title, column in by_column.items()
            for metric, short in metrics.items()
        }
        what = "Clusters" if table == "clusters" else "A few labels"
        names = list(next(iter(columns.values())))
        lines = [["loss", *columns], ["---"] * (1 + len(columns))]
        lines += [[name, *(cells[name] for cells in columns.values())] for name in names]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"### {what}, {DATA[data][1]}\n\n{text}\n\n{_source(members)}")
    return "\n\n".join(parts)


def _cells(trials: Sequence[Mapping[str, Any]], metric: str) -> dict[str, str]:
    latest = {trial["seed"]: trial["scores"] for trial in trials}
    names = list(next(iter(latest.values())))
    values = {name: 100 * np.array([scores[name][metric] for scores in latest.values()]) for name in names}
    best = max(values, key=lambda name: float(values[name].mean()))
    cells = {name: f"{found.mean():.1f} ± {found.std():.1f}" for name, found in values.items()}
    return cells | {best: f"**{cells[best]}**"}


def _source(trials: Sequence[Mapping[str, Any]]) -> str:
    rows, seeds = trials[0]["setting"]["rows"], {trial["seed"] for trial in trials}
    commits = ", ".join(sorted({trial["commit"][:12] + trial["commit"][40:] for trial in trials}))
    commands = "`, `".join(sorted({trial["command"] for trial in trials}))
    return f"At most {rows:,} rows, {len(seeds)} trials; commit {commits}; `{commands}`."


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("cluster", __doc__, RESULTS, trials=6)
    parser.add_argument("--data", choices=DATA, default="digits", help="default: %(default)s")
    parser.add_argument("--table", choices=("clusters", "labels"), default="clusters", help="Table 2 or 5")
    parser.add_argument("--rows", type=int, default=4_000, help="most rows of a trial; default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    return parser


if __name__ == "__main__":
    main()

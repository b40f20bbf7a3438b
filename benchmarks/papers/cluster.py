"""Compare clustering losses like Tables 2, 3 and 5 of "Collision Cross-entropy", on other data.

Table 2 clusters fixed features with a linear model. Table 3 clusters images with VGG4, from random weights.
Table 5 adds labels for some rows. Every loss gets the same features, neighbours, starts and optimiser, and
k-means gets ten starts too. ``--protocol paper`` trains as Appendix E.2 of the paper does: random starts, no
neighbours, stochastic gradient steps; Table 3 always does. The seed of a trial draws its rows. "Only seeds"
is logistic regression on the labelled rows.

Run from the root of the repository::

    python -m benchmarks.papers.cluster --trials 6
    python -m benchmarks.papers.cluster --data cifar100-20 --rows 2500 --protocol paper
    python -m benchmarks.papers.cluster --data mnist --rows 1000 --table pixels --epochs 20 --trials 2
    python -m benchmarks.papers.cluster --data mnist --rows 5000 --table labels --resume
    python -m benchmarks.render

Every trial appends a line to ``cluster.jsonl`` in the folder of ``--results``. With ``--resume``, trials that
are there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import Source, load
from benchmarks.results import markdown, source
from consilience import CollisionClustering, ConvergenceWarning, CoverageWarning, clustering_accuracy
from consilience.cluster import Network
from consilience.cluster.options import LOSSES

RESULTS = records.FOLDER / "cluster.jsonl"
RATIOS = (0.1, 0.05, 0.01)
Loss = Literal["collision", "mi", "sela", "mi-adm", "iic"]
Protocol = Literal["full-batch", "paper"]
METRICS = {"accuracy": "ACC", "nmi": "NMI", "ari": "ARI"}


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
    return Rows(source.X[:, source.views[0]], np.array(source.superclasses, dtype=np.intp)[source.y])


DATA = {
    "digits": (_digits, "digits: 64 pixels, 10 classes"),
    "mnist": (_mnist, "MNIST: 64 principal components, 10 classes"),
    "cifar100-10": (_ten_classes, "every tenth class of CIFAR-100: EfficientNet-Lite0 features"),
    "cifar100-20": (_superclasses, "the 20 superclasses of CIFAR-100: EfficientNet-Lite0 features"),
}


# Of Table 3: grey images of 28 x 28, as VGG4 takes them.
PIXELS: dict[str, Callable[[str | None], Rows]] = {
    "digits": lambda folder: _enlarged(_digits(folder)),
    "mnist": lambda folder: _images(load("mnist", folder)),
}
PIXEL_LOSSES: tuple[Loss, ...] = ("collision", "mi", "sela", "mi-adm", "iic")


def _enlarged(rows: Rows) -> Rows:
    """Return 8 x 8 images as 28 x 28: each pixel becomes 3 x 3, with a border of 2."""
    large = np.kron(rows.X.reshape(-1, 8, 8), np.ones((1, 3, 3), dtype=np.float32))
    return Rows(np.pad(large, ((0, 0), (2, 2), (2, 2))), rows.y)


def _images(source: Source) -> Rows:
    return Rows(source.X.reshape(-1, 28, 28), source.y)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    parser = _parser()
    options = results.parse(parser, arguments, RESULTS)
    if options.table == "pixels" and options.data not in PIXELS:
        parser.error(f"--table pixels needs images; give --data {' or '.join(PIXELS)}")
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    settings = make_settings(options)
    seeds = range(options.seed, options.seed + options.trials)
    todo = [(s, seed) for seed in seeds for s in settings if (s, seed) not in done]
    print(f"{len(todo)} of {len(seeds) * len(settings)} trials to run")
    if not todo:
        return
    rows = (PIXELS[options.data] if options.table == "pixels" else DATA[options.data][0])(options.data_dir)
    about = records.provenance("cluster")
    for setting, seed in todo:
        started = time.perf_counter()
        drawn = np.random.default_rng(seed).permutation(len(rows.y))[: options.rows]
        trial = Rows(rows.X[drawn], rows.y[drawn])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", CoverageWarning)  # a poor start leaves clusters empty
            scores = run_trial(trial, setting, seed)
        seconds = round(time.perf_counter() - started, 1)
        record = {"setting": setting, "seed": seed, "scores": scores, "seconds": seconds}
        records.append(options.results, record | about)
        shown = " ".join(f"{name} {score['accuracy']:.3f}" for name, score in scores.items())
        print(f"{setting}, seed {seed}, {seconds:.0f} s: {shown}", flush=True)


def make_settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what a trial depends on besides its seed."""
    base = {"data": options.data, "rows": options.rows, "table": options.table}
    if options.table == "pixels":
        return [base | {"epochs": options.epochs}]
    if options.protocol == "paper":
        base["protocol"] = "paper"
    return [base] if options.table == "clusters" else [base | {"ratio": ratio} for ratio in RATIOS]


def run_trial(rows: Rows, setting: Mapping[str, Any], seed: int) -> dict[str, dict[str, float]]:
    """Return the scores of every method in one setting."""
    protocol = setting.get("protocol", "full-batch")
    if setting["table"] == "labels":
        return compare_labels(rows, setting["ratio"], protocol, seed)
    n_clusters = len(np.unique(rows.y))
    models: dict[str, Any] = {"k-means": KMeans(n_clusters, n_init=10, random_state=seed)}
    if setting["table"] == "pixels":
        models |= {loss: network(n_clusters, loss, setting["epochs"], seed) for loss in PIXEL_LOSSES}
    else:
        models |= {
            loss: CollisionClustering(n_clusters, loss=loss, protocol=protocol, random_state=seed)
            for loss in LOSSES
        }
    return score_clusters(rows, models)


def network(n_clusters: int, loss: Loss, epochs: int, seed: int) -> CollisionClustering:
    """Return VGG4 with a loss, trained as in Table 3."""
    from consilience.students.modules import VGG4

    return CollisionClustering(
        n_clusters,
        loss=loss,
        model=Network(VGG4, augment="images", max_iter=epochs, weight_decay=0.01),
        protocol="paper",
        random_state=seed,
    )


def score_clusters(rows: Rows, models: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return accuracy, NMI and ARI of every model."""
    scores = {}
    for name, model in models.items():
        flat = rows.X.reshape(len(rows.X), -1)  # k-means takes no images
        labels = model.fit_predict(flat if isinstance(model, KMeans) else rows.X)
        scores[name] = {
            "accuracy": round(clustering_accuracy(rows.y, labels), 5),
            "nmi": round(float(normalized_mutual_info_score(rows.y, labels)), 5),
            "ari": round(float(adjusted_rand_score(rows.y, labels)), 5),
        }
    return scores


def compare_labels(rows: Rows, ratio: float, protocol: Protocol, seed: int) -> dict[str, dict[str, float]]:
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
        model = CollisionClustering(n_clusters, loss=loss, protocol=protocol, random_state=seed)
        predictions[f"+ {loss}"] = model.fit(rows.X, partial).labels_
    return {
        name: {"accuracy": round(float((labels == rows.y)[hidden].mean()), 5)}
        for name, labels in predictions.items()
    }


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for each data set as Markdown: means and standard deviations in per cent."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for trial in trials:
        setting = trial["setting"]
        variant = setting.get("protocol", setting.get("epochs"))
        groups[setting["table"], setting["data"], setting["rows"], variant].append(trial)
    parts = []
    for (table, data, _, variant), members in groups.items():
        by_column: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for trial in members:
            ratio = trial["setting"].get("ratio")
            by_column["" if ratio is None else f"{100 * ratio:g} % labelled"].append(trial)
        metrics = {"accuracy": "ACC"} if table == "labels" else METRICS
        columns = {
            " ".join(filter(None, (title, short))): _cells(column, metric)
            for title, column in by_column.items()
            for metric, short in metrics.items()
        }
        what = {"clusters": "Clusters", "labels": "A few labels", "pixels": "VGG4 from pixels"}[table]
        if table == "pixels":
            what += f", {variant} epochs"
        elif variant is not None:
            what += ", the paper's protocol"
        names = list(next(iter(columns.values())))
        lines = [[name, *(cells[name] for cells in columns.values())] for name in names]
        text = markdown(["loss", *columns], lines)
        title = data if table == "pixels" else DATA[data][1]
        parts.append(f"### {what}, {title}\n\n{text}\n\n{_source(members)}")
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
    return f"At most {rows:,} rows, {len(seeds)} trials; {source(trials)}"


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("cluster", __doc__, trials=6)
    parser.add_argument("--data", choices=DATA, default="digits", help="default: %(default)s")
    tables = ("clusters", "labels", "pixels")
    parser.add_argument("--table", choices=tables, default="clusters", help="Table 2, 5 or 3")
    parser.add_argument("--rows", type=int, default=4_000, help="most rows of a trial; default: %(default)s")
    parser.add_argument("--protocol", choices=("full-batch", "paper"), default="full-batch")
    parser.add_argument("--epochs", type=int, default=50, help="of Table 3; default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    return parser


if __name__ == "__main__":
    main()

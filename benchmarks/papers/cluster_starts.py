"""Compare the two starts of CollisionClustering, with three losses, and k-means; equal and unequal classes.

All have ten starts, and lam = 100. The part of a trial is a tenth of CIFAR-100's classes, a domain of
CLINC150, 15 birds of CUB-200 or eight letters; its seed draws the rows. Unequal classes have sizes from 1 to
1/5 in equal ratios. Seconds are those of the processor.

The start by the graph, the exact shares and their limit were designed on parts 0, 1, 3, 4 and 5, on
digits, and on MNIST's test images and other draws of its training images. The trials in the documents use
other parts and seeds; digits have no others.

Run from the root of the repository::

    python -m benchmarks.papers.cluster_starts --part 2 --seed 302 --resume
    python -m benchmarks.papers.cluster_starts --part 2 --seed 302 --unequal --resume
    python -m benchmarks.render

After a change of one method, run only that and k-means, for the times::

    python -m benchmarks.papers.cluster_starts --part 2 --seed 402 --methods k-means collision

Every trial appends a line to ``cluster_starts.jsonl`` in the folder of ``--results``. With ``--resume``,
trials that are there are skipped.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.cluster import Rows
from benchmarks.papers.sources import DATA_VARIABLE, load
from benchmarks.results import markdown, source
from consilience import CollisionClustering, ConvergenceWarning, CoverageWarning, clustering_accuracy

RESULTS = records.FOLDER / "cluster_starts.jsonl"
LEAST_SHARE = 1 / 5  # of the smallest class, relative to the largest
LOSSES = ("collision", "mi", "sela")
TIMED = ("collision", "collision, k-means++")  # against k-means
METHODS: dict[str, Callable[..., Any]] = {
    "k-means": partial(KMeans, n_init=10),
    **{loss: partial(CollisionClustering, loss=loss) for loss in LOSSES},
    **{f"{loss}, k-means++": partial(CollisionClustering, loss=loss, init="k-means++") for loss in LOSSES},
}


def _digits(folder: str | None, part: int) -> Rows:
    source = load("digits", folder)
    return Rows(source.X, source.y)


def _mnist(folder: str | None, part: int) -> Rows:
    source = load("mnist", folder)
    return Rows(PCA(64, random_state=0).fit_transform(source.X).astype(np.float32), source.y)


def _letters(folder: str | None, part: int) -> Rows:
    source = load("letter", folder)
    return _only(Rows(source.X, source.y), np.random.default_rng(part).permutation(26)[:8])


def _cifar100(folder: str | None, part: int) -> Rows:
    source = load("cifar100", folder)
    return _only(Rows(source.X[:, source.views[0]], source.y), np.arange(part, 100, 10))


def _clinc(folder: str | None, part: int) -> Rows:
    path = Path(folder or os.environ.get(DATA_VARIABLE, ".")) / "clinc150_minilm.npz"
    with np.load(path, allow_pickle=False) as data:
        rows = Rows(data["x_train"].astype(np.float32), data["y_train"].astype(np.intp))
    return _only(rows, np.arange(15 * part, 15 * part + 15))


def _birds(folder: str | None, part: int) -> Rows:
    source = load("cub", folder)
    assert source.X_test is not None
    assert source.y_test is not None
    rows = Rows(np.vstack([source.X, source.X_test]), np.concatenate([source.y, source.y_test]))
    return _only(rows, np.arange(15 * part, 15 * part + 15))


def _only(rows: Rows, classes: NDArray[np.intp]) -> Rows:
    """Return the rows of some classes, numbered from 0."""
    kept = np.isin(rows.y, classes)
    return Rows(rows.X[kept], np.unique(rows.y[kept], return_inverse=True)[1])


DATA: dict[str, tuple[Callable[[str | None, int], Rows], str]] = {
    "digits": (_digits, "digits, 64 pixels"),
    "mnist": (_mnist, "MNIST, 64 principal components"),
    "letters": (_letters, "eight letters, 16 numbers"),
    "cifar100": (_cifar100, "a tenth of CIFAR-100, 384 features"),
    "clinc150": (_clinc, "a domain of CLINC150, 384 features"),
    "cub200": (_birds, "15 birds of CUB-200, 1,280 features"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    about = records.provenance("cluster_starts")
    for name in options.data:
        setting = {"data": name, "part": options.part, "rows": options.rows, "unequal": options.unequal}
        if (setting, options.seed) in done:
            continue
        rows = draw(
            DATA[name][0](options.data_dir, options.part), options.rows, options.unequal, options.seed
        )
        for loss in LOSSES:  # compiled before they are timed
            METHODS[loss](2, random_state=0).fit(rows.X[:200])
        # times are shown over those of k-means in the same run
        scores = compare(rows, options.seed, list(dict.fromkeys(["k-means", *options.methods])))
        record = {"setting": setting, "seed": options.seed, "shape": list(rows.X.shape), "scores": scores}
        records.append(options.results, record | about)
        shown = " ".join(f"{m} {s['accuracy']:.3f} ({s['seconds']:.1f} s)" for m, s in scores.items())
        print(f"{setting}, seed {options.seed}: {shown}", flush=True)


def draw(rows: Rows, most: int, unequal: bool, seed: int) -> Rows:
    """Return at most this many rows; classes are equal, or in equal ratios from 1 to `LEAST_SHARE`."""
    rng = np.random.default_rng(seed)
    counts = np.bincount(rows.y)
    share = LEAST_SHARE ** (np.arange(len(counts)) / (len(counts) - 1)) if unequal else np.ones(len(counts))
    share = rng.permutation(share)
    largest = min(most / share.sum(), float((counts / share).min()))
    sizes = np.maximum(1, (largest * share).astype(int))
    kept = [rng.permutation(np.flatnonzero(rows.y == k))[:size] for k, size in enumerate(sizes)]
    index = rng.permutation(np.concatenate(kept))
    return Rows(rows.X[index], rows.y[index])


def compare(rows: Rows, seed: int, methods: Sequence[str] = tuple(METHODS)) -> dict[str, dict[str, float]]:
    """Return the accuracy and the seconds of methods."""
    n_clusters = len(np.unique(rows.y))
    scores = {}
    for name in methods:
        make = METHODS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", CoverageWarning)
            started = time.process_time()
            labels = make(n_clusters, random_state=seed).fit_predict(rows.X)
            seconds = time.process_time() - started
        scores[name] = {
            "accuracy": round(clustering_accuracy(rows.y, labels), 5),
            "seconds": round(seconds, 3),
        }
    return scores


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return a table as Markdown: mean accuracies in per cent, and times over those of k-means."""
    groups: dict[tuple[bool, str], dict[Any, Mapping[str, Any]]] = defaultdict(dict)
    for trial in trials:
        setting = trial["setting"]
        # the latest of several runs of a method counts; its time is over that of k-means in the same run
        group, key = groups[setting["unequal"], setting["data"]], (setting["part"], trial["seed"])
        unit = trial["scores"]["k-means"]["seconds"]
        own = {name: {**score, "ratio": score["seconds"] / unit} for name, score in trial["scores"].items()}
        group[key] = {**group.get(key, {}), **own}
    head, lines = ["data", "classes", "trials", *METHODS, *(f"time of {name}" for name in TIMED)], []
    for unequal in (False, True):
        sizes = "unequal" if unequal else "equal"
        found = {data: list(groups[unequal, data].values()) for data in DATA if groups[unequal, data]}
        for data, scores in found.items():
            lines.append([DATA[data][1], sizes, str(len(scores)), *_cells(scores)])
        every = [score for scores in found.values() for score in scores]
        if every:
            lines.append(["mean", sizes, str(len(every)), *_cells(every)])
    rows = max(trial["setting"]["rows"] for trial in trials)
    return f"{markdown(head, lines)}\n\nAt most {rows:,} rows; {source(trials)}"


def _cells(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the cells of a line: accuracies, the best of them in bold, and times."""
    means = {m: float(np.mean([score[m]["accuracy"] for score in scores])) for m in METHODS}
    best = max(means.values())
    shown = [f"**{100 * v:.1f}**" if v == best else f"{100 * v:.1f}" for v in means.values()]
    ratios = [np.mean([score[name]["ratio"] for score in scores]) for name in TIMED]
    return shown + [f"{ratio:.1f} x" for ratio in ratios]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.cluster_starts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", choices=DATA, nargs="+", default=["digits"], help="default: digits")
    parser.add_argument("--data-dir", help="folder of the data; default: $CONSILIENCE_DATA")
    parser.add_argument("--part", type=int, default=2, help="which classes; default: %(default)s")
    parser.add_argument("--rows", type=int, default=1_500, help="most rows of a trial; default: %(default)s")
    parser.add_argument("--unequal", action="store_true", help="classes of different sizes")
    parser.add_argument("--seed", type=int, default=100, help="draws the rows; default: %(default)s")
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS), help="default: all")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    results.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

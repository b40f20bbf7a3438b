"""Clustering: CollisionClustering, neighbours included, against k-means with ten starts.

Few rows are clustered with ten starts of each kind. Many are clustered with one start.

The rows are 256 principal components of MNIST if it is in $CONSILIENCE_DATA. Otherwise they are a mixture of
the same size whose parts overlap.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from benchmarks.speed.measures import Options, Result
from consilience import CollisionClustering, ConvergenceWarning
from consilience.cluster import Linear
from consilience.kernels.neighbours import nearest_neighbours

N_CLUSTERS = 10
N_FEATURES = 256
NEIGHBOURS = 10
GOAL = 3.0
SMALL = 2_500
SMALL_GOAL = 5.0
REPEATS = 3


def clustering(options: Options) -> Iterator[Result]:
    """Compare a fit with k-means, and show how its time grows with rows, clusters and starts."""
    X, what = load_rows(6_000 if options.quick else 60_000, options.seed)
    # compiled before anything is timed
    CollisionClustering(2, model=Linear(max_iter=2, tol=1.0), n_init=1, random_state=0).fit(X[:50])
    ours = seconds_of(lambda: fit(X, N_CLUSTERS, 1, options.seed))
    theirs = seconds_of(lambda: KMeans(N_CLUSTERS, n_init=10, random_state=options.seed).fit(X))
    sizes = {"rows": len(X), "features": X.shape[1], "clusters": N_CLUSTERS}
    yield Result(
        "CollisionClustering(n_init=1) vs KMeans(n_init=10)", ours / theirs, "x", GOAL, False, ours, theirs,
        f"{what}; neighbours included; one run of each", sizes,
    )  # fmt: skip
    for init, goal in (("graph", SMALL_GOAL), ("k-means++", None)):
        yield few_rows(X[:SMALL], init, goal, what, options.seed)
    search = seconds_of(lambda: nearest_neighbours(X, NEIGHBOURS, options.seed))
    yield Result("  of which neighbours", search, "s", None, False, search, None, what, sizes)
    third = len(X) // 3
    base = seconds_of(lambda: fit(X[:third], N_CLUSTERS, 1, options.seed))
    for name, longer in (
        ("3 times the rows", ours),
        ("3 times the clusters", seconds_of(lambda: fit(X[:third], 3 * N_CLUSTERS, 1, options.seed))),
        ("3 times the starts", seconds_of(lambda: fit(X[:third], N_CLUSTERS, 3, options.seed))),
    ):
        note = f"seconds with {name} over seconds with {third} rows, {N_CLUSTERS} clusters, 1 start"
        yield Result(
            f"CollisionClustering, {name}", longer / base, "x", None, False, longer, base, note, sizes
        )


def few_rows(X: NDArray[np.float32], init: str, goal: float | None, what: str, seed: int) -> Result:
    """Compare fits of few rows, ten starts each: the best of several of each, by turns."""
    pairs = [
        (
            seconds_of(lambda: fit(X, N_CLUSTERS, 10, seed, init)),
            seconds_of(lambda: KMeans(N_CLUSTERS, n_init=10, random_state=seed).fit(X)),
        )
        for _ in range(REPEATS)
    ]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    return Result(
        f"CollisionClustering(init='{init}') vs KMeans(n_init=10), few rows", ours / theirs, "x", goal, False,
        ours, theirs, f"{what}; neighbours included; best of {REPEATS}",
        {"rows": len(X), "features": X.shape[1], "clusters": N_CLUSTERS},
    )  # fmt: skip


def fit(X: NDArray[np.float32], n_clusters: int, n_init: int, seed: int, init: Any = "graph") -> Any:
    """Fit with the default settings, except for the number of starts and their kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return CollisionClustering(n_clusters, init=init, n_init=n_init, random_state=seed).fit(X)


def load_rows(n: int, seed: int) -> tuple[NDArray[np.float32], str]:
    """Return n rows of MNIST's principal components or of a mixture, and say which."""
    path = Path(os.environ.get("CONSILIENCE_DATA", ".")) / "mnist.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as data:
            images = data["x_train"][:n].reshape(-1, 784).astype(np.float32) / 255
        return PCA(N_FEATURES, random_state=0).fit_transform(images).astype(np.float32), "MNIST"
    rng = np.random.default_rng(seed)
    scales = 1.0 / np.sqrt(1.0 + np.arange(N_FEATURES))  # a decaying spectrum, like that of images
    centres = rng.normal(size=(3 * N_CLUSTERS, N_FEATURES))
    rows = centres[rng.integers(len(centres), size=n)] + 1.5 * rng.normal(size=(n, N_FEATURES))
    return (scales * rows).astype(np.float32), "a mixture"


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the wall time of one run."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


MEASURES = {"clustering": clustering}

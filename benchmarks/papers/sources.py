"""Data of the reproductions: loading, and the split of each trial."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

DATA_VARIABLE = "CONSILIENCE_DATA"
GROUPS, GROUP_SIZE, GENERATED_COLUMNS = 5, 4, 64

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Source:
    """A labelled data set.

    Attributes
    ----------
    X, y : (n, d) and (n,) arrays
        Rows that are split into the teachers' training rows, the transfer set and, if the data come without a
        test set, test rows.
    X_test, y_test : arrays or None
        The test set that comes with the data.
    views : tuple of slices
        The columns that a teacher may use: each view is the output of one pretrained network, or all columns.
    sizes : str
        The row of Table 1, a key of `benchmarks.papers.trials.SIZES`.
    transfer, test : float
        Parts of X for transfer and test.
    superclasses : tuple of int
        The group of each class, for data that come with groups.
    """

    X: Floats
    y: NDArray[np.intp]
    X_test: Floats | None
    y_test: NDArray[np.intp] | None
    views: tuple[slice, ...]
    sizes: str
    transfer: float
    test: float
    superclasses: tuple[int, ...] = ()


class Rows(NamedTuple):
    """The rows of one trial. The transfer set has no labels."""

    X_train: Floats
    y_train: NDArray[np.intp]
    X_transfer: Floats
    X_test: Floats
    y_test: NDArray[np.intp]


def load(name: str, folder: str | None = None) -> Source:
    """Load a data set by name from `folder`, or from the environment variable CONSILIENCE_DATA."""
    return LOADERS[name](Path(folder or os.environ.get(DATA_VARIABLE, ".")))


def split(source: Source, seed: int, most_transfer: int) -> Rows:
    """Shuffle and split the rows. The transfer set has at most `most_transfer` rows."""
    transfer, test, train = parts(source, seed, most_transfer)
    if source.X_test is None or source.y_test is None:
        X_test, y_test = source.X[test], source.y[test]
    else:
        X_test, y_test = source.X_test, source.y_test
    return Rows(source.X[train], source.y[train], source.X[transfer], X_test, y_test)


def parts(source: Source, seed: int, most_transfer: int) -> tuple[NDArray[np.intp], ...]:
    """Return which rows of X are for transfer, test and training; see `split`."""
    order = np.random.RandomState(seed).permutation(len(source.y))
    n_transfer, n_test = int(source.transfer * len(order)), int(source.test * len(order))
    transfer, test, train = np.split(order, [n_transfer, n_transfer + n_test])
    return transfer[:most_transfer], test, train


def _digits(folder: Path) -> Source:
    X, y = load_digits(return_X_y=True)
    return _without_test(X.astype(np.float32) / 16, y)


def _generated(folder: Path) -> Source:
    """Draw Gaussian classes in groups, so that experiments about similar classes need no file.

    Classes of a group are nearer to each other. Half of the columns are noise.
    """
    random = np.random.RandomState(0)
    groups = np.repeat(np.arange(GROUPS), GROUP_SIZE)
    centres = 0.6 * random.randn(GROUPS, GENERATED_COLUMNS // 2)[groups]
    centres += 0.6 * random.randn(*centres.shape)

    def draw(per_class: int) -> tuple[Floats, NDArray[np.intp]]:
        """Return rows of all classes, in a random order."""
        y = np.repeat(np.arange(len(groups)), per_class)
        signal = centres[y] + 1.6 * random.randn(len(y), centres.shape[1])
        noise = 1.6 * random.randn(*signal.shape)
        order = random.permutation(len(y))
        return np.hstack([signal, noise])[order].astype(np.float32), y[order]

    X, y = draw(160)
    X_test, y_test = draw(60)
    views = (slice(0, GENERATED_COLUMNS),)
    return Source(X, y, X_test, y_test, views, "lsun", 0.35, 0.0, tuple(groups.tolist()))


def _letter(folder: Path) -> Source:
    table = np.loadtxt(_path(folder, "letter_recognition.csv"), dtype=str, delimiter=",", skiprows=1)
    X = table[:, 1:].astype(np.float32)
    y = np.unique(table[:, 0], return_inverse=True)[1]
    return _without_test((X - X.mean(axis=0)) / X.std(axis=0), y)


def _mnist(folder: Path) -> Source:
    with np.load(_path(folder, "mnist.npz"), allow_pickle=False) as data:
        X, X_test = (data[k].reshape(-1, 784).astype(np.float32) / 255 for k in ("x_train", "x_test"))
        y, y_test = (data[k].astype(np.intp) for k in ("y_train", "y_test"))
    return Source(X, y, X_test, y_test, (slice(0, 784),), "lsun", transfer=0.2, test=0.0)


def _cifar100(folder: Path) -> Source:
    """Features of two pretrained networks side by side. A teacher sees one of them, a student both."""
    with np.load(_path(folder, "cifar100_features.npz"), allow_pickle=False) as data:
        X, X_test = (
            np.hstack([data[f"{net}_{part}"] for net in ("lite0", "rn50")]).astype(np.float32)
            for part in ("train", "test")
        )
        y, y_test = (data[f"y_{part}"].astype(np.intp) for part in ("train", "test"))
    half = X.shape[1] // 2
    views = (slice(0, half), slice(half, 2 * half))
    return Source(
        X, y, X_test, y_test, views, "imagenet", transfer=0.2, test=0.0, superclasses=CIFAR100_SUPERCLASSES
    )


def _cub(folder: Path) -> Source:
    """Features of CUB-200-2011 by one pretrained network, and the test set that comes with it."""
    with np.load(_path(folder, "cub200_efflite0.npz"), allow_pickle=False) as data:
        X, X_test = (data[f"x_{part}"].astype(np.float32) for part in ("train", "test"))
        y, y_test = (data[f"y_{part}"].astype(np.intp) for part in ("train", "test"))
    return Source(X, y, X_test, y_test, (slice(0, X.shape[1]),), "imagenet", transfer=0.2, test=0.0)


def _clinc(folder: Path) -> Source:
    """Sentence embeddings of CLINC150, and the test set that comes with it."""
    with np.load(_path(folder, "clinc150_minilm.npz"), allow_pickle=False) as data:
        X, X_test = (data[f"x_{part}"].astype(np.float32) for part in ("train", "test"))
        y, y_test = (data[f"y_{part}"].astype(np.intp) for part in ("train", "test"))
    return Source(X, y, X_test, y_test, (slice(0, X.shape[1]),), "imagenet", transfer=0.2, test=0.0)


def _without_test(X: Floats, y: NDArray[np.intp]) -> Source:
    return Source(X, y, None, None, (slice(0, X.shape[1]),), "lsun", transfer=0.35, test=0.25)


def _path(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise SystemExit(
            f"{name} is not in {folder}. Give --data-dir, or set {DATA_VARIABLE}. {MADE_BY[name]} "
            "Without --data, every experiment runs on data that need no file."
        )
    return path


_BY_COMMAND = "'python -m benchmarks.data {0} --from FOLDER' makes it from images that you have."
MADE_BY = {
    "cifar100_features.npz": _BY_COMMAND.format("cifar100"),
    "cub200_efflite0.npz": _BY_COMMAND.format("cub"),
    "mnist.npz": _BY_COMMAND.format("mnist"),
    "letter_recognition.csv": "It is the letter recognition set of the UCI repository, with a header line.",
    "clinc150_minilm.npz": (
        "It has sentence embeddings of CLINC150: x_train (n, d) and y_train (n,), the same for test."
    ),
}
"""How to make each file, in one sentence."""

LOADERS: dict[str, Callable[[Path], Source]] = {
    "digits": _digits,
    "generated": _generated,
    "letter": _letter,
    "mnist": _mnist,
    "cifar100": _cifar100,
    "cub": _cub,
    "clinc": _clinc,
}

# The superclass of each of the 100 classes, as the data set defines them. Both are in alphabetical order.
CIFAR100_SUPERCLASSES = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)

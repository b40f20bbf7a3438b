"""Rerun the protocol of Fig. 2 of "Collision Cross-entropy": soft targets for labels that are often wrong.

A share eta of the training labels is replaced by random ones. Every loss is trained on the soft targets eta *
u + (1 - eta) * onehot, made from these noisy labels, and scored on clean test labels. The paper trains a
ResNet-18 on Natural Scenes; here it is a small network on MNIST. It does not stop early, since there are no
clean rows to stop on.

Run from the root of the repository::

    python -m benchmarks.papers.noisy
    python -m benchmarks.papers.noisy --data mnist --resume
    python -m benchmarks.render

Every trial appends a line to ``noisy.jsonl`` in the folder of ``--results``. With ``--resume``, trials that
are there are skipped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import LOADERS, load, split
from consilience import CollisionClassifier
from consilience.students import Network

RESULTS = records.FOLDER / "noisy.jsonl"
LOSSES = ("cross-entropy", "gce", "collision", "generalised-collision")
RATES = (0.5, 0.7, 0.8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    todo = [
        (setting, seed)
        for seed in range(options.seed, options.seed + options.trials)
        for setting in make_settings(options)
        if (setting, seed) not in done
    ]
    print(f"{len(todo)} of {options.trials * len(options.rates)} trials to run")
    if not todo:
        return
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    source = load(options.data, options.data_dir)
    about = records.provenance("noisy")
    for setting, seed in todo:
        rows = split(source, seed, 0)
        started = time.perf_counter()
        accuracy = run_trial(rows.X_train, rows.y_train, rows.X_test, rows.y_test, setting, seed)
        seconds = round(time.perf_counter() - started, 1)
        record = {"experiment": "noisy", "setting": setting, "seed": seed, "accuracy": accuracy}
        records.append(options.results, {**record, "seconds": seconds, **about})
        shown = " ".join(f"{name} {value:.3f}" for name, value in accuracy.items())
        print(f"eta {setting['noise_rate']:g}, seed {seed}, {seconds:.0f} s: {shown}", flush=True)


def make_settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what a trial depends on besides its seed, for each noise rate."""
    fixed = {"data": options.data, "rows": options.rows, "epochs": options.epochs}
    return [fixed | {"noise_rate": rate} for rate in options.rates]


def run_trial(
    X: NDArray[np.float32],
    y: NDArray[np.intp],
    X_test: NDArray[np.float32],
    y_test: NDArray[np.intp],
    setting: dict[str, Any],
    seed: int,
) -> dict[str, float]:
    """Corrupt labels and return the test accuracy of each loss. All use the same weights and batches."""
    random = np.random.RandomState(seed)
    X, y = X[: setting["rows"]], y[: setting["rows"]]
    replaced = random.uniform(size=len(y)) < setting["noise_rate"]
    observed = np.where(replaced, random.randint(y.max() + 1, size=len(y)), y)
    accuracy = {}
    for loss in LOSSES:
        student = Network(
            _network, max_iter=setting["epochs"], patience=None, validation_fraction=0.0, standardize=False
        )
        model = CollisionClassifier(loss, student, noise=setting["noise_rate"], random_state=seed)
        accuracy[loss] = round(float(model.fit(X, observed).score(X_test, y_test)), 5)
    return accuracy


def _network(n_features: int, n_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(n_features, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, n_classes)
    )


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("noisy", __doc__, trials=2)
    parser.add_argument("--data", choices=LOADERS, default="digits", help="default: %(default)s")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="noise rates eta")
    parser.add_argument("--rows", type=int, default=5_000, help="training rows; default: %(default)s")
    parser.add_argument("--epochs", type=int, default=40, help="default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    return parser


if __name__ == "__main__":
    main()

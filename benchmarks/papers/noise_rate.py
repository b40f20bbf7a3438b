"""Compare classifiers that do not know how many labels are wrong, and some that do.

A share eta of the training labels is replaced by labels drawn from all classes. Linear models learn from them
and are scored on clean test labels. ``CollisionClassifier(noise="auto")`` estimates eta. Its rivals are
logistic regression with strong regularisation, and cleanlab's ``CleanLearning``. They get the features as
they are (all in one unit) and standardised. The default seeds were not used to choose anything.

Run from the root of the repository, with the extra ``benchmarks``::

    python -m benchmarks.papers.noise_rate --data digits --trials 10 --resume
    python -m benchmarks.papers.noise_rate --data mnist --resume
    python -m benchmarks.papers.noise_rate --data letter --resume
    python -m benchmarks.render

Every trial appends a line to ``noise_rate.jsonl`` in the folder of ``--results``. With ``--resume``, trials
that are there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import LOADERS, Source, load, parts
from consilience import CollisionClassifier

RESULTS = records.FOLDER / "noise_rate.jsonl"
RATES = (0.0, 0.2, 0.5, 0.7, 0.8)
LOSSES = ("collision", "generalised-collision")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    warnings.simplefilter("ignore")  # logistic regression may stop early
    source = load(options.data, options.data_dir)
    about = records.provenance("noise_rate")
    about["versions"]["cleanlab"] = version("cleanlab")
    for seed in range(options.seed, options.seed + options.trials):
        for rate in options.rates:
            setting = {"data": options.data, "rows": options.rows, "noise_rate": rate}
            if (setting, seed) in done:
                continue
            started = time.perf_counter()
            result = run_trial(source, setting, seed)
            seconds = round(time.perf_counter() - started, 1)
            record = {"experiment": "noise-rate", "setting": setting, "seed": seed, **result}
            records.append(options.results, {**record, "seconds": seconds, **about})
            shown = " ".join(f"{name} {value:.3f}" for name, value in result["accuracy"].items())
            print(f"eta {rate:g}, seed {seed}, {seconds:.0f} s: {shown}", flush=True)


def run_trial(source: Source, setting: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Corrupt labels; return the test accuracy of each method, estimates of the noise rate, and times."""
    X, y, X_test, y_test = _rows(source, setting["rows"], seed)
    random = np.random.RandomState(seed)
    replaced = random.uniform(size=len(y)) < setting["noise_rate"]
    observed = np.where(replaced, random.randint(y.max() + 1, size=len(y)), y)
    accuracy, estimates, seconds = {}, {}, {}
    for name, model in _methods(setting["noise_rate"], seed).items():
        started = time.perf_counter()
        model.fit(X, observed)
        seconds[name] = round(time.perf_counter() - started, 2)
        accuracy[name] = round(float(model.score(X_test, y_test)), 5)
        if isinstance(model, CollisionClassifier) and model.noise_rate == "auto":
            estimates[name] = round(float(model.noise_rate_ or 0.0), 4)
    return {"accuracy": accuracy, "estimates": estimates, "fit_seconds": seconds}


def _rows(source: Source, n_rows: int, seed: int) -> tuple[NDArray[Any], ...]:
    transfer, test, train = parts(source, seed, len(source.y))
    train = np.concatenate([train, transfer])[:n_rows]
    if source.X_test is None or source.y_test is None:
        return source.X[train], source.y[train], source.X[test], source.y[test]
    return source.X[train], source.y[train], source.X_test, source.y_test


def _methods(rate: float, seed: int) -> dict[str, Any]:
    from cleanlab.classification import CleanLearning

    def logistic(C: float) -> Any:
        return LogisticRegression(C=C, max_iter=200)

    def standardised(model: Any) -> Any:
        return make_pipeline(StandardScaler(), model)

    methods = {
        "LogisticRegression(C=.01)": logistic(0.01),
        "the same, standardised": standardised(logistic(0.01)),
        "CleanLearning(LogisticRegression())": CleanLearning(logistic(1.0), seed=seed),
        "CleanLearning, standardised": CleanLearning(standardised(logistic(1.0)), seed=seed),
        "CleanLearning, C=.01, standardised": CleanLearning(standardised(logistic(0.01)), seed=seed),
    }
    for loss in LOSSES:
        methods[f"{loss}, eta given"] = CollisionClassifier(loss, noise=rate)
    for loss in LOSSES:
        methods[f'{loss}, "auto"'] = CollisionClassifier(loss, noise="auto", random_state=seed)
    return methods


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.noise_rate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", choices=LOADERS, default="digits", help="default: %(default)s")
    parser.add_argument("--data-dir", help="folder of the data; default: $CONSILIENCE_DATA")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="noise rates eta")
    parser.add_argument("--rows", type=int, default=3_000, help="training rows; default: %(default)s")
    parser.add_argument("--trials", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=100, help="seed of the first trial")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    results.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

"""Reproduce Table 2 and the sensitivity analyses of "Unifying Heterogeneous Classifiers with Distillation".

Run from the root of the repository::

    python -m benchmarks.papers.unify --trials 10
    python -m benchmarks.papers.unify --data cifar100 --configuration overlapping --jobs 2 --resume
    python -m benchmarks.papers.unify --data cifar100 --sensitivity temperature --trials 10
    python -m benchmarks.papers.render

Every trial appends a line to ``unify.jsonl`` in the folder of ``--results``. With ``--resume``, trials that
are there are skipped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed  # type: ignore[import-untyped]

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import LOADERS, Source, load
from benchmarks.papers.uhc import CROWDS, METHODS, SENSITIVITY_METHODS, Setting, run_trial

RESULTS = records.FOLDER / "unify.jsonl"
SENSITIVITIES: dict[str, tuple[str, tuple[float, ...]]] = {
    "transfer": ("transfer_rows", (1_000, 2_000, 5_000, 10_000)),
    "temperature": ("temperature", (1.0, 3.0, 6.0, 10.0)),
    "accuracy": ("accuracy", (0.4, 0.5, 0.6, 0.7, 0.8)),
}
"""What Sec. 4.2 varies: a field of `Setting` and its values. The paper goes up to 10^5 transfer rows."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    parser = _parser()
    options = results.parse(parser, arguments, RESULTS)
    if options.sensitivity == "accuracy" and options.crowd != "networks":
        parser.error("noise goes into a teacher's last layer, which only --crowd networks have")
    settings = make_settings(options)
    seeds = range(options.seed, options.seed + options.trials)
    done = finished(options.results) if options.resume else set()
    # seeds in the outer loop, so a stopped run has complete trials of every setting
    todo = [(setting, seed) for seed in seeds for setting in settings if key(setting, seed) not in done]
    print(f"{len(todo)} of {len(seeds) * len(settings)} trials to run")
    if not todo:
        return
    source = load(options.data, options.data_dir)
    about = records.provenance("unify")
    for record in _run(source, todo, options.jobs):
        records.append(options.results, {"experiment": experiment(options), **record, **about})
        shown = " ".join(f"{name} {value:.3f}" for name, value in record["accuracy"].items())
        print(f"seed {record['seed']}, {record['seconds']:.0f} s: {shown}", flush=True)


def make_settings(options: argparse.Namespace) -> list[Setting]:
    """Return a setting for Table 2, or one for each value of a sensitivity analysis."""
    base = Setting(
        options.data,
        options.configuration,
        ("SPV", *METHODS) if options.sensitivity is None else SENSITIVITY_METHODS,
        transfer_rows=options.transfer_rows,
        epochs=options.epochs,
        crowd=options.crowd,
        smoothing=options.smoothing,
    )
    if options.sensitivity is None:
        return [base]
    field, values = SENSITIVITIES[options.sensitivity]
    return [replace(base, **{field: value}) for value in values]  # type: ignore[arg-type]


def experiment(options: argparse.Namespace) -> str:
    """Return the name under which the renderer finds the records."""
    return "table" if options.sensitivity is None else str(options.sensitivity)


def key(setting: Setting, seed: int) -> str:
    """Return what identifies a trial."""
    return repr((sorted(_plain(setting).items()), seed))


def finished(path: Path) -> set[str]:
    """Return the keys of the trials that a file holds."""
    return {repr((sorted(r["setting"].items()), r["seed"])) for r in records.read(path)}


def _plain(setting: Setting) -> dict[str, Any]:
    """Return a setting as JSON gives it back."""
    return asdict(setting) | {"methods": list(setting.methods)}


def _run(source: Source, todo: list[tuple[Setting, int]], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield a record per trial, as they finish."""
    calls = (delayed(_timed)(source, setting, seed) for setting, seed in todo)
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch=jobs)(calls)


def _timed(source: Source, setting: Setting, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    outcome = run_trial(source, setting, seed)
    return {
        "setting": _plain(setting),
        "seed": seed,
        "accuracy": {name: round(value, 5) for name, value in outcome.accuracy.items()},
        "n_classes": outcome.n_classes,
        "teachers": list(outcome.teachers),
        "teacher_accuracy": round(outcome.teacher_accuracy, 5),
        "seconds": round(time.perf_counter() - start, 1),
    }


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("unify", __doc__, trials=50)
    parser.add_argument("--data", choices=LOADERS, default="digits", help="default: %(default)s")
    parser.add_argument("--configuration", choices=("random", "overlapping"), default="random")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--table", action="store_true", help="Table 2 (the default)")
    what.add_argument("--sensitivity", choices=SENSITIVITIES, help="one of the analyses of Sec. 4.2")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    parser.add_argument("--epochs", type=int, default=6, help="of each student; the paper's are 20")
    parser.add_argument("--transfer-rows", type=int, default=10_000, help="most rows of the transfer set")
    parser.add_argument("--crowd", choices=CROWDS, default="networks", help="kinds of teachers")
    parser.add_argument("--smoothing", type=float, default=0.0, help="of the teachers; 0 as in the paper")
    return parser


if __name__ == "__main__":
    main()

"""Measure how well a repository is searched without running its models.

A repository has 200 models, and its first 50 make a smaller one. For each task and each method of `shortlist`
we look at the model it puts first, and at the one that `rank_teachers` puts first among the best 5 % of the
shortlist. What they are worth is known: a student was trained with every model.

Run from the root of the repository::

    python -m benchmarks.repository --quick
    python -m benchmarks.repository --data "cifar100 lite0" clinc --seed 0 --role chosen --cache FOLDER
    python -m benchmarks.repository --data "cifar100 rn50" cub clinc --seed 1 --cache FOLDER
    python -m benchmarks.render

Data, seeds and methods append a line each to ``search.jsonl`` in the folder of ``--results``. ``--role
chosen`` marks data that helped to choose the default; the others had no part in it. The folder of ``--cache``
keeps the students.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from benchmarks import results
from benchmarks.repository.problem import PROTOCOLS
from benchmarks.repository.truth import TRUTHS, Shelf, load_shelf
from benchmarks.scale import records
from consilience import rank_teachers
from consilience.repository.description import Description, describe
from consilience.repository.shortlist import METHODS, shortlist

RESULTS = Path(__file__).parent / "results" / "search.jsonl"
SIZES = (50, 200)
SHARE = 0.05  # of the models that may be run
EVERY = "run every model"
Scores = NDArray[np.float64]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parse(arguments)
    torch.set_num_threads(1)  # so that times do not depend on the cores
    sizes = (10, 30) if options.quick else SIZES
    for data in options.data:
        shelf = load_shelf(data, options.data_dir, options.cache, max(sizes), options.tasks, options.seed)
        started = time.perf_counter()
        kept = [describe(shelf.teacher(i), shelf.reference) for i in range(max(sizes))]
        described = (time.perf_counter() - started) / len(kept)
        if options.reference:
            few = np.random.RandomState(0).permutation(len(shelf.reference))[: options.reference]
            kept = _smaller(kept, few)
            shelf = replace(shelf, reference=shelf.reference[few], reference_y=shelf.reference_y[few])
        about = {
            "data": data,
            "role": options.role,
            "reference": len(shelf.reference),
            "foreign": options.foreign,
            "quick": options.quick,
        }
        about |= {"bytes": round(float(np.mean([one.n_bytes for one in kept]))), "describe": described}
        for size in sizes:
            for method in options.methods or (*METHODS, EVERY):
                record = measure(shelf, kept[:size], method, foreign=options.foreign) | about
                records.append(options.results, record, options.seed, _command(options))
                print(_line(record), flush=True)
    return 0


def measure(
    shelf: Shelf, kept: Sequence[Description], method: str, *, foreign: bool = False
) -> dict[str, Any]:
    """Return the figures of one method, over all tasks.

    With `foreign`, the reference rows of a task's own classes are left out.
    """
    found = []
    for place, task in enumerate(shelf.tasks):
        used = ~np.isin(shelf.reference_y, task.y) | (not foreign)
        seen = _smaller(kept, used)
        started = time.perf_counter()
        if method == EVERY:
            scores = _run(shelf, place, range(len(kept)))
        else:
            scores = np.empty(len(kept))
            names = {str(i): one for i, one in enumerate(seen)}
            listed = shortlist(names, shelf.reference[used], task.X, task.y, method=method)
            scores[[int(name) for name in listed]] = list(listed.values())
        seconds = time.perf_counter() - started
        order = np.argsort(-scores, kind="stable")
        most = len(kept) if method == EVERY else max(1, int(SHARE * len(kept)))
        ran = order[:most]
        if method != EVERY:
            ran = ran[np.argsort(-_run(shelf, place, ran), kind="stable")]
        found.append({"seconds": seconds} | _figures(shelf, place, scores, order, ran))
    truths = {
        truth: {key: float(np.mean([one[truth][key] for one in found])) for key in found[0][truth]}
        for truth in TRUTHS
    }
    return {
        "method": method,
        "models": len(kept),
        "run": most,
        "tasks": len(found),
        "seconds": float(np.median([one["seconds"] for one in found])),
        "worst": float(np.max([one["distil"]["after"] for one in found])),
        "truths": truths,
    }


def _run(shelf: Shelf, task: int, models: Any) -> Scores:
    """Run models on a task, and return the scores of `rank_teachers`."""
    teachers = {str(i): shelf.teacher(int(i), task) for i in models}
    rows = shelf.tasks[task]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # models that are of no use
        ranking = rank_teachers(teachers, rows.X, rows.y, confidence=None)
    scores = {row.name: row.score for row in ranking}
    return np.array([scores[name] for name in teachers])


def _correlation(measure: Any, scores: Scores, truth: Scores) -> float:
    """Return a correlation; 0 if all models are alike, so that there is nothing to order."""
    return float(measure(scores, truth).statistic) if np.ptp(scores) and np.ptp(truth) else 0.0


def _figures(
    shelf: Shelf, task: int, scores: Scores, order: NDArray[np.intp], ran: NDArray[np.intp]
) -> dict[str, Any]:
    """Compare a shortlist with each truth. Regrets are in points."""
    found = {}
    lowest = scores[np.isfinite(scores)].min()
    finite = np.where(np.isfinite(scores), scores, lowest)  # models that failed
    for name in TRUTHS:
        truth = 100 * shelf.truth[name][task, : len(scores)]
        best = truth.max()
        found[name] = {
            "recall": float(truth[order[:5]].max() == best),
            "pearson": _correlation(pearsonr, finite, truth),
            "spearman": _correlation(spearmanr, finite, truth),
            "first": float(best - truth[order[0]]),
            "after": float(best - truth[ran[0]]),
            "listed": float(best - truth[ran].max()),
            "random": float(best - truth.mean()),
            "alone": float(best - 100 * shelf.alone[task]),
        }
    return found


def _smaller(kept: Sequence[Description], few: NDArray[Any]) -> list[Description]:
    """Return descriptions of some of the reference rows."""
    rows = [{k: v if k == "classes" else v[few] for k, v in one.arrays.items()} for one in kept]
    return [Description(**one) for one in rows]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.repository",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", nargs="+", choices=PROTOCOLS, default=["cifar100 lite0"])
    parser.add_argument("--data-dir", help="folder of the data; default: $CONSILIENCE_DATA")
    parser.add_argument("--cache", type=Path, help="keeps the students of all models; default: a new folder")
    parser.add_argument("--tasks", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reference", type=int, default=0, help="use only so many reference rows")
    parser.add_argument("--foreign", action="store_true", help="no reference rows of a task's own classes")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, EVERY], help="default: all")
    parser.add_argument("--role", choices=("chosen", "confirm"), default="confirm")
    parser.add_argument("--quick", action="store_true", help="30 models of digits, which need no data")
    results.add_options(parser)
    options = results.parse(parser, arguments, RESULTS)
    if options.quick:
        options.data, options.tasks = ["digits"], 3
    options.cache = options.cache or Path(tempfile.mkdtemp(prefix="repository-"))
    return options


def _command(options: argparse.Namespace) -> str:
    """Return the command, without folders of this machine."""
    words = ["python -m benchmarks.repository"]
    if options.quick:
        return " ".join([*words, "--quick", "--seed", str(options.seed)])
    words += ["--data", *(f'"{name}"' if " " in name else name for name in options.data)]
    words += ["--seed", str(options.seed), "--role", options.role]
    words += ["--reference", str(options.reference)] if options.reference else []
    words += ["--foreign"] if options.foreign else []
    words += ["--methods", *options.methods] if options.methods else []
    return " ".join([*words, "--tasks", str(options.tasks)])


def _line(record: Mapping[str, Any]) -> str:
    found = record["truths"]["distil"]
    return (
        f"{record['data']:15} {record['models']:4} {record['method']:16} recall {found['recall']:.2f} "
        f"pearson {found['pearson']:.2f} regret {found['first']:.1f}, after {record['run']} runs "
        f"{found['after']:.1f}; {record['seconds']:.2f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())

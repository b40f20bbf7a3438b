"""Measure everything, print a table of ratios and append a line per measurement to the result file."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numba
from threadpoolctl import threadpool_limits

from benchmarks import results
from benchmarks.speed import assessment, clustering, collision, measures, ray, store, texts, transport
from benchmarks.speed.measures import Options, Result

RESULTS = Path(__file__).parent / "results" / "speed.jsonl"
MEASURES = (
    measures.MEASURES
    | collision.MEASURES
    | clustering.MEASURES
    | store.MEASURES
    | ray.MEASURES
    | transport.MEASURES
    | assessment.MEASURES
    | texts.MEASURES
)
PACKAGES = ("consilience", "numpy", "scipy", "numba", "torch", "scikit-learn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if `--check` is given and a goal is missed."""
    options = parse(arguments)
    set_threads(options.threads)
    found = []
    for name in options.only or MEASURES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        for result in MEASURES[name](Options(options.quick, options.seed, 2 if options.quick else 5)):
            found.append(result)
            append(options.results, result, options)
    show(found)
    missed = [result.name for result in found if result.met is False]
    return 1 if options.check and missed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer repeats")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), help="leave out the other measurements")
    parser.add_argument("--threads", type=int, default=2, help="threads for us and for every peer (2)")
    parser.add_argument("--seed", type=int, default=0, help="of the random problems (0)")
    results.add_options(parser)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    return results.parse(parser, arguments, RESULTS)


def set_threads(threads: int) -> None:
    """Give all libraries the same number of threads."""
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    threadpool_limits(threads)
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.set_num_threads(threads)


def append(path: Path, result: Result, options: argparse.Namespace) -> None:
    """Append one measurement, with everything needed to repeat it."""
    record = asdict(result) | {"met": result.met} | record_of_run(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def record_of_run(options: argparse.Namespace) -> dict[str, Any]:
    """Return seed, threads, commit, command, versions and date."""
    only = ["--only", *options.only] if options.only else []
    quick = ["--quick"] if options.quick else []
    flags = [*quick, *only, "--threads", str(options.threads), "--seed", str(options.seed)]
    return {
        "seed": options.seed,
        "threads": options.threads,
        "quick": options.quick,
        "commit": results.commit(),
        "command": " ".join(["python -m benchmarks.speed", *flags]),
        "versions": {"python": platform.python_version()} | {name: installed(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def installed(name: str) -> str | None:
    """Return the version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def show(found: Sequence[Result]) -> None:
    """Print the table, with rich where it is installed."""
    header = ["measurement", "result", "goal", "", "ours", "peer", "note"]
    rows = [_cells(result) for result in found]
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        for row in [header, *rows]:
            print(" | ".join(row))
        return
    table = Table(*header[:-1])
    for row in rows:
        table.add_row(*row[:-1])
    console = Console()
    console.print(table)
    for row in rows:
        if row[-1]:
            console.print(f"{row[0]}: {row[-1]}", highlight=False)


def _cells(result: Result) -> list[str]:
    goal = "" if result.goal is None else f"{'>=' if result.at_least else '<='} {result.goal:g} {result.unit}"
    verdict = {None: "", True: "met", False: "not met"}[result.met]
    times = ["" if seconds is None else f"{seconds:.3g} s" for seconds in (result.ours, result.peer)]
    return [result.name, f"{result.value:.3g} {result.unit}", goal, verdict, *times, result.note]


if __name__ == "__main__":
    sys.exit(main())

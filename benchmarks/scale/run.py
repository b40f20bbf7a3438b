"""Measure a stream against a plain loop over the teachers, against rows in memory, and against Ray.

Each measurement has a process of its own. The kinds take turns, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import results
from benchmarks.scale.problem import CHEAP, CLASSES, COLUMNS, SLOW, depth_for, make_teachers
from benchmarks.scale.processes import run
from benchmarks.scale.records import RESULTS, append, load, whole

KINDS = {
    "loop": {"kind": "loop"},
    "stream": {"kind": "stream"},
    "stream mf-lf": {"kind": "stream", "method": "mf-lf"},
    "stream, store": {"kind": "stream", "cache": True},
    "memory": {"kind": "memory"},
    "ray 1": {"kind": "ray", "workers": 1},
    "ray 2": {"kind": "ray", "workers": 2},
    "ray 4": {"kind": "ray", "workers": 4},
}
QUICK_ROWS = 40_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parse(arguments)
    depth = depth_for(options.slow_us)
    command = _command(options)
    for rows in options.rows:
        for turn in range(options.repeats):
            for name in kinds(options, rows):
                asked = {"rows": rows, "seed": options.seed, "depth": depth, "method": "auto", "cache": False}
                record = measure(name, asked | KINDS[name]) | {
                    "slow_us": options.slow_us,
                    "turn": turn,
                    "quick": options.quick,
                    "columns": COLUMNS,
                    "classes": CLASSES,
                    "teachers": [CHEAP, SLOW],
                    "logits": sum(len(one.classes) for one in make_teachers(0, options.seed)),
                }
                append(options.results, record, options.seed, command)
                speed = rows / record["seconds"]
                print(
                    f"{name:14} {rows:>11,} rows {record['seconds']:8.1f} s {speed:12,.0f} rows/s "
                    f"{record['peak_bytes'] / 1e6:8.0f} MB  load {record['load']}",
                    flush=True,
                )
    return 0


def measure(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Measure one kind in a new process; return its record."""
    before = load()
    # one thread for products of matrices: a teacher then costs the same in every kind
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ended = run([sys.executable, "-m", "benchmarks.scale.work", json.dumps(asked)], environment=threads)
    if ended.exit_code:
        raise SystemExit(f"{name} failed ({ended.exit_code}):\n{ended.log}")
    found = json.loads(ended.output.splitlines()[-1])
    own = found.pop("own_peak_bytes")  # no peak is missed here; other processes are looked at once a second
    peak = max(ended.peak_bytes, own) if asked["kind"] == "ray" else own
    return {**asked, **found, "name": name, "peak_bytes": peak, "load": [before, load()]}


def kinds(options: argparse.Namespace, rows: int) -> Iterator[str]:
    """Yield what can be measured here: Ray where it is installed, rows in memory where they fit."""
    for name in options.only or KINDS:
        engine = KINDS[name]["kind"]
        if engine == "ray" and importlib.util.find_spec("ray") is None:
            print(f"{name}: ray is not installed", file=sys.stderr)
        elif engine == "memory" and rows > options.memory_rows:
            print(f"{name}: {rows:,} rows are too many", file=sys.stderr)
        else:
            yield name


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", default="1e6,3e6,1e7", help="how many rows, separated by commas")
    parser.add_argument("--slow-us", type=float, default=50.0, help="a row takes a slow teacher so long (50)")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), help="leave out the other kinds")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--memory-rows", type=whole, default=1_000_000, help="most rows in memory (1e6)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, quick teachers")
    results.add_options(parser)
    options = results.parse(parser, arguments, RESULTS)
    options.rows = [QUICK_ROWS] if options.quick else [whole(text) for text in options.rows.split(",")]
    options.slow_us = 0.0 if options.quick else options.slow_us
    return options


def _command(options: argparse.Namespace) -> str:
    words = ["--quick"] if options.quick else ["--rows", ",".join(map(str, options.rows))]
    words += ["--slow-us", f"{options.slow_us:g}", "--repeats", str(options.repeats)]
    words += ["--only", *(json.dumps(name) for name in options.only)] if options.only else []
    return " ".join(["python -m benchmarks.scale", *words, "--seed", str(options.seed)])


if __name__ == "__main__":
    sys.exit(main())

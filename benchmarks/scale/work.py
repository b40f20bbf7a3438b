"""One measurement, in a process of its own: python -m benchmarks.scale.work '{"kind": "loop", ...}'."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.scale.problem import DrawnRows, make_teachers
from consilience import Run, Unifier
from consilience.methods import METHODS
from consilience.rows import Rows

BATCH = 4096
BUDGET = "500MB"
"""What a stream is told it may take."""
WARM_UP = 20_000
"""Rows that are unified before the clock starts: the first call loads compiled code."""


def main() -> int:
    """Measure what the command line asks for; print a line of JSON."""
    asked = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    print(json.dumps(measure(asked)))
    return 0


def measure(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return seconds, processor seconds, peak memory of this process, and the seconds of each step."""
    source = DrawnRows(asked["rows"], asked["seed"])
    quick = {**asked, "depth": 0}
    if asked["kind"] == "loop":
        quick["kind"] = "stream"  # the same memory from the start
    _unify(DrawnRows(WARM_UP, asked["seed"]), quick, None)
    before = time.perf_counter()
    if asked["kind"] == "ray":  # what it takes to start and stop Ray
        _unify(DrawnRows(16, asked["seed"]), quick, None)
    start_up = time.perf_counter() - before
    with tempfile.TemporaryDirectory() as folder:
        cpu, start = time.process_time(), time.perf_counter()
        steps = _loop(source, asked) if asked["kind"] == "loop" else _unify(source, asked, Path(folder))
        found = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found | {"steps": steps, "own_peak_bytes": peak, "store_bytes": stored, "start": start_up}


def _loop(source: Rows, asked: Mapping[str, Any]) -> dict[str, float]:
    """Only draw the rows and call the teachers; keep nothing."""
    teachers = make_teachers(asked["depth"], asked["seed"])
    for block in source.blocks():
        for teacher in teachers:
            for start in range(0, len(block.X), BATCH):
                teacher.predict_logits(block.X[start : start + BATCH])
    return {}


def _unify(source: Rows, asked: Mapping[str, Any], folder: Path | None) -> dict[str, float]:
    """Return the seconds of each step of what makes soft labels."""
    options: dict[str, Any] = {}
    if asked["kind"] == "ray":
        options = {"engine": "ray", "engine_options": {"workers": asked["workers"]}}
    unifier = Unifier(
        make_teachers(asked["depth"], asked["seed"]),
        method=METHODS[asked["method"]](n_neighbors=0),
        run=Run(
            memory="1TB" if asked["kind"] == "memory" else BUDGET,
            cache=folder if asked["cache"] and folder is not None else None,
            rows_per_call=BATCH,
            **options,
        ),
    )
    with _cluster(asked):
        return dict(unifier.make_estimate(source).seconds)


@contextmanager
def _cluster(asked: Mapping[str, Any]) -> Iterator[None]:
    """Start Ray with as many logical cores as there are workers, and stop it; nothing for other kinds."""
    if asked["kind"] != "ray":
        yield
        return
    import ray

    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=asked["workers"], **options)  # not one that others run on this machine
    try:
        yield
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())

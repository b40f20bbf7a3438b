"""From parquet files to a saved model by ``consilience unify``, within a limit of memory and killed twice.

python -m benchmarks.scale.end_to_end --rows 1e7
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.scale.processes import Ended, run
from benchmarks.scale.records import RESULTS, append, load, whole

COLUMNS, CLASSES = 16, 12
FILES = 8
GROUP_ROWS = 2**17
"""Rows of a group in a parquet file."""
TEACHERS = ((0, 1, 2, 3, 4, 5), (3, 4, 5, 6, 7), (6, 7, 8, 9), (8, 9, 10, 11, 0, 1))
"""The classes of each teacher."""
LIMIT = 4_000_000_000
CLI = "from consilience.cli import main; main()"
AGAIN_ROWS = 400_000
"""At most this many rows are unified a second time without a kill, to compare the models."""


def write_rows(folder: Path, n_rows: int, seed: int) -> None:
    """Write rows as parquet files, a group of rows at a time."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    names = [f"x{i}" for i in range(COLUMNS)]
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in names])
    borders = np.linspace(0, n_rows, FILES + 1).astype(int)
    for number in range(FILES):
        random = np.random.default_rng([seed, number])
        left = int(borders[number + 1] - borders[number])
        with pyarrow.parquet.ParquetWriter(folder / f"part-{number}.parquet", schema) as writer:
            while left:
                count = min(left, GROUP_ROWS)
                X = random.standard_normal((COLUMNS, count), dtype=np.float32)
                writer.write_table(pyarrow.table(list(X), schema=schema), row_group_size=count)
                left -= count


def write_teachers(folder: Path, seed: int) -> list[Path]:
    """Write linear models of one truth, with noise, as ONNX files."""
    from onnx import TensorProto, helper, numpy_helper, save

    folder.mkdir(parents=True)
    random = np.random.default_rng([seed, 2**20])
    truth = random.standard_normal((COLUMNS, CLASSES)) * 4 / COLUMNS**0.5
    paths = []
    for i, known in enumerate(TEACHERS):
        noise = random.standard_normal((COLUMNS, len(known))) / COLUMNS**0.5
        weights = (truth[:, list(known)] + noise).astype(np.float32)
        rows, scores = ["n", COLUMNS], ["n", len(known)]
        graph = helper.make_graph(
            [
                helper.make_node("MatMul", ["X", "W"], ["logits"]),
                helper.make_node("Softmax", ["logits"], ["probabilities"]),
            ],
            "teacher",
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, rows)],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, scores)],
            [numpy_helper.from_array(weights, "W")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        helper.set_model_props(model, {"classes": json.dumps([f"class {k}" for k in known])})
        paths.append(folder / f"teacher-{i}.onnx")
        save(model, paths[-1])
    return paths


@dataclass(frozen=True)
class Task:
    """What ``consilience unify`` is asked to do."""

    data: Path
    teachers: list[Path]
    cache: Path
    memory: str
    limit: int
    student: str

    def unify(self, out: Path, cache: Path | None, kill_when: Callable[[str], bool] | None = None) -> Ended:
        """Run the command to its end, or until it is killed."""
        words = ["unify", *(f"--teacher={path}" for path in self.teachers), f"--data={self.data}"]
        words += [
            f"--memory={self.memory}",
            f"--out={out}",
            f"--student={self.student}",
            "--json",
            "--log=json",
        ]
        words += [] if cache is None else [f"--cache={cache}"]
        command = [sys.executable, "-c", CLI, *words]
        return run(command, data_limit=self.limit, kill_when=kill_when)

    def rows_stored(self) -> int:
        """Return how many outputs the store has, over all teachers."""
        found = run([sys.executable, "-c", CLI, "cache", str(self.cache), "--json"])
        return int(json.loads(found.output)["n_rows"]) if found.exit_code == 0 else -1


def reached(task: str, share: float) -> Callable[[str], bool]:
    """Return a test of whether a line of the log says that a task is so far."""

    def test(line: str) -> bool:
        try:
            found = json.loads(line)
        except ValueError:
            return False
        if found.get("event") != "progress" or found.get("task") != task:
            return False
        return bool(found["done"] >= share * found["total"])

    return test


def killed_twice(task: Task, out: Path, second_kill: str) -> dict[str, Any]:
    """Kill a run while it scores, and one at a later step; return what the third does, and their figures."""
    first = task.unify(out, task.cache, reached("scoring", 0.4))
    stored_first = task.rows_stored()
    second = task.unify(out, task.cache, reached(second_kill, 0.05))
    stored_second = task.rows_stored()
    third = task.unify(out, task.cache)
    if third.exit_code:
        raise SystemExit(f"The last run failed ({third.exit_code}):\n{third.log}")
    runs = (first, second, third)
    return {
        "killed": [one.killed for one in runs],
        "seconds": [round(one.seconds, 1) for one in runs],
        "cpu_seconds": [round(one.cpu_seconds, 1) for one in runs],
        "peak_bytes": max(one.peak_bytes for one in runs),
        "stored": [stored_first, stored_second, task.rows_stored()],
        "steps": json.loads(third.output)["seconds"],
        "store_bytes": _size(task.cache),
        "saved": out.exists(),
    }


def undisturbed(task: Task, killed: Path, out: Path) -> dict[str, Any]:
    """Run once more without a store and without a kill; compare the models."""
    done = task.unify(out, None)
    if done.exit_code:
        raise SystemExit(f"The undisturbed run failed ({done.exit_code}):\n{done.log}")
    return {
        "undisturbed_seconds": round(done.seconds, 1),
        "undisturbed_peak_bytes": done.peak_bytes,
        "same_bytes": killed.read_bytes() == out.read_bytes(),
        "undisturbed_steps": json.loads(done.output)["seconds"],
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(options: argparse.Namespace, n_rows: int, folder: Path, *, compare: bool) -> dict[str, Any]:
    """Unify so many rows; return the record."""
    shutil.rmtree(folder, ignore_errors=True)
    write_rows(folder / "rows", n_rows, options.seed)
    teachers = write_teachers(folder / "teachers", options.seed)
    task = Task(folder / "rows", teachers, folder / "cache", options.memory, options.limit, options.student)
    found = killed_twice(task, folder / "model.onnx", options.second_kill)
    if compare:
        found |= undisturbed(task, folder / "model.onnx", folder / "again.onnx")
    return {
        "kind": "end to end",
        "rows": n_rows,
        "memory": options.memory,
        "limit": options.limit,
        "student": options.student,
        "data_bytes": _size(folder / "rows"),
        "teachers": len(teachers),
        "kills": ["scoring", options.second_kill],
        **found,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.end_to_end", description=__doc__)
    parser.add_argument("--rows", type=whole, default=10_000_000, help="(1e7)")
    parser.add_argument("--memory", default="2GB", help="what consilience is told it may take (2GB)")
    parser.add_argument("--limit", type=whole, default=LIMIT, help="bytes that the system grants (4e9)")
    parser.add_argument("--student", default="torch")
    parser.add_argument("--second-kill", default="soft labels", choices=("soft labels", "training"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", action="store_true", help="also run undisturbed, and compare the models")
    parser.add_argument("--folder", type=Path, help="where files are written, and kept")
    parser.add_argument("--quick", action="store_true", help="mark the record as quick")
    results.add_options(parser)
    options = results.parse(parser, arguments, RESULTS)
    before = load()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "end"
        record = measure(options, options.rows, folder, compare=options.compare)
    flags = f"--rows {options.rows} --memory {options.memory} --limit {options.limit} --seed {options.seed}"
    flags += f" --student {options.student} --second-kill {json.dumps(options.second_kill)}"
    command = f"python -m benchmarks.scale.end_to_end {flags}{' --compare' * options.compare}"
    append(
        options.results, record | {"load": [before, load()], "quick": options.quick}, options.seed, command
    )
    print(json.dumps(record))
    return 0 if record["saved"] and os.path.exists(options.results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The result file: a line per measurement, with what it takes to repeat it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.speed.run import installed

RESULTS = Path(__file__).parent / "results" / "scale.jsonl"
PACKAGES = ("consilience", "numpy", "numba", "torch", "onnxruntime", "pyarrow", "ray")


def append(path: Path, record: Mapping[str, Any], seed: int, command: str) -> None:
    """Append one measurement."""
    about = {
        "seed": seed,
        "commit": results.commit(),
        "command": command,
        "cores": os.cpu_count(),
        "versions": {"python": platform.python_version()} | {name: installed(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**record, **about}) + "\n")


def read(path: Path = RESULTS) -> Iterator[dict[str, Any]]:
    """Yield the full measurements; quick ones show only that the code runs."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if not record["quick"]:
                yield record


def load() -> float:
    """Return how many processes have wanted a core in the last minute: others use this machine, too."""
    return round(os.getloadavg()[0], 1)


def whole(text: str) -> int:
    """Read a whole number that may be written as 1e7."""
    return round(float(text))

"""Result files: one JSON line per trial, with everything needed to run it again."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
PACKAGES = ("consilience", "numpy", "scikit-learn", "torch", "skorch")


def provenance(module: str) -> dict[str, Any]:
    """Return commit, command, versions and date. The command leaves out folders of this machine.

    `module` is the module of this package that runs.
    """
    return {
        "commit": _commit(),
        "command": _command(module, sys.argv[1:]),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run_parser(
    module: str, about: str | None, results: Path, *, trials: int, seed: int = 0
) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark that runs seeded trials.

    Parameters
    ----------
    module : str
        The module of this package that runs.
    about : str
        Its docstring.
    results : Path
        Default of ``--results``.
    trials, seed : int
        Defaults of ``--trials`` and ``--seed``.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.papers.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-dir", help="folder of the data; default: $CONSILIENCE_DATA")
    parser.add_argument("--trials", type=int, default=trials, help="default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=seed, help="seed of the first trial; default: %(default)s"
    )
    parser.add_argument("--results", type=Path, default=results, help="file to append to")
    return parser


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line. A killed run loses at most the line it was writing; `read` skips that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(record) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file. Skip lines that were cut short."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def _commit() -> str:
    """Return the commit; "-dirty" when the code that runs differs from it."""
    root = Path(__file__).parents[2]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/papers/*.py"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return (head.stdout.strip() or "unknown") + ("-dirty" if changed.stdout.strip() else "")


def _command(module: str, arguments: list[str]) -> str:
    kept, skip = [], False
    for argument in arguments:
        if not skip and not argument.startswith("--data-dir"):
            kept.append(argument)
        skip = argument == "--data-dir"
    return " ".join([f"python -m benchmarks.papers.{module}", *map(shlex.quote, kept)])

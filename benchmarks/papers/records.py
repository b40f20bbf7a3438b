"""Result files: one JSON line per trial, with everything needed to run it again."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import results

FOLDER = Path(__file__).parent / "results"
# what a command needs on one machine only: the folders it reads and writes
FOLDER_OPTIONS = ("--data-dir", "--results")
LEFT_OUT = (*FOLDER_OPTIONS, "--record")
# Before this date, a command without --data ran these; now the default needs no file.
DEFAULTS_CHANGED = "2026-11-18"
FORMER_DEFAULTS = {
    "unify": "cifar100",
    "distil": "cifar100",
    "harm": "cifar100",
    "coarse": "cifar100",
    "noisy": "mnist",
    "noise_rate": "mnist",
    "cluster_starts": "digits mnist letters cifar100 clinc150 cub200",
}
PACKAGES = ("consilience", "numpy", "scikit-learn", "torch")


def provenance(module: str) -> dict[str, Any]:
    """Return commit, command, versions and date. The command leaves out what only this machine has.

    `module` is the module of this package that runs.
    """
    return {
        "commit": results.commit(),
        "command": _command(module, sys.argv[1:]),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run_parser(module: str, about: str | None, *, trials: int, seed: int = 0) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark that runs seeded trials.

    Parameters
    ----------
    module : str
        The module of this package that runs.
    about : str
        Its docstring.
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
    results.add_options(parser)
    return parser


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line. A killed run loses at most the line it was writing; `read` skips that."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(record) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file. Skip lines that were cut short.

    Commands that relied on a former default name their data, so that they still run the same.
    """
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        yield record | {"command": _explicit(record)}


def _explicit(record: Mapping[str, Any]) -> str:
    """Return the command of a record, with its data if the default was another one then."""
    command = str(record["command"])
    module = command.split()[2].rpartition(".")[2]
    if "--data " in command or record["date"] >= DEFAULTS_CHANGED or module not in FORMER_DEFAULTS:
        return command
    return f"{command} --data {FORMER_DEFAULTS[module]}"


def _command(module: str, arguments: list[str]) -> str:
    kept, skip = [], False
    for argument in arguments:
        if not skip and not argument.startswith(LEFT_OUT):
            kept.append(argument)
        skip = argument in FOLDER_OPTIONS
    return " ".join([f"python -m benchmarks.papers.{module}", *map(shlex.quote, kept)])

"""Where a run writes: into a folder of your own, or, with ``--record``, into the files of the repository."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OWN = Path("benchmark-results")  # in the current folder; git ignores it
DIRTY = "-dirty"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--results`` and ``--record`` to the parser of a benchmark."""
    parser.add_argument(
        "--results", type=Path, default=OWN, metavar="FOLDER", help="folder to write to; default: %(default)s"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="append to the repository's own result files instead; needs code without changes",
    )


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, tracked: Path
) -> argparse.Namespace:
    """Read the command line, and replace the folder in `results` by the file to append to.

    Parameters
    ----------
    parser : ArgumentParser
        With the options of `add_options`.
    arguments : sequence of str or None
        The command line; None for that of the process.
    tracked : Path
        The file of the repository. A run without ``--record`` writes to one of the same name in its folder.
    """
    options = parser.parse_args(arguments)
    if options.record:
        state = commit()
        if state == "unknown" or state.endswith(DIRTY):
            parser.error(
                f"--record needs a git clone whose code is committed; here it is {state}. Commit your "
                "changes, or leave out --record to write to a folder of your own."
            )
        options.results = tracked
        return options
    if options.results.is_file() or options.results.suffix == tracked.suffix:
        parser.error(f"--results is a folder, but {options.results} names a file. Give its folder.")
    options.results = options.results / tracked.name
    if options.results.resolve() == tracked.resolve():
        parser.error(f"{options.results} belongs to the repository. Give --record to append to it.")
    return options


def commit() -> str:
    """Return the commit of the repository, with "-dirty" if the code that runs differs from it.

    Result files do not count as code.
    """
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks/*.py")
    return (head or "unknown") + (DIRTY if changed else "")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def source(records: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence that names the programs and commits behind some records.

    The options of each run stand in its record, so a page need not repeat them.

    Examples
    --------
    >>> source([{"command": "python -m benchmarks.speed --seed 0", "commit": "c" * 40}])
    '`python -m benchmarks.speed`, commits cccccccccccc.'
    """
    found = list(records)
    programs = sorted({" ".join(record["command"].split()[:3]) for record in found})
    commits = sorted({record["commit"][:12] + record["commit"][40:] for record in found})
    return f"`{'`, `'.join(programs)}`, commits {', '.join(commits)}."


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()

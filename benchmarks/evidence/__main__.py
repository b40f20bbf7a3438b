"""Write the pages of docs/evidence from your own results, next to nothing of the repository.

Run from the root of the repository, after some experiments::

    python -m benchmarks.papers.unify --trials 10
    python -m benchmarks.evidence --output my-evidence
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evidence import pages
from benchmarks.render import fill
from benchmarks.results import OWN


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the pages, and write them and their figures to a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=OWN, help="folder of results; default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder to write the pages to")
    options = parser.parse_args(arguments)
    if not list(options.results.glob("*.jsonl")):
        parser.error(f"{options.results} has no result files (.jsonl). Run an experiment first.")
    if options.output.resolve() == pages.FOLDER.resolve():
        parser.error("docs/evidence is written by python -m benchmarks.render. Give another folder.")
    (options.output / pages.FIGURES).mkdir(parents=True, exist_ok=True)
    for page, parts in pages.blocks(options.results).items():
        text = (pages.FOLDER / f"{page}.md").read_text(encoding="utf-8")
        for name, content in parts.items():
            text = fill(text, name, content)
        (options.output / f"{page}.md").write_text(text, encoding="utf-8")
    for name, svg in pages.figures(options.results).items():
        (options.output / pages.FIGURES / name).write_text(svg, encoding="utf-8")
    print(f"written: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

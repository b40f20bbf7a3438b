"""Fill the pages of docs/evidence from a folder of result files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evidence import cce, claims, sctd, uhc
from benchmarks.papers import cluster, distil, records
from benchmarks.papers import render as papers

FOLDER = Path(__file__).parents[2] / "docs" / "evidence"
FIGURES = "figures"
INDEX = "index"

Trials = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Paper:
    """What a page shows of a paper."""

    title: str
    claims: Callable[[Path, Mapping[str, Any]], list[claims.Claim]]
    figures: Callable[[Path], dict[str, str]]
    tables: Callable[[Path, Mapping[str, Any]], str]


def blocks(results: Path) -> dict[str, dict[str, str]]:
    """Return what is between the marks of each page, by page and mark."""
    published = json.loads(papers.PUBLISHED.read_text(encoding="utf-8"))
    filled: dict[str, dict[str, str]] = {}
    checked = {name: paper.claims(results, published) for name, paper in PAPERS.items()}
    for name, paper in PAPERS.items():
        filled[name] = {
            "verdicts": claims.summary(checked[name]),
            "curves": _curves(paper.figures(results)),
            "claims": claims.details(checked[name]),
            "tables": paper.tables(results, published) or "No trials yet.",
        }
    return {INDEX: {"verdicts": _count(checked)}, **filled}


def figures(results: Path) -> dict[str, str]:
    """Return all figures as SVG, by file name."""
    drawn: dict[str, str] = {}
    for paper in PAPERS.values():
        drawn |= paper.figures(results)
    return drawn


def _curves(drawn: Mapping[str, str]) -> str:
    """Return the figures of a page, with their titles as alternative texts."""
    lines = []
    for name, svg in drawn.items():
        words = svg.partition('aria-label="')[2].partition('"')[0].partition(". ")[0]
        lines.append(f"![{words}]({FIGURES}/{name})")
    return "\n\n".join(lines) or "No trials yet."


def _count(checked: Mapping[str, Sequence[claims.Claim]]) -> str:
    kinds = (claims.HOLDS, claims.PARTLY, claims.FAILS, claims.UNDECIDED, claims.UNTRIED)
    lines = [f"| paper | claims | {' | '.join(kinds)} |", "|---" * (len(kinds) + 2) + "|"]
    for name, own in checked.items():
        counts = " | ".join(str(sum(claim.verdict == kind for claim in own)) for kind in kinds)
        lines.append(f"| [{PAPERS[name].title}]({name}.md) | {len(own)} | {counts} |")
    return "\n".join(lines)


def _uhc_tables(results: Path, published: Mapping[str, Any]) -> str:
    trials = list(records.read(results / uhc.FILE))
    # one level down, and without its title: the page has its own
    return papers.render(trials, published).split("\n", 1)[1].replace("\n## ", "\n### ") if trials else ""


def _sctd_tables(results: Path, published: Mapping[str, Any]) -> str:
    return distil.render(list(records.read(results / "distil.jsonl")), published["distil"])


def _cce_tables(results: Path, published: Mapping[str, Any]) -> str:
    noisy = papers.render_noisy(list(records.read(results / "noisy.jsonl")))
    clusters = cluster.render(list(records.read(results / "cluster.jsonl")))
    return "\n\n".join(filter(None, (noisy, clusters)))


PAPERS = {
    "uhc": Paper("Unifying heterogeneous classifiers", uhc.claims, uhc.figures, _uhc_tables),
    "sctd": Paper("Selective cross-task distillation", sctd.claims, sctd.figures, _sctd_tables),
    "cce": Paper("Collision cross-entropy", cce.claims, cce.figures, _cce_tables),
}

"""Write the figures in the documents from the result files; nobody types one.

Run ``python -m benchmarks.render`` after a measurement. With ``--check`` it only tells whether the documents
are up to date (exit code 1 if not). It rewrites what is between ``<!-- name -->`` and ``<!-- /name -->``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evidence import pages as evidence
from benchmarks.papers import (
    aliases,
    calibration,
    centres,
    cluster_starts,
    compare,
    default,
    harm,
    languages,
    records,
    render_assess,
    self_label,
)
from benchmarks.papers import render as papers
from benchmarks.papers.noise_rate import RESULTS as NOISE_RATE_RESULTS
from benchmarks.repository import render as repository
from benchmarks.results import markdown, source
from benchmarks.scale import records as scale_records
from benchmarks.scale import render as scale

ROOT = Path(__file__).parents[1]
SPEED_RESULTS = ROOT / "benchmarks" / "speed" / "results" / "speed.jsonl"
SOLVERS = re.compile(r"pseudo-labels: (\w+ vs \w+), K=(\d+), M=([\d,]+), lam=([\d.]+)")
DEMO_RESULT = ROOT / "docs" / "demo.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the documents, or only compare them with ``--check``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a document is outdated"
    )
    options = parser.parse_args(arguments)
    outdated = []
    for page, new in documents().items():
        path = ROOT / page
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            outdated.append(page)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    for path in unused_figures():
        outdated.append(str(path.relative_to(ROOT)))
        if not options.check:
            path.unlink()
    print(
        "\n".join(f"{'outdated' if options.check else 'written'}: {page}" for page in outdated)
        or "up to date"
    )
    return 1 if options.check and outdated else 0


def documents() -> dict[str, str]:
    """Return what every document and figure should be, by its path in the repository."""
    pages = {page: {name: make() for name, make in parts.items()} for page, parts in PAGES.items()}
    folder = evidence.FOLDER.relative_to(ROOT).as_posix()
    pages |= {f"{folder}/{name}.md": parts for name, parts in evidence.blocks(records.FOLDER).items()}
    texts = {}
    for page, parts in pages.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, content in parts.items():
            text = fill(text, name, content)
        texts[page] = text
    drawn = evidence.figures(records.FOLDER)
    return texts | {f"{folder}/{evidence.FIGURES}/{name}": svg for name, svg in drawn.items()}


def unused_figures() -> list[Path]:
    """Return figures that no result file gives any more."""
    drawn = evidence.figures(records.FOLDER)
    return sorted(p for p in (evidence.FOLDER / evidence.FIGURES).glob("*.svg") if p.name not in drawn)


def fill(text: str, name: str, content: str) -> str:
    """Put `content` between the marks called `name`."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
    if not pattern.search(text):
        raise ValueError(f"The marks <!-- {name} --> and <!-- /{name} --> are missing.")
    return pattern.sub(lambda match: f"{match[1]}{content.strip()}\n{match[2]}", text)


def demo_table() -> str:
    """Return the results of the demo, method by method."""
    result = json.loads(DEMO_RESULT.read_text(encoding="utf-8"))
    by_method: dict[str, dict[str, str]] = {}
    for variant in result["variants"]:
        cell = f"{100 * variant['accuracy']:.1f} %"
        by_method.setdefault(variant["method"].upper(), {})[variant["family"]] = cell
    rows = [
        [name, *(cells.get(family, "") for family in ("E", "BS", "BP"))] for name, cells in by_method.items()
    ]
    words = "\n".join(f"- {sentence}" for sentence in result["sentences"])
    head = ["method", "estimated (E)", "balanced too (BS)", "backprop (BP)"]
    return f"{markdown(head, rows)}\n\n{words}\n\n(`{_demo_command(result)}`)"


def _demo_command(result: Mapping[str, Any]) -> str:
    return f"consilience demo{' --all' if result['all'] else ''} --seed {result['seed']}"


def speed_table() -> str:
    """Return the latest full measurement of each name, with its goal."""
    lines = SPEED_RESULTS.read_text(encoding="utf-8").splitlines()
    latest: dict[str, Mapping[str, Any]] = {}
    for record in map(json.loads, lines):
        if not record["quick"]:
            latest[record["name"]] = record
    rows = [
        [r["name"], _value(r), _goal(r), _seconds(r["ours"]), _seconds(r["peer"]), r["note"]]
        for name, r in latest.items()
        if not SOLVERS.fullmatch(name)
    ]
    parts = (
        markdown(["what", "result", "goal", "ours", "peer", "note"], rows),
        _solver_table(latest),
        source(latest.values()),
    )
    return "\n\n".join(parts)


def _solver_table(latest: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many times faster each solver of pseudo-labels is than each other, size by size."""
    sizes: dict[tuple[str, ...], dict[str, str]] = {}
    for name, record in latest.items():
        found = SOLVERS.fullmatch(name)
        if found is None:
            continue
        pair, *size = found.groups()
        note, goal = str(record["note"]), ""
        loose = re.search(r"to 0.0001: (\S+) x", note)
        if record["goal"] is not None:
            goal = f"; goal {record['goal']:g}: {'met' if record['met'] else '**not met**'}"
        bound = "over " if "lower bound" in note else ""
        cells = sizes.setdefault(tuple(size), {})
        cells[pair] = f"{bound}{record['value']:.3g}{f' ({loose[1]})' if loose else ''}{goal}"
        if pair.startswith("exact"):
            cells["exact"] = _seconds(record["ours"])
    columns = ["exact", "exact vs PGD", "exact vs EM", "EM vs PGD"]
    rows = [[*size, *(cells.get(name, "") for name in columns)] for size, cells in sorted(sizes.items())]
    return (
        "Pseudo-labels of M rows and K classes: seconds of the exact solver, and how many times longer "
        "the others take to 1e-6 of the objective (to 1e-4 in brackets, and for EM vs PGD). PGD has its best "
        "step. Over: the peer was stopped. The paper's Table 1 has 0.5, 7 and 35 for EM vs PGD "
        f"with K = 2, 20 and 200.\n\n{markdown(['K', 'M', 'lam', *columns], rows)}"
    )


def _value(record: Mapping[str, Any]) -> str:
    return f"{record['value']:.3g} {record['unit']}"


def _goal(record: Mapping[str, Any]) -> str:
    if record["goal"] is None:
        return ""
    sign = "at least" if record["at_least"] else "at most"
    return f"{sign} {record['goal']:g} {record['unit']}: {'met' if record['met'] else '**not met**'}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def noise_rate_tables() -> str:
    """Return how classifiers do that are not told how many labels are wrong."""
    return papers.render_noise_rate(list(records.read(NOISE_RATE_RESULTS)))


def cluster_starts_table() -> str:
    """Return the comparison of the starts and losses of clustering."""
    return cluster_starts.render(list(records.read(cluster_starts.RESULTS)))


def self_label_table() -> str:
    """Return what self-labelling gains."""
    return self_label.render(list(records.read(self_label.RESULTS)))


def default_tables() -> str:
    """Return what the default of `Unifier` gains over the paper's methods."""
    return default.render(list(records.read(default.RESULTS)))


def aliases_table() -> str:
    """Return how well `suggest_aliases` finds classes whose names are hidden."""
    return aliases.render(list(records.read(aliases.RESULTS)))


def compare_table() -> str:
    """Return how well settings are ranked without labels."""
    return compare.render(list(records.read(compare.RESULTS)))


def calibration_tables() -> str:
    """Return what calibration by agreement and off-set weighting gain."""
    return calibration.render(list(records.read(calibration.RESULTS)))


def ncm_table() -> str:
    """Return how well class centres and weights replace the model (SCTD, Table 2)."""
    published = json.loads(papers.PUBLISHED.read_text(encoding="utf-8"))
    return centres.render_table(list(records.read(centres.RESULTS)), published["centres"])


def shift_table() -> str:
    """Return when weights can no longer replace class centres."""
    return centres.render_shift(list(records.read(centres.RESULTS)))


def harm_table() -> str:
    """Return what teachers gain or cost a student with weak features."""
    return harm.render(list(records.read(harm.RESULTS)))


def assess_table() -> str:
    """Return how well metrics predict which teacher makes the best student (SCTD, Tables 11 and 13)."""
    published = json.loads(papers.PUBLISHED.read_text(encoding="utf-8"))
    return render_assess.render(records.read(render_assess.RESULTS), published["assess"])


def forms_table() -> str:
    """Return how well the three ways to compute eq. (24) of SCTD rank teachers (Fig. 8)."""
    return render_assess.render_forms(records.read(render_assess.RESULTS))


def gap_table() -> str:
    """Return how far the fictitious student is from the true ones (SCTD, Table 12)."""
    published = json.loads(papers.PUBLISHED.read_text(encoding="utf-8"))
    return render_assess.render_gap(records.read(render_assess.RESULTS), published["assess"])


def coarse_table() -> str:
    """Return whether the teacher of the right domain is selected (SCTD, Fig. 10)."""
    return render_assess.render_coarse(records.read(render_assess.COARSE_RESULTS))


def random_table() -> str:
    """Return how often random teachers come first, and which question each metric answers."""
    return render_assess.render_random(records.read(render_assess.RANDOM_RESULTS))


def languages_table() -> str:
    """Return how the example's language identifier compares with its teachers."""
    return languages.render(list(records.read(languages.RESULTS)))


def scale_tables() -> str:
    """Return what many rows take, and what a billion would."""
    return scale.render(list(scale_records.read()))


def repository_tables() -> str:
    """Return how well a repository is searched without running its models."""
    return repository.render(repository.read())


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"demo": demo_table},
    "examples/language_identification/README.md": {"languages": languages_table},
    "docs/how/aliases.md": {"aliases": aliases_table},
    "docs/how/default.md": {"default": default_tables},
    "docs/how/off-set.md": {"calibration": calibration_tables},
    "docs/evaluate.md": {"compare": compare_table},
    "docs/how/collision.md": {"noise-rate": noise_rate_tables},
    "docs/how/clustering.md": {"cluster-starts": cluster_starts_table},
    "docs/centres.md": {"ncm": ncm_table, "shift": shift_table},
    "docs/how/ranking.md": {
        "assess": assess_table,
        "forms": forms_table,
        "gap": gap_table,
        "coarse": coarse_table,
        "random": random_table,
    },
    "docs/large-data.md": {"scale": scale_tables},
    "docs/repository-search.md": {"search": repository_tables},
    "docs/how/distillation.md": {"harm": harm_table},
    "docs/benchmarks.md": {"speed": speed_table, "self-label": self_label_table},
}

if __name__ == "__main__":
    sys.exit(main())

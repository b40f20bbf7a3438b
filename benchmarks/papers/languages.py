"""Measure the language identifier of examples/language_identification: six become one, without a label.

Run from the root of the repository, with the versions of constraints.txt installed::

    python -m benchmarks.papers.languages --data-dir ../shared/data
    python -m benchmarks.render

The sentences are Tatoeba's, in ``lid/tatoeba.tsv.gz`` of the data folder: lines of a code, a tab and a text.
Every run appends a line to ``results/languages.jsonl``. What the six say is kept in ``--cache``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from examples.language_identification import CACHE, PER_CATALOGUE, ROWS, comparison, views
from examples.language_identification.identifiers import IDENTIFIERS, identifiers
from examples.language_identification.model import Settings, open_model, train
from examples.language_identification.texts import gather

from benchmarks.papers import records
from benchmarks.papers.sources import DATA_VARIABLE
from consilience._console import progress_bars

RESULTS = records.FOLDER / "languages.jsonl"
SENTENCES = Path("lid") / "tatoeba.tsv.gz"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, evaluate and record."""
    options = _parser().parse_args(arguments)
    about = records.provenance("languages")
    about["versions"] |= {name: version(name) for one in IDENTIFIERS.values() for name in one.packages}
    settings = Settings(method=options.method, epochs=options.epochs, dim=options.dim, seed=options.seed)
    folder = options.data_dir or Path(os.environ.get(DATA_VARIABLE, "."))
    sentences = comparison.read_sentences(folder / SENTENCES, options.sentences, options.seed)
    with progress_bars() as progress, tempfile.TemporaryDirectory() as temporary:
        found = gather(
            rows=options.rows, per_catalogue=options.per_catalogue, seed=options.seed, progress=progress
        )
        teachers = identifiers(n_jobs=options.jobs)
        unifier = train(found.rows, teachers, settings, cache=options.cache, progress=progress)
        path = unifier.save(Path(temporary) / "lid.npz")
        model = open_model(path)
        result = comparison.compare(sentences, teachers, model, cache=options.cache, progress=progress)
        asked = {one.name: one for one in identifiers()} | {comparison.UNIFIED: model}
        speed = comparison.texts_per_second(asked, sentences.texts, progress=progress)
        size = path.stat().st_size
    view = views.evaluation_view(result, speed)
    made = views.unified_view(unifier, len(found.rows), {})
    view |= {"made": made | {"bytes": size, "sources": [one.name for one in found.sources]}}
    records.append(options.results, {"experiment": "languages", "seed": options.seed} | view | about)
    views.show_evaluation(view, per_language=False)


def render(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the last full measurement as Markdown."""
    if not results:
        return "Not measured yet."
    view = results[-1]
    groups = [group for group in view["groups"] if group["name"] != "none"]
    speed = view["texts_per_second"]
    head = [
        "",
        "languages",
        "accuracy",
        "mean over languages",
        *(_KNOWN[one["name"]] for one in groups),
        "texts/s",
    ]
    lines = [head, ["---"] * len(head)]
    for system in view["systems"]:
        figures = [system["accuracy"], system["macro"], *(system["by_group"][one["name"]] for one in groups)]
        rate = f"{speed[system['name']]:,.0f}" if system["name"] in speed else ""
        cells = [system["name"], str(system["languages"] or ""), *(f"{value:.3f}" for value in figures), rate]
        lines.append(
            [f"**{cell}**" if cell and system["name"] == comparison.UNIFIED else cell for cell in cells]
        )
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    made, ratio = view["made"], speed[comparison.UNIFIED] / view["texts_per_second_of_all_teachers"]
    counts = ", ".join(
        f"{one['rows']:,} in {one['languages']} languages {_KNOWN[one['name']]}" for one in groups
    )
    words = (
        f"{view['rows']:,} sentences of Tatoeba in {view['languages']} languages ({counts}); "
        f"{view['uncovered']:,} are in languages that none of the six knows, and count as errors of all. "
        f"The model learnt from {made['n_rows']:,} rows of unlabelled text, has {made['bytes'] / 1e6:.0f} MB "
        f"and is {ratio:,.0f} times as fast as the six one after the other."
    )
    source = f"Commit {view['commit'][:12]}; seed {view['seed']}; `{view['command']}`."
    return f"{table}\n\n{words}\n\n{source}"


_KNOWN = {"all teachers": "known to all", "some": "to some", "one": "to one", "none": "to none"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.languages", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help=f"the data folder; default ${DATA_VARIABLE}")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of unlabelled text")
    parser.add_argument("--per-catalogue", type=int, default=PER_CATALOGUE)
    parser.add_argument("--sentences", type=int, help="labelled sentences, drawn at random; all by default")
    parser.add_argument("--method", default=Settings.method)
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--dim", type=int, default=Settings.dim)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


if __name__ == "__main__":
    main()

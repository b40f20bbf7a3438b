"""Measure the language identifier of examples/language_identification: seven become one, without labels.

Run from the root of the repository, with the versions of constraints.txt installed::

    python -m benchmarks.papers.languages --data-dir ../shared/data
    python -m benchmarks.papers.languages --data-dir ../shared/data --own-text others
    python -m benchmarks.papers.languages --data-dir ../shared/data --own-text same
    python -m benchmarks.render

The sentences are Tatoeba's. The file ``lid/tatoeba.tsv.gz`` in the data folder has lines of a code, a tab and
a text. ``--own-text`` says which of these sentences the model may read, always without labels:

- ``none``: it reads only the text of packages;
- ``others``: it reads one half and is tested on the other half, both ways round;
- ``same``: it reads all the sentences that it is tested on, as when a pile of text is to be sorted.

If the data folder has ``lid/lingua_sentences.tsv.gz``, lines of the same kind with sentences of news, the
systems are timed on these, too. Every run appends a line to ``languages.jsonl`` in the folder of
``--results``. ``--cache`` keeps the answers of the seven.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import rich
from examples.language_identification import (
    CACHE,
    PER_CATALOGUE,
    ROWS,
    comparison,
    evaluation,
    views,
)
from examples.language_identification.identifiers import IDENTIFIERS, identifiers
from examples.language_identification.kept import check_cache
from examples.language_identification.model import Settings, open_model, train
from examples.language_identification.texts import gather
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import DATA_VARIABLE
from benchmarks.results import markdown
from consilience.cli.log import Log, progress_bars
from consilience.scoring.store import ScoreStore
from consilience.teachers import Teacher

RESULTS = records.FOLDER / "languages.jsonl"
SENTENCES = Path("lid") / "tatoeba.tsv.gz"
NEWS = Path("lid") / "lingua_sentences.tsv.gz"
OWN_TEXT = {
    "none": "unified, from packages' text only",
    "others": "unified, plus other sentences",
    "same": "unified, plus these sentences",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, evaluate and record."""
    options = results.parse(_parser(), arguments, RESULTS)
    about = records.provenance("languages")
    about["versions"] |= {name: version(name) for one in IDENTIFIERS.values() for name in one.packages}
    check_cache(options.cache)
    settings = Settings(
        method=options.method,
        self_label=options.self_label,
        epochs=options.epochs,
        dim=options.dim,
        seed=options.seed,
    )
    folder = options.data_dir or Path(os.environ.get(DATA_VARIABLE, "."))
    sentences = comparison.read_sentences(folder / SENTENCES, options.sentences, options.seed)
    timed = {"sentences": sentences.texts}
    if (folder / NEWS).is_file():
        timed["news"] = comparison.read_sentences(folder / NEWS, comparison.SPEED_ROWS, options.seed).texts
    with progress_bars(Log()) as report, tempfile.TemporaryDirectory() as temporary:
        found = gather(
            rows=options.rows, per_catalogue=options.per_catalogue, seed=options.seed, progress=report
        )
        teachers = identifiers(n_jobs=options.jobs)
        parts = _parts(sentences.texts, options.own_text, options.seed)
        models = []
        for i, part in enumerate(parts):
            rows = list(dict.fromkeys([*found.rows, *part]))
            unifier = train(rows, teachers, settings, cache=options.cache, progress=report)
            path = unifier.save(Path(temporary) / f"lid-{i}.npz")
            models.append(open_model(path))
        model = models[0] if len(models) == 1 else HeldOut(models, parts)
        result = comparison.compare(sentences, teachers, model, cache=options.cache, progress=report)
        asked = {one.name: one for one in identifiers()} | {comparison.UNIFIED: models[0]}
        speed = {
            name: comparison.texts_per_second(asked, texts, progress=report) for name, texts in timed.items()
        }
        size = path.stat().st_size
    view = views.evaluation_view(result, speed["sentences"])
    view["faster"] = {name: _times_as_fast(rates, timed[name]) for name, rates in speed.items()}
    view["cache_bytes"] = ScoreStore(options.cache).size
    made = views.unified_view(unifier, len(rows), {})
    view |= {"made": made | {"bytes": size, "sources": [one.name for one in found.sources]}}
    about |= {"experiment": "languages", "own_text": options.own_text, "seed": options.seed}
    records.append(options.results, view | about)
    for part in views.evaluation(view, per_language=False):
        rich.print(part)


def _times_as_fast(rates: Mapping[str, float], texts: Sequence[str]) -> dict[str, float]:
    """Return how many times as fast the unified model is as its teachers together, and on what texts."""
    teachers = sum(1 / rate for name, rate in rates.items() if name != comparison.UNIFIED)
    return {"times": rates[comparison.UNIFIED] * teachers, "characters": float(np.median([*map(len, texts)]))}


class HeldOut:
    """A teacher that gives each text to a model that has not read it.

    Parameters
    ----------
    models : sequence of Teacher
        All with the same classes.
    read : sequence of sequences of str
        The texts that each model has read.
    """

    name = comparison.UNIFIED

    def __init__(self, models: Sequence[Teacher], read: Sequence[Sequence[str]]) -> None:
        self.classes = models[0].classes
        self._models, self._read = models, [frozenset(part) for part in read]

    def predict_logits(self, X: Sequence[str]) -> NDArray[np.float64]:
        """Return logits (n, k)."""
        logits = np.full((len(X), len(self.classes)), np.nan)
        for model, read in zip(self._models, self._read, strict=True):
            unread = [i for i, text in enumerate(X) if text not in read]
            logits[unread] = model.predict_logits([X[i] for i in unread])
        return logits


def _parts(texts: Sequence[str], own_text: str, seed: int) -> list[list[str]]:
    """Return the texts that each model reads in addition to those of packages."""
    distinct = list(dict.fromkeys(texts))
    if own_text == "none":
        return [[]]
    if own_text == "same":
        return [distinct]
    order = np.random.default_rng(seed).permutation(len(distinct)).tolist()
    half = len(distinct) // 2
    return [[distinct[i] for i in sorted(part)] for part in (order[:half], order[half:])]


def render(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the latest measurements as Markdown: the teachers and their votes, then a line per model."""
    last = {view["own_text"]: view for view in results if "own_text" in view}
    if not last:
        return "Not measured yet."
    views_shown = [last[own] for own in OWN_TEXT if own in last]
    base = views_shown[-1]
    groups = [group for group in base["groups"] if group["name"] != "none"]
    names = [group["name"] for group in groups]
    head = ["", "languages", "accuracy", "mean over languages", *(_KNOWN[name] for name in names), "texts/s"]
    lines = []
    for system in base["systems"]:
        if system["name"] != comparison.UNIFIED:
            lines.append(_cells(system["name"], system, base["texts_per_second"], names))
            continue
        for view in views_shown:
            (unified,) = (one for one in view["systems"] if one["name"] == comparison.UNIFIED)
            cells = _cells(OWN_TEXT[view["own_text"]], unified, view["texts_per_second"], names)
            lines.append([f"**{cell}**" if cell else cell for cell in cells])
    table = markdown(head, lines)
    counts = ", ".join(
        f"{one['rows']:,} in {one['languages']} languages {_KNOWN[one['name']]}" for one in groups
    )
    speeds = " and ".join(
        f"{min(view['faster'][kind]['times'] for view in views_shown):,.0f} times as fast on {words} (half "
        f"of them are shorter than {base['faster'][kind]['characters']:.0f} characters)"
        for kind, words in _TIMED.items()
        if all(kind in view["faster"] for view in views_shown)
    )
    words = (
        f"The test has {base['rows']:,} sentences of Tatoeba in {base['languages']} languages ({counts}). "
        f"{base['uncovered']:,} are in languages that none of the seven knows. They count as errors for "
        f"everyone. A unified model has {base['made']['bytes'] / 1e6:.0f} MB. Against the seven one after "
        f"the other, it is at least {speeds}."
    )
    sources = "\n".join(
        f"- {OWN_TEXT[view['own_text']]}: {view['made']['n_rows']:,} rows of text, seed {view['seed']}, "
        f"commit {view['commit'][:12]}, `{view['command']}`"
        for view in views_shown
    )
    return f"{table}\n\n{words}\n\n{sources}"


def _cells(
    name: str, system: Mapping[str, Any], speed: Mapping[str, float], groups: Sequence[str]
) -> list[str]:
    figures = [system["accuracy"], system["macro"], *(system["by_group"][group] for group in groups)]
    rate = f"{speed[system['name']]:,.0f}" if system["name"] in speed else ""
    count = "" if name == evaluation.CEILING else str(system["languages"] or "")  # the ceiling is no system
    return [name, count, *(f"{value:.3f}" for value in figures), rate]


_TIMED = {"sentences": "these sentences", "news": "sentences of news"}
_KNOWN = {"all teachers": "known to all", "some": "to some", "one": "to one", "none": "to none"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.languages", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help=f"the data folder; default ${DATA_VARIABLE}")
    parser.add_argument("--own-text", choices=tuple(OWN_TEXT), default="none", help="see above")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the packages' unlabelled text")
    parser.add_argument("--per-catalogue", type=int, default=PER_CATALOGUE)
    parser.add_argument("--sentences", type=int, help="labelled sentences, drawn at random; all by default")
    parser.add_argument("--method", default=Settings.method)
    parser.add_argument("--self-label", action="store_true", help="train again on fair pseudo-labels")
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--dim", type=int, default=Settings.dim)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    results.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

"""The commands of the example: they parse, call and print.

Slow imports are inside the commands, so ``--help`` and ``identify`` answer at once.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
from examples.language_identification import CACHE, DIM, EPOCHS, MODEL, PER_CATALOGUE, ROWS

from consilience.cli.command import new_app
from consilience.cli.declared import path, target
from consilience.cli.given import SEED
from consilience.exceptions import InvalidInputError
from consilience.options import anything, choice, count, each, flag, number, option, optional

app = new_app(
    """Make one language identifier of 302 languages out of seven.

    Example: five minutes
        python -m examples.language_identification unify --rows 5000 --out small.npz
        echo "Wo ist der Bahnhof?" | python -m examples.language_identification identify --model small.npz
    """
)

_LONGEST_LINE = 2**20  # bytes; longer lines are cut

TRANSFER = option(
    each(path()), "Your own text, too: plain, or the last column of a .tsv; may be .gz. Repeat.", default=()
)
PACKAGES = option(flag(), "Read the text of installed packages.", default=True)
WHEELS = option(path("DIR"), "Also read the wheels in this folder, without installing them.", default=None)
PER = option(count(), "The most rows from one message catalogue.", default=PER_CATALOGUE)
KEPT = option(path("DIR"), "Folder that keeps the identifiers' answers, so none runs twice.", default=CACHE)
UNIFIED = option(path(), "The unified model.", default=MODEL)
JOBS = option(count(), "Processes for the slow identifiers.", default=1, flag="--jobs")


def texts(
    out: Path | None = option(path(), "Write the rows here, one per line; .gz is compressed.", default=None),
    rows: int | None = option(
        optional(count()), "The most rows from packages; all by default.", default=None
    ),
    per_catalogue: int = PER,
    transfer: list[Path] = TRANSFER,
    packages: bool = PACKAGES,
    wheels: Path | None = WHEELS,
    samples: int = option(count(at_least=0), "How many rows to print.", default=5),
    seed: int = SEED,
    run: Any = None,
) -> None:
    """Gather unlabelled text from installed packages, and show where it comes from.

    Example:
        python -m examples.language_identification texts --rows 20000 --out rows.txt
    """
    from examples.language_identification import views
    from examples.language_identification.texts import write_text

    from consilience.files import readers

    if out is not None:
        readers.check_target(out, (out.suffix.lower(),), "--out")  # any ending is fine
    found = _gather(rows, per_catalogue, transfer, packages, wheels, seed, run.report)
    if out is not None:
        write_text(out, found.rows)
    views.show_texts(found, samples=samples)


def unify(
    out: Path = option(target(".npz"), "Write the unified model here.", default=MODEL),
    rows: int | None = option(optional(count()), "The most rows from packages.", default=ROWS),
    per_catalogue: int = PER,
    transfer: list[Path] = TRANSFER,
    packages: bool = PACKAGES,
    wheels: Path | None = WHEELS,
    method: str = option(choice("mf-lf", "ce", "mf-p", "mf-lv", "sd"), "How to unify.", default="ce"),
    calibrate: bool = option(flag(), "Find a temperature for each identifier, from agreement.", default=True),
    off_set: bool = option(
        flag(), "With ce: weight identifiers by whether they know the language.", default=True
    ),
    temperature: float = option(
        number(above=0), "Softens all outputs; below 1 it sharpens them.", default=1.0
    ),
    self_label: bool = option(
        flag(), "Train again on fair labels of the student's own; takes long.", default=False
    ),
    epochs: int = option(count(), "Passes of the student over the text.", default=EPOCHS),
    dim: int = option(count(), "Length of the student's n-gram vectors.", default=DIM),
    cache: Path = KEPT,
    n_jobs: int = JOBS,
    seed: int = SEED,
    run: Any = None,
) -> Any:
    """Make one identifier out of seven, from unlabelled text.

    --cache keeps the identifiers' answers, and a folder next to it keeps the text. A stopped run continues
    where it was, and a run with another method does not ask the identifiers again.

    Example:
        python -m examples.language_identification unify
        python -m examples.language_identification unify --rows 5000 --method mf-lf --out small.npz
        python -m examples.language_identification unify --transfer mine.txt --transfer more.tsv.gz
    """
    from examples.language_identification import views
    from examples.language_identification.identifiers import identifiers
    from examples.language_identification.kept import check_cache
    from examples.language_identification.model import Settings, train

    check_cache(cache)
    settings = Settings(
        method,  # type: ignore[arg-type]
        calibrate,
        off_set,
        temperature,
        self_label=self_label,
        epochs=epochs,
        dim=dim,
        seed=seed,
    )
    start = time.perf_counter()
    with _going_on_later(cache):
        teachers = identifiers(n_jobs=n_jobs)
        found = _gather(rows, per_catalogue, transfer, packages, wheels, seed, run.report, cache)
        gathered = time.perf_counter() - start
        unifier = train(found.rows, teachers, settings, cache=cache, progress=run.report)
        unifier.save(out)
    view = views.unified_view(unifier, len(found.rows), {"text": gathered})
    view |= {"model": str(out), "bytes": out.stat().st_size, "cache": str(cache)}
    return view, views.unified(view)


def evaluate(
    data: Path = option(path(), "Lines of code, tab, text.", flag="DATA.TSV[.GZ]"),
    model: Path = UNIFIED,
    rows: str = option(
        anything("INTEGER", str), "How many sentences to draw at random, or all.", default="all"
    ),
    per_language: bool = option(flag(), "Show a table by language, worst first.", default=False),
    speed: bool = option(flag(), "Also measure texts per second.", default=True),
    cache: Path = KEPT,
    n_jobs: int = JOBS,
    json_file: Path | None = option(
        target(".json"), "Also write all figures to this file.", default=None, flag="--json-file"
    ),
    seed: int = SEED,
    run: Any = None,
) -> Any:
    """Compare the unified model with the seven, their vote and their consensus on labelled sentences.

    Example:
        python -m examples.language_identification evaluate tatoeba.tsv.gz --rows 3000 --per-language
    """
    from examples.language_identification import comparison, views
    from examples.language_identification.identifiers import identifiers
    from examples.language_identification.kept import check_cache
    from examples.language_identification.model import open_model

    wanted = _count_or_all(rows)
    check_cache(cache)
    unified = open_model(model)
    sentences = comparison.read_sentences(data, wanted, seed)
    with _going_on_later(cache):
        teachers = identifiers(n_jobs=n_jobs)
        found = comparison.compare(sentences, teachers, unified, cache=cache, progress=run.report)
        rates: dict[str, float] = {}
        if speed:
            asked = {one.name: one for one in identifiers()} | {comparison.UNIFIED: unified}
            rates = comparison.texts_per_second(asked, sentences.texts, progress=run.report)
    view = views.evaluation_view(found, rates) | {"data": data.name, "seed": seed}
    if json_file is not None:
        json_file.write_text(json.dumps(view, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return view, views.evaluation(view, per_language=per_language)


def identify(
    text: list[str] = option(
        each(anything("TEXT", str)), "Texts; by default, the lines of stdin.", default=(), flag="TEXT..."
    ),
    model: Path = UNIFIED,
    top: int = option(count(), "How many languages to show for each text.", default=3),
) -> None:
    """Say which language a text is in.

    Example:
        echo "Wo ist der Bahnhof?" | python -m examples.language_identification identify
        python -m examples.language_identification identify "Dov'è la stazione?" --top 1
    """
    from examples.language_identification import model as unified

    as_json = click.get_current_context().params["as_json"]
    asked = unified.open_model(model)
    written = unified.as_json if as_json else unified.as_lines
    _print_what_can_be_printed(as_json)
    with _reader_may_leave():
        for lines in [_arguments(text)] if text else _stdin_lines():
            rows = [" ".join(line.split()) for line in lines]
            for row, guesses in zip(rows, unified.identify(asked, rows, top), strict=True):
                if row or as_json or text:  # empty lines of stdin are skipped
                    print(written(row, guesses))
            sys.stdout.flush()


def languages() -> None:
    """List all languages, and which identifiers know them.

    Example:
        python -m examples.language_identification languages
    """
    from examples.language_identification import views

    view = views.languages_view()
    if click.get_current_context().params["as_json"]:
        print(json.dumps(view, indent=1, ensure_ascii=False))
    else:
        views.show_languages(view)


for function in (texts, unify, evaluate, identify, languages):
    app.new(function)


def _gather(
    rows: int | None,
    per_catalogue: int,
    transfer: list[Path],
    packages: bool,
    wheels: Path | None,
    seed: int,
    progress: Any,
    cache: Path | None = None,
) -> Any:
    """Gather text. With a cache, a folder next to it keeps the text for later runs."""
    from examples.language_identification.kept import gather_once
    from examples.language_identification.texts import gather

    ask = gather
    if cache is not None:
        beside = cache.resolve()
        ask = functools.partial(gather_once, beside.with_name(f"{beside.name}-texts"))
    return ask(
        rows=rows,
        per_catalogue=per_catalogue,
        transfer=transfer,
        packages=None if packages else (),
        wheels=wheels,
        seed=seed,
        progress=progress,
    )


def _count_or_all(rows: str) -> int | None:
    if rows == "all":
        return None
    if not rows.isdecimal() or int(rows) == 0:
        raise InvalidInputError(f"--rows {rows} must be a whole number of at least 1, or all.")
    return int(rows)


def _arguments(given: list[str]) -> list[str]:
    """Return arguments as text, with bad bytes replaced."""
    return [one.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for one in given]


def _print_what_can_be_printed(as_json: bool) -> None:
    """Make every character printable: JSON is UTF-8, and otherwise "?" replaces what cannot be encoded."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if as_json:
            sys.stdout.reconfigure(encoding="utf-8")
        else:
            sys.stdout.reconfigure(errors="replace")


def _stdin_lines() -> Iterator[list[str]]:
    """Yield the lines of stdin as they come in, with bad bytes replaced."""
    if sys.stdin.isatty():
        print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
    source = cast(io.BufferedReader, sys.stdin.buffer)
    rest = b""
    while chunk := source.read1(2**16):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        if lines:
            yield [line.decode("utf-8", "replace") for line in lines]
    if rest:
        yield [rest.decode("utf-8", "replace")]


@contextlib.contextmanager
def _going_on_later(cache: Path) -> Iterator[None]:
    """Say on Ctrl-C that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"What the identifiers said so far is kept in {cache}. Run the same command to continue."
        print(f"Stopped. {kept}", file=sys.stderr)
        raise


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End quietly when the reader of our output stops reading, as head does."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None

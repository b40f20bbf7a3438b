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
from typing import Annotated, Any, cast

import typer
from examples.language_identification import CACHE, DIM, EPOCHS, MODEL, PER_CATALOGUE, ROWS

from consilience.cli.app import Json, Quiet, Seed, new_app
from consilience.cli.progress import progress_bars
from consilience.exceptions import InvalidInputError

app = new_app()

_LONGEST_LINE = 2**20  # bytes; longer lines are cut

Transfer = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Your own text, too: plain, or the last column of a .tsv; may be .gz. Repeat.",
    ),
]
Packages = Annotated[bool, typer.Option(help="Read the text of installed packages.")]
Wheels = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Also read the wheels in this folder, without installing them."),
]
PerCatalogue = Annotated[int, typer.Option(help="The most rows from one message catalogue.")]
Cache = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Folder that keeps the identifiers' answers, so none runs twice."),
]
Model = Annotated[Path, typer.Option(metavar="FILE.npz", help="The unified model.")]
Jobs = Annotated[int, typer.Option(help="Processes for the slow identifiers.")]


@app.callback()
def _common() -> None:
    """Make one language identifier of 302 languages out of seven.

    \b
    Example: five minutes
        python -m examples.language_identification unify --rows 5000 --out small.npz
        echo "Wo ist der Bahnhof?" | python -m examples.language_identification identify --model small.npz
    """


@app.command()
def texts(
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the rows here, one per line; .gz is compressed."),
    ] = None,
    rows: Annotated[int | None, typer.Option(help="The most rows from packages; all by default.")] = None,
    per_catalogue: PerCatalogue = PER_CATALOGUE,
    transfer: Transfer = None,
    packages: Packages = True,
    wheels: Wheels = None,
    samples: Annotated[int, typer.Option(help="How many rows to print.")] = 5,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Gather unlabelled text from installed packages, and show where it comes from.

    \b
    Example:
        python -m examples.language_identification texts --rows 20000 --out rows.txt
    """
    from examples.language_identification import views
    from examples.language_identification.texts import write_text

    from consilience._validation import check_count
    from consilience.files import readers

    check_count("samples", samples, at_least=0)
    if out is not None:
        readers.check_target(out, (out.suffix.lower(),), "--out")  # any ending is fine
    with progress_bars(quiet=quiet) as report:
        found = _gather(rows, per_catalogue, transfer, packages, wheels, seed, report)
    if out is not None:
        write_text(out, found.rows)
    views.show_texts(found, samples=samples)


@app.command()
def unify(
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="Write the unified model here.")] = MODEL,
    rows: Annotated[int | None, typer.Option(help="The most rows from packages.")] = ROWS,
    per_catalogue: PerCatalogue = PER_CATALOGUE,
    transfer: Transfer = None,
    packages: Packages = True,
    wheels: Wheels = None,
    method: Annotated[str, typer.Option(help="One of mf-lf, ce, mf-p, mf-lv, sd.")] = "ce",
    calibrate: Annotated[
        bool, typer.Option(help="Find a temperature for each identifier, from agreement.")
    ] = True,
    off_set: Annotated[
        bool, typer.Option(help="With ce: weight identifiers by whether they know the language.")
    ] = True,
    temperature: Annotated[float, typer.Option(help="Softens all outputs; below 1 it sharpens them.")] = 1.0,
    self_label: Annotated[
        bool, typer.Option(help="Train again on fair labels of the student's own; takes long.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="Passes of the student over the text.")] = EPOCHS,
    dim: Annotated[int, typer.Option(help="Length of the student's n-gram vectors.")] = DIM,
    cache: Cache = CACHE,
    jobs: Jobs = 1,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make one identifier out of seven, from unlabelled text.

    --cache keeps the identifiers' answers, and a folder next to it keeps the text. A stopped run continues
    where it was, and a run with another method does not ask the identifiers again.

    \b
    Example:
        python -m examples.language_identification unify
        python -m examples.language_identification unify --rows 5000 --method mf-lf --out small.npz
        python -m examples.language_identification unify --transfer mine.txt --transfer more.tsv.gz
    """
    from examples.language_identification import views
    from examples.language_identification.identifiers import identifiers
    from examples.language_identification.kept import check_cache
    from examples.language_identification.model import Settings, train

    from consilience._validation import check_choice, check_count, check_number
    from consilience.cli.console import show_json
    from consilience.files import readers
    from consilience.methods import METHODS

    check_choice("method", method, METHODS)
    check_number("temperature", temperature, above=0)
    for name, value in (("epochs", epochs), ("dim", dim), ("jobs", jobs)):
        check_count(name, value)
    readers.check_target(out, (".npz",), "--out")
    check_cache(cache)
    settings = Settings(
        method,
        calibrate,
        off_set,
        temperature,
        self_label=self_label,
        epochs=epochs,
        dim=dim,
        seed=seed,
    )
    start = time.perf_counter()
    with _going_on_later(cache), progress_bars(quiet=quiet) as report:
        teachers = identifiers(n_jobs=jobs)
        found = _gather(rows, per_catalogue, transfer, packages, wheels, seed, report, cache)
        gathered = time.perf_counter() - start
        unifier = train(found.rows, teachers, settings, cache=cache, progress=report)
        unifier.save(out)
    view = views.unified_view(unifier, len(found.rows), {"text": gathered})
    view |= {"model": str(out), "bytes": out.stat().st_size, "cache": str(cache)}
    (show_json if as_json else views.show_unified)(view)


@app.command()
def evaluate(
    data: Annotated[Path, typer.Argument(metavar="DATA.tsv[.gz]", help="Lines of code, tab, text.")],
    model: Model = MODEL,
    rows: Annotated[str, typer.Option(help="How many sentences to draw at random, or all.")] = "all",
    per_language: Annotated[
        bool, typer.Option("--per-language", help="Show a table by language, worst first.")
    ] = False,
    speed: Annotated[bool, typer.Option(help="Also measure texts per second.")] = True,
    cache: Cache = CACHE,
    jobs: Jobs = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures to this file.")
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Compare the unified model with the seven, their vote and their consensus on labelled sentences.

    \b
    Example:
        python -m examples.language_identification evaluate tatoeba.tsv.gz --rows 3000 --per-language
    """
    from examples.language_identification import comparison, views
    from examples.language_identification.identifiers import identifiers
    from examples.language_identification.kept import check_cache
    from examples.language_identification.model import open_model

    from consilience._validation import check_count
    from consilience.files import readers

    wanted = _count_or_all(rows)
    check_count("seed", seed, at_least=0)
    readers.check_target(json_file, (".json",), "--json")
    check_cache(cache)
    unified = open_model(model)
    sentences = comparison.read_sentences(data, wanted, seed)
    with _going_on_later(cache), progress_bars(quiet=quiet) as report:
        teachers = identifiers(n_jobs=jobs)
        found = comparison.compare(sentences, teachers, unified, cache=cache, progress=report)
        rates: dict[str, float] = {}
        if speed:
            asked = {one.name: one for one in identifiers()} | {comparison.UNIFIED: unified}
            rates = comparison.texts_per_second(asked, sentences.texts, progress=report)
    view = views.evaluation_view(found, rates) | {"data": data.name, "seed": seed}
    if json_file is not None:
        json_file.write_text(json.dumps(view, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    views.show_evaluation(view, per_language=per_language)


@app.command()
def identify(
    text: Annotated[list[str] | None, typer.Argument(help="Texts; by default, the lines of stdin.")] = None,
    model: Model = MODEL,
    top: Annotated[int, typer.Option(help="How many languages to show for each text.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Say which language a text is in.

    \b
    Example:
        echo "Wo ist der Bahnhof?" | python -m examples.language_identification identify
        python -m examples.language_identification identify "Dov'è la stazione?" --top 1
    """
    from examples.language_identification import model as unified

    from consilience._validation import check_count

    check_count("top", top)
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


@app.command()
def languages(
    as_json: Json = False,
) -> None:
    """List all languages, and which identifiers know them.

    \b
    Example:
        python -m examples.language_identification languages
    """
    from examples.language_identification import views

    view = views.languages_view()
    if as_json:
        print(json.dumps(view, indent=1, ensure_ascii=False))
    else:
        views.show_languages(view)


def _gather(
    rows: int | None,
    per_catalogue: int,
    transfer: list[Path] | None,
    packages: bool,
    wheels: Path | None,
    seed: int,
    progress: Any,
    cache: Path | None = None,
) -> Any:
    """Gather text. With a cache, a folder next to it keeps the text for later runs."""
    from examples.language_identification.kept import gather_once
    from examples.language_identification.texts import gather

    from consilience._validation import check_count

    check_count("per_catalogue", per_catalogue)
    check_count("seed", seed, at_least=0)
    if rows is not None:
        check_count("rows", rows)
    ask = gather
    if cache is not None:
        beside = cache.resolve()
        ask = functools.partial(gather_once, beside.with_name(f"{beside.name}-texts"))
    return ask(
        rows=rows,
        per_catalogue=per_catalogue,
        transfer=transfer or (),
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
        raise typer.Exit(0) from None

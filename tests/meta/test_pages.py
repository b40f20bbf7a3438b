"""The code of every page runs, from top to bottom, and prints what the page shows.

A block of Python may be a program or a session with ``>>>``. The output of a program or a command is the
block without a language that follows it; ``...`` stands for what is left out. sybil reads the pages.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Document, Example, Region
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.example import SybilFailure
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

DOCS = Path(__file__).parents[2] / "docs"
CLUSTER = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]
MARKS = {"ray": CLUSTER}
FOREIGN = ("pip install", "/shared", "all-MiniLM")  # these need packages, a cluster or a model that you fetch
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SESSION = DocTestStringParser(DocTestEvaluator(doctest.ELLIPSIS))
FENCES = FencedCodeBlockLexer(r"[\w-]*")


def run_program(example: Example) -> str | None:
    """Run a block of Python, and say how its output differs from what the page shows."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        PythonEvaluator()(example)
    return differs(example, printed.getvalue())


def run_command(example: Example) -> str | None:
    """Run commands of a shell, and say how their output differs from what the page shows."""
    folder = Path("bin").absolute()
    folder.mkdir(exist_ok=True)
    command = folder / "consilience"
    start = "from consilience.cli import main; main()"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{start}" "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", example.parsed], env={**os.environ, "PATH": path}, text=True, timeout=300,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout or "it failed" if done.returncode else differs(example, done.stdout)


RUNNERS = {"python": run_program, "sh": run_command}


def differs(example: Example, printed: str) -> str | None:
    shown = example.region.lexemes["shown"]
    if shown is None or doctest.OutputChecker().check_output(shown, printed, FLAGS):
        return None
    return f"The page shows\n{shown}\nbut it prints\n{printed}"


def blocks(document: Document) -> Iterator[Region]:
    """Find what to run on a page: sessions, programs and commands, with the output that they should have."""
    fences = list(FENCES(document))
    for fence, after in itertools.zip_longest(fences, fences[1:]):
        language, source = fence.lexemes["language"], fence.lexemes["source"]
        if any(word in source for word in FOREIGN):
            continue
        if ">>> " in source:
            for region in SESSION(source, document.path):
                region.adjust(fence, source)
                yield region
        elif language in RUNNERS:
            follows = after is not None and not document.text[fence.end : after.start].strip()
            shown = after.lexemes["source"] if follows and not after.lexemes["language"] else None
            yield Region(fence.start, fence.end, source, RUNNERS[language], {"shown": shown})


def run(page: Path) -> None:
    """Run all of a page, in one namespace."""
    document = Document.parse(str(page), blocks)
    document.namespace["__name__"] = "__main__"
    for example in document.examples():
        example.evaluate()


def pages() -> list[object]:
    """Return the pages that have something to run."""
    found = [page for page in sorted(DOCS.rglob("*.md")) if list(Document.parse(str(page), blocks))]
    return [
        pytest.param(page, id=str(page.relative_to(DOCS)), marks=MARKS.get(page.stem, [])) for page in found
    ]


@pytest.mark.skipif(os.name != "posix", reason="some pages have commands of a POSIX shell")
@pytest.mark.parametrize("page", pages())
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if page.stem == "ray":
        request.getfixturevalue("ray_cluster")
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.parametrize(
    "wrong",
    [
        "```python\n1 / 0\n```",
        "```python\nprint(1)\n```\n\n```\n2\n```",
        "```python\n>>> 1\n2\n```",
        "```sh\nfalse\n```",
    ],
)
def test_a_page_that_is_wrong_is_found(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{wrong}\n")
    with pytest.raises((ZeroDivisionError, SybilFailure)):
        run(page)

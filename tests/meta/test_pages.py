"""Every block of code of every page runs, and gives the output that the page shows.

Sybil finds the blocks. A page is one test: its blocks run in their order, in one namespace and in one folder.
The folder holds the files that pages speak of (`cast`). What runs:

- ``python`` and ``pycon``; lines after ``>>>`` as doctests;
- ``sh``, and blocks without a language that begin with a command: lines of a shell;
- ``console``, and blocks without a language that begin with ``$``: commands, each with its output;
- ``toml`` that begins with a comment, the name of a file: it is written there.

A block without a language right after one of these is its output, with ``...`` for what may differ. Lines
that install packages are not run; the extras that they name are checked. Nor are benchmarks; their options
are checked. A block that cannot run here has a comment before it, ``<!-- skip: next "needs a server" -->``,
and `NOT_RUN` counts these.
"""

import codeop
import contextlib
import doctest
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import pytest
from click.testing import CliRunner
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.example import SybilFailure
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from consilience import SoftLabelClassifier
from consilience.cli import console
from consilience.cli.app import app

ROOT = Path(__file__).parents[2]
GENERATED = {"cli", "gallery", "names"}  # folders that a build of the site writes
PAGES = [
    page
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "examples", "**/*.md"))
    for page in sorted(folder.glob(pattern))
    if not GENERATED & set(page.relative_to(ROOT).parts)
]
NOT_RUN = 8  # blocks marked with skip, on all pages; think twice before you raise it
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
COMMANDS = re.compile(r"(consilience|python3?|pip) ")
BENCHMARK = re.compile(r"python -m benchmarks\.")
INSTALLS = re.compile(r"^(python3? -m venv|pip install|\. \.venv|pre-commit install|git clone|cd )")


MORE = {  # what must hold at the end of a page, beyond what it shows
    "README.md": ["unified.score(X[1500:], y[1500:]) > 0.77"],  # 0.81 to 0.85 over seeds
    "docs/torch.md": [
        "unified.predict(['blue blue', 'green']).tolist() == ['blue', 'green']",
    ],
}


class Printed(NamedTuple):
    """What a block printed: on stdout, and on stdout and stderr in their order."""

    stdout: str
    everything: str


class Blocks:
    """Find the blocks of code of a page, each with the output that follows it."""

    def __init__(self) -> None:
        self.fences = RawFencedCodeBlockLexer(re.compile(r"(?P<language>[^\n`]*)$\n", re.MULTILINE))
        self.hidden = DirectiveInHTMLCommentLexer(r"invisible-code-block", arguments=".+")
        self.doctests = DocTestStringParser(DocTestEvaluator(FLAGS))

    def __call__(self, document: Document) -> Iterable[Region]:
        """Yield a region for each block, or for each doctest in it."""
        for region in self.hidden(document):
            region.parsed, region.evaluator = region.lexemes["source"], PythonEvaluator()
            yield region
        for region in self.fences(document):
            source, language = region.lexemes["source"], kind_of(region)
            if language in ("python", "pycon") and source.lstrip().startswith(">>>"):
                for part in self.doctests(source, document.path):
                    part.adjust(region, source)
                    yield part
            elif language == "toml" and source.startswith("# "):
                region.parsed, region.evaluator = source, write_file
                yield region
            elif language in RUN:
                region.parsed = source
                region.evaluator = checked(language, shown_output(document.text[region.end :]))
                yield region


def kind_of(region: Region) -> str:
    """Return the language of a block; one without a language may be commands all the same."""
    language = str(region.lexemes["language"]).strip()
    source = region.lexemes["source"]
    if language:
        return language
    if source.startswith("$ "):
        return "console"
    if source.startswith(">>> "):
        return "python"
    return "sh" if COMMANDS.match(source) else ""


def shown_output(rest: str) -> str | None:
    """Return the output that a page shows right after a block, or None."""
    found = re.match(r"\n\s*\n?^```\n(.*?)^```$", rest, re.MULTILINE | re.DOTALL)
    return found[1] if found and not found[1].startswith(("$ ", "consilience ")) else None


def checked(language: str, expected: str | None) -> Any:
    """Return an evaluator that runs a block and compares its output."""

    def evaluate(example: Example) -> str | None:
        got = RUN[language](example)
        return None if expected is None else difference(expected, got)

    return evaluate


def difference(expected: str, got: Printed) -> str | None:
    """Return how an output differs from the one shown, or None; a page may leave out what goes to stderr."""
    for text in (got.everything, got.stdout):
        if doctest.OutputChecker().check_output(expected, text, FLAGS):
            return None
    return f"expected\n{expected}\nbut got\n{got.everything}"


def write_file(example: Example) -> None:
    """Write a block that begins with the name of its file."""
    Path(example.parsed.split()[1]).write_text(example.parsed, encoding="utf8")


def run_python(example: Example) -> Printed:
    """Run a block in the namespace of its page, and return what it prints."""
    example.namespace.setdefault("__name__", "__main__")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PythonEvaluator()(example)
    return Printed(printed.getvalue(), printed.getvalue())


def run_shell(example: Example) -> Printed:
    """Run lines of a shell, without those that install packages."""
    lines = logical_lines(example.parsed)
    return run_lines([line for line in lines if not INSTALLS.match(line)])


def run_session(example: Example) -> Printed:
    """Run commands after ``$``, and compare the output of each, if there is any."""
    for part in re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]:
        command, *rest = logical_lines(part)
        expected = "\n".join(rest)
        got = run_lines([command], may_fail=bool(expected.strip()))  # an output may be that of a mistake
        wrong = difference(expected, got) if expected.strip() else None
        assert wrong is None, f"$ {command}\n{wrong}"
    return Printed("", "")


RUN = {"python": run_python, "pycon": run_python, "sh": run_shell, "console": run_session}


def logical_lines(text: str) -> list[str]:
    """Return the lines of a text; a backslash at the end of a line joins it to the next."""
    return text.replace("\\\n", " ").splitlines()


def run_lines(lines: list[str], *, may_fail: bool = False) -> Printed:
    """Run commands: here, if they are all ours and need no shell; else in a shell."""
    for line in filter(BENCHMARK.match, lines):
        has_options(line)
    lines = [line for line in lines if line.strip() and not BENCHMARK.match(line)]
    if not all(is_ours(line) for line in lines):
        return in_shell("\n".join(lines))
    printed = Printed("", "")
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:], prog_name="consilience")
        printed = Printed(printed.stdout + done.stdout, printed.everything + done.output)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0 or may_fail, f"{line}\n{done.output}"
    return printed


def has_options(line: str) -> None:
    """Check that a benchmark takes the options of a line; to run it would take minutes to hours."""
    words = shlex.split(line)
    module, options = words[2], [word for word in words if word.startswith("--")]
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        contextlib.suppress(SystemExit),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # another page may have imported the module
        patch.setattr(sys, "argv", [module, "--help"])
        runpy.run_module(module, run_name="__main__")
    for option in options:
        assert option in printed.getvalue(), f"{line}: no {option}"


def is_ours(line: str) -> bool:
    """Tell whether a line is one call of ``consilience``, without pipes and the like."""
    words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    return words[0] == "consilience" and not {"|", "||", "&", "&&", ";", ">", "<", ">>"} & set(words)


def in_shell(script: str) -> Printed:
    """Run a script where ``consilience`` is the command of this environment."""
    done = subprocess.run(
        ["sh", "-e", "-c", script], text=True, timeout=300, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return Printed(done.stdout, done.stdout)


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that pages speak of: teachers of some digits, rows of digits, and their names."""
    root = tmp_path_factory.mktemp("cast")
    data = load_digits()
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    order = np.random.default_rng(0).permutation(len(data.target))
    X, y = data.data[order].astype(np.float32), data.target[order]
    parts = {"train": slice(600), "rows": slice(600, 1000), "test": slice(1000, 1200)}
    (X_train, X_rows, X_test), (y_train, y_rows, y_test) = (
        [array[part] for part in parts.values()] for array in (X, y)
    )
    for known, onnx, npz in (
        (range(6), ("low", "birds", "a", "north"), ()),
        (range(4, 10), ("high", "south"), ("pets", "b")),
    ):
        told = np.isin(y_train, known)
        model = LogisticRegression(max_iter=2000).fit(X_train[told], names[y_train[told]])
        for stem in onnx:
            (root / f"{stem}.onnx").write_bytes(
                to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString()
            )
        for stem in npz:
            np.savez(root / f"{stem}.npz", proba=model.predict_proba(X_rows), classes=model.classes_)
    np.save(root / "high.npy", model.predict_proba(X_rows))  # of the second model
    np.savez(root / "other.npz", proba=np.full((400, 2), 0.5), classes=np.array(["ten", "eleven"]))
    for stem, array in {"X": X_rows, "rows": X_rows, "X_test": X_test}.items():
        np.save(root / f"{stem}.npy", array)
    for stem, codes in {"y": y_rows, "y_test": y_test}.items():
        np.save(root / f"{stem}.npy", names[codes])
    np.save(root / "partial.npy", np.where(np.arange(400) < 60, y_rows, -1))
    frame = pandas.DataFrame(X_rows, columns=[f"pixel{i}" for i in range(64)])
    frame.to_parquet(root / "rows.parquet")
    for stem in ("X", "rows"):
        frame.to_csv(root / f"{stem}.csv", index=False)
    (root / "rows").mkdir()
    np.save(root / "rows" / "1.npy", X_rows)
    SoftLabelClassifier("logistic").fit(X_train, names[y_train]).save(root / "unified.onnx")
    return root


@pytest.fixture
def folder(tmp_path: Path, cast: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for each page, with the cast, and the command on the path."""
    command = tmp_path / "bin" / "consilience"
    command.parent.mkdir()
    command.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from consilience.cli import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    work = tmp_path / "work"
    shutil.copytree(cast, work)
    monkeypatch.chdir(work)
    places = [str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    monkeypatch.setenv("COLUMNS", str(console.WIDTH))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # pages must not find what others left
    return work


def parse(page: Path) -> Document:
    """Return a page with its blocks."""
    return Sybil(parsers=[Blocks(), SkipParser()]).parse(page)


def run(document: Document) -> None:
    """Run all of a page, without what is marked."""
    for example in document.examples():
        with contextlib.suppress(unittest.SkipTest):
            example.evaluate()


def has_code(page: Path) -> bool:
    """Tell whether a page has anything to run."""
    return any(True for _ in parse(page).examples())


def marked(page: Path) -> Any:
    """Return a page as a parameter. Ray's own use of what is deprecated is not ours to mend."""
    ray = pytest.mark.filterwarnings("ignore::DeprecationWarning")
    return pytest.param(page, marks=ray if page.stem == "ray" else (), id=str(page.relative_to(ROOT)))


@pytest.mark.skipif(os.name != "posix", reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize("page", [marked(page) for page in PAGES if has_code(page)])
def test_the_code_of_a_page_runs(page: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    if page.stem == "ray":
        request.getfixturevalue("ray_cluster")
    document = parse(page)
    run(document)
    for claim in MORE.get(str(page.relative_to(ROOT)), ()):
        assert eval(claim, document.namespace), claim  # noqa: S307 - our own


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    found = {}
    for page in PAGES:
        marks = re.findall(r"<!--+ *skip: *(.*?) *--+>", page.read_text(encoding="utf8"))
        for mark in marks:
            assert re.fullmatch(r'next ".{5,}"', mark), f"{page.name}: skip: {mark}"
        found[str(page.relative_to(ROOT))] = len(marks)
    assert sum(found.values()) == NOT_RUN, {name: count for name, count in found.items() if count}


def test_pages_name_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    for page in PAGES:
        for extras in re.findall(r"(?:consilience|')\[([\w,]+)\]'", page.read_text(encoding="utf8")):
            unknown = set(extras.split(",")) - set(project["optional-dependencies"])
            assert not unknown, f"{page.name}: {unknown}"


@pytest.mark.parametrize(
    "wrong",
    [
        "```python\n1 / 0\n```",
        "```python\nprint(1)\n```\n\n```\n2\n```",
        "```python\n>>> 1\n2\n```",
        "```sh\nfalse\n```",
        "```\nconsilience inspect missing.onnx\n```",
        "```\npython -m benchmarks.papers.unify --no-such-option\n```",
        "```\n$ consilience --version\nconsilience 99\n```",
    ],
)
def test_a_page_that_is_wrong_is_found(wrong: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(f"# Page\n{wrong}\n", encoding="utf8")
    with pytest.raises((ZeroDivisionError, SybilFailure, AssertionError)):
        run(parse(page))


def paste(source: str) -> None:
    """Read a block as the prompt of Python 3.11 and 3.12 does, line by line; raise where it would."""
    waiting: list[str] = []
    for line in [*source.splitlines(), ""]:
        waiting.append(line)
        if codeop.compile_command("\n".join(waiting)) is not None:
            waiting.clear()


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if has_code(page)])
def test_python_can_be_pasted_at_the_prompt(page: Path) -> None:
    blocks = [
        block.lexemes for block in Blocks().fences(Document(page.read_text(encoding="utf8"), str(page)))
    ]
    for block in blocks:
        source = block["source"]
        nested = re.search(
            r"^    def ", source, re.MULTILINE
        )  # ruff sets empty lines there; these go to files
        if block["language"].strip() == "python" and not source.startswith(">>>") and not nested:
            paste(source)


def test_a_loop_without_an_empty_line_after_it_cannot_be_pasted() -> None:
    paste("for i in range(2):\n    print(i)\n\nprint(2)\n")
    with pytest.raises(SyntaxError):
        paste("for i in range(2):\n    print(i)\nprint(2)\n")

"""The site: its reference has every public name, its inventories are true, its checks find what is wrong."""

import doctest
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import consilience
from consilience import exceptions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = ("unify", "rank", "distil", "collision", "transport", "students", "nn", "teachers", "repository")


def load(path: Path) -> ModuleType:
    """Return a file of the site as a module."""
    spec = importlib.util.spec_from_file_location(f"site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reference() -> Iterator[tuple[str, str]]:
    """Yield module and name of each entry of the reference."""
    for page in sorted((DOCS / "api").glob("*.rst")):
        module = ""
        for line in page.read_text(encoding="utf8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            if module and re.fullmatch(r"   \w+|.. data:: \w+", line):
                yield module, line.split()[-1]


def public_names() -> set[tuple[str, str]]:
    """Return what users may import, each from the shortest module that has it."""
    found = {("consilience", name) for name in consilience.__all__}
    for package in PACKAGES:
        module = importlib.import_module(f"consilience.{package}")
        found |= {(module.__name__, name) for name in module.__all__ if name not in consilience.__all__}
    return found


def test_the_reference_has_every_public_name_once() -> None:
    listed = list(reference())
    assert len(set(listed)) == len(listed)
    assert public_names() - set(listed) == set()
    errors = {name for name, value in vars(exceptions).items() if inspect.isclass(value) and name[0] != "_"}
    errors -= {"Any", "Self", "Callable"}
    assert {name for name in errors if issubclass(getattr(exceptions, name), Exception)} - {
        name for _, name in listed
    } == set()


@pytest.mark.parametrize(("module", "name"), list(reference()))
def test_every_name_of_the_reference_has_an_example(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, dict):  # a constant has no docstring: the page has its example
        assert doctest.testfile(str(DOCS / "api" / "nn.rst"), module_relative=False) == (0, 2)
        return
    assert ">>> " in (inspect.getdoc(value) or ""), f"{module}.{name}"


def test_the_example_of_an_error_that_is_made_late_runs() -> None:
    outcome = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(exceptions.NotFittedError, "NotFittedError"):
        outcome.run(test)
    assert outcome.summarize(verbose=False) == (0, 2)


def test_the_command_reference_has_every_command_and_option() -> None:
    from consilience.cli.app import app

    pages = load(DOCS / "_ext" / "commands.py").pages()
    assert set(pages) == {"index", *app.commands}
    for name, command in app.commands.items():
        assert f"]({name}.md)" in pages["index"]
        inner = getattr(command, "commands", {name: command})
        for one in inner.values():
            for param in one.params:
                assert any(word in pages[name] for word in (*param.opts, param.name.upper())), (
                    name,
                    param.name,
                )
    assert "consilience unify --teacher birds.onnx" in pages["unify"]


def test_links_of_included_files_lead_to_pages_of_the_site() -> None:
    links = load(DOCS / "_ext" / "repository_links.py")
    for outside, inside in links.PAGES.items():
        assert (ROOT / outside).exists()
        assert (ROOT / inside).exists()
    text = "[a](docs/rank.md#x) [b](CONTRIBUTING.md) [c](https://example.org/README.md) [d](#here)"
    led = links.links_for(text, ROOT, DOCS, ROOT)
    assert led == "[a](rank.md#x) [b](contributing.md) [c](https://example.org/README.md) [d](#here)"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('<a href="b.html#there">fine</a><a href="https://example.org">fine</a><img src="b.html">', []),
        ('<a href="c.html">x</a>', ["a.html: c.html does not exist"]),
        ('<a href="b.html#nowhere">x</a>', ["a.html: b.html#nowhere: b.html has no #nowhere"]),
        ('<a href="#nowhere">x</a>', ["a.html: #nowhere: a.html has no #nowhere"]),
        ('<a href="../x.html">x</a>', ["a.html: ../x.html leads out of the site"]),
        ('<script src="//example.org/x.js"></script>', ["a.html: loads //example.org/x.js"]),
        ('<link rel="stylesheet" href="https://e.org/x.css">', ["a.html: loads https://e.org/x.css"]),
        ("<p>fine</p>", ["x.css: loads url(https://e.org/f.woff"]),
    ],
)
def test_the_check_of_the_site_finds_what_is_wrong(tmp_path: Path, body: str, found: list[str]) -> None:
    (tmp_path / "a.html").write_text(body, encoding="utf8")
    (tmp_path / "b.html").write_text('<h2 id="there">There</h2>', encoding="utf8")
    if any("x.css: loads url" in line for line in found):
        (tmp_path / "x.css").write_text("p { src: url(https://e.org/f.woff) }", encoding="utf8")
    check = load(DOCS / "check_site.py")
    assert check.problems(tmp_path) == found
    assert check.main([str(tmp_path)]) == bool(found)


def test_ci_builds_the_site_with_the_command_of_contributing() -> None:
    command = "make docs"
    assert re.search(rf"^{command}$", (ROOT / ".ci" / "run").read_text(encoding="utf8"), re.M)
    assert f"`{command}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")
    assert re.search(r"^docs:$", (ROOT / "Makefile").read_text(encoding="utf8"), re.M)


def test_the_citation_is_of_this_version_and_names_the_papers() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf8")
    assert f"\nversion: {consilience.__version__}\n" in text
    page = (DOCS / "cite.md").read_text(encoding="utf8")
    titles = re.findall(r"^    title: (.+)$", text, re.M)
    assert len(titles) == 3
    for title in titles:
        assert f"*{title}*" in page

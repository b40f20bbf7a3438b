"""Documents tell the truth: links lead somewhere, examples run, figures come from result files."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf8")


def blocks(text: str, language: str = "") -> list[str]:
    """Return the code blocks of a document."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    return [code for name, code in found if name == language]


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_ci_runs_the_readmes_test_command() -> None:
    (command,) = [line for line in blocks(README) if "pytest" in line]
    assert command.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf8")


def test_the_map_in_contributing_is_the_tree_and_the_import_contract() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")
    rows = text.partition("<!-- rooms -->")[2].partition("<!-- /rooms -->")[0].strip().splitlines()[2:]
    rooms = [re.findall(r"`([\w.]+?)/?`", row.split("|")[1]) for row in rows]
    source = ROOT / "src" / "consilience"
    tree = {path.name for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(name for row in rooms for name in row) == sorted(tree - {"__init__.py"})
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))
    layers = contract["tool"]["importlinter"]["contracts"][0]["layers"]
    named = [sorted(re.findall(r"consilience\.(\w+)", layer)) for layer in layers]
    assert named == [sorted(name.removesuffix(".py") for name in row) for row in rooms]


def test_the_front_page_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf8")
    named = re.findall(r"`(\w+)`", page.partition("The extras are")[2].partition("From a clone")[0])
    developers = {"languages", "docs", "dev", "benchmarks"}
    assert sorted(named) == sorted(set(project["optional-dependencies"]) - developers)
    bundle = named[: named.index("all")]
    assert sorted(project["optional-dependencies"]["all"][0][len("consilience[") : -1].split(",")) == sorted(
        bundle
    )


def test_figures_come_from_result_files() -> None:
    from benchmarks import render

    assert render.main(["--check"]) == 0


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert int(re.findall(r"(\d+)% of", printed)[-1]) > 85, printed

"""The house stays small: statements and files of each room, parameters, and the files that a verb passes.

The budgets stand in CONTRIBUTING.md. A room grows by changing a line there, which a reviewer sees.
"""

import ast
import importlib
import inspect
import re
import sys
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import consilience

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src" / "consilience", ROOT / "tests"
MOST_LINES, MOST_PARAMETERS, MOST_LAYERS = 500, 13, 8
FEWER_PARAMETERS = {"as_teacher": 6}
# what people call; students and adapters of teachers have the options of their kind
PUBLIC = ("", ".unify", ".rank", ".distil", ".collision", ".transport", ".nn", ".repository")
# folders of tests that have no counterpart in the source, or, in `cli`, are named after commands
APART = {"cli", "contracts", "examples", "fuzz", "meta", "oracles", "properties", "science", "servers"}
# files that wait for their room to be rebuilt
LONG = {
    "base.py",
}
MISNAMED = {
    "cluster/test_accuracy.py",
    "inspect/test_browser.py",
    "teachers/test_address.py",
    "teachers/test_as_teacher.py",
    "teachers/test_images.py",
    "teachers/test_ranked.py",
    "teachers/test_text.py",
    "text/test_ngrams.py",
    "unify/test_one_path.py",
    "unify/test_texts.py",
}


def table(name: str) -> list[list[str]]:
    """Return the cells of a table of CONTRIBUTING.md, row by row."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")
    rows = text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


class Size(NamedTuple):
    statements: int
    files: int


def size(*places: Path) -> Size:
    """Count statements, without docstrings, and files of some files and folders."""
    files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
    statements = 0
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf8"))):
            documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            statements += isinstance(node, ast.stmt) and not documents
    return Size(statements, len(files))


@pytest.mark.parametrize(("rooms", "statements", "files"), [(row[0], *row[2:]) for row in table("rooms")])
def test_a_room_keeps_to_its_budget(rooms: str, statements: str, files: str) -> None:
    found = size(*(SOURCE / name for name in re.findall(r"`([\w./]+?)/?`", rooms)))
    assert found.statements <= number(statements)
    assert found.files <= number(files)


def test_budgets_of_rooms_add_up_to_that_of_the_house() -> None:
    everything = {row[0]: row for row in table("house")}
    rooms = table("rooms")
    assert sum(number(row[2]) for row in rooms) <= number(everything["`src/`"][1])
    assert size(SOURCE).files <= number(everything["`src/`"][2])
    assert size(TESTS).statements <= number(everything["`tests/`"][1])


@pytest.mark.parametrize("folder", [SOURCE, TESTS], ids=["src", "tests"])
def test_no_file_is_too_long_to_read(folder: Path) -> None:
    lengths = {file: len(file.read_text(encoding="utf8").splitlines()) for file in folder.rglob("*.py")}
    limit = MOST_LINES if folder is SOURCE else 2 * MOST_LINES
    assert {file.name for file, length in lengths.items() if length > limit} <= LONG


@pytest.mark.parametrize("package", PUBLIC)
def test_public_callables_have_few_parameters(package: str) -> None:
    module = importlib.import_module(f"consilience{package}")
    for name in module.__all__:
        value = getattr(module, name)
        error = inspect.isclass(value) and issubclass(value, Exception)
        if callable(value) and not is_dataclass(value) and not error:
            most = FEWER_PARAMETERS.get(name, MOST_PARAMETERS)
            assert len(inspect.signature(value).parameters) <= most, name


def test_the_import_contract_has_few_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["tool"]["importlinter"]
    assert len(contracts["contracts"][0]["layers"]) <= MOST_LAYERS


def test_the_test_of_a_file_is_found_by_its_name() -> None:
    """tests/<room>/test_x.py, or test_x_<topic>.py, is about src/consilience/<room>/x.py."""
    lost = []
    for test in TESTS.rglob("test_*.py"):
        place = test.relative_to(TESTS)
        if place.parts[0] in APART or len(place.parts) == 1:
            continue
        words = test.stem.removeprefix("test_").split("_")
        stems = {"_".join(words[:end]) for end in range(1, len(words) + 1)} | {place.parent.name}
        files = [SOURCE / place.parent / f"{private}{stem}.py" for stem in stems for private in ("", "_")]
        if not (SOURCE / place.parent).is_dir() or not any(file.exists() for file in files):
            lost.append(str(place))
    assert set(lost) <= MISNAMED


@pytest.fixture(scope="module")
def verbs() -> dict[str, Callable[[], Any]]:
    X, y = load_digits(return_X_y=True)
    X = X / 16
    parts = [slice(600), slice(600, 1200)], [y[:600] <= 6, y[600:1200] >= 3]
    teachers = [
        LogisticRegression(max_iter=300).fit(X[part][told], y[part][told])
        for part, told in zip(*parts, strict=True)
    ]
    unifier = consilience.Unifier(teachers, student="logistic", random_state=0)
    unified = consilience.Unifier(teachers, student="logistic", random_state=0).fit(X[1200:])
    distiller = consilience.CrossTaskDistiller(teachers, student="logistic", random_state=0)
    clustering = consilience.CollisionClustering(10, random_state=0)
    return {
        "unify": lambda: unifier.fit(X[1200:]),
        "rank": lambda: consilience.rank_teachers(teachers, X[1200:1500], y[1200:1500]),
        "distil": lambda: distiller.fit(X[1200:1400], y[1200:1400]),
        "cluster": lambda: clustering.fit(X[:600]),
        "predict": lambda: unified.predict(X[:10]),
        "evaluate": lambda: unified.evaluate(X[:200], y[:200]),
    }


def passed(verb: Callable[[], Any]) -> set[str]:
    """Return the files of ours that a call passes the second time, without imports and compiling."""
    files = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            files.add(str(Path(frame.f_code.co_filename).relative_to(SOURCE)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verb()
        sys.setprofile(watch)
        try:
            verb()
        finally:
            sys.setprofile(None)
    return files


@pytest.mark.parametrize(("verb", "most"), [(row[0].strip("`"), row[1]) for row in table("walk")])
def test_a_verb_passes_few_files(verb: str, most: str, verbs: dict[str, Callable[[], Any]]) -> None:
    files = passed(verbs[verb])
    assert len(files) <= number(most), sorted(files)


def test_the_counter_counts() -> None:
    found = size(Path(__file__))
    assert found.files == 1
    assert 80 < found.statements < 160

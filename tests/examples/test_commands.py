"""The commands, from text to an answer, with teachers that take no time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("pycountry")

from click.testing import CliRunner
from examples.language_identification import identifiers
from examples.language_identification.commands import app

from consilience.teachers import Function, Teacher

ROOT = Path(__file__).parents[2]
WORDS = {
    "deu": ["der", "die", "und", "ich", "nicht", "wir", "haben", "schön", "straße", "zwölf"],
    "fra": ["le", "la", "et", "je", "ne", "nous", "avons", "été", "garçon", "où"],
    "ita": ["il", "lo", "che", "io", "non", "noi", "abbiamo", "perché", "città", "più"],
}


def sentences(language: str, count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS[language], 6)).capitalize() + "." for _ in range(count)]


class Counted:
    """A teacher of some languages that knows their words, and counts what it is asked."""

    def __init__(self, *languages: str) -> None:
        self.languages, self.asked = languages, 0

    def __call__(self, texts: list[str]) -> list[list[tuple[str, float]] | None]:
        self.asked += len(texts)
        return [self._answer(set(text.lower().rstrip(".").split())) for text in texts]

    def _answer(self, words: set[str]) -> list[tuple[str, float]] | None:
        scores = [(one, 0.1 + len(words & set(WORDS[one]))) for one in self.languages]
        total = sum(score for _, score in scores)
        return [(one, score / total) for one, score in scores] if words else None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """Two teachers in the place of the seven: of German and French, and of French and Italian."""
    asked = [Counted("deu", "fra"), Counted("fra", "ita")]

    def both(n_jobs: int = 1) -> list[Teacher]:
        names = ("north", "south")
        return [
            Function(one, classes=one.languages, name=name, output="probabilities", fingerprint=name)
            for one, name in zip(asked, names, strict=True)
        ]

    monkeypatch.setattr(identifiers, "identifiers", both)
    return asked


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own text, labelled sentences, and nothing else."""
    monkeypatch.chdir(tmp_path)
    rows = [row for i, one in enumerate(WORDS) for row in sentences(one, 80, i)]
    Path("own.txt").write_text("\n".join(rows), encoding="utf-8")
    lines = [f"{one}\t{row}" for i, one in enumerate(WORDS) for row in sentences(one, 20, 9 + i)]
    Path("test.tsv").write_text("\n".join([*lines, "tlh\tnuqneH qaStaH nuq"]), encoding="utf-8")
    return tmp_path


def run(*arguments: object, stdin: bytes | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


UNIFY = ("unify", "--no-packages", "--transfer", "own.txt", "--dim", "8", "--epochs", "20")


def test_from_text_to_an_answer(folder: Path, counted: list[Counted]) -> None:
    result = run(*UNIFY, "--json")
    assert result.exit_code == 0, result.output
    view = json.loads(result.stdout)
    assert view["n_classes"] == 3
    assert [one["name"] for one in view["teachers"]] == ["north", "south"]
    result = run("evaluate", "test.tsv", "--per-language", "--json-file", "figures.json")
    assert result.exit_code == 0, result.output
    figures = json.loads(Path("figures.json").read_text(encoding="utf-8"))
    systems = {one["name"]: one for one in figures["systems"]}
    assert systems["unified model"]["accuracy"] > max(systems[one]["accuracy"] for one in ("north", "south"))
    assert systems["unified model"]["by_group"]["none"] == 0
    assert (figures["rows"], figures["uncovered"]) == (61, 1)
    assert "that no teacher knows (tlh): 1 of 61 sentences, all counted as errors." in result.stdout
    result = run("identify", "--top", "2", stdin="Wir haben nicht die straße\n".encode())
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].split()[1:] == ["deu", "German"]


def test_another_method_asks_nobody_again_and_new_text_only_about_itself(
    folder: Path, counted: list[Counted]
) -> None:
    assert run(*UNIFY, "--cache", "kept").exit_code == 0
    asked = [one.asked for one in counted]
    assert min(asked) >= 200
    result = run(*UNIFY, "--cache", "kept", "--method", "sd", "--no-calibrate")
    assert result.exit_code == 0, result.output
    assert [one.asked for one in counted] == asked
    assert len(list(Path("kept-texts").iterdir())) == 1
    Path("more.txt").write_text("Das ist ein ganz neuer Satz.\n", encoding="utf-8")
    assert run(*UNIFY, "--cache", "kept", "--transfer", "more.txt").exit_code == 0
    assert [one.asked for one in counted] == [count + 1 for count in asked]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of three languages."""
    from consilience.students.ngrams import Ngrams

    texts = [(one, row) for one in WORDS for row in sentences(one, 40, 0)]
    y, X = zip(*texts, strict=True)
    path = tmp_path_factory.mktemp("model") / "small.npz"
    Ngrams(dim=8, n_buckets=2**10, random_state=0).fit(X, y).save(path)
    return path


def test_identify_answers_whatever_it_is_given(model: Path) -> None:
    stdin = (
        "Je ne la garçon\n\n42 !?\n".encode() + b"\xff\xfe\x00 il lo perch\xc3\xa9 non\r\nlast line: le la et"
    )
    result = run("identify", "--model", model, "--json", "--top", "1", stdin=stdin)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    codes = [[one["code"] for one in line["languages"]] for line in found]
    assert codes == [["fra"], [], [], ["ita"], ["fra"]]
    assert 0.5 < found[0]["languages"][0]["probability"] <= 1
    result = run("identify", "--model", model, "--top", "3", stdin=stdin)
    assert result.stdout.count("no letters, and so no language") == 1  # empty lines are passed over
    assert "ich und \ufffd die" in run("identify", "--model", model, "", "ich und \udcff die").stdout


def test_the_folder_can_be_run_where_the_terminal_lacks_a_letter(model: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "language_identification"), "identify"]
    words = ["--model", str(model), "schöne straße und die", "--json"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*command, *words], capture_output=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == "schöne straße und die"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("identify", "--model", "none.npz", "x"),
            "There is no model none.npz. Make it with the command unify",
        ),
        (("evaluate", "test.tsv"), "There is no model lid.npz"),
        (("evaluate", "bad.tsv", "--model", "MODEL"), "Line 2 of bad.tsv is not a code, a tab and a text."),
        (("evaluate", "test.tsv", "--model", "MODEL", "--rows", "few"), "--rows few must be a whole number"),
        (("unify", "--transfer", "none.txt"), "none.txt cannot be read or written"),
        (("unify", "--no-packages", "--transfer", "own.txt", "--out", "x.onnx"), "--out"),
        (("unify", "--no-packages", "--transfer", "own.txt", "--method", "mfp"), "Did you mean 'mf-p'?"),
        (("unify", "--no-packages", "--transfer", "own.txt", "--epochs", "0"), "epochs"),
        (("unify", "--cache", "own.txt"), "own.txt' is a file; give a folder."),
        (("unify", "--cache", "own.txt/in"), "--cache: the folder 'own.txt/in' cannot be written"),
        (("unify", "--cache", "."), "holds other files and is no cache."),
        (("evaluate", "test.tsv", "--cache", "own.txt"), "own.txt' is a file"),
        (("texts", "--rows", "0"), "rows"),
        (("texts", "--samples", "-1"), "samples"),
        (("texts", "--out", "none/rows.txt"), "--out: the folder 'none' does not exist"),
        (("texts", "--wheels", "none"), "There is no folder none with wheels."),
        (("texts", "--wheels", "."), "The folder . holds no wheel"),
        (("evaluate", "test.tsv", "--model", "MODEL", "--seed", "-1"), "seed"),
    ],
)
def test_bad_input_gets_one_sentence(
    folder: Path, counted: list[Counted], model: Path, arguments: tuple[str, ...], words: str
) -> None:
    Path("bad.tsv").write_text("deu\tGut.\nno tab here\n", encoding="utf-8")
    result = run(*(str(model) if one == "MODEL" else one for one in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_texts_that_are_written_are_read_again(folder: Path) -> None:
    first = run("texts", "--no-packages", "--transfer", "own.txt", "--out", "rows.txt.gz", "--samples", "2")
    again = run("texts", "--no-packages", "--transfer", "rows.txt.gz")
    count = len(set(Path("own.txt").read_text(encoding="utf-8").splitlines()))
    assert all(f"{count} rows of text" in result.stdout for result in (first, again))


def test_every_command_has_help_with_an_example() -> None:
    for command in ("texts", "unify", "evaluate", "identify", "languages"):
        result = run(command, "--help")
        assert f"python -m examples.language_identification {command}" in result.stdout

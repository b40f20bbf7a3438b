"""The commands, from text to an answer, with teachers that take no time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
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
        self.before: Callable[[list[str]], None] | None = None

    def __call__(self, texts: list[str]) -> list[list[tuple[str, float]] | None]:
        if self.before is not None:
            self.before(texts)
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
    assert set(view["seconds"]) == {"text", "scoring", "calibration", "soft labels", "training"}
    assert view["bytes"] == Path("lid.npz").stat().st_size
    result = run("evaluate", "test.tsv", "--per-language", "--json-file", "figures.json")
    assert result.exit_code == 0, result.output
    figures = json.loads(Path("figures.json").read_text(encoding="utf-8"))
    systems = {one["name"]: one for one in figures["systems"]}
    assert systems["unified model"]["accuracy"] > max(systems[one]["accuracy"] for one in ("north", "south"))
    assert systems["unified model"]["by_group"]["none"] == 0
    assert (figures["rows"], figures["uncovered"]) == (61, 1)
    assert set(figures["texts_per_second"]) == {"north", "south", "unified model"}
    assert "Klingon" in result.stdout
    assert "that no teacher knows (tlh): 1 of 61 sentences, all counted as errors." in result.stdout
    assert "by all: 20 sentences in 1 language that all teachers know." in result.stdout
    result = run("identify", "--top", "2", stdin="Wir haben nicht die straße\n".encode())
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "Wir haben nicht die straße"
    assert lines[1].split()[1:] == ["deu", "German"]
    assert len(lines) == 3


def test_another_method_asks_nobody_again_and_new_text_only_about_itself(
    folder: Path, counted: list[Counted]
) -> None:
    assert run(*UNIFY, "--cache", "kept").exit_code == 0
    asked = [one.asked for one in counted]
    assert min(asked) >= 200
    assert len(list(Path("kept-texts").iterdir())) == 1
    result = run(*UNIFY, "--cache", "kept", "--method", "sd", "--no-calibrate")
    assert result.exit_code == 0, result.output
    assert [one.asked for one in counted] == asked
    assert len(list(Path("kept-texts").iterdir())) == 1
    Path("more.txt").write_text("Das ist ein ganz neuer Satz.\n", encoding="utf-8")
    assert run(*UNIFY, "--cache", "kept", "--transfer", "more.txt").exit_code == 0
    assert [one.asked for one in counted] == [count + 1 for count in asked]


def test_a_run_that_is_stopped_goes_on(folder: Path, counted: list[Counted]) -> None:
    north, south = counted

    def stop(texts: list[str]) -> None:
        raise KeyboardInterrupt

    south.before = stop
    result = run(*UNIFY)
    assert result.exit_code == 130
    assert "Stopped. What the identifiers said so far is kept in lid-scores" in result.stderr
    assert north.asked > 0
    asked, south.before = north.asked, None
    assert run(*UNIFY).exit_code == 0
    assert (north.asked, south.asked) == (asked, asked)


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
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [[one["code"] for one in line["languages"]] for line in found] == [
        ["fra"],
        [],
        [],
        ["ita"],
        ["fra"],
    ]
    assert found[0]["languages"][0]["name"] == "French"
    assert 0.5 < found[0]["languages"][0]["probability"] <= 1
    result = run("identify", "--model", model, "--top", "3", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("no letters, and so no language") == 1  # empty lines are passed over
    probabilities = [float(line.split("%")[0]) for line in result.stdout.splitlines() if "%  " in line]
    assert len(probabilities) == 9
    assert sum(probabilities[:3]) == pytest.approx(100, abs=0.2)
    assert run("identify", "--model", model, stdin=b"").stdout == ""
    assert "deu" in run("identify", "--model", model, "ich und die").stdout


def test_identify_answers_an_empty_argument_and_one_of_odd_bytes(model: Path) -> None:
    result = run("identify", "--model", model, "", "ich und \udcff die")
    assert result.exit_code == 0, result.output
    assert "no letters, and so no language" in result.stdout
    assert "ich und \ufffd die" in result.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_identify_prints_where_the_terminal_lacks_a_letter(model: Path, as_json: bool) -> None:
    command = [sys.executable, "-m", "examples.language_identification", "identify", "--model", str(model)]
    done = subprocess.run(
        [*command, "schöne straße und die", *(["--json"] if as_json else [])], capture_output=True, cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "deu" in done.stdout.decode()
    if as_json:
        assert json.loads(done.stdout)["text"] == "schöne straße und die"


def test_sentences_without_a_text_are_passed_over(folder: Path, counted: list[Counted], model: Path) -> None:
    Path("some.tsv").write_text("code\ttext\ndeu\t\ndeu\t \ndeu\tWir haben\n", encoding="utf-8")
    result = run("evaluate", "some.tsv", "--model", model, "--no-speed")
    assert result.exit_code == 0, result.output
    assert "knows (code): 1 of 2 sentences" in result.stdout


def test_identify_loads_little(model: Path) -> None:
    code = (
        "import sys; from examples.language_identification.commands import app\n"
        "app(['identify', '--model', sys.argv[1], 'ich und die'], standalone_mode=False)\n"
        "heavy = {'torch', 'sklearn', 'pandas', 'langid', 'lingua', 'heliport', 'langdetect', 'py3langid', "
        "'pycld2'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(model)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_folder_can_be_run_and_a_reader_may_leave(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "language_identification"), "identify"]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(
        [*command, "--model", str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=tmp_path, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("Ich und die straße\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode().rstrip() == "Ich und die straße"  # at once, not at the end
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # it may have gone already
            process.stdin.write("Je ne la garçon\n".encode() * 5000)
            process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


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


def test_texts_are_shown_and_written(folder: Path) -> None:
    result = run("texts", "--no-packages", "--transfer", "own.txt", "--out", "rows.txt.gz", "--samples", "2")
    assert result.exit_code == 0, result.output
    count = len(set(Path("own.txt").read_text(encoding="utf-8").splitlines()))
    assert f"{count} rows of text" in result.stdout
    assert "own.txt" in result.stdout
    again = run("texts", "--no-packages", "--transfer", "rows.txt.gz")
    assert f"{count} rows of text" in again.stdout


def test_languages_are_listed() -> None:
    result = run("languages", "--json")
    view = json.loads(result.stdout)
    assert len(view) == 302
    german = next(one for one in view if one["code"] == "deu")
    assert (german["name"], len(german["known_by"])) == ("German", 7)
    assert "302 languages; 48 of them are known to all 7 identifiers." in run("languages").stdout


def test_every_command_has_help_with_an_example() -> None:
    for command in ("texts", "unify", "evaluate", "identify", "languages"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"python -m examples.language_identification {command}" in result.stdout

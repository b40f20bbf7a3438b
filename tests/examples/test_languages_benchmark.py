"""The measurement of the language example records what its README shows."""

import json
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("pycountry")

from benchmarks.papers import languages
from examples.language_identification.texts import Source, Texts

from consilience.teachers import Function, Teacher

TEXTS = {"deu": "wir haben nicht die straße", "fra": "nous avons été le garçon"}


def fake(name: str, *known: str) -> Teacher:
    def ask(texts: list[str]) -> list[list[tuple[str, float]]]:
        return [[(one, 0.9 if TEXTS[one][:4] in text else 0.1) for one in known] for text in texts]

    return Function(ask, classes=known, name=name, output="probabilities", fingerprint=name)


def test_a_run_is_recorded_and_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(f"{text} {i}" for i in range(30) for text in TEXTS.values())
    teachers = [fake("north", "deu", "fra"), fake("south", "fra", "deu")]
    monkeypatch.setattr(languages, "identifiers", lambda n_jobs=1: teachers)
    monkeypatch.setattr(languages, "IDENTIFIERS", {})
    monkeypatch.setattr(
        languages, "gather", lambda **options: Texts(rows, (Source("pack", 1, 0, len(rows), len(rows)),))
    )
    monkeypatch.chdir(tmp_path)
    Path("lid").mkdir()
    lines = [f"{code}\t{text} nr {i}" for i in range(20) for code, text in TEXTS.items()]
    Path("lid/tatoeba.tsv").write_text("\n".join([*lines, "tlh\tnuqneH"]), encoding="utf-8")
    monkeypatch.setattr(languages, "SENTENCES", Path("lid/tatoeba.tsv"))
    Path("lid/news.tsv").write_text("de\twir haben nicht die straße gesehen\n", encoding="utf-8")
    monkeypatch.setattr(languages, "NEWS", Path("lid/news.tsv"))
    for own, made_of in (("none", 60), ("others", 80), ("same", 101)):
        languages.main(
            ["--data-dir", ".", "--results", "r", "--dim", "4", "--epochs", "5", "--own-text", own]
        )
        record = json.loads(Path("r/languages.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        assert {"commit", "command", "versions", "date", "seed"} <= record.keys()
        assert record["faster"]["sentences"]["times"] == pytest.approx(
            record["texts_per_second"]["unified model"] / record["texts_per_second_of_all_teachers"]
        )
        assert abs(record["made"]["n_rows"] - made_of) <= (1 if own == "others" else 0)
    found = [json.loads(line) for line in Path("r/languages.jsonl").read_text(encoding="utf-8").splitlines()]
    table = languages.render([{"old": True}, *found])
    assert table.count("| **unified, ") == 3
    assert "41 sentences of Tatoeba in 3 languages (40 in 2 languages known to all)" in table
    assert "on sentences of news (half of them are shorter than 34 characters)." in table
    assert table.count("`python -m benchmarks.papers.languages") == 3
    assert languages.render([]) == "Not measured yet."

"""Teachers are judged by what they themselves say."""

from __future__ import annotations

import pytest

pytest.importorskip("pycountry")

from examples.language_identification.comparison import Sentences, compare

from consilience.teachers import Function, Teacher, split_classes

SENTENCES = Sentences(("bos", "srp", "deu", "hbs"), ("s one", "s two", "d three", "s four"))
few_rows = pytest.mark.filterwarnings("ignore::consilience.exceptions.CoverageWarning")


def teacher(name: str, *classes: str) -> Teacher:
    """Tell Slavic from German; the classes of one letter are equally probable."""

    def ask(texts: list[str]) -> list[list[tuple[str, float]]]:
        return [
            [(one, 0.6 if (one == "deu") == text.startswith("d") else 0.4) for one in classes]
            for text in texts
        ]

    return Function(ask, classes=classes, name=name, output="probabilities", fingerprint=name)


@pytest.fixture
def teachers() -> list[Teacher]:
    whole = teacher("heliport", "deu", "hbs")
    return [split_classes(whole, {"hbs": ("bos", "hrv", "srp")}), teacher("other", "bos", "deu")]


@few_rows
def test_a_macro_language_is_whole_where_its_teacher_is_judged(teachers: list[Teacher]) -> None:
    found = compare(SENTENCES, teachers, None)
    systems = {one.name: one for one in found.systems}
    assert systems["heliport"].languages == 2
    assert systems["heliport"].accuracy == pytest.approx(2 / 4)  # "deu" and "hbs", and no lucky "bos"
    assert systems["other"].accuracy == pytest.approx(2 / 4)
    assert systems["any teacher right"].accuracy == pytest.approx(3 / 4)
    assert systems["any teacher right"].languages == 4  # bos, deu, hrv and srp, and no "hbs"
    knowing = {one.code: one.teachers for one in found.by_language}
    assert knowing == {"bos": 1, "deu": 2, "hbs": 1, "srp": 0}


@few_rows
def test_a_vote_is_for_the_macro_language_too(teachers: list[Teacher]) -> None:
    third = teacher("third", "deu", "hbs")
    sentences = Sentences(("hbs", "srp", "deu", "hbs"), SENTENCES.texts)
    found = compare(sentences, [*teachers, third], None)
    vote = next(one for one in found.systems if one.name == "plurality vote")
    assert vote.accuracy == pytest.approx(3 / 4)  # two say "hbs", one "bos"

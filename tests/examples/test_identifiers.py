"""The seven identifiers as teachers, with their real packages where these are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest

from consilience.exceptions import MissingDependencyError
from consilience.labels import LabelSpace
from consilience.methods import METHODS
from consilience.teachers import Teacher
from consilience.unify.unifier import Unifier

pytest.importorskip("pycountry")
from examples.language_identification import identifiers as module
from examples.language_identification import languages
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


def check_answers(teacher: Teacher, languages: tuple[str, ...]) -> None:
    texts = [*(SENTENCES[language] for language in languages), NOTHING]
    logits = teacher.predict_logits(texts)
    assert teacher.classes[logits[:-1].argmax(axis=1)].tolist() == list(languages)
    assert bool(np.isnan(logits[-1]).all()) == (teacher.name in REFUSES)
    # lingua adds in the order of a hash table, another one each time
    np.testing.assert_allclose(teacher.predict_logits(np.array(texts)[::-1]), logits[::-1], rtol=1e-9)
    lines = teacher.predict_logits([texts[0].replace(" ", "\n")])
    assert teacher.classes[lines[0].argmax()] == languages[0]


def test_plain_sentences_are_known_and_what_is_no_language_is_refused(teacher: Teacher) -> None:
    known = tuple(language for language in SENTENCES if language in teacher.classes)
    check_answers(teacher, RARE_SCRIPTS if teacher.name == "lingua" else known)
    # what the installed package calls its classes is what the table says
    named = set(dict(answers(teacher.name, [SENTENCES["jpn"]])[0])) | set(SHARED.get(teacher.name, {}))
    if teacher.name == "langdetect":
        from langdetect import PROFILES_DIRECTORY

        named |= set(os.listdir(PROFILES_DIRECTORY))
    if teacher.name == "pycld2":
        from pycld2 import DETECTED_LANGUAGES, LANGUAGES

        named |= {dict(LANGUAGES)[one] for one in DETECTED_LANGUAGES} - {"zzp"}
    assert named == set(CODES[teacher.name])


def test_a_shared_code_gives_its_probability_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    proba = dict.fromkeys(CODES["lid.176"], 0.1 / 172) | {"sh": 0.6, "hr": 0.2, "sr": 0.1, "bs": 0.0}
    monkeypatch.setattr(module, "_loaded", lambda name: lambda text: list(proba.items()))
    (found,) = answers("lid.176", ["text"])
    assert "sh" not in found
    assert [found[code] for code in ("hr", "sr", "bs", "de")] == pytest.approx([0.4, 0.3, 0.2, 0.1 / 172])
    monkeypatch.setattr(module, "_loaded", lambda name: lambda text: None)
    assert answers("lid.176", ["text"]) == [None]


def sure_of(name: str, code: str) -> list[tuple[str, float]]:
    """Return the answer of an identifier that is 90 % sure of one of its codes, in its own kind of scores."""
    proba = {one: 0.1 / (len(CODES[name]) - 1) for one in CODES[name]} | {code: 0.9}
    read = {"probabilities": float, "logits": np.log, "costs": lambda p: -np.log(p)}[IDENTIFIERS[name].output]
    return [(one, float(read(p))) for one, p in proba.items()]


CLASHES = {
    # the two that know Cantonese say so, and the five that do not say Chinese
    "yue": {"langid": "zh", "py3langid": "yue", "langdetect": "zh-cn", "lingua": "zho", "lid.176": "yue",
            "heliport": "cmn", "pycld2": "zh-Hant"},
    "arz": {"langid": "ar", "py3langid": "arz", "langdetect": "ar", "lingua": "ara", "lid.176": "arz",
            "heliport": "ara", "pycld2": "ar"},
    "ckb": {"langid": "ku", "py3langid": "ku", "lid.176": "ckb", "heliport": "ckb", "pycld2": "ku"},
    # two are right and one is wrong; another one knows only the whole
    "ind": {"langid": "id", "lingua": "ind", "lid.176": "ms", "heliport": "msa"},
    "nno": {"lingua": "nno", "heliport": "nno", "lid.176": "no", "langdetect": "no"},
    "hrv": {"langid": "hr", "py3langid": "hr", "lingua": "bos", "lid.176": "sh", "heliport": "hbs",
            "pycld2": "bs"},
    # one language under the name of the whole and of a member
    "kpv": {"lid.176": "kv", "heliport": "kpv", "py3langid": "ru"},
    "aym": {"pycld2": "ay", "heliport": "ayr", "py3langid": "qu"},
    "aka": {"pycld2": "ak", "heliport": "twi", "py3langid": "en"},
    "syr": {"pycld2": "syr", "heliport": "aii", "py3langid": "ar"},
}  # fmt: skip


# what a plain mean says of these if nothing is split
WHOLES = {"ind": "msa", "nno": "nob"}


@pytest.mark.parametrize("language", CLASHES)
def test_correct_identifiers_are_not_outvoted_by_the_code_of_a_whole(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = CLASHES[language]
    monkeypatch.setattr(module, "_loaded", lambda name: lambda text: sure_of(name, said[name]))
    need(*said)

    def consensus(method: str) -> str:
        unifier = Unifier([identifier(name) for name in said], method=METHODS[method](temperature=1.0))
        return str(unifier.label_space().classes[unifier.estimate(["text"]).argmax()])

    assert consensus("ce") == language
    if language in WHOLES:
        assert consensus("sd") == language
        monkeypatch.setattr(languages, "COVERED", {})  # the test can fail
        assert consensus("sd") == WHOLES[language]


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
    assert space.n_classes == check().union == 302
    assert check().shared == 48
    everyone = set(space.classes[space.mask.all(axis=1)].tolist())
    assert everyone - set.intersection(*(set(classes_of(name)) for name in CODES)) <= covered


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(module.metadata, "version", missing)
    with pytest.raises(
        MissingDependencyError, match=r"needs heliport: pip install 'consilience\[languages\]'"
    ):
        identifier("heliport")

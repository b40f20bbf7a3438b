"""The six identifiers as teachers, with their real packages where these are installed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError, MissingDependencyError, TeacherError
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
from examples.language_identification.languages import ALIASES, CODES, MACROS, check, classes_of

ROOT = Path(__file__).parents[2]
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
REFUSES = {"langdetect", "lingua", "heliport"}
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
    named = {code for code, _ in answers(teacher.name, [SENTENCES["jpn"]])[0]}
    if teacher.name == "langdetect":
        from langdetect import PROFILES_DIRECTORY

        named |= set(os.listdir(PROFILES_DIRECTORY))
    assert named == set(CODES[teacher.name])


def test_classes_are_listed_without_loading_a_model() -> None:
    need(*IDENTIFIERS)
    six = identifiers()
    assert module._loaded.cache_info().currsize == 0
    assert [teacher.name for teacher in six] == list(IDENTIFIERS) == list(CODES)
    for teacher in six:
        whole = {member: macro for macro, group in MACROS.get(teacher.name, {}).items() for member in group}
        found = {whole.get(language, language) for language in teacher.classes.tolist()}
        assert sorted(found) == classes_of(teacher.name)
    space = LabelSpace([teacher.classes for teacher in six], disconnected="error")
    assert space.n_classes == check().union == 281
    assert check().shared == 48
    split = sum(len(group) for group in MACROS["heliport"].values())  # of which others all know one
    assert 48 < int(space.mask.all(axis=1).sum()) <= 48 + split


def test_fingerprints_differ_and_last() -> None:
    need(*IDENTIFIERS)
    prints = [teacher.fingerprint for teacher in identifiers()]
    assert None not in prints
    assert len(set(prints)) == 6
    assert [teacher.fingerprint for teacher in identifiers(n_jobs=2)] == prints
    code = (
        "from examples.language_identification.identifiers import identifiers;"
        "print([teacher.fingerprint for teacher in identifiers()])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(prints), done.stderr


def test_an_alias_that_is_not_used_or_joins_two_classes_makes_no_teacher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("lingua")
    monkeypatch.setitem(ALIASES, "lingua", {"xyz": "deu"})
    with pytest.raises(TeacherError, match="'lingua' has no class 'xyz', which aliases rename"):
        identifier("lingua")
    monkeypatch.setitem(ALIASES, "lingua", {"nno": "nob"})
    with pytest.raises(TeacherError, match="aliases make 'nno', 'nob' of 'lingua' one class"):
        identifier("lingua")


def test_another_version_is_another_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    need("heliport")
    before = identifier("heliport").fingerprint
    monkeypatch.setattr(module.metadata, "version", lambda package: "99.0")
    assert identifier("heliport").fingerprint != before


def test_only_the_slow_and_small_are_asked_in_processes() -> None:
    need(*IDENTIFIERS)
    jobs = {teacher.name: teacher.n_jobs for teacher in identifiers(n_jobs=3)}
    assert jobs == {name: 3 if name in ("langid", "langdetect") else 1 for name in IDENTIFIERS}
    sent = pickle.loads(pickle.dumps(identifier("langdetect", 3)))  # noqa: S301 - our own
    assert sent.classes.tolist() == identifier("langdetect").classes.tolist()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(module.metadata, "version", missing)
    with pytest.raises(
        MissingDependencyError, match=r"needs heliport: pip install 'consilience\[languages\]'"
    ):
        identifier("heliport")


def test_an_unknown_identifier_is_named() -> None:
    with pytest.raises(InvalidInputError, match="There is no identifier 'cld3'; use 'langid', 'py3langid'"):
        identifier("cld3")

"""Names of languages: aliases are used, join nothing, and lead codes of all kinds to one name."""

from __future__ import annotations

import pytest

from consilience.exceptions import InvalidInputError

pytest.importorskip("pycountry")
from examples.language_identification import languages
from examples.language_identification.languages import (
    ALIASES,
    CODES,
    OTHER_ALIASES,
    VARIANTS,
    canonical,
    check,
    classes_of,
    iso_name,
    name_of,
)


def test_the_six_know_281_languages_together_and_48_each() -> None:
    counts = check()
    assert (counts.union, counts.shared) == (281, 48)
    assert counts.each == {name: len(classes_of(name)) for name in CODES}
    assert (min(counts.each.values()), max(counts.each.values())) == (54, 222)
    assert len(set.union(*(set(classes_of(name)) for name in CODES))) == 281


def test_every_alias_brings_two_identifiers_together_or_mends_a_code() -> None:
    known = {name: set(classes_of(name)) for name in CODES}
    for name, table in ALIASES.items():
        for code, language in table.items():
            shared = any(language in classes for other, classes in known.items() if other != name)
            assert shared or len(iso_name(code)) == 2, (name, code)
            assert iso_name(code) != language


@pytest.mark.parametrize(
    ("aliases", "variants", "says"),
    [
        ({"a": {"xx": "deu"}}, {}, "a does not use the aliases or variants xx"),
        ({}, {"a": {"deu": ("de", "xx")}}, "a does not use the aliases or variants xx"),
        ({"a": {"de": "deu"}}, {"a": {"deu": ("de", "nds")}}, "a does not use the aliases or variants de"),
        ({"a": {"nds": "deu"}}, {}, "a has de and nds, which both become deu"),
        ({"a": {"nds": "en"}}, {"a": {"en": ("de", "en")}}, "a has de and nds, which both become en"),
        ({"a": {"nds": "eng"}}, {}, "a has en and nds, which both become eng"),
    ],
)
def test_slips_in_the_tables_are_found(aliases: dict, variants: dict, says: str) -> None:
    codes = {"a": ["de", "en", "nds"], "b": ["deu", "fra"]}
    assert check(codes, {}, {}).each == {"a": 3, "b": 2}
    with pytest.raises(InvalidInputError, match=says):
        check(codes, aliases, variants)


def test_variants_are_counted_once() -> None:
    counts = check({"a": ["zh-cn", "zh-tw", "de"]}, {}, {"a": {"zho": ("zh-cn", "zh-tw")}})
    assert counts.each == {"a": 2}


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("de", "deu"), ("deu", "deu"), ("ger", "deu"), ("DE", "deu"), (" en ", "eng"), ("en_US.UTF-8", "eng"),
        ("zh", "zho"), ("zh-cn", "zho"), ("zh_Hant_TW", "zho"), ("cmn", "zho"), ("chi", "zho"),
        ("nb", "nob"), ("no", "nob"), ("nor", "nob"), ("nb_NO", "nob"), ("nn", "nno"), ("yue", "yue"),
        ("zsm", "msa"), ("ms", "msa"), ("lvs", "lav"), ("swh", "swa"), ("pes", "fas"), ("fa", "fas"),
        ("arb", "ara"), ("arz", "arz"), ("iw", "heb"), ("in", "ind"), ("sh", "hbs"), ("sr@latin", "srp"),
        ("ca@valencia", "cat"), ("fil", "tgl"), ("als", "sqi"), ("gsw", "gsw"), ("uz", "uzb"), ("uzn", "uzb"),
        ("tok", "tok"), ("und", "und"), ("kzj", "dtp"), ("ber", "ber"),
    ],
)  # fmt: skip
def test_codes_of_all_kinds_lead_to_one_name(code: str, language: str) -> None:
    assert canonical(code) == language


def test_canonical_names_stay_what_they_are() -> None:
    for name in CODES:
        for language in classes_of(name):
            assert canonical(language) == language
    assert not set(OTHER_ALIASES.values()) & set(OTHER_ALIASES)
    with pytest.raises(InvalidInputError, match="'-' is no code of a language"):
        canonical("-")


def test_every_class_has_a_name_in_words() -> None:
    named = {language: name_of(language) for name in CODES for language in classes_of(name)}
    assert [language for language, name in named.items() if name == language] == []
    assert (named["deu"], named["ell"], named["eml"]) == ("German", "Modern Greek", "Emiliano-Romagnolo")
    assert len(set(named.values())) == len(named)
    assert name_of("xq7") == "xq7"


def test_variants_and_aliases_are_apart() -> None:
    for name, groups in VARIANTS.items():
        members = {code for group in groups.values() for code in group}
        assert members <= set(CODES[name])
        assert not members & set(ALIASES[name])


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(ImportError, match=r"needs no_such_thing: pip install 'consilience\[languages\]'"):
        languages.needed("no_such_thing.inner")

"""Names of languages: aliases are used, join nothing, and lead codes of all kinds to one name."""

import pytest

from consilience.exceptions import InvalidInputError

pytest.importorskip("pycountry")
from examples.language_identification.languages import (
    CODES,
    OTHER_ALIASES,
    all_classes,
    canonical,
    check,
    classes_of,
    splits_of,
)

# ISO 639-3's macro-languages of which some identifier names a member, and these members
MACROLANGUAGES = {
    "aka": "twi", "ara": "ary arz", "aym": "ayr", "aze": "azb", "bik": "bcl", "bua": "bxr", "chm": "mhr mrj",
    "din": "dik", "fas": "pes", "ful": "fuv", "grn": "gug", "hbs": "bos hrv srp", "kau": "knc", "kok": "gom",
    "kom": "koi kpv", "kur": "ckb kmr sdh", "lah": "pnb", "lav": "ltg", "msa": "ind min", "nep": "dty",
    "nor": "nno nob", "orm": "gaz", "pus": "pbt", "sqi": "als", "syr": "aii", "uzb": "uzn uzs",
    "zho": "cdo cmn wuu yue", "zza": "diq",
}  # fmt: skip


def test_the_seven_know_302_languages_together_and_48_each() -> None:
    counts = check()
    assert (counts.union, counts.shared) == (302, 48)
    assert counts.each == {name: len(classes_of(name)) for name in CODES}
    assert (min(counts.each.values()), max(counts.each.values())) == (54, 222)
    assert len(all_classes()) == 302


# Members that are languages of their own here. To those who do not know them, the whole is the standard form.
OTHER_LANGUAGES = {
    "ara ary", "ara arz", "aze azb", "kur ckb", "kur sdh", "lav ltg", "msa min", "nep dty", "zho cdo",
    "zho wuu", "zho yue",
}  # fmt: skip


def test_no_class_is_a_member_of_another_unless_that_one_is_split_or_the_standard_language() -> None:
    known = {name: set(classes_of(name)) for name in CODES}
    split, other = set(), set()
    for macro, listed in MACROLANGUAGES.items():
        whole = "nob" if macro == "nor" else macro  # Norwegian is Bokmål to those that know it
        for member in listed.split():
            having = [name for name, own in known.items() if whole in own]
            knowing = [name for name, own in known.items() if member in own and member != whole]
            if not having or not knowing:
                continue  # one name for both, or no name for the whole
            covering = [name for name in having if member in splits_of(name).get(whole, ())]
            if covering:
                assert covering == [name for name in having if name not in knowing]
            (split if covering else other).add(f"{whole} {member}")
    assert split == {"hbs bos", "hbs hrv", "hbs srp", "msa ind", "nob nno"}
    assert other == OTHER_LANGUAGES
    assert "hbs" not in known["lid.176"] | set(all_classes())


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
    assert [canonical(code) for code in ("twi", "ayr", "kv", "aii")] == ["aka", "aym", "kpv", "syr"]
    assert not set(OTHER_ALIASES.values()) & set(OTHER_ALIASES)
    with pytest.raises(InvalidInputError, match="'-' is no code of a language"):
        canonical("-")

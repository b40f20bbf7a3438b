"""Names of languages: each identifier's own codes, and one ISO 639-3 name for all.

ISO 639 gives the three-letter name of a two-letter code. The tables here give the rest: which codes name the
same language and why, and which classes of one identifier are joined on purpose. `check` proves that every
entry is used, and that no alias merges two classes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from consilience.exceptions import InvalidInputError, MissingDependencyError

# Each identifier's own codes, listed here so that nobody has to load a gigabyte of models to see them. A test
# compares them with the installed packages.
CODES: dict[str, tuple[str, ...]] = {
    name: tuple(codes.split())
    for name, codes in {
        "langid": """
            af am an ar as az be bg bn br bs ca cs cy da de dz el en eo es et eu fa fi fo fr ga gl gu he hi hr
            ht hu hy id is it ja jv ka kk km kn ko ku ky la lb lo lt lv mg mk ml mn mr ms mt nb ne nl nn no oc
            or pa pl ps pt qu ro ru rw se si sk sl sq sr sv sw ta te th tl tr ug uk ur vi vo wa xh zh zu""",
        "py3langid": """
            ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa
            fi fo fr fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka
            kab kik kk km kn ko ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc
            om or pa pcm pl ps pt qu ro ru rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt
            ug uk ur uz uzs vec vi vo wa wuu xh yo yue zh zu zxx""",
        "langdetect": """
            af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl
            no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw""",
        "lingua": """
            afr ara aze bel ben bos bul cat ces cym dan deu ell eng epo est eus fas fin fra gle guj heb hin
            hrv hun hye ind isl ita jpn kat kaz kor lat lav lit lug mar mkd mon mri msa nld nno nob pan pol
            por ron rus slk slv sna som sot spa sqi srp swa swe tam tel tgl tha tsn tso tur ukr urd vie xho
            yor zho zul""",
        "lid.176": """
            af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co
            cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi
            hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez li
            lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn no
            oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq sr su
            sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue
            zh""",
        "heliport": """
            abk ace adz afr aii ame amh amr ara arl arn asm ayr aze bak bar bcl bel ben boa bod bpy bre bul
            cat cbu cdo ceb ces che chk cho chr chv chy ckb cmn cnh cor cos cym dan deu dik diq div ell eng
            epo est eus ewe ext fao fij fin fon fra fry gaz gla gle glg glv gom grn gsw guj hat hbs heb hin
            hmo hsb hun hus huu hye ibo ido iku ilo ina isl ita izh jpn kac kal kan kat kaz kbd kbp kca khm
            kir kmr knc koi kor kpv krc ksh lao lat lav lin lit liv lmo ltz lud lug luo lus mal mar mcd mcf
            mdf mhr mkd mlg mlt mns mon mri mrj msa mwl mya myv nav nep nhn nio nld nno nob nso nus oci olo
            ori oss pag pam pan pbt pes pfl pli pms pnb pol pon por que roh ron rus sag sah sat scn sgs shk
            shn sin sjd sjk sju slk slv sma sme smj smn sms sna snd som sot spa sqi srd swa swe tam tat tca
            tel tet tgk tgl tha tir tso tuk tur twi tzh udm uig ukr und ura urd uzn vie vls vol vot war wln
            xmf yid yor yrk zul zxx""",
        # without "zzp", Pig Latin
        "pycld2": """
            aa ab af ak am ar as ay az ba be bg bh bi bn bo br bs ca ceb chr co crs cs cy da de dv dz el en eo
            es et eu fa fi fj fo fr fy ga gd gl gn gu gv ha haw hi hmn hr ht hu hy ia id ie ig ik is it iu iw
            ja jw ka kha kk kl km kn ko ks ku ky la lb lg lif ln lo lt lv mfe mg mi mk ml mn mr ms mt my na ne
            nl nn no nr nso ny oc om or pa pl ps pt qu rm rn ro ru rw sa sco sd sg si sk sl sm sn so sq sr ss
            st su sv sw syr ta te tg th ti tk tl tlh tn to tr ts tt ug uk ur uz ve vi vo war wo xh xx-Bugi
            xx-Goth yi yo za zh zh-Hant zu""",
    }.items()
}

# Classes of one identifier that are joined on purpose. Their probabilities add up.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    # "no" is Bokmål too: the identifier also has "nn", and whether it says "nb" or "no" is chance
    "langid": {"nob": ("nb", "no")},
    # Southern Uzbek is Uzbek in Arabic letters; nobody else tells the two apart
    "py3langid": {"uzb": ("uz", "uzs")},
    # one language in two scripts
    "langdetect": {"zho": ("zh-cn", "zh-tw")},
    "pycld2": {"zho": ("zh", "zh-Hant")},
}

# A code that an identifier has in addition to codes of all that it covers. Its probability is shared out
# among them: as a class of its own it would take votes from the right one.
SHARED: dict[str, dict[str, tuple[str, ...]]] = {
    "lid.176": {"sh": ("bs", "hr", "sr")},  # Serbo-Croatian
}

# What a class covers if its identifier has no class for the others in the list, but names it for their text.
# As a class of its own it would outvote those that know better. So it is split, and they decide between the
# parts. Other members of macro-languages, such as Cantonese ("yue") or Egyptian Arabic ("arz"), are languages
# that some identifiers do not know. These say Chinese or Arabic. But with "ce" they have no vote on a class
# that is not theirs, so those that know Cantonese win anyway. Splits of Chinese, Arabic and Kurdish did harm.
COVERED: dict[str, tuple[str, ...]] = {
    "hbs": ("bos", "hrv", "srp"),  # heliport knows only Serbo-Croatian, not its standard forms
    "msa": ("msa", "ind"),  # heliport says Malay for Indonesian, too
    "nob": ("nob", "nno"),  # langdetect knows only Norwegian
}

# Names of the same language. A macro-language and one of its members are the same class if no identifier
# tells that member from the others, as with "gaz" and Oromo, or if the code is used for this member alone.
ALIASES: dict[str, dict[str, str]] = {
    "langid": {},
    "py3langid": {
        "no": "nob",  # macro-language: "nn" is a class of its own, so "no" is Bokmål
        "gug": "grn",  # Paraguayan Guarani, the Guarani that is written
    },
    "langdetect": {
        "no": "nob",  # macro-language: trained on the Bokmål Wikipedia
    },
    "lingua": {},
    "lid.176": {
        "no": "nob",  # macro-language: trained on the Bokmål Wikipedia
        "als": "gsw",  # Wikipedia's code of Alemannic; in ISO 639-3 it is Tosk Albanian
        "bh": "bih",  # retired from ISO 639-1: Bihari, a group of languages without a code in ISO 639-3
        "kv": "kpv",  # macro-language: trained on the Wikipedia of Komi-Zyrian; heliport also has "koi"
    },
    "heliport": {
        # the member of a macro-language, where others name the whole
        "cmn": "zho",  # Mandarin
        "pes": "fas",  # Iranian Persian
        "kmr": "kur",  # Northern Kurdish
        "gaz": "orm",  # West Central Oromo
        "pbt": "pus",  # Southern Pashto
        "uzn": "uzb",  # Northern Uzbek
        "nhn": "nah",  # Central Nahuatl; "nah" is a group of languages without a code in ISO 639-3
        "ayr": "aym",  # Central Aymara
        "twi": "aka",  # Twi, the Akan that is written most
        "aii": "syr",  # Assyrian Neo-Aramaic, which is written in Syriac letters
    },
    "pycld2": {
        "no": "nob",  # macro-language: "nn" is a class of its own, so "no" is Bokmål
        "bh": "bih",  # as in lid.176
        "iw": "heb",  # retired from ISO 639-1
        "jw": "jav",  # retired from ISO 639-1
        "xx-Bugi": "bug",  # Buginese, recognised by its letters
        "xx-Goth": "got",  # Gothic, likewise
    },
}

# The same for codes that only labelled sentences and catalogues use.
OTHER_ALIASES: dict[str, str] = {
    # macro-languages and their usual member
    "nor": "nob", "cmn": "zho", "pes": "fas", "prs": "fas", "kmr": "kur", "gaz": "orm", "pbt": "pus",
    "uzn": "uzb", "uzs": "uzb", "nhn": "nah", "gug": "grn", "arb": "ara", "azj": "aze", "ekk": "est",
    "khk": "mon", "lvs": "lav", "npi": "nep", "ory": "ori", "plt": "mlg", "swh": "swa", "als": "sqi",
    "ydd": "yid", "zsm": "msa", "fil": "tgl", "ayr": "aym", "ayc": "aym", "twi": "aka", "fat": "aka",
    "aii": "syr", "kom": "kpv",
    # retired codes
    "iw": "heb", "in": "ind", "ji": "yid", "jw": "jav", "mo": "ron", "bh": "bih", "kzj": "dtp",
}  # fmt: skip

# Classes that have no code of their own in ISO 639-3.
NAMES: dict[str, str] = {
    "bih": "Bihari languages",
    "eml": "Emiliano-Romagnolo",  # retired: split into Emilian and Romagnol
    "nah": "Nahuatl languages",
}


@dataclass(frozen=True)
class Counts:
    """Numbers of languages.

    Attributes
    ----------
    each : dict
        By identifier.
    union, shared : int
        Known to any identifier, and known to all of them.
    """

    each: dict[str, int]
    union: int
    shared: int


def needed(module: str) -> ModuleType:
    """Import a module of the extra, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"Identifying languages needs {module.partition('.')[0]}: pip install 'consilience[languages]'."
        ) from error


def canonical(code: str) -> str:
    """Return the one name of a language: its ISO 639-3 code, after aliases.

    Parameters
    ----------
    code : str
        A code of ISO 639-1, 639-2 or 639-3, with or without a script, a region or the like: ``"de"``,
        ``"zsm"``, ``"zh-Hant"``, ``"pt_BR"``, ``"ca@valencia"``. An unknown code is returned unchanged.

    Examples
    --------
    >>> [canonical(code) for code in ("de", "zh-Hant", "pt_BR", "ger", "lvs", "tok")]
    ['deu', 'zho', 'por', 'deu', 'lav', 'tok']
    """
    language = re.split(r"[-_.@]", code.strip().lower())[0]
    if not language:
        raise InvalidInputError(f"{code!r} is no code of a language.")
    language = OTHER_ALIASES.get(language, language)
    return OTHER_ALIASES.get(iso_name(language), iso_name(language))


@functools.cache
def iso_name(code: str) -> str:
    """Return the ISO 639-3 code for a code of ISO 639-1 or 639-2. Return any other code unchanged."""
    languages = needed("pycountry").languages
    kind = "alpha_2" if len(code) == 2 else "bibliographic"
    found = languages.get(**{kind: code})
    return code if found is None else str(found.alpha_3)


@functools.cache
def name_of(code: str) -> str:
    """Return the English name of a language, or its code if it has none.

    Examples
    --------
    >>> name_of("deu"), name_of("el"), name_of("eml")
    ('German', 'Modern Greek', 'Emiliano-Romagnolo')
    """
    language = canonical(code)
    found = needed("pycountry").languages.get(alpha_3=language)
    if language in NAMES or found is None:
        return NAMES.get(language, language)
    return re.sub(r" \([^)]*\)$", "", getattr(found, "common_name", found.name))


def codes_of(name: str) -> list[str]:
    """Return an identifier's own codes, without those that are shared out."""
    return [code for code in CODES[name] if code not in SHARED.get(name, {})]


def aliases_of(name: str) -> dict[str, str]:
    """Return an identifier's aliases: its own codes, mapped to the names used here.

    They apply after its variants are joined. Codes that keep their name are left out.
    """
    joint = VARIANTS.get(name, {})
    members = {code for group in joint.values() for code in group}
    renamed = {code: iso_name(code) for code in codes_of(name) if code not in members}
    renamed |= ALIASES[name]  # all of them, so `rename_classes` refuses one that is not used
    return {code: new for code, new in renamed.items() if new != code}


def classes_of(name: str) -> list[str]:
    """Return the sorted names of an identifier's languages. Macro-languages are not split."""
    members = {code: joint for joint, group in VARIANTS.get(name, {}).items() for code in group}
    named = aliases_of(name)
    return sorted({members.get(code, named.get(code, code)) for code in codes_of(name)})


def splits_of(name: str) -> dict[str, tuple[str, ...]]:
    """Return an identifier's classes that are split, and what each covers. A stranger has none.

    Examples
    --------
    >>> splits_of("heliport")
    {'hbs': ('bos', 'hrv', 'srp'), 'msa': ('msa', 'ind')}
    """
    own = set(classes_of(name)) if name in CODES else set()
    found = {
        whole: tuple(one for one in covered if one == whole or one not in own)
        for whole, covered in COVERED.items()
        if whole in own
    }
    return {whole: group for whole, group in found.items() if group != (whole,)}


def all_classes() -> list[str]:
    """Return the sorted names of all languages: the classes of the unified model."""
    return sorted(set().union(*(classes_of(name) for name in CODES)) - _only_parts())


def _only_parts() -> set[str]:
    """Return the classes of which only the parts are left after the split."""
    return {whole for whole, covered in COVERED.items() if whole not in covered}


def before_split(name: str, classes: Iterable[str]) -> dict[str, int]:
    """Return an identifier's own classes, with macro-languages not split, and the column of each.

    Parameters
    ----------
    name : str
        Any teacher. If none of its classes is split, they are returned unchanged.
    classes : iterable of str
        Its classes after the split. Each member has the score of the whole.

    Examples
    --------
    >>> before_split("heliport", ["bos", "deu", "hrv", "srp"])
    {'hbs': 0, 'deu': 1}
    """
    whole = {member: macro for macro, group in splits_of(name).items() for member in group}
    columns: dict[str, int] = {}
    for column, code in enumerate(classes):
        columns.setdefault(whole.get(code, code), column)
    return columns


def check(
    codes: Mapping[str, Sequence[str]] = CODES,
    aliases: Mapping[str, Mapping[str, str]] = ALIASES,
    variants: Mapping[str, Mapping[str, Sequence[str]]] = VARIANTS,
    shared: Mapping[str, Mapping[str, Sequence[str]]] = SHARED,
) -> Counts:
    """Prove that every alias, variant and shared code is used, and that only variants join classes.

    Raises
    ------
    InvalidInputError
        With the identifier and the codes.
    """
    known: dict[str, set[str]] = {}
    for name, own in codes.items():
        joint = {code: to for to, group in variants.get(name, {}).items() for code in group}
        table, parts = aliases.get(name, {}), shared.get(name, {})
        used = {*table, *joint, *parts, *(code for group in parts.values() for code in group)}
        unused = sorted(used - set(own)) + sorted(set(table) & set(joint))
        if unused:
            raise InvalidInputError(f"{name} does not use the aliases or variants {', '.join(unused)}.")
        single: dict[str, str] = {}
        for code in (code for code in own if code not in parts):
            language = joint.get(code) or table.get(code) or iso_name(code)
            other = single.setdefault(language, code)
            if joint.get(code) != joint.get(other) or (other != code and code not in joint):
                raise InvalidInputError(f"{name} has {other} and {code}, which both become {language}.")
        known[name] = set(single)
    return Counts(
        {name: len(found) for name, found in known.items()},
        len(set.union(*known.values()) - _only_parts()),
        len(set.intersection(*known.values())),
    )

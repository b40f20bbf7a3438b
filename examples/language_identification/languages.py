"""Names of languages: what each identifier calls them, and one name, by ISO 639-3, for all.

Two-letter codes have their three-letter name from ISO 639. The tables here say the rest: which codes are
names of the same language, why, and which classes of one identifier are taken together on purpose. `check`
proves that every entry is used, and that no alias makes one class of two.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from consilience.exceptions import InvalidInputError, MissingDependencyError

# What each identifier calls its classes, so that these can be listed without loading a gigabyte of models.
# A test compares them with what the installed packages say.
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
    }.items()
}

# Classes of one identifier that are taken together on purpose; their probabilities add.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    # "no" is Bokmål, too: the identifier has "nn" besides, and which of "nb" and "no" it says is chance
    "langid": {"nob": ("nb", "no")},
    # Southern Uzbek is Uzbek in Arabic letters; nobody else tells the two apart
    "py3langid": {"uzb": ("uz", "uzs")},
    # one language in two scripts
    "langdetect": {"zho": ("zh-cn", "zh-tw")},
}

# Classes that stand for several languages which others tell apart; the identifier leaves these to them.
MACROS: dict[str, dict[str, tuple[str, ...]]] = {
    # Serbo-Croatian is all that heliport says of its three standard forms, and says surely: taken as a class
    # of its own it would outvote whoever knows which one it is. lid.176 has it ("sh") beside the three.
    "heliport": {"hbs": ("bos", "hrv", "srp")},
}

# Names of the same language. A macro-language and one of its members are the same class where no identifier
# tells that member from the others: so "gaz" is Oromo, but neither "kpv" nor "koi" is the Komi ("kv") of
# lid.176, since heliport has both.
ALIASES: dict[str, dict[str, str]] = {
    "langid": {},
    "py3langid": {
        "no": "nob",  # macro-language: "nn" is a class of its own, and so "no" is Bokmål
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
    },
    "heliport": {
        # the member of a macro-language that is meant where others name the whole
        "cmn": "zho",  # Mandarin
        "pes": "fas",  # Iranian Persian
        "kmr": "kur",  # Northern Kurdish
        "gaz": "orm",  # West Central Oromo
        "pbt": "pus",  # Southern Pashto
        "uzn": "uzb",  # Northern Uzbek
        "nhn": "nah",  # Central Nahuatl; "nah" is a group of languages without a code in ISO 639-3
    },
}

# The same for codes that no identifier uses but labelled sentences and catalogues do.
OTHER_ALIASES: dict[str, str] = {
    # macro-languages and the member that is usually meant
    "nor": "nob", "cmn": "zho", "pes": "fas", "prs": "fas", "kmr": "kur", "gaz": "orm", "pbt": "pus",
    "uzn": "uzb", "uzs": "uzb", "nhn": "nah", "gug": "grn", "arb": "ara", "azj": "aze", "ekk": "est",
    "khk": "mon", "lvs": "lav", "npi": "nep", "ory": "ori", "plt": "mlg", "swh": "swa", "als": "sqi",
    "ydd": "yid", "zsm": "msa", "fil": "tgl",
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
    """How many languages there are.

    Attributes
    ----------
    each : dict
        By identifier.
    union, shared : int
        Known to any of them, and to all of them.
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
    """Return the one name of a language: what ISO 639-3 calls it, with aliases applied.

    Parameters
    ----------
    code : str
        A code of ISO 639-1, 639-2 or 639-3, with or without a script, a region and the like:
        ``"de"``, ``"zsm"``, ``"zh-Hant"``, ``"pt_BR"``, ``"ca@valencia"``. An unknown one stays as it is.

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
    """Return the ISO 639-3 code for a code of ISO 639-1 or 639-2; any other stays as it is."""
    languages = needed("pycountry").languages
    kind = "alpha_2" if len(code) == 2 else "bibliographic"
    found = languages.get(**{kind: code})
    return code if found is None else str(found.alpha_3)


@functools.cache
def name_of(code: str) -> str:
    """Return the English name of a language, or the code where it has none.

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


def aliases_of(name: str) -> dict[str, str]:
    """Return what each class of an identifier is called here, where it has another name there.

    These are the aliases of its classes after its variants are joined.
    """
    joint = VARIANTS.get(name, {})
    members = {code for group in joint.values() for code in group}
    renamed = {code: iso_name(code) for code in CODES[name] if code not in members}
    renamed |= ALIASES[name]  # whole, so that `rename_classes` refuses one that is not used
    return {code: new for code, new in renamed.items() if new != code}


def classes_of(name: str) -> list[str]:
    """Return the languages of an identifier by their one name, each once, sorted; macro-languages whole."""
    members = {code: joint for joint, group in VARIANTS.get(name, {}).items() for code in group}
    named = aliases_of(name)
    return sorted({members.get(code, named.get(code, code)) for code in CODES[name]})


def before_split(name: str, classes: Iterable[str]) -> dict[str, int]:
    """Return what an identifier itself names, with macro-languages whole, and the column of each.

    Parameters
    ----------
    name : str
        Any teacher; those without an entry in `MACROS` have their classes as they are.
    classes : iterable of str
        Its classes after `MACROS` were split, which gave each member the score of the whole.

    Examples
    --------
    >>> before_split("heliport", ["bos", "deu", "hrv", "srp"])
    {'hbs': 0, 'deu': 1}
    """
    whole = {member: macro for macro, group in MACROS.get(name, {}).items() for member in group}
    columns: dict[str, int] = {}
    for column, code in enumerate(classes):
        columns.setdefault(whole.get(code, code), column)
    return columns


def check(
    codes: Mapping[str, Sequence[str]] = CODES,
    aliases: Mapping[str, Mapping[str, str]] = ALIASES,
    variants: Mapping[str, Mapping[str, Sequence[str]]] = VARIANTS,
) -> Counts:
    """Prove that every alias and variant is used and that none but a variant joins classes of one identifier.

    Raises
    ------
    InvalidInputError
        With the identifier and the codes.
    """
    known: dict[str, set[str]] = {}
    for name, own in codes.items():
        joint = {code: to for to, group in variants.get(name, {}).items() for code in group}
        table = aliases.get(name, {})
        unused = sorted((set(table) | set(joint)) - set(own)) + sorted(set(table) & set(joint))
        if unused:
            raise InvalidInputError(f"{name} does not use the aliases or variants {', '.join(unused)}.")
        single: dict[str, str] = {}
        for code in own:
            language = joint.get(code) or table.get(code) or iso_name(code)
            other = single.setdefault(language, code)
            if joint.get(code) != joint.get(other) or (other != code and code not in joint):
                raise InvalidInputError(f"{name} has {other} and {code}, which both become {language}.")
        known[name] = set(single)
    return Counts(
        {name: len(found) for name, found in known.items()},
        len(set.union(*known.values())),
        len(set.intersection(*known.values())),
    )

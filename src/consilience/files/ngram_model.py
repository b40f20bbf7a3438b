"""A trained text model: how it reads texts, its predictions, and its file."""

from __future__ import annotations

import json
import os
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience._validation import n_rows
from consilience._words import shorten
from consilience.exceptions import InvalidInputError, shown
from consilience.files.arrays import ArrayFileError, open_npz
from consilience.files.card import Card, carded
from consilience.files.disk import opened, replacing
from consilience.files.strict_json import parse_json, record, row, truth, whole
from consilience.kernels.ngrams import Bounds, Codes, bag_inputs, hash_ngrams
from consilience.labels import class_list

VERSION_KEY = "consilience_text"
"""The array in an .npz file that distinguishes a text model from precomputed outputs."""

VERSION = 1
MAX_LENGTH = 32  # characters of an n-gram
MAX_BUCKETS = 2**28
BATCH_SIZE = 1024

# the kinds of types and the number of axes of each array of a file
_ARRAYS = {
    VERSION_KEY: ("iu", 0),
    "embeddings": ("f", 2),
    "weights": ("f", 2),
    "bias": ("f", 1),
    "classes": ("Uiufb", 1),
    "settings": ("U", 0),
}
_SETTINGS = record(
    {"ngram_range": row(whole(MAX_LENGTH), whole(MAX_LENGTH)), "lowercase": truth(), "max_chars": whole()},
    needs=("ngram_range", "lowercase", "max_chars"),
)


class _Borders(dict[int, str]):
    """The replacement of each character, for `str.translate`. The table grows as new characters occur."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)
        if kind[0] == "Z" or kind in ("Cc", "Nd") or character == "_":
            self[code] = " "
        elif kind[0] in "PS":
            self[code] = f" {character} "  # a separate word
        else:
            self[code] = character
        return self[code]


@dataclass(frozen=True)
class Reading:
    """How to turn a text into n-grams.

    Parameters
    ----------
    ngram_range : (int, int)
        The fewest and the most characters of an n-gram.
    lowercase : bool
    max_chars : int
        Read at most this many characters of a text and ignore the rest.
    """

    ngram_range: tuple[int, int]
    lowercase: bool
    max_chars: int


class Packed(NamedTuple):
    """Texts, ready for hashing."""

    codes: Codes  # (c,) the code points of all texts, each with a space at both ends
    bounds: Bounds  # (n + 1,) where each text begins, and the end


@dataclass(frozen=True, eq=False)
class TextModel:
    """Logits of texts: a softmax layer on the sum of the embeddings of a text's n-grams.

    Parameters
    ----------
    embeddings : (n_buckets, d) array of float32
    weights : (d, L) array of float32
    bias : (L,) array of float32
    classes : (L,) array
    reading : Reading
    """

    embeddings: NDArray[np.float32]
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    classes: NDArray[Any]
    reading: Reading

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return logits (n, L) of a list of texts."""
        return self.logits_of(self.embed(X))

    def logits_of(self, embeddings: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return logits (n, L) from inputs (n, d) of the last layer."""
        return np.asarray(embeddings @ self.weights + self.bias, dtype=np.float64)

    def embed(self, X: Any) -> NDArray[np.float32]:
        """Return the inputs (n, d) of the last layer."""
        texts = as_texts(X)
        embeddings = np.empty((len(texts), self.embeddings.shape[1]), dtype=np.float32)
        for start in range(0, len(texts), BATCH_SIZE):
            rows = slice(start, start + BATCH_SIZE)
            packed = pack(texts[rows], self.reading)
            ids, bounds = hash_ngrams(*packed, *self.reading.ngram_range, len(self.embeddings))
            embeddings[rows] = bag_inputs(self.embeddings, ids, bounds)
        return embeddings

    def named(self, classes: NDArray[Any], temperature: float) -> TextModel:
        """Return the model with new class names, and with its logits multiplied by `temperature`."""
        scale = np.float32(temperature)
        return replace(self, weights=self.weights * scale, bias=self.bias * scale, classes=classes)


def as_texts(X: Any) -> list[str]:
    """Return X as a list of texts, or raise.

    Examples
    --------
    >>> as_texts(["a", 2])
    Traceback (most recent call last):
    consilience.exceptions.InvalidInputError: X has 2 in row 1, of type int; expected a list of texts (str).
    """
    expected = "expected a list of texts (str)"
    shape = getattr(X, "shape", (0,))
    if len(shape) != 1:
        raise InvalidInputError(f"X has shape {tuple(shape)}; {expected}, of one dimension.")
    if isinstance(X, str | bytes | Mapping | set | frozenset):
        hint = ": put it in brackets" if isinstance(X, str | bytes) else ""
        raise InvalidInputError(f"X is a {type(X).__name__}; {expected}{hint}.")
    n_rows(X)  # raises with a clear message if X has no rows
    texts = X.tolist() if hasattr(X, "tolist") else list(X)
    other = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if other is not None:
        found = texts[other]
        hint = " Decode bytes first: text.decode()." if isinstance(found, bytes) else ""
        raise InvalidInputError(
            f"X has {shown(found)} in row {{row}}, of type {type(found).__name__}; {expected}.{hint}",
            row=other,
        )
    return texts


def pack(texts: Sequence[str], reading: Reading) -> Packed:
    """Return the code points of texts: words with single spaces around them, without digits.

    Punctuation marks and symbols are separate words.

    Examples
    --------
    >>> codes, bounds = pack(["Ab, 12 c", ""], Reading((1, 5), lowercase=True, max_chars=100))
    >>> "".join(map(chr, codes)), bounds.tolist()
    (' ab , c ', [0, 8, 8])
    """
    words = list(_normalised(texts, reading))
    joined = "".join(words)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32)
    lengths = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    return Packed(codes, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


def _normalised(texts: Sequence[str], reading: Reading) -> Iterator[str]:
    borders = _Borders()
    for text in texts:
        start = text[: reading.max_chars]
        words = (start.lower() if reading.lowercase else start).translate(borders).split()
        yield f" {' '.join(words)} " if words else ""


def write_model(
    path: str | os.PathLike[str], model: TextModel, *, description: str, details: Mapping[str, Any]
) -> Path:
    """Write a model to an .npz file without pickles, with float16 embeddings, and its card next to it."""
    target = Path(path)
    if target.suffix != ".npz":
        raise InvalidInputError(
            f"A text model is saved as .npz; give a file name with this ending, not {target.name!r}."
        )
    with np.errstate(over="ignore"):
        half = model.embeddings.astype(np.float16)
    if not all(np.isfinite(values).all() for values in (half, model.weights, model.bias)):
        raise InvalidInputError(
            "The model has weights that are not finite in half precision. Train it with a smaller lr."
        )
    names = class_list(model.classes)
    arrays = {
        VERSION_KEY: np.array(VERSION),
        "embeddings": half,
        "weights": model.weights,
        "bias": model.bias,
        "classes": np.asarray(names),
        "settings": np.array(json.dumps(asdict(model.reading))),
    }
    card = Card(target.stem, tuple(names), "logits", description=description, details=details)
    with carded(target, card), replacing(target) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return target


def is_text_model(path: str | os.PathLike[str]) -> bool:
    """Tell whether an .npz file declares itself a text model; reads only the list of its contents."""
    try:
        with opened(path, links=True) as file, zipfile.ZipFile(file) as archive:
            return f"{VERSION_KEY}.npy" in archive.namelist()
    except Exception:  # a flipped bit can make zipfile raise almost any type
        return False


def read_model(path: str | os.PathLike[str]) -> TextModel:
    """Read a model that `write_model` wrote, or raise.

    Everything is checked before use: the worst that a stranger's file can do is give wrong answers. The
    caller compares the card, with `find_card`.
    """
    source = Path(path)
    try:
        with opened(source, links=True) as file, open_npz(source, compressed=False, file=file) as archive:
            if set(archive.names) != set(_ARRAYS):
                raise InvalidInputError(
                    f"{source.name} is not a text model: it has {shorten(archive.names) or 'nothing'}; "
                    f"expected {shorten(_ARRAYS)}. Write one with save."
                )
            arrays = {name: archive.read(name) for name in _ARRAYS}
    except ArrayFileError as error:
        raise InvalidInputError(f"{source.name} is not a readable text model: {error.reason}.") from error
    try:
        return _checked(arrays)
    except (ValueError, TypeError) as error:
        reason = str(error).rstrip(".")
        raise InvalidInputError(f"{source.name} is not a usable text model: {reason}.") from error


def _checked(arrays: Mapping[str, NDArray[Any]]) -> TextModel:
    """Return a model of arrays of a file, or raise an error without a file's name."""
    for name, (kinds, axes) in _ARRAYS.items():
        if arrays[name].dtype.kind not in kinds or arrays[name].ndim != axes:
            raise ValueError(f"{name} has type {arrays[name].dtype} and shape {arrays[name].shape}")
    E, W, b = arrays["embeddings"], arrays["weights"], arrays["bias"]
    if int(arrays[VERSION_KEY]) != VERSION:
        raise ValueError(f"its version is {arrays[VERSION_KEY]}, but this release reads {VERSION}")
    classes = np.asarray(class_list(arrays["classes"]))
    reading = Reading(**_SETTINGS(parse_json(str(arrays["settings"]), "its settings")))
    if not 1 <= reading.ngram_range[0] <= reading.ngram_range[1] or not reading.max_chars:
        raise ValueError(f"its settings are {reading}")
    fits = W.shape == (E.shape[1], len(classes)) and b.shape == (len(classes),)
    if E.dtype != np.float16 or 0 in E.shape or len(E) > MAX_BUCKETS or not fits:
        shapes = f"{E.dtype} {E.shape}, {W.shape} and {b.shape}"
        raise ValueError(f"{shapes} do not fit together with {len(classes)} classes")
    E, W, b = (np.ascontiguousarray(values, dtype=np.float32) for values in (E, W, b))
    if not all(np.isfinite(values).all() for values in (E, W, b)):
        raise ValueError("it has weights that are not finite")
    return TextModel(E, W, b, classes, reading)

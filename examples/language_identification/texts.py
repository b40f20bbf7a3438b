"""Gather unlabelled text in many languages from installed packages.

The catalogues of `catalogues.py` become rows of text. The path of a catalogue names its language, but this
name is never used. Only the number of catalogues matters: a limit on the rows of each keeps the sizes of
languages within the same order of magnitude, without any labels.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from examples.language_identification import PER_CATALOGUE
from examples.language_identification.catalogues import Catalogue, Message, grouped, in_wheels, installed
from examples.language_identification.cleaning import LONGEST, SHORTEST, cut, pieces, width
from numpy.typing import NDArray

from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing

NAMES_ONLY = ("pycountry",)  # names of countries and currencies look alike in all languages
RUN = 16  # messages in a run, within which neighbours are joined
SPARE = 2  # draw this many times the rows wanted, since other catalogues may have the same rows


@dataclass(frozen=True)
class Source:
    """Where text comes from.

    Attributes
    ----------
    name : str
        A package, or a file of the user.
    files : int
        The number of its catalogues.
    broken : int
        How many of them could not be read.
    messages : int
        The number of their messages.
    rows : int
        The number of rows taken from it.
    """

    name: str
    files: int
    broken: int
    messages: int
    rows: int


@dataclass(frozen=True)
class Texts:
    """Text without labels.

    Attributes
    ----------
    rows : tuple of str
        In random order, without duplicates.
    sources : tuple of Source
    """

    rows: tuple[str, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class _Limits:
    """The limits given to `gather`."""

    per_catalogue: int
    shortest: int
    longest: int
    seed: int


@dataclass(frozen=True)
class _Read:
    """One file after reading: its candidate rows, or None if it is broken."""

    source: str
    rows: list[str] | None
    messages: int


def gather(
    *,
    rows: int | None = None,
    per_catalogue: int = PER_CATALOGUE,
    shortest: int = SHORTEST,
    longest: int = LONGEST,
    packages: Sequence[str] | None = None,
    wheels: Path | None = None,
    transfer: Sequence[Path] = (),
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda task, done, total: None,
) -> Texts:
    """Return text from catalogues of installed packages, and from files.

    Parameters
    ----------
    rows : int, optional
        The most rows from packages; all by default. Every package gives the same number, and so does every
        catalogue of a package. Those with fewer rows, such as catalogues of rare languages, give all they
        have.
    per_catalogue : int
        The most rows from one catalogue, drawn at random.
    shortest, longest : int
        The fewest and most characters of a row.
    packages : sequence of str, optional
        Use only these packages; an empty sequence means none. By default, all but `NAMES_ONLY`.
    wheels : path, optional
        A folder of wheels to read as well, without installing them.
    transfer : sequence of paths
        Your own text files, in addition; see `read_text`. Lines are rows, and long lines are cut. All rows
        are used, whatever the limits.
    seed : int
        The same text, limits and seed give the same rows.
    progress : callable
        Called with (task, done, total).
    """
    own = [_read_own(path, longest) for path in transfer]
    found = installed(packages)
    if packages is None:
        found = [one for one in found if one.package not in NAMES_ONLY]
    found += in_wheels(wheels) if wheels is not None else []
    if not found and not own:
        raise InvalidInputError(
            "No package with message catalogues is installed. Install consilience[languages], "
            "or give text files of your own."
        )
    limits = _Limits(per_catalogue, shortest, longest, seed)
    read: list[_Read] = []
    done = 0
    for group in grouped(found):
        read.extend(_read_group(group, limits))
        done += len(group)
        progress("reading catalogues", done, len(found))
    taken = _sample(own, read, rows, per_catalogue, seed)
    return _put_together([*own, *read], taken, seed)


def read_text(path: Path, *, last_column: bool = True) -> list[str]:
    """Return the lines of a text file in UTF-8, which may be a .gz file.

    Parameters
    ----------
    path : path
    last_column : bool
        Whether to return only the last column of a .tsv file, which holds the text.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a text file in UTF-8.") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(f"{path} is no .gz file: {error}.") from error
    if last_column and ".tsv" in path.suffixes:
        lines = [line.rsplit("\t", 1)[-1] for line in lines]
    return lines


def write_text(path: Path, rows: Sequence[str]) -> None:
    """Write a row per line, compressed if the file's name ends in .gz."""
    data = "".join(f"{row}\n" for row in rows).encode()
    with replacing(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _read_own(path: Path, longest: int) -> _Read:
    """Read a user's text without cleaning it, since the model will see such text as it is."""
    lines = [" ".join(line.split()) for line in read_text(path) if line.strip()]
    rows = [row for line in lines for row in ([line] if width(line) <= longest else cut(line, longest))]
    found = _unique(row for row in rows if any(map(str.isalpha, row)))
    if not found:
        raise InvalidInputError(f"{path} holds no text.")
    return _Read(str(path), found, len(lines))


def _read_group(group: Sequence[Catalogue], limits: _Limits) -> list[_Read]:
    """Read the catalogues of one folder. The English JSON file shows which messages are untranslated."""
    loaded = [_messages(one) for one in group]
    is_english = [PurePosixPath(one.path).name == "en.json" for one in group]
    english = {text for i, found in enumerate(loaded) if is_english[i] for _, text in found or ()}
    read = []
    for one, messages, original in zip(group, loaded, is_english, strict=True):
        if messages is None:
            read.append(_Read(one.package, None, 0))
            continue
        translated = _translated(messages, set() if original else english)
        # the seed has the catalogue's name, so other installed packages do not change the draw
        rng = np.random.default_rng([limits.seed, zlib.crc32(f"{one.package}/{one.path}".encode())])
        read.append(_Read(one.package, _draw(translated, limits, rng), len(messages)))
    return read


def _draw(messages: Sequence[str], limits: _Limits, rng: np.random.Generator) -> list[str]:
    """Return rows of a catalogue in random order: draw runs of neighbours until there are enough rows.

    In a small catalogue, the same messages are cut again into shorter rows.
    """
    enough = SPARE * limits.per_catalogue
    runs = [messages[start : start + RUN] for start in RUN * rng.permutation(-(-len(messages) // RUN))]
    found: list[str] = []
    for longest in (limits.longest, limits.longest // 2, limits.longest // 3):
        rows: dict[str, None] = {}
        for run in runs:
            rows.update(dict.fromkeys(pieces(run, shortest=limits.shortest, longest=longest)))
            if len(found) + len(rows) >= enough:
                break
        found += _shuffled([row for row in rows if row not in found], rng)
        if len(found) >= limits.per_catalogue:
            break
    return found


def _messages(one: Catalogue) -> list[Message] | None:
    try:
        return one.messages()
    except (ValueError, OSError, MemoryError):
        return None


def _translated(messages: Sequence[Message], english: set[str]) -> list[str]:
    """Return the messages that differ from every original in the file."""
    originals = english | {original for original, _ in messages if original}
    return [text for _, text in dict.fromkeys(messages) if text not in originals]


def _unique(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))


def _sample(
    own: Sequence[_Read], read: Sequence[_Read], rows: int | None, per_catalogue: int, seed: int
) -> list[list[str]]:
    """Draw rows of each file without duplicates. The smallest catalogues come first, to keep their rows."""
    files = [*own, *read]
    seen: set[str] = set()
    kept: list[list[str]] = [[] for _ in files]
    for i in sorted(range(len(files)), key=lambda i: (i >= len(own), len(files[i].rows or ()), i)):
        new = [row for row in files[i].rows or () if row not in seen]
        kept[i] = new if i < len(own) else new[:per_catalogue]
        seen.update(kept[i])
    if rows is None:
        return kept
    # the same rule twice: share the rows among packages, then each share among the package's catalogues
    rng = np.random.default_rng(seed)
    by_source: dict[str, list[int]] = {}
    for i, one in enumerate(read, start=len(own)):
        by_source.setdefault(one.source, []).append(i)
    parts = [np.array([len(kept[i]) for i in mine], dtype=np.intp) for mine in by_source.values()]
    shares = share(np.array([part.sum() for part in parts], dtype=np.intp), rows, rng)
    for mine, part, total in zip(by_source.values(), parts, shares.tolist(), strict=True):
        for i, count in zip(mine, share(part, total, rng).tolist(), strict=True):
            kept[i] = kept[i][:count]
    return kept


def share(counts: NDArray[np.intp], total: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Share `total` equally, but give nobody more than its count.

    A remainder from rounding is drawn at random.

    >>> share(np.array([1, 5, 9]), 9, np.random.default_rng(0))
    array([1, 4, 4])
    """
    given = np.minimum(counts, level(counts, total))
    more = np.flatnonzero(counts > given)
    given[rng.permutation(more)[: max(0, total - int(given.sum()))]] += 1
    return given


def _shuffled(found: Sequence[str], rng: np.random.Generator) -> list[str]:
    return [found[i] for i in rng.permutation(len(found))]


def level(counts: NDArray[np.intp], total: int) -> int:
    """Return the largest c with sum(min(counts, c)) <= total.

    >>> level(np.array([1, 5, 9]), 9)
    4
    """
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(counts, middle).sum() <= total:
            low = middle
        else:
            high = middle - 1
    return low


def _put_together(read: Sequence[_Read], taken: Sequence[Sequence[str]], seed: int) -> Texts:
    rows = _shuffled([row for one in taken for row in one], np.random.default_rng([seed, 1]))
    names = dict.fromkeys(one.source for one in read)
    sources = []
    for name in names:
        mine = [i for i, one in enumerate(read) if one.source == name]
        sources.append(
            Source(
                name,
                files=len(mine),
                broken=sum(read[i].rows is None for i in mine),
                messages=sum(read[i].messages for i in mine),
                rows=sum(len(taken[i]) for i in mine),
            )
        )
    return Texts(tuple(rows), tuple(source for source in sources if source.messages or source.broken))

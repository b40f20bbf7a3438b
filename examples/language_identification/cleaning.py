"""Messages of programs as sentence-sized pieces of plain text.

Programs' messages hold placeholders, markup and accelerator keys, some are menus' single words and some whole
paragraphs. What is tested are sentences, so messages are cleaned, cut where sentences end (in any script) and
joined with their neighbours where they are short.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

SHORTEST, LONGEST = 10, 120
"""Pieces have so many characters; an ideograph counts for two."""

MOST_CHARACTERS = 20_000
"""Of a message; the rest is no message of a program, and not to be trusted."""

JOINED = 25
"""Messages shorter than this are joined with the next of their file."""

# The patterns of what is no text, each with what a message must hold for it to be tried: most messages are
# plain, and there are a million of them. In this order: forms of a word, links, choices, then what goes.
# None looks on beyond where it could begin again, or only so far: a hostile file would take minutes.
_KEPT = (  # replaced by their first group
    # {{PLURAL:%d|page|pages}}: the last form
    ("{", re.compile(r"\{\{\s*(?:PLURAL|GENDER)\s*:[^|{}]*\|(?:[^{}|]*\|)*([^{}|]*)\}\}", re.I)),
    ("[", re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")),  # [[target|words]]
)
_NESTED = 20  # choices within choices
_CHOICE = re.compile(r"\(([^()|]*)\|[^()]*\)")  # of sentence templates: the first alternative
_GONE = (
    ("{", re.compile(r"\{%(?:(?!\{%).)*?%\}|\{\{[^{}]*\}\}|\$?\{[^{}]*\}", re.S)),  # templates and fields
    ("<", re.compile(r"</?[^<>]*>")),  # tags, and rules of sentence templates
    ("/", re.compile(r"\b[a-z]+://\S+|(?<!\S)[^\s/]*/[^\s/]*/\S*")),  # addresses and paths
    ("\\", re.compile(r"\\[nrt\"']")),
    ("\\", re.compile(r"(?<!\S)[^\s\\]*\\\S*")),
    ("www.", re.compile(r"\bwww\.\S+")),
    ("@", re.compile(r"[\w.+-]{0,64}@[\w.-]*")),
    ("%", re.compile(r"%\([^()]*\)[#0\- +]{0,5}\d{0,5}(?:\.\d+)?[a-zA-Z]|%\d+\$[\d.]*[a-zA-Z]")),
    ("%", re.compile(r"%[#0\-+]?\d*(?:\.\d+)?[a-zA-Z%]|%\d")),
    ("$", re.compile(r"%?\$[A-Za-z0-9_]+")),
    ("`", re.compile(r"(?::\w+:)?`+[^`]*`+")),  # code
    ("-", re.compile(r"(?<!\S)--?[a-zA-Z][\w-]*")),  # options
    ("_", re.compile(r"\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b")),  # names of variables
    ("(", re.compile(r"\([&_]?[A-Z]\)")),  # accelerators in scripts that have no such keys
    ("'", re.compile(r"'{2,}")),
    ("", re.compile(r"[*#=~]{2,}")),
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ACCELERATOR = re.compile(r"[&_](?=\w)")
_PERHAPS_WIDE = re.compile("[\u1100-\U0010ffff]")  # before these, no character is
_SPACES = re.compile(r"[\s\u200b\ufeff\x00-\x1f]+")
_EDGES = " \t-–—:;,|/*+=<>[]{}\"'«»“”„#~•·_"  # noqa: RUF001


def clean(message: str) -> str:
    """Return a message without placeholders, markup, addresses and accelerators, on one line.

    Nothing is left of one with half a surrogate pair, as JSON may have it: that is no text, and in no file.

    >>> clean("<b>&Open</b> %(count)d files in {folder}…")
    'Open files in …'
    """
    if _LONE_SURROGATE.search(message):
        return ""
    text = _unescape(message[:MOST_CHARACTERS])
    for needed, pattern in _KEPT:
        if needed in text:
            text = pattern.sub(r"\1", text)
    for _ in range(_NESTED):
        if "|" not in text or (shorter := _CHOICE.sub(r"\1", text)) == text:
            break
        text = shorter
    for needed, pattern in _GONE:
        if needed in text:
            text = pattern.sub(" ", text)
    text = _ACCELERATOR.sub("", text).replace("[", " ").replace("]", " ")
    if text.count("(") != text.count(")"):
        text = text.replace("(", " ").replace(")", " ")
    text = unicodedata.normalize("NFC", text)
    return _SPACES.sub(" ", text).strip(_EDGES)


def _unescape(message: str) -> str:
    """Undo the entities of HTML; none where one of them is a number that no character has."""
    try:
        return html.unescape(message) if "&" in message else message
    except ValueError:  # thousands of digits
        return message


def is_text(piece: str) -> bool:
    """Tell whether a piece is mostly letters.

    >>> is_text("Hello there"), is_text("3.14 / 2.71 = a")
    (True, False)
    """
    solid = len("".join(piece.split()))
    letters = sum(map(str.isalpha, piece))
    if letters <= 0.75 * solid:  # vowel signs of many scripts are marks, and no letters to Python
        letters += sum(unicodedata.category(character)[0] == "M" for character in piece)
    return letters > 0.75 * solid and (letters >= 6 or (letters >= 4 and width(piece) >= 8))


def width(piece: str) -> int:
    """Return how many characters a piece has, ideographs and their like counted twice."""
    if piece.isascii():
        return len(piece)
    return len(piece) + sum(unicodedata.east_asian_width(one) == "W" for one in _PERHAPS_WIDE.findall(piece))


_ENDS = ".!?…։؟۔।॥።፧፨။།៕។᙮᠃⸮܀。！？｡"  # noqa: RUF001
# after the end of a sentence: a stop, perhaps closing quotes, and a space, which ideographic stops go without
_STOP = re.compile(rf"(?<=[{_ENDS}])[\"'”’»)\]]*\s+|(?<=[。！？｡])[”’」』）]*\s*")  # noqa: RUF001
_PAUSE = re.compile(r"(?<=[,;:،؛、，；：፣፤፥])\s*|\s+[-–—]\s+|\n+")  # noqa: RUF001


def cut(text: str, longest: int = LONGEST) -> list[str]:
    """Cut a text into pieces of at most `longest` characters: at full stops, else at pauses, else at spaces.

    >>> cut("One sentence. And another one, which is long!", 25)
    ['One sentence.', 'And another one,', 'which is long!']
    """
    pieces: list[str] = []
    for sentence in _STOP.split(text):
        if width(sentence) <= longest:
            pieces.append(sentence.strip())
            continue
        parts = [part for pause in _PAUSE.split(sentence) for part in _at_spaces(pause.strip(), longest)]
        pieces.extend(_gather(parts, longest))
    return [piece for piece in pieces if piece]


def _at_spaces(text: str, longest: int) -> Iterator[str]:
    """Yield parts of about equal width, cut at spaces where there are any."""
    n_parts = -(-width(text) // longest)
    if n_parts <= 1:
        yield text
        return
    size = -(-len(text) // n_parts)
    while len(text) > size or width(text) > longest:
        at = text.rfind(" ", size // 2, size + 1)
        at = at if at > 0 else max(1, min(size, longest // 2))
        yield text[:at].strip()
        text = text[at:].strip()
    if text:
        yield text


def _gather(parts: Iterable[str], longest: int) -> Iterator[str]:
    """Yield neighbours put together as long as they fit."""
    held = ""
    for part in parts:
        if held and width(held) + 1 + width(part) > longest:
            yield held
            held = ""
        held = f"{held} {part}".strip()
    if held:
        yield held


def pieces(
    messages: Iterable[str], *, shortest: int = SHORTEST, longest: int = LONGEST, join: bool = True
) -> Iterator[str]:
    """Yield sentence-sized pieces of the messages of one file.

    Parameters
    ----------
    messages : iterable of str
        As they stand in the file, in its order: neighbours are joined where they are short.
    shortest, longest : int
        What is shorter, even joined, is left out; what is longer is cut.
    join : bool
        Whether short messages are joined.
    """
    held: list[str] = []
    for message in messages:
        for piece in cut(clean(message), longest):
            whole = width(piece) >= JOINED or (width(piece) >= shortest and piece[-1] in _ENDS)
            if join and not whole:
                if piece in held or not any(map(str.isalpha, piece)):
                    continue
                held.append(piece)
                if sum(map(width, held)) < JOINED:
                    continue
                piece, held = ", ".join(part.rstrip(".:,") for part in held), []
            if shortest <= width(piece) <= longest and is_text(piece):
                yield piece
    rest = ", ".join(part.rstrip(".:,") for part in held)
    if shortest <= width(rest) <= longest and is_text(rest):
        yield rest

"""Turn messages of programs into sentence-sized pieces of plain text.

Messages of programs contain placeholders, markup and accelerator keys. Some are single words of menus, and
some are whole paragraphs. The test uses sentences. So messages are cleaned, cut at the ends of sentences (in
any script), and joined with their neighbours if they are short.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

SHORTEST, LONGEST = 10, 120
"""The fewest and most characters of a piece. An ideograph counts as two."""

MOST_CHARACTERS = 20_000
"""Messages are cut after this many characters. What is longer is no real message."""

JOINED = 25
"""Shorter messages are joined with the next one in their file."""

# Patterns of what is not text, each with characters that a message must contain before the pattern is tried:
# there are a million messages, and most are plain. The order is: word forms, links, choices, then removals.
# No pattern scans past the point where it could start again, or else it scans a limited length: otherwise a
# hostile file would take minutes.
_KEPT = (  # replaced by their first group
    # {{PLURAL:%d|page|pages}}: the last form
    ("{", re.compile(r"\{\{\s*(?:PLURAL|GENDER)\s*:[^|{}]*\|(?:[^{}|]*\|)*([^{}|]*)\}\}", re.I)),
    ("[", re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")),  # [[target|words]]
)
_NESTED = 20  # choices within choices
_CHOICE = re.compile(r"\(([^()|]*)\|[^()]*\)")  # sentence templates: the first alternative
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

    A message with half a surrogate pair, which JSON allows, becomes empty: it is not text and cannot be
    written.

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
    """Undo HTML entities. Undo none if one of them is a number without a character."""
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
    if letters <= 0.75 * solid:  # in Python, vowel signs of many scripts are marks, not letters
        letters += sum(unicodedata.category(character)[0] == "M" for character in piece)
    return letters > 0.75 * solid and (letters >= 6 or (letters >= 4 and width(piece) >= 8))


def width(piece: str) -> int:
    """Return the number of characters of a piece. Ideographs and similar characters count twice."""
    if piece.isascii():
        return len(piece)
    return len(piece) + sum(unicodedata.east_asian_width(one) == "W" for one in _PERHAPS_WIDE.findall(piece))


_ENDS = ".!?…։؟۔।॥።፧፨။།៕។᙮᠃⸮܀。！？｡"  # noqa: RUF001
# the end of a sentence: a stop, perhaps closing quotes, and a space, except after an ideographic stop
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
    """Yield parts of about equal width, cut at spaces if there are any."""
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
    """Join neighbours as long as they fit, and yield the results."""
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
        In the order of the file: short neighbours are joined.
    shortest, longest : int
        Pieces that stay shorter after joining are left out. Longer ones are cut.
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

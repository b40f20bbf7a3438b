"""Message catalogues in installed packages: find them, and read them without importing or running anything.

There are four formats: compiled (.mo) and plain (.po) gettext catalogues, JSON files of messages, and the
text samples in Google Fonts' language data (.textproto). Every reader takes bytes and returns pairs of the
original message (empty if the format has none) and its translation. A file in another format raises
ValueError.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from consilience.exceptions import InvalidInputError

MOST_BYTES = 16 * 2**20
"""Larger files are skipped: they are not message catalogues, or not to be trusted."""

Message = tuple[str, str]


@dataclass(frozen=True)
class Catalogue:
    """A file with messages that is not read yet.

    Attributes
    ----------
    package : str
        The package that the file belongs to.
    path : str
        The file's path inside the package.
    read : callable
        Returns its bytes.
    """

    package: str
    path: str
    read: Callable[[], bytes]

    def messages(self) -> list[Message]:
        """Return the messages in the order of the file. A broken file raises ValueError or OSError."""
        data = self.read()
        if len(data) > MOST_BYTES:
            raise ValueError(f"{self.path} has {len(data)} bytes")
        return READERS[PurePosixPath(self.path).suffix](data)


def installed(packages: Sequence[str] | None = None) -> list[Catalogue]:
    """Return the catalogues that installed packages list among their files.

    Parameters
    ----------
    packages : sequence of str, optional
        Names of packages. By default, all installed packages.
    """
    wanted = None if packages is None else {_normal(name) for name in packages}
    found: dict[tuple[str, str], Catalogue] = {}
    for one in metadata.distributions():
        name = _normal(one.name or "")
        if not name or (wanted is not None and name not in wanted):
            continue
        for path in one.files or ():
            if path.suffix in READERS and ".." not in path.parts:
                # an import would find the first of a name
                found.setdefault((name, str(path)), Catalogue(name, path.as_posix(), _opener(one, path)))
    return _choose(list(found.values()))


def in_wheels(folder: Path) -> list[Catalogue]:
    """Return the catalogues of the wheels in a folder. Nothing is installed or unpacked."""
    if not folder.is_dir():
        raise InvalidInputError(f"There is no folder {folder} with wheels.")
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise InvalidInputError(f"The folder {folder} holds no wheel, that is, no file that ends in .whl.")
    found = []
    for wheel in wheels:
        package = _normal(wheel.name.split("-")[0])
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if PurePosixPath(name).suffix in READERS]
                chosen = _choose([Catalogue(package, name, bytes) for name in names])
                # read while the archive is open: opening it for each of thousands of files takes minutes
                found += [Catalogue(package, one.path, _held(archive, one.path)) for one in chosen]
        except (OSError, zipfile.BadZipFile) as error:
            raise InvalidInputError(f"{wheel} cannot be read as a wheel: {error}.") from error
    return found


def _held(archive: zipfile.ZipFile, name: str) -> Callable[[], bytes]:
    with archive.open(name) as file:
        data = file.read(MOST_BYTES + 1)  # whatever size the directory claims
    return lambda: data


def _opener(one: metadata.Distribution, path: metadata.PackagePath) -> Callable[[], bytes]:
    def read() -> bytes:
        with Path(str(one.locate_file(path))).open("rb") as file:
            return file.read(MOST_BYTES + 1)

    return read


def _normal(name: str) -> str:
    """Return a package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


_TAG = re.compile(r"[a-z]{2,3}(?:[-_@][A-Za-z0-9]+)*")
_FEWEST_TAGS = 5  # this many files with language names in one folder are translations


def _choose(found: list[Catalogue]) -> list[Catalogue]:
    """Keep files with messages: every gettext file once, and JSON files that are named like languages."""
    paths = {(one.package, one.path) for one in found}
    tagged: dict[tuple[str, str], int] = {}
    for one in found:
        if _is_tagged(one.path, ".json"):
            folder = (one.package, str(PurePosixPath(one.path).parent))
            tagged[folder] = tagged.get(folder, 0) + 1
    kept = []
    for one in found:
        path = PurePosixPath(one.path)
        if path.suffix == ".po" and (one.package, str(path.with_suffix(".mo"))) in paths:
            continue  # the same messages, compiled
        if path.suffix == ".json" and (
            not _is_tagged(one.path, ".json") or tagged[one.package, str(path.parent)] < _FEWEST_TAGS
        ):
            continue
        if path.suffix == ".textproto" and "languages" not in path.parts:
            continue
        kept.append(one)
    return sorted(kept, key=lambda one: (one.package, one.path))


def _is_tagged(path: str, suffix: str) -> bool:
    name = PurePosixPath(path)
    return name.suffix == suffix and _TAG.fullmatch(name.stem) is not None


def read_mo(data: bytes) -> list[Message]:
    """Read a compiled gettext catalogue. Each plural form is a message."""
    if len(data) < 20:
        raise ValueError("too short for a .mo file")
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise ValueError("not a .mo file")
    _, count, originals, translations = struct.unpack(f"{order}4I", data[4:20])
    if max(originals, translations) + 8 * count > len(data):
        raise ValueError("the tables of the .mo file lie outside of it")
    entries = []
    total = 0
    for i in range(count):
        pair = []
        for table in (originals, translations):
            length, start = struct.unpack_from(f"{order}2I", data, table + 8 * i)
            if start + length > len(data):
                raise ValueError("a message of the .mo file lies outside of it")
            total += length
            if total > MOST_BYTES:  # a small file can name the same bytes a million times
                raise ValueError("the messages of the .mo file overlap")
            pair.append(data[start : start + length])
        entries.append(pair)
    coding = next((_charset(text.decode("latin-1")) for key, text in entries if not key), "utf-8")
    return [
        (original, form)
        for key, text in entries
        if key
        for original in [_decode(key, coding).split("\x04")[-1].split("\0")[0]]
        for form in _decode(text, coding).split("\0", _MOST_FORMS)
    ]


_MOST_FORMS = 8  # plural forms: Arabic has six
_PO_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr)(?:\[\d+\])?\s*(".*")')


def read_po(data: bytes) -> list[Message]:
    """Read a plain gettext catalogue without its header and its fuzzy, obsolete and empty entries."""
    text = _decode(data, _charset(data[:4096].decode("latin-1")))
    found: list[Message] = []
    for fields in _po_entries(text):
        entry = [(name, "".join(lines)) for name, lines in fields]
        original = next((value for name, value in entry if name == "msgid"), "")
        if original and ("fuzzy", "") not in entry:
            found.extend((original, value) for name, value in entry if name == "msgstr" and value)
    return found


def _po_entries(text: str) -> Iterator[list[tuple[str, list[str]]]]:
    """Yield the fields of each entry and their values by line, and "fuzzy" for unchecked entries."""
    entry: list[tuple[str, list[str]]] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        match = _PO_LINE.fullmatch(line)
        begins = line.startswith("#") or (match is not None and match[1] in ("msgctxt", "msgid"))
        if begins and entry and entry[-1][0] == "msgstr":
            yield entry
            entry = []
        if match:
            entry.append((match[1], [_unquote(match[2])]))
        elif line.startswith("#,") and "fuzzy" in line:
            entry.append(("fuzzy", []))
        elif len(line) > 1 and line[0] == line[-1] == '"' and entry:
            entry[-1][1].append(_unquote(line))
        elif line and not line.startswith("#"):
            raise ValueError(f"line {number} is not of a .po file")
    if entry:
        yield entry


def read_json(data: bytes) -> list[Message]:
    """Read all strings of a JSON file, at any depth. Skip keys that begin with "@": they hold metadata."""
    try:
        top = json.loads(data.decode("utf-8-sig"))
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    found: list[Message] = []
    left = [top]
    while left:
        value = left.pop()
        if isinstance(value, str):
            if not _TAG.fullmatch(value):  # names of languages and the like
                found.append(("", value))
        elif isinstance(value, list):
            left.extend(reversed(value))
        elif isinstance(value, dict):
            left.extend(reversed([one for key, one in value.items() if not key.startswith("@")]))
    return found


_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_FIELD = re.compile(rf"^[ \t]*(\w+)[ \t]*:\s*({_QUOTED}(?:\s*{_QUOTED})*)", re.M)
_SAMPLES = re.compile(r"^sample_text[ \t]*(?::[ \t]*)?\{", re.M)
_STRING = re.compile(_QUOTED)


def read_textproto(data: bytes) -> list[Message]:
    """Read a language's sample texts in Google Fonts' data. Skip those with a single word."""
    text = data.decode("utf-8")
    begins = _SAMPLES.search(text)
    ends = text.find("\n}", begins.end()) if begins else -1
    if begins is None or ends < 0:
        return []
    return [
        ("", "".join(_unquote(part) for part in _STRING.findall(value)))
        for name, value in _FIELD.findall(text, begins.end(), ends)
        if not name.startswith(("masthead", "poster"))
    ]


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.S)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "f": "\n", "v": "\n"}


def _unquote(literal: str) -> str:
    """Return the text between quotes with its escapes undone. Octal and hex bytes are UTF-8."""
    body = literal[1:-1]
    if "\\" not in body:
        return body

    def undo(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "x" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _ESCAPES.get(code, code)

    if not re.search(r"\\[0-7x]", body):
        return _ESCAPE.sub(undo, body)
    raw = "".join(chr(byte) for byte in body.encode())
    return _ESCAPE.sub(undo, raw).encode("latin-1").decode("utf-8", "replace")


def _charset(header: str) -> str:
    match = re.search(r"charset=([\w.:-]+)", header)
    return match[1] if match and match[1] != "CHARSET" else "utf-8"


def _decode(data: bytes, coding: str) -> str:
    try:
        if codecs.lookup(coding).name in ("idna", "punycode"):  # meant for host names; slow on longer texts
            raise ValueError(f"{coding} is no character set")
        return data.decode(coding)
    except LookupError as error:  # an unknown codec
        raise ValueError(str(error)) from error


READERS: dict[str, Callable[[bytes], list[Message]]] = {
    ".mo": read_mo,
    ".po": read_po,
    ".json": read_json,
    ".textproto": read_textproto,
}


def grouped(found: Sequence[Catalogue]) -> Iterator[list[Catalogue]]:
    """Yield the catalogues by folder: JSON files in one folder have the same messages in many languages."""
    group: list[Catalogue] = []
    for one in found:
        here = (one.package, str(PurePosixPath(one.path).parent))
        if group and here != (group[0].package, str(PurePosixPath(group[0].path).parent)):
            yield group
            group = []
        group.append(one)
    if group:
        yield group

"""Message catalogues: what gettext, json and protobuf write is read; what is broken is refused."""

import gettext
import io
import json
import struct
import time
import zipfile
from pathlib import Path

import pytest
from examples.language_identification import catalogues
from examples.language_identification.catalogues import read_json, read_mo, read_po, read_textproto
from hypothesis import given
from hypothesis import strategies as st

from consilience.exceptions import InvalidInputError


def write_mo(messages: dict[str, str], order: str = "<") -> bytes:
    """Write a .mo file as the format's description has it."""
    entries = sorted((key.encode(), value.encode()) for key, value in messages.items())
    head = 28
    tables, strings = [b"", b""], b""
    start = head + 16 * len(entries)
    for column in (0, 1):
        for entry in entries:
            tables[column] += struct.pack(f"{order}2I", len(entry[column]), start + len(strings))
            strings += entry[column] + b"\0"
    first = struct.pack(f"{order}7I", 0x950412DE, 0, len(entries), head, head + 8 * len(entries), 0, start)
    return first + b"".join(tables) + strings


MESSAGES = {
    "": "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n != 1;\n",
    "Open": "Öffnen",
    "menu\x04Close": "Schließen",
    "one file\0many files": "eine Datei\0viele Dateien",
}


@pytest.mark.parametrize("order", ["<", ">"])
def test_compiled_catalogues_are_read_as_gettext_reads_them(order: str) -> None:
    data = write_mo(MESSAGES, order)
    found = read_mo(data)
    assert sorted(found) == [
        ("Close", "Schließen"),
        ("Open", "Öffnen"),
        ("one file", "eine Datei"),
        ("one file", "viele Dateien"),
    ]
    peer = gettext.GNUTranslations(io.BytesIO(data))  # not our code
    assert ("one file", peer.ngettext("one file", "many files", 2)) in found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing of the kind, though it is long enough",
        write_mo(MESSAGES)[:40],
        write_mo(MESSAGES)[:-30],
        struct.pack("<7I", 0x950412DE, 0, 2**31, 28, 28, 0, 0),
        write_mo({"": "charset=no-such-codec\n", "a": "b"}),
        write_mo({"": "charset=hex\n", "a": "b"}),  # a codec that is not of text
        write_mo({"a": "b"}).replace(b"b\0", b"\xff\0"),
    ],
)
def test_broken_compiled_catalogues_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_mo(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_raise_value_error(data: bytes) -> None:
    for read in catalogues.READERS.values():
        for start in (b"", b"\xde\x12\x04\x95\0\0\0\0", b'msgid "a"\nmsgstr "', b"["):
            try:
                found = read(start + data)
            except ValueError:  # which decoding errors and JSON errors are, too
                continue
            assert all(isinstance(text, str) for pair in found for text in pair)


PO = r"""
# a comment
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: file.py:3
msgid "Open \"it\""
msgstr "\"Es\" "
"öffnen\n"

#, fuzzy, python-format
msgid "Guessed"
msgstr "Geraten"

msgctxt "menu"
msgid "Close"
msgstr "Schließen"
msgid "one"
msgid_plural "many"
msgstr[0] "eins"
msgstr[1] "viele"

msgid "Untranslated"
msgstr ""

#~ msgid "Old"
#~ msgstr "Alt"
"""


def test_plain_catalogues_are_read_without_what_nobody_checked() -> None:
    assert read_po(PO.encode()) == [
        ('Open "it"', '"Es" öffnen\n'),
        ("Close", "Schließen"),
        ("one", "eins"),
        ("one", "viele"),
    ]


@pytest.mark.parametrize("text", ["<html>", 'msgid "a"\nmsgstr "b"\nnonsense', '"no field"'])
def test_broken_plain_catalogues_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not of a \.po file"):
        read_po(text.encode())


def test_strings_of_json_are_read_in_order_without_authors_and_tags() -> None:
    data = {"@metadata": {"authors": ["Me"]}, "language": "de-CH", "a": "eins", "b": [{"c": "zwei"}, 3, None]}
    assert read_json(json.dumps(data).encode()) == [("", "eins"), ("", "zwei")]
    with pytest.raises(ValueError, match="deeply nested"):
        read_json(b"[" * 100_000)


def test_wheels_are_read_where_they_lie(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "Some_Pack.age-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("pack/locale/de/LC_MESSAGES/a.mo", write_mo(MESSAGES))
        archive.writestr("pack/locale/de/LC_MESSAGES/a.po", PO)  # the same, not compiled
        archive.writestr("pack/locale/fr/LC_MESSAGES/a.po", PO)
        for tag in ("de", "en", "pt-br", "zh_Hant", "mhr"):
            archive.writestr(f"pack/i18n/{tag}.json", '{"a": "text"}')
        archive.writestr("pack/i18n/package.json", "{}")
        archive.writestr("pack/two/de.json", "{}")  # too few to be translations
        archive.writestr("pack/two/fr.json", "{}")
        archive.writestr("pack/regions/DE.textproto", "")
    found = catalogues.in_wheels(tmp_path)
    assert {one.package for one in found} == {"some-pack-age"}
    assert [one.path for one in found] == [
        *(f"pack/i18n/{tag}.json" for tag in ("de", "en", "mhr", "pt-br", "zh_Hant")),
        "pack/locale/de/LC_MESSAGES/a.mo",
        "pack/locale/fr/LC_MESSAGES/a.po",
    ]
    assert [len(group) for group in catalogues.grouped(found)] == [5, 1, 1]
    assert ("Close", "Schließen") in found[-1].messages()
    (tmp_path / "broken-1-py3-none-any.whl").write_bytes(b"no zip")
    with pytest.raises(InvalidInputError, match=r"broken-1.*cannot be read as a wheel"):
        catalogues.in_wheels(tmp_path)


SAMPLES = b"sample_text {\n"
OVERLAPPING = (
    b"\xde\x12\x04\x95"
    + struct.pack("<4I", 0, 20_000, 20, 20)
    + struct.pack("<2I", 200_000, 20 + 8 * 20_000) * 20_000
    + b"y" * 200_000
)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_textproto, SAMPLES * 100_000),
        (read_textproto, SAMPLES + b"\n" * 1_000_000 + b"\n}"),
        (read_textproto, b"sample_text" + b" " * 1_000_000),
        (read_textproto, SAMPLES + b"a" + b" " * 1_000_000 + b"\n}"),
        (read_textproto, SAMPLES + b' a: "x"' + b"\n" * 1_000_000 + b"\n}"),
        (read_po, b'msgid "a"\nmsgstr ""\n' + b'"abcdefgh"\n' * 200_000),
        (read_po, b"#charset=punycode\n#" + b"-" + b"a" * 1_000_000),
        (read_mo, OVERLAPPING),
        (read_mo, write_mo({"a": "\0" * 2_000_000})),
    ],
)
def test_hostile_files_take_neither_time_nor_memory(read, data: bytes) -> None:
    start = time.perf_counter()
    try:
        found = read(data)
    except ValueError:
        found = []
    assert time.perf_counter() - start < 3
    assert len(found) < 10

"""Messages become sentence-sized text: nothing of a program is left, and nothing of a language is lost."""

import time

import pytest
from examples.language_identification.cleaning import (
    JOINED,
    MOST_CHARACTERS,
    clean,
    cut,
    is_text,
    pieces,
    width,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("%(count)d of %s files, 100%%", "of files, 100"),
        ("%1$s hat %2$.2f gesagt", "hat gesagt"),
        ("{{PLURAL:%(n)d|a page|%(n)d pages}} saved", "pages saved"),
        ("See [[Special:Log|the log]] and {{SITENAME}}", "See the log and"),
        ("<a href='x'>Klick</a> hier &amp; da", "Klick hier & da"),
        ("&Datei", "Datei"),
        ("ファイル(&F)", "ファイル"),
        ("_Öffnen…", "Öffnen…"),
        ("Use --verbose with `code` and ``more``", "Use with and"),
        ("visit https://example.org/a?b=c now", "visit now"),
        ("mail me@example.org now", "mail now"),
        ("set MAX_SIZE in /etc/app/conf.d now", "set in now"),
        ("'''Fett''' == Titel ==", "Fett Titel"),
        ("[please] turn (on|off) the {name} <area>", "please turn on the"),
        ("{% if x %}eins{% endif %} {{ a }} zwei", "eins zwei"),
        ("line\\nother\nthird", "line other third"),
        ("(nicht geschlossen", "nicht geschlossen"),
        ("n\u2019nilove l'état", "n\u2019nilove l'état"),
        ("e\u0301te\u0301", "été"),
    ],
)
def test_placeholders_and_markup_go(message: str, text: str) -> None:
    assert clean(message) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Eins. Zwei! Drei?", ["Eins.", "Zwei!", "Drei?"]),
        ("一句话。另一句话。", ["一句话。", "另一句话。"]),
        ("यह एक है। वह दो है।", ["यह एक है।", "वह दो है।"]),
        ("هذا واحد؟ نعم.", ["هذا واحد؟", "نعم."]),
        ("version 1.5 is out", ["version 1.5 is out"]),
    ],
)
def test_sentences_end_in_any_script(text: str, parts: list[str]) -> None:
    assert cut(text) == parts


@given(st.text(alphabet=st.sampled_from("ab .,中文。é"), max_size=400), st.integers(20, 130))
def test_pieces_are_short_enough_and_lose_no_letter(text: str, longest: int) -> None:
    parts = cut(text, longest)
    assert all(part and width(part) <= longest for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_short_messages_are_joined_with_their_neighbours() -> None:
    joined = list(pieces(["Datei", "Öffnen", "Öffnen", "Schließen", "42", "Alles auswählen", "Ja", "Nein"]))
    assert joined == ["Datei, Öffnen, Schließen, Alles auswählen"]
    assert width(joined[0]) >= JOINED
    assert list(pieces(["Ja.", "Das ist gut so.", "Nein"])) == ["Das ist gut so."]
    alone = ["Alles auswählen", "Neues Fenster"]
    assert list(pieces(alone, join=False)) == alone


@given(st.lists(st.text(max_size=60), max_size=20))
def test_every_piece_is_sentence_sized_text(messages: list[str]) -> None:
    for piece in pieces(messages):
        assert 10 <= width(piece) <= 120
        assert is_text(piece)
        assert "\n" not in piece


@pytest.mark.parametrize(
    "part",
    [
        "[[",
        "[[a|",
        "{%",
        "{% a ",
        "%(",
        "%(a",
        "%(a)0",
        "a",
        "a@",
        "(a|",
        "{{PLURAL:x|a|",
        "a_",
        "`",
        "<",
        "/a",
    ],
)
def test_hostile_messages_take_no_time(part: str) -> None:
    message = part * 100_000
    start = time.perf_counter()
    for hostile in (
        message,
        f"%(a){'0' * 100_000} @",
        message[: MOST_CHARACTERS - 2] + " @",
        "(a|" * 5000 + ")" * 5000,
    ):
        list(pieces([hostile]))
    assert time.perf_counter() - start < 2

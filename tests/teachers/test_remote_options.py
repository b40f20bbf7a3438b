"""Teachers behind an address: addresses, options and endpoint files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.teachers.remote_server import CLASSES, Server, check

from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.card import Card, write_card
from consilience.teachers import Remote, as_teacher

pytest.importorskip("httpx")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://user:word@host/v2/models/m", "user or a password"),
        ("https://host/models/m", "none of a model"),
        ("https://host/v2/models/m?x=1", "none of a model"),
        ("https://host:port/v2/models/m", "none of a model"),
        ("file:///v2/models/m", "ends in"),
        ("ftp://host/v2/models/m", "ends in"),
    ],
)
def test_addresses_that_are_refused(address: str, words: str) -> None:
    with pytest.raises(TeacherError, match=words):
        as_teacher(address)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"in_flight": 0}, {"retries": -1}, {"max_bytes": "x"}, {"token_env": ""}]
)
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        RemoteOptions(**options)


class TestEndpointFile:
    def test_address_options_and_card(self, url: str, zoo: Server, tmp_path: Path) -> None:
        file = tmp_path / "beasts.toml"
        file.write_text(f'url = "{url}"\nin_flight = 2\n')
        teacher = as_teacher(file)
        assert (teacher.name, teacher.classes.tolist(), teacher.file) == ("beasts", CLASSES, file)
        check(teacher)
        write_card(tmp_path / "beasts.card.json", Card("ours", ["x", "y", "z"], "probabilities"))
        teacher = as_teacher(file)
        assert (teacher.name, teacher.classes.tolist()) == ("ours", ["x", "y", "z"])

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("", "needs an address"),
            ('url = "birds.onnx"', "needs an address"),
            ("url = ", "not TOML"),
            ('url = "http://127.0.0.1/v2/models/m"\ncolour = 1', "'colour' in it.toml"),
            ('url = "http://127.0.0.1/v2/models/m"\ntoken_env = "HOME"', "must begin with CONSILIENCE_"),
            ('url = "http://127.0.0.1/v2/models/m"\ntimeout = "long"', "cannot be used: timeout"),
        ],
    )
    def test_what_is_wrong(self, tmp_path: Path, content: str, words: str) -> None:
        (tmp_path / "it.toml").write_text(content)
        with pytest.raises(TeacherError, match=words):
            as_teacher(tmp_path / "it.toml")

"""Addresses of models behind a server."""

from __future__ import annotations

import pytest

from consilience.exceptions import TeacherError
from consilience.teachers import as_teacher
from consilience.teachers.remote import address_name, parse_address


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
    with pytest.raises(TeacherError, match=words) as caught:
        as_teacher(address)
    assert "host/" not in str(caught.value) or words == "ends in"


def test_parts() -> None:
    found = parse_address("HTTPS://host:8443/zoo/v2/models/birds/versions/3/")
    assert found.server == "https://host:8443/zoo/v2"
    assert found.url == "https://host:8443/zoo/v2/models/birds/versions/3"
    assert (found.model, found.version, found.plain) == ("birds", "3", False)
    assert address_name("http://host/v2/models/birds") == "birds"
    plain = {
        host: parse_address(f"http://{host}/v2/models/m").plain for host in ("host", "[::1]", "127.0.0.9")
    }
    assert plain == {"host": True, "[::1]": False, "127.0.0.9": False}

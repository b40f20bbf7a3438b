"""Addresses of models behind a server."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from consilience.exceptions import TeacherError

_SCHEME = re.compile(r"(https?):/{1,2}(?=[^/])", re.IGNORECASE)  # a Path leaves one slash of two
_PATH = re.compile(r"(?P<prefix>.*/v2)/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/?")


@dataclass(frozen=True)
class Address:
    """The parts of an endpoint's address.

    Attributes
    ----------
    server : str
        The address of the server's own metadata, which ends in ``/v2``.
    url : str
        The address of the model, with its version if one is given.
    model : str
    version : str or None
    plain : bool
        Whether what is sent could be read on its way: http to another machine.
    """

    server: str
    url: str
    model: str
    version: str | None
    plain: bool


def is_address(obj: object) -> bool:
    """Tell whether something is an address of HTTP, as a text or as a path.

    Examples
    --------
    >>> is_address("https://host/v2/models/birds"), is_address("birds.onnx")
    (True, False)
    """
    return isinstance(obj, str | os.PathLike) and _SCHEME.match(str(os.fspath(obj))) is not None


def parse_address(obj: str | os.PathLike[str], name: str | None = None) -> Address:
    """Return the parts of an address, or say what is wrong with it; the message has no host."""
    text = _SCHEME.sub(lambda found: f"{found[1].lower()}://", os.fspath(obj), count=1)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    found = _PATH.fullmatch(parts.path)
    shown = name or (found["model"] if found else "endpoint")
    if "@" in parts.netloc:
        raise TeacherError(
            shown,
            "has a user or a password in its address. Take it out, and name a variable that holds a bearer "
            "token: Remote(token_env=...).",
        )
    if not host or found is None or parts.query or parts.fragment:
        raise TeacherError(
            shown,
            "has an address that is none of a model. Give https://HOST/v2/models/NAME, or "
            "https://HOST/v2/models/NAME/versions/VERSION.",
        )
    root, url = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    plain = parts.scheme == "http" and not _is_loopback(host)
    return Address(root + found["prefix"], root + url, found["model"], found["version"], plain)


def address_name(obj: str | os.PathLike[str]) -> str:
    """Return the name of the model in an address."""
    return parse_address(obj).model


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

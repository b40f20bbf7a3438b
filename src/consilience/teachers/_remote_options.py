"""Where a remote teacher is, and how it is asked."""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from consilience._sizes import parse_size
from consilience._validation import check_count, check_number
from consilience.exceptions import InvalidInputError, TeacherError

TOKEN_PREFIX = "CONSILIENCE_"  # noqa: S105  # a name of variables, not a secret
"""Variables that an endpoint file may name begin so: a file of a stranger must not send another secret."""
_MOST_BYTES = 2**20  # of an endpoint file
_SCHEME = re.compile(r"(https?):/{1,2}(?=[^/])", re.IGNORECASE)  # a Path leaves one slash of two
_PATH = re.compile(r"(?P<prefix>.*/v2)/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/?")


@dataclass(frozen=True)
class RemoteOptions:
    """How a teacher behind an HTTP endpoint is asked.

    Parameters
    ----------
    token_env : str, optional
        The name of an environment variable that holds a bearer token. The token is read for each call, and
        is kept nowhere.
    connect_timeout : float
        Most seconds until a connection is open.
    read_timeout : float
        Most seconds of silence.
    timeout : float
        Most seconds of a request in all.
    in_flight : int
        Most requests at a time.
    max_bytes : int or str
        Most bytes of an answer, such as ``"64MB"``.
    retries : int
        How often a request is repeated after 429, 5xx or a lost connection; after a time-out, once at most.
    ca_file : path, optional
        Certificates to trust instead of the system's.
    output_name : str, optional
        The output that holds the scores, where the server's metadata leave it open.

    Examples
    --------
    >>> RemoteOptions(token_env="BIRDS_TOKEN", in_flight=2).in_flight
    2
    """

    token_env: str | None = None
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    timeout: float = 120.0
    in_flight: int = 4
    max_bytes: int | str = 64 * 2**20
    retries: int = 4
    ca_file: str | os.PathLike[str] | None = None
    output_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "read_timeout", "timeout"):
            object.__setattr__(self, name, check_number(name, getattr(self, name), above=0))
        check_count("in_flight", self.in_flight, at_most=256)
        check_count("retries", self.retries, at_least=0, at_most=100)
        object.__setattr__(self, "max_bytes", parse_size("max_bytes", self.max_bytes))
        for name in ("token_env", "output_name"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise InvalidInputError("{argument} must be a name.", argument=name, value=value)

    @property
    def most_bytes(self) -> int:
        """`max_bytes` as a number."""
        return int(self.max_bytes)


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


def is_address(obj: Any) -> bool:
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
            "token: RemoteOptions(token_env=...).",
        )
    if not host or found is None or parts.query or parts.fragment:
        raise TeacherError(
            shown,
            "has an address that is none of a model. Give https://HOST/v2/models/NAME, or "
            "https://HOST/v2/models/NAME/versions/VERSION.",
        )
    root = f"{parts.scheme}://{parts.netloc}"
    url = f"{root}{parts.path.rstrip('/')}"
    plain = parts.scheme == "http" and not _is_loopback(host)
    return Address(root + found["prefix"], url, found["model"], found["version"], plain)


def address_name(obj: str | os.PathLike[str]) -> str:
    """Return the name of the model in an address."""
    return parse_address(obj).model


def read_endpoint(path: Path, name: str) -> tuple[str, RemoteOptions]:
    """Return the address and the options in an endpoint file, or say what is wrong with it.

    The file is TOML: ``url``, and any of the options by their names. A ca_file is relative to its folder. The
    variable of a token must begin with CONSILIENCE_, so that a file of a stranger cannot ask for others.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise TeacherError(name, f"has an endpoint file of more than {_MOST_BYTES} bytes.")
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise TeacherError(
            name, f"has the endpoint file {path.name}, which is not TOML ({reason})."
        ) from error
    url, known = content.pop("url", None), [field.name for field in fields(RemoteOptions)]
    if not isinstance(url, str) or not is_address(url):
        raise TeacherError(name, f'needs an address in {path.name}: url = "https://HOST/v2/models/NAME".')
    unknown = [key for key in content if key not in known]
    if unknown:
        raise TeacherError(name, f"has {unknown[0]!r} in {path.name}; it takes url, {', '.join(known)}.")
    variable = content.get("token_env")
    if isinstance(variable, str) and not variable.startswith(TOKEN_PREFIX):
        raise TeacherError(
            name,
            f"has token_env = {variable!r} in {path.name}. In a file, its name must begin with "
            f"{TOKEN_PREFIX}, so that no file can send another secret away.",
        )
    if isinstance(content.get("ca_file"), str):
        content["ca_file"] = str(path.parent / content["ca_file"])
    try:
        return url, RemoteOptions(**content)
    except InvalidInputError as error:
        raise TeacherError(name, f"has an option in {path.name} that cannot be used: {error}") from error


def read_token(options: RemoteOptions, name: str) -> str | None:
    """Return the token, or None; no message ever holds it."""
    if options.token_env is None:
        return None
    token = os.environ.get(options.token_env, "").strip()
    if not token:
        raise TeacherError(name, f"needs a token, and the variable {options.token_env} is empty or not set.")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise TeacherError(name, f"needs a token, and that in {options.token_env} has unfit characters.")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

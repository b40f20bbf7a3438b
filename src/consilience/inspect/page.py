"""Write a page: one file that needs no network, escapes all data, and works without its script."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing
from consilience.files.readers import check_target
from consilience.inspect.drawing import draw, draw_bar

NUMERIC = ("count", "place", "percent", "number")  # forms of columns that are sorted by number


def check_report(path: str | os.PathLike[str], option: str = "report") -> Path:
    """Return the path of a page, or raise if it could not be written there. Call this before long work.

    Parameters
    ----------
    path : path
        A file name that ends in ``.html``, in a folder that exists.
    option : str
        What to call it in an error.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError("{argument} must be the path of a file.", argument="path", value=path)
    target = Path(path)
    check_target(target, (".html",), option)
    require("jinja2", extra="report", purpose="A report")
    return target


def write_page(path: Path, page: Mapping[str, Any]) -> Path:
    """Write a page of `consilience.inspect.blocks.page` atomically, and return its path."""
    text = render_page(page)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def render_page(page: Mapping[str, Any]) -> str:
    """Return a page as HTML.

    Jinja escapes every text. Only the drawings, the style sheet and the script are put in as they are: the
    first escape what they draw, the others are ours. A policy in the page allows these two by their hashes,
    and nothing else.
    """
    jinja2 = require("jinja2", extra="report", purpose="A report")
    from markupsafe import Markup

    folder = files("consilience.inspect") / "templates"
    style, script = ((folder / name).read_text(encoding="utf8") for name in ("page.css", "page.js"))
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = as_text
    return str(
        environment.get_template("page.html").render(
            page=page,
            numeric=NUMERIC,
            draw=lambda block: Markup(draw(block)),  # noqa: S704  drawings escape their texts
            draw_bar=lambda share, most: Markup(draw_bar(share, most)),  # noqa: S704  only numbers
            style=Markup(style),  # noqa: S704  ours
            script=Markup(script),  # noqa: S704  ours
            style_hash=_hash(style),
            script_hash=_hash(script),
        )
    )


def as_text(value: Any, form: str) -> str:
    """Return the value of a cell as text.

    Examples
    --------
    >>> as_text(0.1234, "percent"), as_text(1234, "count"), as_text(None, "number")
    ('12.3%', '1,234', '')
    """
    if value is None:
        return ""
    if form == "percent":
        return f"{100 * value:.1f}%"
    if form == "count":
        return f"{value:,}"
    return f"{value:.4g}" if form == "number" else str(value)


def _hash(text: str) -> str:
    """Return the hash by which the page's policy knows its own style sheet and script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

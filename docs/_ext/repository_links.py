"""Lead links to files outside `docs/` to their place in the site.

On a code host, ``[Contributing](../CONTRIBUTING.md)`` opens the file. In the site it opens the page that
includes it. A link within an included file starts at that file's folder, so it is written anew for the page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PAGES = {  # a file of the repository, and the page that includes it or stands for it
    "README.md": "docs/index.md",
    "CHANGELOG.md": "docs/changelog.md",
    "CONTRIBUTING.md": "docs/contributing.md",
    "SECURITY.md": "docs/security.md",
    "examples/language_identification/README.md": "docs/language-identification.md",
}
GALLERY = re.compile(r"examples/gallery/(plot_\w+)\.py")  # a program, and the page that shows what it draws
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def page_of(path: str) -> str | None:
    """Return the page that stands for a file of the repository, if there is one."""
    drawn = GALLERY.fullmatch(path)
    return f"docs/gallery/{drawn[1]}.rst" if drawn else PAGES.get(path)


def links_for(text: str, folder: Path, page_folder: Path, root: Path) -> str:
    """Return Markdown of a file in `folder` with links that hold in a page of `page_folder`."""

    def led(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match[1]))
        known = page_of(os.path.relpath(target, root))
        if known is None and folder == page_folder:
            return match[1]
        return os.path.relpath(root / known if known else target, page_folder)

    return LINK.sub(led, text)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Change the links of a page as it is read."""
    if app.env.doc2path(name).suffix == ".md":
        folder = (app.srcdir / name).parent
        source[0] = links_for(source[0], folder, folder, app.srcdir.parent)


def read_included(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Change the links of a file that a page includes."""
    if path.suffix == ".md":
        page_folder = (app.srcdir / parent).parent
        folder = (app.srcdir / path).resolve().parent
        content[0] = links_for(content[0], folder, page_folder, app.srcdir.parent)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to what Sphinx reads."""
    app.connect("source-read", read)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

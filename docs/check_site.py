"""Check a built site: every link within it leads somewhere, and no page loads anything from elsewhere.

Run ``python docs/check_site.py build/site``. It prints what is wrong, and then ends with exit code 1.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {  # what a browser fetches to show a page
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
}
LOADING_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}
IN_STYLES = re.compile(r"""@import\s+["']?(?:https?:)?//|url\(\s*["']?(?:https?:)?//[^)]*""", re.IGNORECASE)


class Page(HTMLParser):
    """The anchors of a page, where it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag says."""
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag == "link" and "href" in given and LOADING_LINKS & set(given.get("rel", "").split()):
            self.loads.add(given["href"])
        self.loads.update(given[name] for name in LOADED.get(tag, ()) if name in given)


@cache
def read(path: Path) -> Page:
    """Return what is in a page."""
    return Page(path.read_text(encoding="utf-8"))


def problem(page: Path, target: str, root: Path) -> str | None:
    """Return what is wrong with a link of a page to a place in the site, or None."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
    if path.is_dir():
        path /= "index.html"
    if not path.is_relative_to(root.resolve()):
        return f"{target} leads out of the site"
    if not path.exists():
        return f"{target} does not exist"
    anchor = unquote(parts.fragment)
    if anchor and path.suffix == ".html" and anchor not in read(path).anchors:
        return f"{target}: {path.name} has no #{anchor}"
    return None


def problems(root: Path) -> list[str]:
    """Return what is wrong with a site, a line each."""
    found = []
    for page in sorted(root.rglob("*.html")):
        if "_static" in page.relative_to(root).parts:
            continue  # parts of the theme, not pages
        name = page.relative_to(root)
        for target in sorted(read(page).links | read(page).loads):
            wrong = problem(page, target, root)
            if wrong is not None:
                found.append(f"{name}: {wrong}")
        for target in sorted(read(page).loads):
            if urlsplit(target).netloc:
                found.append(f"{name}: loads {target}")
    for style in sorted(root.rglob("*.css")):
        for match in IN_STYLES.finditer(style.read_text(encoding="utf-8")):
            found.append(f"{style.relative_to(root)}: loads {match[0][:80]}")
    return found


def main(arguments: list[str]) -> int:
    """Check the site in a folder."""
    root = Path(arguments[0])
    pages = sum(1 for _ in root.rglob("*.html"))
    found = problems(root)
    print("\n".join(found) if found else f"{pages} pages: all links within the site lead somewhere.")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

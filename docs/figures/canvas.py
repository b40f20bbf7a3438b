"""A small SVG writer for the pictures of the site.

A picture brings its own panel and its own colours for light and dark. So it can be read wherever it is shown:
on the site, on a code host, or alone in a browser.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; lighter ones on dark
_STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
.panel{fill:#fff}.box{fill:#f3f5f7;stroke:#c3cad2;stroke-width:1.5}.ink{fill:#1b2127}.dim{fill:#525c66}
.rule{stroke:#c3cad2;stroke-width:1.5;fill:none}.axis{stroke:#525c66;stroke-width:1.5;fill:none}
.blue{fill:#0072b2}.orange{fill:#b85000}.green{fill:#00795a}.purple{fill:#92467f}.grey{fill:#d5dae0}
.blue-line{stroke:#0072b2}.orange-line{stroke:#b85000}.green-line{stroke:#00795a}.grey-line{stroke:#7b858f}
.on{fill:#fff}
@media (prefers-color-scheme:dark){
.panel{fill:#161b22}.box{fill:#222a33;stroke:#45505c}.ink{fill:#e8ecf0}.dim{fill:#a9b3bd}
.rule{stroke:#45505c}.axis{stroke:#a9b3bd}
.blue{fill:#56b4e9}.orange{fill:#e69f00}.green{fill:#2fc493}.purple{fill:#d98cba}.grey{fill:#3a444f}
.blue-line{stroke:#56b4e9}.orange-line{stroke:#e69f00}.green-line{stroke:#2fc493}.grey-line{stroke:#8d97a2}
.on{fill:#10151b}
}
"""


class Canvas:
    """A picture of fixed size, made from shapes that name a colour instead of having one.

    Parameters
    ----------
    width, height : float
    title : str
        What the picture shows, for people who cannot see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, size: float = 22, kind: str = "ink", anchor: str = "start",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Write `words` with their baseline at y."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{_number(x)}" y="{_number(y)}" class="{kind}" font-size="{size}" '
            f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, *, kind: str = "box", round_by: float = 8
    ) -> None:
        """Draw a rectangle."""
        self._parts.append(
            f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}" '
            f'rx="{round_by}" class="{kind}"/>'
        )

    def dot(self, x: float, y: float, radius: float, *, kind: str = "blue") -> None:
        """Draw a disc."""
        self._parts.append(
            f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" class="{kind}"/>'
        )

    def path(self, path: str, *, kind: str, opacity: float = 1.0) -> None:
        """Draw a filled path."""
        self._parts.append(f'<path d="{path}" class="{kind}" opacity="{opacity}"/>')

    def line(
        self, points: Iterable[tuple[float, float]], *, kind: str = "axis", width: float = 2.5,
        dashes: str = "", closed: bool = False,
    ) -> None:  # fmt: skip
        """Draw straight pieces from point to point."""
        steps = " L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<path d="M{steps}{"Z" if closed else ""}" class="{kind}" fill="none" '
            f'style="stroke-width:{width}"{dashed}/>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, kind: str = "dim") -> None:
        """Draw a thick arrow that points right."""
        self.path(
            f"M{_number(x)} {_number(y - 5)}H{_number(to_x - 18)}V{_number(to_y - 15)}"
            f"L{_number(to_x)} {_number(to_y)}L{_number(to_x - 18)} {_number(to_y + 15)}"
            f"V{_number(y + 5)}H{_number(x)}Z",
            kind=kind,
        )

    def chip(self, x: float, y: float, word: str, *, kind: str, size: float = 21) -> float:
        """Draw a word on a coloured plate, and return where the next one may begin."""
        width = 0.56 * size * len(word) + 22
        self.box(x, y, width, size + 15, kind=kind, round_by=6)
        self.text(x + width / 2, y + size + 3, word, size=size, kind="on", anchor="middle")
        return x + width + 10

    def svg(self) -> str:
        """Return the file."""
        shapes = "\n".join(self._parts)
        size = f"{_number(self.width)} {_number(self.height)}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_STYLE}</style>\n"
            f'<rect width="100%" height="100%" rx="12" class="panel"/>\n{shapes}\n</svg>\n'
        )


def _number(value: float) -> str:
    """Write a coordinate to a tenth of a pixel, so that the last bits of a machine do not show."""
    return f"{round(float(value), 1) + 0.0:g}"

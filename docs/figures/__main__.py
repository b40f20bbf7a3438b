"""Draw the pictures of the site: ``python -m docs.figures`` writes them next to this file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.figures import label_space, overview, ranks, simplex, transport

FOLDER = Path(__file__).parent
FIGURES: dict[str, Callable[[], str]] = {
    "overview.svg": overview.draw,
    "label-space.svg": label_space.draw,
    "ranks.svg": ranks.draw,
    "plans.svg": transport.draw_plans,
    "convergence.svg": transport.draw_convergence,
    "simplex.svg": simplex.draw,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in FIGURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf8")


if __name__ == "__main__":
    main()

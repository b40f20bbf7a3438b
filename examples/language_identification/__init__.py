"""Six language identifiers that nobody here made become one; see README.md.

What the commands take by default stands here, where looking at it loads nothing.
"""

from pathlib import Path

MODEL = Path("lid.npz")
CACHE = Path("lid-scores")

ROWS = 60_000
"""Rows of text that the model learns from."""

PER_CATALOGUE = 200
"""At most so many of them come from one message catalogue."""

EPOCHS, DIM = 10, 128
"""Passes of the student over the text, and the length of its n-gram vectors."""

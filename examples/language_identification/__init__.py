"""Unify seven published language identifiers into one; see README.md.

The defaults of the commands are here, so reading them loads nothing else.
"""

from pathlib import Path

MODEL = Path("lid.npz")
CACHE = Path("lid-scores")

ROWS = 60_000
"""Rows of text that the model learns from."""

PER_CATALOGUE = 200
"""The most rows from one message catalogue."""

EPOCHS, DIM = 10, 128
"""The student's passes over the text, and the length of its n-gram vectors."""

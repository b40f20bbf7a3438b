"""Rows: whatever X is, in memory or elsewhere, read block by block."""

from consilience.rows.given import as_rows, rows_that_fit
from consilience.rows.memory import memory_budget, new_array
from consilience.rows.rows import Block, HeldRows, Rows, bytes_of, join_rows

__all__ = [
    "Block",
    "HeldRows",
    "Rows",
    "as_rows",
    "bytes_of",
    "join_rows",
    "memory_budget",
    "new_array",
    "rows_that_fit",
]

"""Rows: whatever X is, in memory or elsewhere, read block by block."""

from consilience.rows.rows import (
    Block,
    HeldRows,
    Rows,
    as_rows,
    bytes_of,
    join_rows,
    memory_budget,
    new_array,
    rows_that_fit,
)

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

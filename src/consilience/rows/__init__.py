"""Rows that need not fit in memory: files, folders, datasets and batches, read block by block."""

from consilience.rows.given import (
    as_rows_or_source,
    as_source,
    memory_budget,
    rows_in_memory,
    rows_that_fit,
)
from consilience.rows.source import ArraySource, Block, Source, bytes_of, join_rows

__all__ = [
    "ArraySource",
    "Block",
    "Source",
    "as_rows_or_source",
    "as_source",
    "bytes_of",
    "join_rows",
    "memory_budget",
    "rows_in_memory",
    "rows_that_fit",
]

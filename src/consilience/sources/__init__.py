"""Rows that need not fit in memory: files, folders, datasets and batches, read block by block."""

from consilience.sources.source import ArraySource, Block, Source

__all__ = ["ArraySource", "Block", "Source"]

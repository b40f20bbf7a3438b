"""Reproduce the papers' tables: trials append to results/*.jsonl, and documents are rendered from them."""

"""Reproduce the papers' tables: trials append to result files, and documents are rendered from them."""

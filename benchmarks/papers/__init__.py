"""Reproductions of the papers' tables; results are appended to results/*.jsonl and rendered from there."""

"""Benchmarks: speed against peers, and the tables of the papers."""

"""Arithmetic of optimal transport."""

"""Arithmetic of transferability metrics."""

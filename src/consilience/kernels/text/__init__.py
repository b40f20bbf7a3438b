"""Arithmetic of n-grams."""

"""Arithmetic of soft labels."""

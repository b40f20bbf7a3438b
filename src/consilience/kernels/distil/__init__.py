"""Arithmetic of the check of teachers: how much a teacher tells about held-out labels."""

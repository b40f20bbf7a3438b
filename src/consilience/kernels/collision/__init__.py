"""Arithmetic of the collision cross-entropy and of clustering."""

"""Six language identifiers that nobody here made become one; see README.md."""

"""How consilience copes with many rows: speed, memory, and what is left of a run that is killed."""

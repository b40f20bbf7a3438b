"""Students: what learns the soft labels."""

"""Arrays in, arrays out: how much a teacher tells about held-out labels."""

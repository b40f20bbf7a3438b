"""Gone when the folders have moved."""

from consilience.teachers.outputs import pool as pool

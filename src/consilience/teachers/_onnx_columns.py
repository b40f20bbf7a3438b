"""Gone when the servers have moved."""

from consilience.teachers.feeds import Columns as Columns

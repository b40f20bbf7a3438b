"""Gone when the servers have moved."""

from consilience.teachers.feeds import cast as cast
from consilience.teachers.feeds import fixed_batch as fixed_batch
from consilience.teachers.feeds import pad as pad
from consilience.teachers.feeds import plain_values as plain_values

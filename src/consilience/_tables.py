from consilience.rows.tables import *  # noqa: F403
from consilience.rows.tables import Kind as Kind

from consilience.rows.images import *  # noqa: F403

"""The old place of the options of Ray, until unify, rank and students have moved."""

from __future__ import annotations

from typing import Any

from consilience.run import Run
from consilience.scoring.ray import RayOptions as RayOptions
from consilience.scoring.ray import engine_options


def read_options(given: Any) -> RayOptions:
    """See `engine_options`."""
    return engine_options(Run(engine="ray", engine_options=given))

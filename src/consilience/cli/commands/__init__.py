"""The commands: a file each, which registers itself with the app."""

from __future__ import annotations

# in the order in which the help lists them
from consilience.cli.app import app  # isort: skip
from consilience.cli.commands import demo, inspect, score, compare, unify, evaluate  # noqa: F401  # isort: skip
from consilience.cli.commands import rank, distil, cluster, verify, predict, serve, cache, repo  # noqa: F401  # isort: skip

__all__ = ["app"]

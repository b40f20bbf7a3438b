"""The command line: parses, calls, prints; a file per command, which registers itself with the app."""

from __future__ import annotations

# in the order in which the help lists them
from consilience.cli._app import app, main  # isort: skip
from consilience.cli import demo, inspect, unify, rank, distil, cluster  # noqa: F401  # isort: skip

__all__ = ["app", "main"]

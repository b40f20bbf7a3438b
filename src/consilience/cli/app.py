"""The command ``consilience``: its commands, in the order in which the help lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from consilience._version import __version__
from consilience.cli import models, repo, verbs
from consilience.cli.command import new_app

app = new_app(
    """One classifier out of many.

    Example: see what it does, in less than a minute
        consilience demo
    """
)
click.version_option(__version__, prog_name="consilience", message="%(prog)s %(version)s")(app)
RAY = {"address": "engine", "train_workers": "engine"}
COMMANDS: dict[Callable[..., Any], dict[str, str]] = {
    models.demo: {},
    models.inspect: {"suggest": "data", "data": "suggest", "out": "data", "cache": "data"},
    models.score: {},
    models.compare: {},
    verbs.unify: {"test_data": "test_labels out", "test_labels": "test_data", "report": "out", **RAY},
    models.evaluate: {},
    verbs.rank: {"address": "engine"},
    verbs.distil: {"compare": "test_data", "test_data": "test_labels", "test_labels": "test_data"},
    verbs.cluster: {},
    models.verify: {},
    models.predict: {},
    models.serve: {},
    models.cache: {},
}
"""The function of each command, and which of its options need others."""
for function, needs in COMMANDS.items():
    app.new(function, **needs)
app.add_command(repo.repo)

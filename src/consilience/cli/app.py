"""The command ``consilience``: its commands, in the order in which the help lists them."""

from __future__ import annotations

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
app.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        help="Show the version.",
        callback=lambda ctx, _, wanted: (print(f"consilience {__version__}"), ctx.exit()) if wanted else None,
    )
)
ray = {"address": "engine", "train_workers": "engine"}
app.new(models.demo)
app.new(models.inspect, suggest="data", data="suggest", out="data", cache="data")
app.new(models.score)
app.new(models.compare)
app.new(verbs.unify, test_data="test_labels out", test_labels="test_data", report="out", **ray)
app.new(models.evaluate)
app.new(verbs.rank, address="engine")
app.new(verbs.distil, compare="test_data", test_data="test_labels", test_labels="test_data")
app.new(verbs.cluster)
app.new(models.verify)
app.new(models.predict)
app.new(models.serve)
app.new(models.cache)
app.add_command(repo.repo)

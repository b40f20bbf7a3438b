"""The command ``consilience``: its commands, in the order in which the help lists them."""

from __future__ import annotations

import click

from consilience._version import __version__
from consilience.cli import files, models, repo, verbs
from consilience.cli.command import Commands, new_app

app: Commands = new_app(
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
for function in (
    models.demo,
    files.inspect,
    files.score,
    models.compare,
    verbs.unify,
    models.evaluate,
    verbs.rank,
    verbs.distil,
    verbs.cluster,
    files.verify,
    files.predict,
    files.serve,
    files.cache,
):
    app.new(function)
app.add_command(repo.repo)

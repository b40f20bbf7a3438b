"""The command line: parse, call, show; no logic."""

from __future__ import annotations


def main() -> None:
    """Run the command ``consilience``."""
    from consilience.cli.commands import app

    app(prog_name="consilience")

"""The command line: parse, call, show; no logic."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command ``consilience``."""
    # characters that the terminal cannot encode are escaped, as on stderr, instead of ending the program
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    from consilience.cli.commands import app

    app(prog_name="consilience")

"""The command line: parse, call, show; no logic."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command ``consilience``."""
    for stream in (sys.stdout, sys.stderr):
        # characters that the terminal cannot encode are escaped, instead of ending the program
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from consilience.cli.commands import app

    app(prog_name="consilience")

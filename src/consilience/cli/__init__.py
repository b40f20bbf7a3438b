"""The command line: commands made from declarations of options; they parse, call and show."""

from __future__ import annotations

import io
import sys

from consilience._optional import installed


def main() -> None:
    """Run the command ``consilience``."""
    # characters that the terminal cannot encode are escaped, as on stderr, instead of ending the program
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if not (installed("click") and installed("rich")):
        print("The command line needs click and rich: pip install 'consilience[cli]'.", file=sys.stderr)
        raise SystemExit(2)
    from consilience.cli.app import app

    try:
        app(prog_name="consilience")
    except OSError as error:  # of a help text, which no command writes: a disk is full
        print(f"Error: The output cannot be written: {error.strerror}.", file=sys.stderr)
        raise SystemExit(2) from None

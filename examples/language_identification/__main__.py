"""Run ``python -m examples.language_identification`` in the project's root."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))  # to run the folder from anywhere

    from examples.language_identification.commands import app

    app(prog_name="python -m examples.language_identification")

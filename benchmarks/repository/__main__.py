"""Run with ``python -m benchmarks.repository``."""

from __future__ import annotations

import sys

from benchmarks.repository.run import main

if __name__ == "__main__":
    sys.exit(main())

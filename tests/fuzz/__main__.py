"""The campaign: a worker runs calls that are drawn from a seed, with a limit of memory; its parent keeps the time.

python -m tests.fuzz --calls 100000 --seed 1
python -m tests.fuzz --seed 1 --only 4711     # one call again, with its arguments and its traceback
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.fuzz.campaign import campaign, make_folder, try_call


def main() -> None:
    """Run a campaign, or one call of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Stop after so much time.")
    parser.add_argument("--only", type=int, help="Run the call with this number, and show its traceback.")
    given = parser.parse_args()
    if given.only is None:
        made, found = campaign(given.seed, given.calls, given.seconds)
        print(
            f"{made} calls with seed {given.seed}: {sum(map(len, found.values()))} wrong, of {len(found)} kinds"
        )
        raise SystemExit(bool(found))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_folder()
        print(try_call(Path(folder), given.seed, given.only, show=True))


if __name__ == "__main__":
    main()

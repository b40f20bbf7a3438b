"""Run the campaign: ``python -m tests.fuzz --calls 100000 --seed 1``; ``--first 47`` begins at that call."""

import argparse

from tests.fuzz.campaign import campaign

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    for option, default in {"--calls": 1000, "--seed": 1, "--first": 0}.items():
        parser.add_argument(option, type=int, default=default)
    given = parser.parse_args()
    made, wrong = campaign(given.seed, given.calls, first=given.first)
    print(f"{made} calls with seed {given.seed}: {len(wrong)} wrong answers")
    raise SystemExit(bool(wrong))

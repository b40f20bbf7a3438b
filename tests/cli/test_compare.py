"""``consilience compare``: the same figures as `Unifier.compare`, from files."""

from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import refused, run, view_of

from consilience import Unifier


def test_it_says_what_compare_says(irises: Path) -> None:
    files = ("-t", irises / "early.npz", "-t", irises / "late.npz", "--data", irises / "X.npy")
    options = ("--method", "auto", "--method", "sd", "--quick", "--seed", 3)
    view = view_of("compare", *files, *options)
    unifier = Unifier([str(irises / "early.npz"), str(irises / "late.npz")], random_state=3)
    expected = unifier.compare(
        np.load(irises / "X.npy"), methods=["auto", "sd"], teacher_temperatures=[None], self_label=[False]
    ).to_dict()
    for row in (*view["rows"], *expected["rows"]):
        row["seconds"] = 0
    assert view == expected | {"seed": 3, "warnings": []}
    assert view["criterion"] == "support"
    shown = run("compare", *files, *options, "--labels", irises / "y.npy").stdout
    assert "by accuracy, best first (150 rows of 3 classes)" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "mfp"], "--method 'mfp' is unknown"),
        (["--student", "tree"], "--student 'tree' is unknown"),
        (["--rows", "2"], "--rows 2 must be"),
        (["--labels", "none.npy"], "none.npy does not exist"),
    ],
)
def test_mistakes_are_one_sentence(irises: Path, options: list[str], message: str) -> None:
    assert message in refused("compare", "-t", irises / "early.npz", "--data", irises / "X.npy", *options)

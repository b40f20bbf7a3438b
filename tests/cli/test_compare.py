"""``consilience compare``: the same figures as `Unifier.compare`, from files."""

from __future__ import annotations

import json
from inspect import cleandoc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from consilience import Unifier
from consilience.cli import console
from consilience.cli.commands import app
from consilience.cli.commands.compare import show_comparison


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_it_says_what_compare_says(irises: Path) -> None:
    files = ("-t", irises / "early.npz", "-t", irises / "late.npz", "--data", irises / "X.npy")
    options = ("--method", "auto", "--method", "sd", "--quick", "--seed", 3)
    result = run("compare", *files, *options, "--json")
    assert result.exit_code == 0, result.output
    view = json.loads(result.stdout)
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


def test_classes_that_nobody_knows_are_remarked(irises: Path, tmp_path: Path) -> None:
    y = np.load(irises / "y.npy")
    y[:3] = "rose"
    np.save(tmp_path / "y.npy", y)
    files = ("-t", irises / "early.npz", "-t", irises / "late.npz", "--data", irises / "X.npy")
    options = ("--method", "sd", "--quick", "--labels", tmp_path / "y.npy")
    shown = " ".join(run("compare", *files, *options).stdout.split())
    assert "1 class that nobody knows, whose rows count as errors: 'rose' (3 rows)." in shown


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
    result = run("compare", "-t", irises / "early.npz", "--data", irises / "X.npy", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def settings(name: str, **figures: Any) -> dict[str, Any]:
    return {"name": name, "error": None, "seconds": 1.26, **figures}


VIEW: dict[str, Any] = {
    "criterion": "accuracy",
    "student": "logistic",
    "n_rows": 30,
    "n_labels": 20,
    "n_classes": 4,
    "n_groups": 2,
    "current": "auto",
    "recommended": "ce, balanced",
    "recommendation": "Take [ce].",
    "remarks": ["[x] is unknown."],
    "seed": 1,
    "rows": [
        settings(
            "ce, balanced", accuracy=0.91, interval=[0.82, 0.97], support=0.73, agreement=0.84, coverage=0.95
        ),
        settings("auto", accuracy=0.61, interval=[0.52, 0.77], support=0.63, agreement=0.74, coverage=0.85),
        {"name": "[mine]", "error": "It [broke].", "seconds": 0.1},
    ],
}


def test_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(console.WIDTH))
    show_comparison(VIEW)
    text = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()).strip("\n")
    assert text == cleandoc(
        """
        3 ways to unify by accuracy, best first (30 rows of 4 classes)

             settings       accuracy   interval         support   agreement   coverage   seconds
         ───────────────────────────────────────────────────────────────────────────────────────
             ce, balanced      91.0%   82.0% to 97.0%     73.0%       84.0%      95.0%       1.3
         *   auto              61.0%   52.0% to 77.0%     63.0%       74.0%      85.0%       1.3
             [mine]                                                                       failed

        *: your settings. The student is logistic. Figures are of rows that it has not seen.
        2 groups of classes share no teacher: agreement does not tell them apart.
        [x] is unknown.
        [mine] failed: It [broke].
        Take [ce].
        """
    )

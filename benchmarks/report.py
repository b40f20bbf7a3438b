"""The picture in docs/report.md, and how large and slow a large report is.

python -m benchmarks.report picture    # writes docs/report.png; needs chromium
python -m benchmarks.report measure    # prints size and seconds for 300 classes, 50 teachers, 5,000 rows
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from consilience import Unifier, as_teacher, methods

ROOT = Path(__file__).parents[1]
SITES = {
    "north": [0, 1, 2, 3, 4],
    "east": [3, 4, 5, 6],
    "centre": [5, 6, 7, 8, 9],
    "west": [1, 4, 7, 9],
    "south": [0, 2, 6, 8],
}
DIGITS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


def digits_report(path: Path) -> Path:
    """Write the report of five sites that each know some digits."""
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    order = np.random.default_rng(0).permutation(len(X))
    X, names = X[order], DIGITS[y[order]]
    teachers = {}
    for i, (site, own) in enumerate(SITES.items()):
        rows = slice(150 * i, 150 * (i + 1))
        known = np.isin(names[rows], DIGITS[own])
        teachers[site] = LogisticRegression(max_iter=1000).fit(X[rows][known], names[rows][known])
    unified = Unifier(
        teachers, "logistic", random_state=0, method=methods.Auto(teacher_temperatures="agreement")
    ).fit(X[750:1300])
    return unified.report(path, X[1300:], names[1300:])


def draw_picture(target: Path) -> None:
    """Write a picture of the top of the report, by a browser without a window."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("The picture needs chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = digits_report(Path(folder) / "unify.html")
        flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync"
        command = [browser, *flags.split(), f"--user-data-dir={folder}/profile", "--hide-scrollbars"]
        command += ["--window-size=1280,1010", f"--screenshot={target}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def measure(
    n_classes: int = 300, n_teachers: int = 50, n_rows: int = 5000, own: int = 60
) -> dict[str, float]:
    """Return the size of a large report in bytes, and the processor's seconds for it."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(n_rows, 20)), rng.normal(size=(20, n_classes))
    names = np.array([f"class number {k:03d}" for k in range(n_classes)])
    teachers = []
    for i in range(n_teachers):
        part = np.sort(rng.choice(n_classes, own, replace=False))
        weights = 2 * (W[:, part] + 0.6 * rng.normal(size=(20, own)))
        teachers.append(
            as_teacher(lambda A, V=weights: A @ V, names[part].tolist(), f"site {i:02d}", output="logits")
        )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unified = Unifier(teachers, "logistic", random_state=0, method=methods.Auto(n_neighbors=0)).fit(X)
        started = time.process_time()
        page = unified.report(Path(folder) / "r.html", X, names[(X @ W).argmax(axis=1)], labels_only=False)
        return {"bytes": page.stat().st_size, "seconds": round(time.process_time() - started, 1)}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("what", choices=("picture", "measure"))
    if parser.parse_args().what == "picture":
        draw_picture(ROOT / "docs" / "report.png")
    else:
        print(json.dumps(measure()))


if __name__ == "__main__":
    main()

"""The programs of docs/serve.md run a saved model without this library, and give its probabilities."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import SoftLabelClassifier, load

pandas = pytest.importorskip("pandas")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf8")
MODULES = Path(os.environ.get("CONSILIENCE_NODE_MODULES") or ROOT / "node_modules")


def program(language: str) -> str:
    """Return the last program in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the columns that the page names."""
    random, root = np.random.default_rng(0), tmp_path_factory.mktemp("serve")
    frame = pandas.DataFrame(
        {
            "age": random.integers(20, 80, 90).astype(float),
            "ward": random.choice(["north", "south"], 90),
            "admitted": pandas.Timestamp("2024-01-01")
            + pandas.to_timedelta(random.integers(0, 200, 90), "D"),
        }
    )
    frame.loc[::9, "age"] = np.nan
    y = np.where(frame["ward"] == "south", "c", np.where(frame["age"] > 50, "b", "a"))
    SoftLabelClassifier("logistic", random_state=0).fit(frame, y).save(root / "unified.onnx")
    return root


def check(output: str, folder: Path) -> dict[str, Any]:
    """Compare what a program prints with what the library predicts."""
    rows = pandas.DataFrame(
        {
            "admitted": pandas.to_datetime(["2024-03-01", "2024-05-17"]),
            "age": [47.0, np.nan],
            "ward": ["north", None],
        }
    )
    model, found = load(folder / "unified.onnx"), json.loads(output)
    assert found["label"] == model.predict(rows).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows).ravel(), atol=1e-6)
    return found


def test_the_python_program_runs(folder: Path) -> None:
    code = program("python")
    assert "consilience" not in code
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert check(done.stdout, folder)["classes"] == ["a", "b", "c"]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.skipif(
    not (MODULES / "onnxruntime-web").is_dir(),
    reason="no onnxruntime-web: set CONSILIENCE_NODE_MODULES to the folder node_modules that has it",
)
def test_the_javascript_program_runs(folder: Path) -> None:
    (folder / "serve.cjs").write_text(program("javascript"), encoding="utf8")
    done = subprocess.run(
        ["node", "serve.cjs"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        env={**os.environ, "NODE_PATH": str(MODULES)},
    )
    assert done.returncode == 0, done.stderr
    check(done.stdout, folder)

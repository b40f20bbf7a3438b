"""Three small models of digits that share classes, as files, and a repository of them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("skl2onnx")

from consilience import Repository

SPANS = {"low": (0, 4), "middle": (3, 7), "high": (6, 10)}


@pytest.fixture(scope="session")
def digits() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32), y


@pytest.fixture(scope="session")
def fitted(digits: tuple[Any, Any]) -> dict[str, Any]:
    X, y = digits
    return {
        name: LogisticRegression(max_iter=60, tol=0.1, C=0.01).fit(X[part], y[part])
        for name, (start, stop) in SPANS.items()
        for part in [(y >= start) & (y < stop)]
    }


@pytest.fixture(scope="session")
def original(
    fitted: dict[str, Any], digits: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A repository that no test may change."""
    folder = tmp_path_factory.mktemp("repository") / "models"
    repository = Repository(folder)
    for name, model in fitted.items():
        repository.add(
            model,
            name=name,
            task="digits",
            licence="MIT" if name != "high" else "own",
            metrics={"accuracy": 0.9, "ms": len(name)},
            example=digits[0],
        )
    return folder


@pytest.fixture
def repository(original: Path, tmp_path: Path) -> Repository:
    """A copy of the repository."""
    shutil.copytree(original, tmp_path / "models")
    return Repository(tmp_path / "models")


@pytest.fixture
def onnx_file(original: Path, tmp_path: Path) -> Path:
    """A model's file alone, without a card."""
    return Path(shutil.copy(Repository(original).path("low"), tmp_path / "file.onnx"))

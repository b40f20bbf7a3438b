"""Files that several tests of commands share."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression


@pytest.fixture(scope="session")
def irises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of irises, what they say about all of them, the irises, and their names."""
    root = tmp_path_factory.mktemp("irises")
    data = load_iris()
    X, y = data.data.astype(np.float32), data.target_names[data.target]
    for stem, missing in (("early", "virginica"), ("late", "setosa")):
        model = LogisticRegression(max_iter=1000).fit(X[y != missing], y[y != missing])
        np.savez(root / f"{stem}.npz", proba=model.predict_proba(X), classes=model.classes_)
        graph = pytest.importorskip("skl2onnx").to_onnx(model, X[:1])
        (root / f"{stem}.onnx").write_bytes(graph.SerializeToString())
    np.save(root / "X.npy", X)
    np.save(root / "y.npy", y)
    return root

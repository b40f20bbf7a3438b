"""The client against servers that others wrote, and our model inside MLServer; see start.py."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from tests.servers import start

from consilience import SoftLabelClassifier, as_teacher, load
from consilience.exceptions import TeacherError
from consilience.students.server import write_repository
from consilience.teachers import Remote

FOLDER = Path(os.environ.get("CONSILIENCE_SERVERS") or "none")
SOURCE = Path(__file__).parents[2] / "src"
X, Y = load_iris(return_X_y=True)
NAMES = ["setosa", "versicolor", "virginica"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(),
        reason="no servers: run tests/servers/start.py install FOLDER, and set CONSILIENCE_SERVERS=FOLDER",
    ),
]


def check(teacher: object) -> None:
    """Compare with the same model, fitted here: another release may differ in the last digits."""
    expected = LogisticRegression(max_iter=1000).fit(X, Y).predict_proba(X)
    found = softmax(teacher.predict_logits(X), axis=1)  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_mlserver_with_scikit_learn(tmp_path: Path) -> None:
    start.fit(FOLDER, "mlserver", tmp_path)
    settings = {
        "name": "iris",
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib", "version": "v1"},
    }
    (tmp_path / "model-settings.json").write_text(json.dumps(settings))
    with start.mlserver(FOLDER, tmp_path) as port:
        url = f"http://127.0.0.1:{port}/v2/models/iris"
        check(Remote(url, NAMES, output_name="predict_proba"))
        check(Remote(f"{url}/versions/v1", NAMES, output_name="predict_proba", batch_size=20))
        with pytest.raises(TeacherError, match="predict_proba"):
            as_teacher(url, NAMES).predict_logits(X)


def test_kserve_with_scikit_learn(tmp_path: Path) -> None:
    with start.kserve(FOLDER, tmp_path) as url:
        teacher = Remote(url, NAMES, output="probabilities", batch_size=40)
        check(teacher)
        assert teacher.fingerprint is None  # this server tells no version


def test_our_model_inside_mlserver(tmp_path: Path) -> None:
    SoftLabelClassifier("logistic", random_state=0).fit(X, np.array(NAMES)[Y]).save(tmp_path / "ours.onnx")
    (tmp_path / "repository").mkdir()
    write_repository(tmp_path / "ours.onnx", tmp_path / "repository")
    with start.mlserver(FOLDER, tmp_path / "repository", {"PYTHONPATH": str(SOURCE)}) as port:
        teacher = as_teacher(f"http://127.0.0.1:{port}/v2/models/ours")
        assert teacher.classes.tolist() == NAMES
        found = softmax(teacher.predict_logits(X), axis=1)
    np.testing.assert_allclose(found, load(tmp_path / "ours.onnx").predict_proba(X), atol=2e-6)

"""Network.to_onnx: the exported module against the module, in onnxruntime."""

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402

from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.files.export import OPSET, finish, write_model  # noqa: E402
from consilience.nn import SoftCrossEntropy  # noqa: E402
from consilience.students import Network  # noqa: E402

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(30, 4))
IMAGES = RNG.normal(size=(30, 1, 6, 6)).astype(np.float32)
TOKENS = RNG.integers(9, size=(30, 4))
Q = np.eye(3)[RNG.integers(3, size=30)]


class Residual(nn.Module):
    """A user's own module, whose source lines the exporter would note down."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.inner(x))) + x)


CASES = {
    "default": (None, TABLE),
    "residual": (Residual, TABLE),
    "cnn": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)),
        IMAGES,
    ),
    "embedding": (nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 3)), TOKENS),
}


def fit(module, X):
    student = Network(module, max_iter=2, random_state=0)
    return student.fit(X, Q, n_classes=3, criterion=SoftCrossEntropy())


def test_export_says_nothing(caplog, capfd):
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    fit(None, TABLE).to_onnx(TABLE)
    assert logger.name not in {record.name for record in caplog.records}
    assert logger.level == level
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("case", CASES)
def test_round_trip(case, tmp_path):
    module, X = CASES[case]
    student = fit(module, X)
    exported = student.to_onnx(X[:1])
    assert [value.name for value in (*exported.graph.input, *exported.graph.output)] == ["X", "logits"]
    assert [(entry.domain, entry.version) for entry in exported.opset_import] == [("", OPSET)]
    classes = ["c", "a", "b", "d"]
    done = finish(exported, classes=classes, columns=[1, 0, 2], temperature=3.0, scores="logits", metadata={})
    assert b".py" not in done.SerializeToString()
    write_model(done, tmp_path / "student.onnx")
    session = ort.InferenceSession(tmp_path / "student.onnx", providers=["CPUExecutionProvider"])
    for rows in (X[:0], X[:1], X[:7], X):
        fed = rows if rows.dtype == np.int64 else rows.astype(np.float32)
        probabilities, label = session.run(["probabilities", "label"], {"X": fed})
        expected = np.zeros((len(rows), 4))
        expected[:, [1, 0, 2]] = torch.softmax(torch.tensor(student.predict_logits(rows)), dim=1)
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        assert label.tolist() == np.array(classes)[expected.argmax(axis=1)].tolist()


def test_module_that_depends_on_its_values_is_refused():
    class Fickle(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else -super().forward(x)

    with pytest.raises(InvalidInputError, match="The module Fickle cannot be exported to ONNX"):
        fit(Fickle(4, 3), TABLE).to_onnx(TABLE)


def test_an_example_row_is_needed():
    with pytest.raises(InvalidInputError, match="no rows"):
        fit(None, TABLE).to_onnx(TABLE[:0])

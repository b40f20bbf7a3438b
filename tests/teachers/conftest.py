"""ONNX files and a server for the tests of teachers."""

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.teachers.model_folders import image_folder, text_folder
from tests.teachers.remote_server import Server, serving

from consilience.teachers import remote_http as http


@pytest.fixture
def linear(tmp_path: Path) -> Callable[..., Any]:
    """Make a model x (n, 2) -> x W + b (n, 3), optionally through one more operator."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def make(
        last: str | None = None,
        *,
        output: str = "out",
        dtype: int = TensorProto.FLOAT,
        rows: Any = None,
        metadata: dict[str, str] | None = None,
    ) -> Any:
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        weights = [
            numpy_helper.from_array(np.arange(6).reshape(2, 3).astype(kind) - 2, "W"),
            numpy_helper.from_array(np.array([0, 1, -1]).astype(kind), "b"),
        ]
        first = helper.make_node("Gemm", ["x", "W", "b"], [output if last is None else "z"])
        nodes = [first] if last is None else [first, helper.make_node(last, ["z"], [output])]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", dtype, [rows, 2])],
            [helper.make_tensor_value_info(output, dtype, [rows, 3])],
            weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        helper.set_model_props(model, metadata or {})
        onnx.checker.check_model(model)
        return model

    return make


@pytest.fixture
def save(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a model as it is, without touching its external data."""

    def write(model: Any, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return write


@pytest.fixture
def convert(save: Callable[[Any], Path]) -> Callable[..., Path]:
    """Convert a scikit-learn model and write it."""
    skl2onnx = pytest.importorskip("skl2onnx")

    def make(model: Any, X: Any = None, **options: Any) -> Path:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", "Attribute `prob._` was deprecated", FutureWarning)
            return save(skl2onnx.to_onnx(model, X, **options))

    return make


@pytest.fixture
def zoo() -> Server:
    """A model on a server, which a test may have misbehave."""
    return Server()


@pytest.fixture
def url(zoo: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address, while the server runs; clients do not wait long before they ask again."""
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    with serving(zoo) as address:
        yield address


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A folder of texts that no test may change, its network and its tokenizer."""
    pytest.importorskip("transformers")
    return text_folder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A folder of images that no test may change, its network and its image processor."""
    pytest.importorskip("transformers")
    return image_folder(tmp_path_factory.mktemp("models") / "vit")


@pytest.fixture
def copied(bert: tuple[Path, Any, Any], tmp_path: Path) -> Path:
    """A copy of a folder of texts that a test may change."""
    return Path(shutil.copytree(bert[0], tmp_path / "bert"))

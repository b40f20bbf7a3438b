"""ONNX files from strangers: nothing outside their folder is read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import UnsafeFileError
from consilience.teachers import as_teacher
from consilience.teachers.onnx import tensors

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

Make = Callable[..., Any]
CLASSES = ["a", "b", "c"]


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal comes before onnxruntime sees the file."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("onnxruntime opened the file")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)


def external(tensor: Any, **facts: object) -> Any:
    """Turn a tensor's own data into a reference."""
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in facts.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def refused(path: Path, message: str) -> None:
    with pytest.raises(UnsafeFileError, match=message):
        as_teacher(path, CLASSES)


@pytest.fixture
def refer(linear: Make, save: Make, tmp_path: Path) -> Callable[..., Path]:
    """Save a model whose first tensor lies in another file; next to it are 64 bytes of `data`."""
    (tmp_path / "data").write_bytes(bytes(64))

    def made(**facts: object) -> Path:
        model = linear()
        external(model.graph.initializer[0], **facts)
        return save(model)

    return made


PLACES = (
    "initializer",
    "sparse values",
    "sparse indices",
    "constant",
    "attribute list",
    "sparse attribute",
    "subgraph",
    "function",
    "training",
)


def test_every_place_of_a_tensor_is_seen(linear: Make, save: Make) -> None:
    model, helper = linear(), onnx.helper
    made = {name: onnx.numpy_helper.from_array(np.zeros(2, np.float32), name) for name in PLACES}
    graph, node = model.graph, model.graph.node[0]
    graph.initializer.append(made["initializer"])
    sparse = graph.sparse_initializer.add()
    sparse.values.CopyFrom(made["sparse values"])
    sparse.indices.CopyFrom(made["sparse indices"])
    graph.node.append(helper.make_node("Constant", [], ["c"], value=made["constant"]))
    node.attribute.append(helper.make_attribute("extra", [made["attribute list"]]))
    node.attribute.add(name="sparse").sparse_tensor.values.CopyFrom(made["sparse attribute"])
    inner = helper.make_graph([], "inner", [], [], [made["subgraph"]])
    middle = helper.make_graph([helper.make_node("If", ["c"], ["y"], else_branch=inner)], "mid", [], [])
    graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=middle))
    inside = helper.make_node("Constant", [], ["c"], value=made["function"])
    model.functions.append(helper.make_function("f", "F", [], ["c"], [inside], []))
    model.training_info.add().initialization.initializer.append(made["training"])
    assert {tensor.name for tensor in tensors(model)} == {*PLACES, "W", "b"}
    external(graph.node[-1].attribute[0].g.node[0].attribute[0].g.initializer[0], location="../secret")
    refused(save(model), "tensor 'subgraph' keeps its data in '../secret'")


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../secret",
        "sub/data",
        "./data",
        "data/",
        "..",
        ".",
        "",
        "..\\secret",
        "C:\\secret",
        "C:secret",
        "\\\\host\\share",
        "data\0",
        "*/_ORT_MEM_ADDR_/*",
    ],
)
def test_only_plain_names_are_locations(location: str, refer: Make, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(bytes(64))
    message = "External data must be a file in the model's own folder, named without any path"
    refused(refer(location=location), message)


def test_links_folders_and_pipes_are_refused(refer: Make, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for location in ("link", "dir", "pipe"):
        refused(refer(location=location), f"'{location}', which is a link, a folder or a device")
    refused(refer(location="none"), "'none', which cannot be read: No such file")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"offset": 41, "length": 24}, "wants the bytes 41 to 65 of 'data', which has 64"),
        ({"offset": 0, "length": 65}, "wants the bytes 0 to 65"),
        ({"offset": 10**18, "length": 0}, "which has 64"),
        ({"offset": -8}, "has offset '-8', which is no whole number"),
        ({"offset": "1e1"}, "has offset '1e1'"),
        ({"offset": "٣"}, "has offset"),
        ({"length": "9" * 4000}, "has length '9999"),
    ],
)
def test_ranges_stay_inside_the_file(facts: dict[str, object], message: str, refer: Make) -> None:
    refused(refer(location="data", **facts), message)


def test_the_last_byte_may_be_read(refer: Make) -> None:
    assert as_teacher(refer(location="data", offset=40, length=24), CLASSES).name == "model"


def test_a_key_given_twice_or_to_no_purpose(linear: Make, save: Make) -> None:
    model = linear()
    tensor = external(model.graph.initializer[0], location="data")
    tensor.external_data.add(key="location", value="/etc/passwd")
    refused(save(model), "gives a key of its external data twice")
    del tensor.external_data[0]
    tensor.data_location = onnx.TensorProto.DEFAULT
    refused(save(model), "/etc/passwd")


def test_a_device_or_pipe_as_the_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ValueError, match="is not a regular file"):
        as_teacher(tmp_path / "pipe.onnx", CLASSES)

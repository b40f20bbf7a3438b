"""ONNX files from strangers: nothing outside their folder is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import UnsafeFileError
from consilience.teachers import as_teacher

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


def in_initializer(model: Any, tensor: Any) -> None:
    model.graph.initializer.append(tensor)


def in_sparse_values(model: Any, tensor: Any) -> None:
    model.graph.sparse_initializer.add().values.CopyFrom(tensor)


def in_sparse_indices(model: Any, tensor: Any) -> None:
    model.graph.sparse_initializer.add().indices.CopyFrom(tensor)


def in_constant(model: Any, tensor: Any) -> None:
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=tensor))


def in_attribute_list(model: Any, tensor: Any) -> None:
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("extra", [tensor]))


def in_sparse_attribute(model: Any, tensor: Any) -> None:
    attribute = model.graph.node[0].attribute.add(name="sparse")
    attribute.sparse_tensor.values.CopyFrom(tensor)


def in_subgraph(model: Any, tensor: Any) -> None:
    inner = onnx.helper.make_graph([], "inner", [], [], [tensor])
    middle = onnx.helper.make_graph(
        [onnx.helper.make_node("If", ["c"], ["y"], else_branch=inner)], "mid", [], []
    )
    model.graph.node.append(onnx.helper.make_node("If", ["c"], ["y"], then_branch=middle))


def in_function(model: Any, tensor: Any) -> None:
    node = onnx.helper.make_node("Constant", [], ["c"], value=tensor)
    model.functions.append(onnx.helper.make_function("f", "F", [], ["c"], [node], []))


def in_training(model: Any, tensor: Any) -> None:
    model.training_info.add().initialization.initializer.append(tensor)


PLACES = [
    in_initializer,
    in_sparse_values,
    in_sparse_indices,
    in_constant,
    in_attribute_list,
    in_sparse_attribute,
    in_subgraph,
    in_function,
    in_training,
]


@pytest.mark.parametrize("place", PLACES)
def test_every_place_of_a_tensor_is_seen(place: Callable[[Any, Any], None], linear: Make, save: Make) -> None:
    model = linear()
    stolen = onnx.numpy_helper.from_array(np.zeros(2, np.float32), "stolen")
    place(model, external(stolen, location="../secret"))
    refused(save(model), "tensor 'stolen' keeps its data in '../secret'")


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
def test_only_plain_names_are_locations(location: str, linear: Make, save: Make, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(bytes(64))
    model = linear()
    external(model.graph.initializer[0], location=location)
    refused(save(model), "External data must be a file in the model's own folder, named without any path")


def test_links_folders_and_pipes_are_refused(linear: Make, save: Make, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(bytes(64))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for location in ("link", "dir", "pipe"):
        model = linear()
        external(model.graph.initializer[0], location=location)
        refused(save(model), f"'{location}', which is a link, a folder or a device")


def test_a_missing_file(linear: Make, save: Make) -> None:
    model = linear()
    external(model.graph.initializer[0], location="none")
    refused(save(model), "'none', which cannot be read: No such file")


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
def test_ranges_stay_inside_the_file(
    facts: dict[str, object], message: str, linear: Make, save: Make, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    model = linear()
    external(model.graph.initializer[0], location="data", **facts)
    refused(save(model), message)


def test_the_last_byte_may_be_read(linear: Make, save: Make, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    model = linear()
    external(model.graph.initializer[0], location="data", offset=40, length=24)
    assert as_teacher(save(model), CLASSES).name == "model"


def test_a_key_given_twice(linear: Make, save: Make, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    model = linear()
    tensor = external(model.graph.initializer[0], location="data")
    tensor.external_data.add(key="location", value="/etc/passwd")
    refused(save(model), "gives a key of its external data twice")


def test_references_are_checked_even_where_they_are_said_not_to_count(linear: Make, save: Make) -> None:
    model = linear()
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")
    refused(save(model), "/etc/passwd")


def test_a_device_or_pipe_as_the_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ValueError, match="is not a regular file"):
        as_teacher(tmp_path / "pipe.onnx", CLASSES)

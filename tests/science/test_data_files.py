"""Data files from images that people have, and that the experiments load them."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from benchmarks.data.__main__ import build, main
from benchmarks.data.images import CIFAR_RECORD, read_images
from benchmarks.papers.sources import load
from PIL import Image

from consilience import InvalidInputError

COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def paint(folder: Path, count: int) -> None:
    """Write images of three classes: a colour each, with noise, of different sizes."""
    random = np.random.RandomState(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            noise = random.randint(0, 120, (20 + i, 24, 3))
            pixels = np.clip(np.array(colour) * 0.6 + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:02}.png")


def test_a_folder_for_each_class_becomes_a_file_that_loads(tmp_path: Path) -> None:
    paint(tmp_path / "photos", 10)
    (tmp_path / "photos" / "red" / "notes.txt").write_text("no image", encoding="utf-8")
    assert (
        main(["cifar100", "--from", str(tmp_path / "photos"), "--to", str(tmp_path), "--components", "6"])
        == 0
    )
    source = load("cifar100", str(tmp_path))
    assert source.X.shape == (24, 12)  # two views of six columns; each fifth image is for the test
    assert source.X_test is not None
    assert source.X_test.shape == (6, 12)
    assert np.bincount(source.y).tolist() == [8, 8, 8]
    # the classes are far apart: each test row is nearest to the mean of its own class
    means = np.stack([source.X[source.y == k].mean(axis=0) for k in range(3)])
    nearest = ((source.X_test[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert source.y_test is not None
    assert nearest.tolist() == source.y_test.tolist()
    with np.load(tmp_path / "cifar100_features.npz", allow_pickle=False) as data:
        assert data["classes"].tolist() == ["blue", "green", "red"]


def test_cifars_binary_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    pixels = random.randint(0, 256, (6, 3, 32, 32)).astype(np.uint8)
    for part in ("train", "test"):
        rows = np.zeros((6, CIFAR_RECORD), dtype=np.uint8)
        rows[:, 1] = [0, 1, 2, 0, 1, 2]
        rows[:, 2:] = pixels.reshape(6, -1)
        rows.tofile(tmp_path / f"{part}.bin")
    (tmp_path / "fine_label_names.txt").write_text("apple\nbear\ncup\n", encoding="utf-8")
    data = read_images(tmp_path, 8)
    assert data.classes == ("apple", "bear", "cup")
    assert data.y_test.tolist() == [0, 1, 2, 0, 1, 2]
    assert np.array_equal(data.train[4, 3, 7], pixels[4, :, 3, 7])  # row 3, column 7: red, green, blue
    (tmp_path / "test.bin").write_bytes(b"short")
    with pytest.raises(InvalidInputError, match=r"test\.bin has 5 bytes, not a multiple of 3074"):
        read_images(tmp_path, 8)


def test_pickled_files_of_cifar_are_not_opened(tmp_path: Path) -> None:
    for name in ("train", "test", "meta"):
        (tmp_path / name).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(InvalidInputError, match="pickled and are not opened"):
        read_images(tmp_path, 32)


def test_features_come_from_the_network_that_is_named(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    paint(tmp_path / "photos", 5)
    shapes = (("image", ["n", 3, 16, 16]), ("mean", ["n", 3]))
    float_type = onnx.TensorProto.FLOAT
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, float_type, shape)] for name, shape in shapes
    )
    nodes = [
        onnx.helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        onnx.helper.make_node("Flatten", ["pooled"], ["mean"]),
    ]
    graph = onnx.helper.make_graph(nodes, "mean colour", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "mean.onnx")
    by_file = build("cub", tmp_path / "photos", [tmp_path / "mean.onnx"], side=16)
    by_function = build("cub", tmp_path / "photos", [lambda X: X.mean(axis=(2, 3))], side=16)
    assert by_file["x_train"].shape == (12, 3)
    assert np.allclose(by_file["x_train"], by_function["x_train"], atol=0.01)

"""Folders of images on the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image")

from tests.cli.running import done, refused, view_of  # noqa: E402
from tests.teachers.model_folders import image_onnx  # noqa: E402

from consilience import Card, as_teacher, load  # noqa: E402

COLOURS = np.array(["red", "green", "blue"])
N = 24


def write_teacher(path: Path, size: int, channels: tuple[int, int]) -> None:
    """Write a model that tells two colours apart, and a card that says how it wants images."""
    weights = np.zeros((3, size * size, 2), np.float32)
    for column, channel in enumerate(channels):
        weights[channel, :, column] = 20 / size**2
    card = Card(path.stem, COLOURS[list(channels)].tolist(), "logits", preprocess={"size": size})
    image_onnx(path, weights.reshape(-1, 2), np.zeros(2), (3, size, size), card)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    (root / "images" / "more").mkdir(parents=True)
    for i in range(N):
        pixels = rng.normal(60, 20, (*rng.integers(20, 40, 2), 3))
        pixels[..., i % 3] += 120
        name = f"{i:02}.png" if i < 12 else f"more/{i:02}.png"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / "images" / name)
    write_teacher(root / "warm.onnx", 6, (0, 1))
    write_teacher(root / "cold.onnx", 4, (1, 2))
    np.save(root / "y.npy", COLOURS[np.arange(N) % 3])
    return root


def test_score_writes_what_a_teacher_says_about_images(folder: Path, tmp_path: Path) -> None:
    done("score", "-t", folder / "warm.onnx", "--data", folder / "images", "--out", tmp_path / "s.npz")
    paths = [*sorted((folder / "images").glob("*.png")), *sorted((folder / "images" / "more").glob("*.png"))]
    np.testing.assert_allclose(
        np.load(tmp_path / "s.npz")["logits"],
        as_teacher(folder / "warm.onnx").predict_logits(paths),
        rtol=1e-5,
    )


def test_unify_rank_evaluate_and_predict(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model, images = tmp_path / "unified.onnx", folder / "images"
    teachers = ("-t", folder / "warm.onnx", "-t", folder / "cold.onnx")
    done("unify", *teachers, "--data", images, "--out", model, "--student", "torch", "--quiet")
    done("verify", model)
    labels = ("--labels", folder / "y.npy", "--quiet")
    assert view_of("evaluate", model, "--data", images, *labels)["n_rows"] == N
    done("rank", *teachers, "--data", images, *labels)
    out = tmp_path / "predicted.csv"
    done("predict", model, "--data", images, "--out", out, "--keep", "file", "--batch-size", 5, "--quiet")
    with out.open(encoding="utf8") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows[:2] + rows[-1:]] == ["00.png", "01.png", "more/23.png"]
    paths = [images / f"{i:02}.png" if i < 12 else images / "more" / f"{i:02}.png" for i in range(N)]
    assert [row["label"] for row in rows] == load(model).predict(paths).tolist()
    for more, message in (
        (("--out", tmp_path / "p.npy", "--keep", "file"), "passes columns on to a .csv or .parquet file"),
        (("--out", out, "--keep", "size"), "--keep 'size' is unknown; use 'file'"),
    ):
        assert message in refused("predict", model, "--data", images, *more)


def test_a_student_of_tables_gets_a_sentence(folder: Path, tmp_path: Path) -> None:
    files = ("-t", folder / "warm.onnx", "--data", folder / "images", "--out", tmp_path / "unified.onnx")
    said = refused("unify", *files, "--student", "logistic")
    assert "X has images of several sizes, and the student learns from a table" in said

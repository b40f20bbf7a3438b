"""Networks of timm from their folder."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.teachers.model_folders import change_json
from tests.teachers.timm_folders import CLASSES, real_timm, stand_in, write_folder

from consilience.exceptions import TeacherError
from consilience.teachers import ImagePreprocess, ModelFolder, as_teacher

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
X = [RNG.integers(0, 256, (*size, 3)).astype(np.uint8) for size in [(40, 60), (61, 33), (50, 50), (37, 90)]]
PREPARE = ImagePreprocess(
    32, resize_to=40, interpolation="bicubic", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)
)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = stand_in()
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def of(part: Any, rows: np.ndarray, **options: Any) -> np.ndarray:
    with torch.no_grad():
        return part(torch.tensor(rows), **options).numpy()


@pytest.mark.parametrize("prefix", ["", "timm_model."])
def test_logits_embedding_and_classes(prefix: str, timm: Any, tmp_path: Path) -> None:
    network = write_folder(
        tmp_path / "net", timm, prefix=prefix, model_type="timm_wrapper" if prefix else None
    )
    teacher = as_teacher(tmp_path / "net")
    assert (teacher.name, teacher.classes.tolist(), teacher.output) == ("net", CLASSES, "logits")
    assert teacher.preprocess == PREPARE
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.logits, of(network, PREPARE(X)), atol=1e-5)
    features = of(network.forward_features, PREPARE(X))
    np.testing.assert_allclose(seen.embeddings, features.mean((2, 3)), atol=1e-5)
    np.testing.assert_allclose(teacher.class_weights, network.fc.weight.detach())
    assert as_teacher(tmp_path / "net", embed="conv").embed(X).shape == (4, 5)
    with pytest.raises(TeacherError, match=r"has no layer 'convv'"):
        as_teacher(tmp_path / "net", embed="convv").embed(X)


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"crop_mode": "squash"}, {"resize": "squash", "resize_to": 40}),
        ({"crop_pct": 1.0, "interpolation": "bilinear"}, {"resize_to": 32, "interpolation": "bilinear"}),
        ({"input_size": [3, 32, 48]}, {"size": (32, 48), "resize_to": (40, 60)}),
        ({"mean": None, "std": None}, {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}),
    ],
)
def test_preprocessing_of_the_configuration(
    about: Any, expected: dict[str, Any], timm: Any, tmp_path: Path
) -> None:
    write_folder(tmp_path / "net", timm, about=about)
    known = {**PREPARE.to_dict(), **expected}
    assert as_teacher(tmp_path / "net").preprocess == ImagePreprocess.from_dict(known)


def test_grey_networks_get_grey_images(timm: Any, tmp_path: Path) -> None:
    about = {"input_size": [1, 32, 32], "mean": [0.5], "std": [0.5]}
    write_folder(tmp_path / "net", timm, about=about, network={"in_chans": 1}, model_args={"in_chans": 1})
    assert as_teacher(tmp_path / "net").predict_logits(X).shape == (4, 3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architecture": "hf-hub:someone/net"}, "architecture must be the name of a network of timm"),
        ({"architecture": "../net"}, "architecture must be the name of a network of timm"),
        ({"architecture": "resnet9999"}, "'resnet9999', which timm .* does not know"),
        ({"num_classes": None}, "num_classes must be a whole number"),
        ({"num_classes": 10**9}, "num_classes must be a whole number from 0 to 1000000"),
        ({"num_classes": 0}, "3 channels and 0 classes by config.json"),
        ({"label_names": None}, "a folder with 3 columns, which does not name its classes. Give classes="),
        ({"label_names": ["LABEL_0", "LABEL_1", "LABEL_2"]}, "does not name its classes"),
        ({"label_names": ["a", "b"]}, r"has 3 columns and 2 classes \(a, b\). Give classes="),
        ({"num_classes": 4, "label_names": ["a", "b", "c", "d"]}, "cannot be loaded by timm"),
        (
            {"model_args": {"checkpoint_path": "evil.pth"}},
            "model_args must be .* on our list .*'checkpoint_path'",
        ),
        ({"model_args": {"pretrained_cfg": {"url": "http://x"}}}, "on our list"),
        ({"model_args": {"in_chans": {"a": 1}}}, r"model_args\['in_chans'\] must be a number, a text"),
        ({"model_args": [1]}, "model_args must be an object"),
        ({"about": {"input_size": [3, 32]}}, "input_size must be a list of 3 values"),
        ({"about": {"input_size": [3, 10**6, 10**6]}}, "must be a whole number from 0 to 4096"),
        ({"about": {"input_size": [2, 32, 32]}}, "has 2 channels"),
        ({"about": {"crop_pct": 7}}, "crop_pct must be above 0 and at most 1"),
        ({"about": {"mean": "x"}}, "does not say how it wants images"),
    ],
)
def test_what_a_folder_may_not_say(config: dict[str, Any], message: str, timm: Any, tmp_path: Path) -> None:
    write_folder(tmp_path / "net", timm)
    file = tmp_path / "net" / "config.json"
    told = json.loads(file.read_text())["pretrained_cfg"] | config.get("about", {})
    change_json(file, **{"pretrained_cfg": told, **config, "about": ...})
    with pytest.raises(TeacherError, match=message):
        as_teacher(tmp_path / "net").predict_logits(X)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no tensors", "cannot be loaded by safetensors"),
        # valid, and empty: timm would look on its hub
        ((2).to_bytes(8, "little") + b"{}", "has a file of weights without any tensor"),
    ],
)
def test_weights_that_are_none(data: bytes, message: str, timm: Any, tmp_path: Path) -> None:
    write_folder(tmp_path / "net", timm)
    (tmp_path / "net" / "model.safetensors").write_bytes(data)
    with pytest.raises(TeacherError, match=message):
        as_teacher(tmp_path / "net").predict_logits(X)


def test_older_folders_have_all_entries_in_one_object(timm: Any, tmp_path: Path) -> None:
    network = write_folder(
        tmp_path / "net", timm, pretrained_cfg=None, label_names=None, labels=CLASSES, crop_pct=1.0
    )
    teacher = ModelFolder(tmp_path / "net", preprocess=PREPARE)
    assert teacher.classes.tolist() == CLASSES
    np.testing.assert_allclose(teacher.predict_logits(X), of(network, PREPARE(X)), atol=1e-5)
    assert as_teacher(tmp_path / "net").preprocess.size == (224, 224)


@pytest.mark.parametrize(
    ("architecture", "about"),
    [
        ("resnet10t", {}),
        ("resnet10t", {"crop_mode": "squash", "interpolation": "bilinear"}),
        ("resnet10t", {"input_size": [3, 32, 48]}),
        ("test_vit", {"input_size": [3, 160, 160], "crop_pct": 0.95, "fixed_input_size": True}),
        ("test_convnext", {"crop_pct": 1.0}),
    ],
)
def test_as_the_real_library_does_it(architecture: str, about: dict[str, Any], tmp_path: Path) -> None:
    timm = real_timm()
    network = write_folder(tmp_path / "net", timm, architecture, about=about)
    config = json.loads((tmp_path / "net" / "config.json").read_text(encoding="utf-8"))["pretrained_cfg"]
    resolved = timm.data.resolve_data_config(pretrained_cfg=config)
    transform = timm.data.create_transform(**resolved, is_training=False)
    prepared = np.stack([transform(Image.fromarray(image)) for image in X])
    teacher = as_teacher(tmp_path / "net")
    np.testing.assert_allclose(teacher.preprocess(X), prepared, atol=1e-6)
    features = of(network.forward_head, of(network.forward_features, prepared), pre_logits=True)
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.logits, of(network, prepared), atol=1e-4)
    np.testing.assert_allclose(seen.embeddings, features, atol=1e-4)
    assert teacher.class_weights is not None

"""Folders of timm networks: with the real library where it can be imported, and with a stand-in elsewhere."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CLASSES = ["ant", "bee", "cow"]
HOW = (
    "timm cannot be imported here. It needs torchvision; where there is no CPU build of that, install both "
    "beside the environment: pip install --target FOLDER --no-deps timm torchvision==VERSION_FOR_YOUR_TORCH; "
    "pip install --target FOLDER huggingface_hub pyyaml; then PYTHONPATH=FOLDER pytest tests/teachers"
)
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def real_timm() -> Any:
    """Import timm, or skip the test.

    A torchvision that was built for CUDA has no operators on a CPU build of torch, and stops at two
    declarations. timm uses none of its operators, so the two are declared here.
    """
    pytest.importorskip("torch")
    try:
        return importlib.import_module("timm")
    except ImportError:
        pytest.skip(HOW)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in _OPERATORS:
        library.define(operator)
    _KEPT.append(library)  # an operator goes with its library
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        del sys.modules[name]
    return importlib.import_module("timm")


_KEPT: list[Any] = []


def stand_in() -> ModuleType:
    """Return a module with the three names that we use of timm."""
    torch = pytest.importorskip("torch")

    class Small(torch.nn.Module):
        def __init__(self, num_classes: int, in_chans: int = 3) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(in_chans, 5, 3)
            self.fc = torch.nn.Linear(5, num_classes)

        def forward_features(self, X: Any) -> Any:
            return self.conv(X).relu()

        def forward_head(self, features: Any, pre_logits: bool = False) -> Any:
            pooled = features.mean((2, 3))
            return pooled if pre_logits else self.fc(pooled)

        def forward(self, X: Any) -> Any:
            return self.forward_head(self.forward_features(X))

    def create_model(
        name: str, *, pretrained: bool, num_classes: int, pretrained_cfg: Any = None, **arguments: Any
    ) -> Any:
        assert name == "resnet10t"
        made = Small(num_classes, **arguments)
        if pretrained:
            made.load_state_dict(pretrained_cfg["state_dict"])
        return made

    module = ModuleType("timm")
    module.__version__ = "0"  # type: ignore[attr-defined]
    module.is_model = lambda name: name == "resnet10t"  # type: ignore[attr-defined]
    module.create_model = create_model  # type: ignore[attr-defined]
    return module


def write_folder(
    folder: Path,
    timm: Any,
    architecture: str = "resnet10t",
    *,
    about: dict[str, Any] | None = None,
    prefix: str = "",
    network: dict[str, Any] | None = None,
    **config: Any,
) -> Any:
    """Write config.json and model.safetensors as timm does, and return the network."""
    torch = pytest.importorskip("torch")
    tensors = pytest.importorskip("safetensors.torch")
    torch.manual_seed(0)
    made = timm.create_model(
        architecture, pretrained=False, num_classes=len(CLASSES), **(network or {})
    ).eval()
    folder.mkdir(exist_ok=True)
    state = {prefix + name: tensor.contiguous() for name, tensor in made.state_dict().items()}
    tensors.save_file(state, folder / "model.safetensors")
    cfg = {"input_size": [3, 32, 32], "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "crop_pct": 0.8}
    content = {
        "architecture": architecture,
        "num_classes": len(CLASSES),
        "label_names": CLASSES,
        "pretrained_cfg": {**cfg, "interpolation": "bicubic", **(about or {})},
        **config,
    }
    kept = {key: value for key, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return made

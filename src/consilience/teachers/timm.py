"""Networks of timm, loaded by the library itself from a folder that was checked.

The configuration is data: the architecture must be one that timm itself has, arguments of the network must be
in the table below, and the weights are safetensors. timm is given the weights, so it looks for none on a hub.
"""

from __future__ import annotations

from math import floor
from typing import Any

from consilience.files.strict_json import (
    Reader,
    RecordError,
    listing,
    mapping,
    maybe,
    number,
    reader,
    record,
    row,
    text,
    whole,
)
from consilience.rows.images import MOST_PIXELS, ImagePreprocess
from consilience.teachers.folders import CONFIG, Folder
from consilience.teachers.outputs import ensure, in_the_name_of

_WRAPPED = "timm_model."  # transformers puts it before each name of a tensor
# fmt: off
_ARGUMENTS = (
    "img_size", "patch_size", "in_chans", "num_classes", "global_pool", "class_token", "reg_tokens",
    "no_embed_class", "pos_embed", "embed_dim", "embed_dims", "depth", "depths", "num_heads", "mlp_ratio",
    "mlp_ratios", "qkv_bias", "qk_norm", "init_values", "pre_norm", "fc_norm", "final_norm", "window_size",
    "dynamic_img_size", "dims", "head_hidden_size", "layers", "channels", "stem_width", "stem_type",
    "base_width", "cardinality", "output_stride", "act_layer", "norm_layer", "block_size",
    "channel_multiplier", "num_features", "head_init_scale", "ls_init_value", "drop_rate",
    "drop_path_rate", "proj_drop_rate", "attn_drop_rate",
)
# fmt: on
"""Arguments of a network that a folder may set. They choose layers and sizes, and name no file."""
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # timm's own defaults


def _plain(value: Any) -> Any:
    """Read a number, a text, true, false or null, or a list of these."""
    if isinstance(value, list):
        return listing(_plain, 64)(value)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise RecordError("a number, a text, or a list of these", value)
    return value


_ARGUMENT = text(
    50,
    like="|".join(_ARGUMENTS),
    says="an argument on our list (sizes and layers); see docs/model-folders.md",
)
_ABOUT: dict[str, Reader] = {
    "num_classes": whole(10**6),
    **dict.fromkeys(("label_names", "labels"), maybe(listing(text(), 10**6))),
    "label_descriptions": maybe(mapping(lambda value: value, 10**6, keys=text())),
    "input_size": maybe(row(*[whole(MOST_PIXELS)] * 3)),
    "fixed_input_size": maybe(lambda value: value is True),
}
_CONFIG = record(
    {
        "architecture": text(
            100, like="[a-z0-9_]+", says="the name of a network of timm, such as 'resnet18'"
        ),
        "model_args": maybe(mapping(_plain, keys=_ARGUMENT)),
        "pretrained_cfg": maybe(record(_ABOUT, others=True)),
        **_ABOUT,
    },
    needs=["architecture"],
    others=True,
)
_NUMBERS = maybe(listing(number(), 3))
_IMAGES = record(
    {
        "crop_mode": maybe(text(10, like="center|squash", says="'center' or 'squash'")),
        "crop_pct": maybe(
            reader("above 0 and at most 1", lambda value: type(value) in (int, float) and 0 < value <= 1)
        ),
        "interpolation": maybe(text()),
        "mean": _NUMBERS,
        "std": _NUMBERS,
    },
    others=True,
)


class Timm:
    """A network of timm."""

    rows = saved = None  # it takes prepared images, and timm makes a network in full precision

    def __init__(self, folder: Folder) -> None:
        config = folder.json(CONFIG, _CONFIG)
        about = config.get("pretrained_cfg") or {}  # older folders have no part of its own
        known = {**about, **config}
        self.folder, self._architecture = folder, config["architecture"]
        self._arguments = {
            name: value
            for name, value in (config.get("model_args") or {}).items()
            if name != "num_classes" and value is not None
        }
        size = (about or config).get("input_size") or (3, 224, 224)
        if "img_size" in self._arguments:  # what the network was made for, whatever the weights came from
            side = self._arguments["img_size"]
            size = (self._arguments.get("in_chans", 3), *(side if isinstance(side, tuple) else (side, side)))
        self.columns = known.get("num_classes", 0)
        ensure(
            size[0] in (1, 3) and self.columns,
            folder.name,
            f"has {size[0]} channels and {self.columns} classes by {CONFIG}; expected 3 channels, or 1 for "
            "grey, and num_classes.",
        )
        self._known = {"num_classes": self.columns, "input_size": size}
        if "fixed_input_size" in about:  # transformers are then made for that size
            self._known["fixed_input_size"] = about["fixed_input_size"]
        names = [known.get(key) for key in ("label_names", "labels", "label_descriptions")]
        self.own = next((list(found) for found in names if found), None)
        folder.weight_files()

    def images(self) -> ImagePreprocess:
        """Return how timm prepares images for evaluation."""
        config, name = self.folder.json(CONFIG), self.folder.name
        channels, *size = self._known["input_size"]
        problem, hint = (
            f"does not say how it wants images: in {CONFIG}, ",
            " Give preprocess=ImagePreprocess(...).",
        )
        with in_the_name_of(name, problem, hint):
            about = _IMAGES(config.get("pretrained_cfg") or config)
            share = about.get("crop_pct") or 0.875
            return ImagePreprocess(
                tuple(size),
                "squash" if about.get("crop_mode") == "squash" else "crop",
                tuple(floor(side / share) for side in size),
                about.get("interpolation") or "bicubic",
                mean=about.get("mean") or _IMAGENET["mean"],
                std=about.get("std") or _IMAGENET["std"],
                colour="grey" if channels == 1 else "rgb",
            )

    def load(self, device: str, dtype: Any) -> tuple[Any, None]:
        """Have timm make the network with its weights."""
        with self.folder.loaded_by("safetensors.torch", "timm") as tensors:
            files = [tensors.load_file(self.folder.path / file) for file in self.folder.weight_files()]
        state = {name: tensor for file in files for name, tensor in file.items()}
        ensure(state, self.folder.name, "has a file of weights without any tensor.")
        if all(name.startswith(_WRAPPED) for name in state):
            state = {name.removeprefix(_WRAPPED): tensor for name, tensor in state.items()}
        with self.folder.loaded_by("timm", "timm") as library:
            ensure(
                library.is_model(self._architecture),
                self.folder.name,
                f"has the architecture {self._architecture!r}, which timm {library.__version__} does not "
                "know. Install a newer timm, or export the network to ONNX.",
            )
            network = library.create_model(
                self._architecture,
                pretrained=True,
                pretrained_cfg={**self._known, "state_dict": state},
                num_classes=self.columns,
                **self._arguments,
            )
        return network.to(device, dtype), None

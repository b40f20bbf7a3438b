"""Folders that hold a network of timm, as teachers.

The configuration is data: the architecture must be one that timm itself has, arguments of the network must be
in the table below, and the weights are safetensors. timm is given the weights, so it looks for none on a hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import floor
from typing import Any

from numpy.typing import ArrayLike

from consilience._optional import require
from consilience._words import shorten, visible
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.preprocess import ImagePreprocess
from consilience.teachers._base import Options, Teacher, own_or_given, summary
from consilience.teachers._files import centres_of, with_preprocess
from consilience.teachers._torch import TorchTeacher, torch_teacher
from consilience.teachers.checkpoints import cannot_load
from consilience.teachers.model_folder import CONFIG, PLACEHOLDER, Folder, Signature

_PURPOSE = "A network of timm"
_WRAPPED = "timm_model."
_ARCHITECTURE = re.compile(r"[a-z0-9_]{1,100}")
# fmt: off
_ARGUMENTS = frozenset({
    "img_size", "patch_size", "in_chans", "num_classes", "global_pool", "class_token", "reg_tokens",
    "no_embed_class", "pos_embed", "embed_dim", "embed_dims", "depth", "depths", "num_heads", "mlp_ratio",
    "mlp_ratios", "qkv_bias", "qk_norm", "init_values", "pre_norm", "fc_norm", "final_norm", "window_size",
    "dynamic_img_size", "dims", "head_hidden_size", "layers", "channels", "stem_width", "stem_type",
    "base_width", "cardinality", "output_stride", "act_layer", "norm_layer", "block_size",
    "channel_multiplier", "num_features", "head_init_scale", "ls_init_value", "drop_rate",
    "drop_path_rate", "proj_drop_rate", "attn_drop_rate",
})
# fmt: on
"""Arguments of a network that a folder may set. They choose layers and sizes, and name no file."""
_LEFT_OUT = frozenset({"num_classes"})
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # timm's own defaults


class TimmTeacher(TorchTeacher):
    """A network of timm."""

    _folder: Folder | None
    _signed: Signature
    _library: str

    def _model_fingerprint(self) -> str | None:
        """Hash the files of the folder, unless they changed after they were read."""
        if self._folder is None:
            return super()._model_fingerprint()
        if self._folder.signature() != self._signed:
            return None
        return f"{self._library} {self._folder.digest(self._folder.read)}"

    def randomised(self, seed: int) -> Teacher | None:
        """Return a teacher of the same structure with random weights, which are in no folder."""
        twin = super().randomised(seed)
        if isinstance(twin, TimmTeacher):
            twin._folder = None
        return twin


def timm_teacher(folder: Folder, classes: ArrayLike | None, options: Options) -> Teacher:
    """Make a teacher of a network of timm.

    Parameters
    ----------
    folder : Folder
        Its files are listed and checked, and it has the name, and the card if there is one.
    classes : (k,) sequence, optional
        They rename the classes of the folder, or of its card.
    options : Options
        With the output on the card, where the caller left it open.
    """
    config = folder.json(CONFIG)
    about = config.get("pretrained_cfg")
    about = about if isinstance(about, dict) else config  # older folders have no part of its own
    arguments = _arguments(folder, config.get("model_args", {}))
    if "img_size" in arguments:  # what the network was made for, whatever the weights came from
        side = arguments["img_size"]
        channels = arguments.get("in_chans", 3)
        about = {**about, "input_size": [channels, *(side if isinstance(side, tuple) else (side, side))]}
    signed = folder.signature()
    count = config.get("num_classes", about.get("num_classes"))
    if type(count) is not int or not 1 <= count <= 10**6:
        raise TeacherError(folder.name, f"has no number of classes: num_classes is missing in {CONFIG}.")
    network = _network(folder, config, about, arguments, count)
    own = folder.card.classes if folder.card is not None else _labels(config, about)
    if own is None and classes is None:
        raise TeacherError(
            folder.name,
            f"does not name its classes: {CONFIG} has no label_names. Give {{remedy}} one name per column.",
            remedy="classes",
        )
    found = own_or_given(own if own is not None else [], classes, folder.name, binding=False)
    if len(found) != count:
        raise TeacherError(
            folder.name,
            f"has {count} columns and {len(found)} classes ({shorten(found, 5)}). Give "
            "{remedy} one name per column.",
            remedy="classes",
        )
    options = with_preprocess(options, folder.card)
    if options.preprocess is None:
        options = replace(options, preprocess=_preprocess(folder, about))
    teacher = torch_teacher(network, found, folder.name, options, TimmTeacher)
    teacher._folder, teacher._signed = folder, signed
    teacher._library = f"timm {require('timm', extra='timm', purpose=_PURPOSE).__version__}"
    if folder.card is not None and folder.card.embed == options.embed:
        teacher.class_centres = centres_of(folder.card)
    return teacher


def _network(
    folder: Folder,
    config: Mapping[str, Any],
    about: Mapping[str, Any],
    arguments: Mapping[str, Any],
    count: int,
) -> Any:
    """Return the network with its weights, in eval mode."""
    timm = _import_timm(folder)
    architecture = config.get("architecture")
    if not isinstance(architecture, str) or not _ARCHITECTURE.fullmatch(architecture):
        raise TeacherError(
            folder.name,
            f"has the architecture {visible(str(architecture))[:100]!r} in {CONFIG}; expected the name of a "
            "network of timm, such as 'resnet18'.",
        )
    if not timm.is_model(architecture):
        raise TeacherError(
            folder.name,
            f"has the architecture {architecture!r}, which timm {timm.__version__} does not know. Install a "
            "newer timm, or export the network to ONNX.",
        )
    state = _weights(folder)
    known = {"num_classes": count, "input_size": _input_size(folder, about), "state_dict": state}
    if isinstance(about.get("fixed_input_size"), bool):  # transformers are then made for that size
        known["fixed_input_size"] = about["fixed_input_size"]
    try:
        made = timm.create_model(
            architecture, pretrained=True, pretrained_cfg=known, num_classes=count, **arguments
        )
    except Exception as error:  # whatever a network raises for weights that are not its own
        raise cannot_load(folder, f"timm {timm.__version__} as {architecture!r}", error) from error
    return made.eval()


def _import_timm(folder: Folder) -> Any:
    try:
        return require("timm", extra="timm", purpose=_PURPOSE)
    except RuntimeError as error:  # operator torchvision::nms does not exist
        raise cannot_load(folder, "timm", error) from error


def _arguments(folder: Folder, given: Any) -> dict[str, Any]:
    """Return the arguments of the network, or raise where one is not in the table."""
    if not isinstance(given, dict):
        raise TeacherError(folder.name, f"has model_args in {CONFIG} that are no JSON object.")
    unknown = [name for name, value in given.items() if name not in _ARGUMENTS or not _is_plain(value)]
    if unknown:
        raise TeacherError(
            folder.name,
            f"sets {shorten(unknown, 3)} under model_args in {CONFIG}, which is not on the list "
            "of arguments that a folder may set. If you trust it, make the network with timm.create_model "
            "and give that, or export it to ONNX.",
        )
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if name not in _LEFT_OUT and value is not None
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 64 and all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _weights(folder: Folder) -> dict[str, Any]:
    """Return the tensors by name; transformers puts a word before each name."""
    tensors = require("safetensors.torch", extra="timm", purpose=_PURPOSE)
    state: dict[str, Any] = {}
    for file in folder.weight_files():
        try:
            state.update(tensors.load_file(folder.path / file))
        except Exception as error:  # an error of its own in Rust
            raise TeacherError(
                folder.name, f"has weights that cannot be read from {file}: {visible(summary(error))}"
            ) from error
    if not state:
        raise TeacherError(folder.name, "has a file of weights without any tensor.")
    if all(name.startswith(_WRAPPED) for name in state):
        state = {name.removeprefix(_WRAPPED): tensor for name, tensor in state.items()}
    return state


def _labels(config: Mapping[str, Any], about: Mapping[str, Any]) -> list[Any] | None:
    """Return the names of the classes; None where there are none, or only numbers that stand for names."""
    for part in (config, about):
        for key in ("label_names", "labels", "label_descriptions"):
            found = part.get(key)
            if isinstance(found, dict) and key == "label_descriptions":
                found = list(found)  # from names to sentences
            if isinstance(found, list) and found and not all(map(_is_placeholder, found)):
                return found
    return None


def _is_placeholder(name: Any) -> bool:
    return isinstance(name, str) and PLACEHOLDER.fullmatch(name) is not None


def _input_size(folder: Folder, about: Mapping[str, Any]) -> tuple[int, int, int]:
    size = about.get("input_size") or (3, 224, 224)
    if not isinstance(size, list | tuple) or len(size) != 3 or size[0] not in (1, 3):
        raise TeacherError(
            folder.name,
            f"has input_size {visible(str(size))[:100]} in {CONFIG}; expected channels (3, or 1 for grey), "
            "height and width.",
        )
    return tuple(size)


def _preprocess(folder: Folder, about: Mapping[str, Any]) -> ImagePreprocess:
    """Return how timm prepares images for evaluation."""
    channels, *size = _input_size(folder, about)
    share, mode = about.get("crop_pct") or 0.875, about.get("crop_mode") or "center"
    try:
        if mode not in ("center", "squash"):
            raise InvalidInputError(f"crop_mode is {visible(str(mode))[:50]!r}; known are center and squash.")
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise InvalidInputError("crop_pct must be above 0 and at most 1.")
        return ImagePreprocess(
            (size[0], size[1]),
            "squash" if mode == "squash" else "crop",
            (floor(size[0] / share), floor(size[1] / share)),
            about.get("interpolation") or "bicubic",
            mean=about.get("mean") or _IMAGENET["mean"],
            std=about.get("std") or _IMAGENET["std"],
            colour="grey" if channels == 1 else "rgb",
        )
    except (InvalidInputError, TypeError) as error:
        raise TeacherError(
            folder.name,
            f"does not say how it wants images: in {CONFIG}, {error} Give {{remedy}} an ImagePreprocess.",
            remedy="preprocess",
        ) from error

"""What is asked of the transformers library: classes that it has itself, filled with weights that we read.

The library never sees the folder. It gets a configuration and tensors, so that it cannot open a file that a
configuration names, fetch anything, or run code of the folder. Only functions import it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from consilience._optional import require
from consilience._words import shorten, visible
from consilience.exceptions import MissingDependencyError, TeacherError
from consilience.teachers._base import summary
from consilience.teachers._folder_files import Folder

PURPOSE = "A model folder of transformers"
OLDEST = "5.20"
_AUTO = "transformers.models.auto"
# keys that would make the library fetch kernels, read other files or split the model over processes
_DROPPED = ("attn_implementation", "experts_implementation", "transformers_weights", "distributed_config")
# what we say ourselves, and what would change the form of the output
_UNUSED = (
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "torchscript",
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "architectures",
    "transformers_version",
)


def load_config(folder: Folder, config: Mapping[str, Any]) -> Any:
    """Return the library's configuration object."""
    known = library(f"{_AUTO}.configuration_auto").CONFIG_MAPPING
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise TeacherError(
            folder.name,
            f"has the model_type {visible(repr(kind))[:100]}, which this release of transformers does not "
            f"know. Code of the folder is never run. Upgrade transformers, or export the model to ONNX.",
        )
    try:
        with quiet():
            return known[kind].from_dict(_plain(config))
    except Exception as error:  # a configuration can be wrong in any way
        raise TeacherError(
            folder.name, f"has a config.json that transformers cannot use ({summary(error)})."
        ) from error


def _plain(config: Any) -> Any:
    """Return a configuration without the keys that reach for more than numbers."""
    if isinstance(config, list):
        return [_plain(value) for value in config]
    if not isinstance(config, Mapping):
        return config
    return {
        key: _plain(value)
        for key, value in config.items()
        if key not in _UNUSED and not any(dropped in key for dropped in _DROPPED)
    }


def load_model(
    folder: Folder, config: Any, table: str, architecture: str | None, dtype: Any, files: Any
) -> Any:
    """Return a network of the library with the weights of a folder, in eval mode.

    Parameters
    ----------
    folder : Folder
    config : PreTrainedConfig
    table : str
        The library's table of networks for a task, such as ``MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING``.
    architecture : str or None
        The class that the folder names, which must be in the table; None takes the table's own.
    dtype : torch.dtype
    files : sequence of str
        The safetensors files.
    """
    kind = _network_class(folder, config, table, architecture)
    weights = _weights(folder, files)
    try:
        with quiet():
            model, report = kind.from_pretrained(
                None, config=config, state_dict=weights, dtype=dtype, output_loading_info=True,
                local_files_only=True, ignore_mismatched_sizes=True,
            )  # fmt: skip
    except Exception as error:  # weights and numbers can be wrong in any way
        raise TeacherError(folder.name, f"cannot be loaded by transformers ({summary(error)}).") from error
    missing = sorted(map(str, report["missing_keys"]))
    other = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if architecture is None:  # an encoder may come without the pooler, which is not used
        missing = [key for key in missing if not key.startswith("pooler.")]
    if missing or other:
        what = (
            f"lacks the weights {shorten(missing, 3)}"
            if missing
            else f"has weights of another shape for {shorten(other, 3)}"
        )
        raise TeacherError(
            folder.name, f"{what}. The library would fill these with random numbers. Fetch the folder again."
        )
    return model.eval()


def _network_class(folder: Folder, config: Any, table: str, architecture: str | None) -> Any:
    kinds = getattr(library(f"{_AUTO}.modeling_auto"), table)
    try:
        found = kinds.get(type(config), ())
    except ImportError as error:
        raise _broken(error) from error
    made = {kind.__name__: kind for kind in (found if isinstance(found, tuple) else (found,))}
    kind = made.get(architecture) if architecture is not None else next(iter(made.values()), None)
    if kind is None:
        raise TeacherError(
            folder.name,
            f"is a {architecture}, which transformers does not have for the model_type "
            f"{config.model_type!r}; it has {shorten(made) or 'none'}.",
        )
    return kind


def _weights(folder: Folder, files: Any) -> dict[str, Any]:
    safetensors = require("safetensors.torch", extra="hf", purpose=PURPOSE)
    weights: dict[str, Any] = {}
    for file in files:
        try:
            weights |= safetensors.load_file(folder.path / file)
        except Exception as error:  # the library has errors of its own
            raise TeacherError(
                folder.name, f"has weights that cannot be read: {file} ({summary(error)}). Fetch it again."
            ) from error
    return weights


def load_image_processor(folder: Folder, model_type: str, settings: Mapping[str, Any]) -> Any:
    """Return the library's image processor of a folder, in the version that uses PIL.

    The other version uses torchvision and gives other pixels.

    Parameters
    ----------
    folder : Folder
    model_type : str
    settings : mapping
        The content of ``preprocessor_config.json``.
    """
    auto = library(f"{_AUTO}.image_processing_auto")
    tables = library(f"{_AUTO}.modeling_auto").MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    # only processors of image classifiers: others read files that their settings name
    known = {
        kind: auto.IMAGE_PROCESSOR_MAPPING_NAMES.get(kind) or {} for kind in tables if kind != "timm_wrapper"
    }
    allowed = {entry["pil"] for entry in known.values() if "pil" in entry}
    named = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    if named is None:
        chosen = known.get(model_type, {}).get("pil", "")
    else:
        base = (
            str(named).replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil")
        )
        chosen = f"{base}Pil"
    if chosen not in allowed:
        raise TeacherError(
            folder.name,
            f"has the image processor {visible(repr(named))[:100]}, which transformers does not have for "
            f"image classification. Code of the folder is never run.",
        )
    rest = {key: value for key, value in settings.items() if not key.endswith(("_type", "_class"))}
    try:
        with quiet():
            return getattr(library("transformers"), chosen)(**rest)
    except Exception as error:  # settings can be wrong in any way
        raise TeacherError(
            folder.name, f"has a preprocessor_config.json that cannot be used ({summary(error)})."
        ) from error


def library(module: str) -> ModuleType:
    """Import a module of transformers, or say what is missing."""
    require("torch", extra="hf", purpose=PURPOSE)
    require("transformers", extra="hf", purpose=PURPOSE)
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise _broken(error) from error


def _broken(error: Exception) -> MissingDependencyError:
    return MissingDependencyError(
        f"{PURPOSE} cannot use the transformers that is installed ({summary(error)}). It needs release "
        f"{OLDEST} or newer. If that is so: a torchvision that was built for another torch breaks it; "
        f"install the one that fits, or remove torchvision, which is not needed here."
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library from writing progress bars and reports; errors are raised all the same."""
    logging = library("transformers.utils.logging")
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()

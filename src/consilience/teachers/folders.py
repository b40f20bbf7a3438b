"""Model folders: tell by the files in a folder what it holds, and pass it to the adapter for that.

Nothing in a folder is imported, unpickled or run, nothing is downloaded, and no file outside it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from numpy.typing import ArrayLike

from consilience._words import shorten
from consilience.exceptions import TeacherError
from consilience.files.card import find_folder_card
from consilience.teachers._base import Options, Teacher
from consilience.teachers.checkpoints import transformers_teacher
from consilience.teachers.model_folder import CONFIG, MODULES, PICKLES, Folder, list_files
from consilience.teachers.sentences import sentence_teacher
from consilience.teachers.timm import timm_teacher

Kind = Literal["transformers", "sentences", "timm"]
FolderMaker = Callable[[Folder, ArrayLike | None, Options], Teacher]

_MAKERS: dict[Kind, FolderMaker] = {
    "transformers": transformers_teacher,
    "sentences": sentence_teacher,
    "timm": timm_teacher,
}

# what other folders hold, by a file in them, and what to do about it
_ADVICE = {
    "adapter_config.json": "an adapter without its model. Merge the two (merge_and_unload in peft), and save "
    "the result with save_pretrained",
    "saved_model.pb": "a TensorFlow model. Convert it to ONNX (tf2onnx), and give the .onnx file",
    "tf_model.h5": "weights of TensorFlow. Fetch the safetensors of this model",
    "flax_model.msgpack": "weights of Flax. Fetch the safetensors of this model",
    "MLmodel": "an MLflow model. Give the model in it: its .onnx file, its folder of safetensors, or the "
    "loaded model itself",
}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def folder_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of a model folder: of transformers, of sentence-transformers with a head, or of timm."""
    where = Path(path).absolute()
    shown = name or where.name
    card = find_folder_card(where)
    if card is not None:
        shown = name or card.name
        if options.output == "auto" and card.output is not None:
            options = replace(options, output=card.output)
    try:
        folder = Folder(where, shown, list_files(where, shown), card)
    except OSError as error:
        raise TeacherError(shown, f"cannot be read from {where}: {error.strerror}.") from error
    kind = kind_of(folder)
    folder.check_settings()
    if options.preprocess is not None and kind != "timm":
        raise TeacherError(
            shown,
            "prepares its rows as the folder says; {argument} is for networks of timm. Drop it.",
            argument="preprocess",
        )
    if options.half is not None and kind == "timm":
        raise TeacherError(
            shown, "runs as its weights were saved; drop {argument}.", argument="half", value=options.half
        )
    return _MAKERS[kind](folder, classes, options)


def kind_of(folder: Folder) -> Kind:
    """Tell what a folder holds, or say what to do with it.

    - ``modules.json``: an encoder of sentence-transformers;
    - ``config.json`` with ``architecture`` (one): a network of timm, also in the wrapper of transformers;
    - ``config.json`` with ``model_type`` or ``architectures``: a checkpoint of transformers.
    """
    # an adapter has no config.json of its own, or one of the model that it is for
    for file, what in _ADVICE.items():
        if file in folder.files and (file == "adapter_config.json" or CONFIG not in folder.files):
            raise TeacherError(folder.name, f"is a folder with {file}: {what}.")
    if MODULES in folder.files:
        return "sentences"
    config = folder.json(CONFIG)
    if "architecture" in config and config.get("model_type") in (None, "timm_wrapper"):
        return "timm"
    if "model_type" in config or "architectures" in config:
        return "transformers"
    raise TeacherError(folder.name, _unknown(folder))


def _unknown(folder: Folder) -> str:
    """Say what is wrong with a folder that is of no known kind."""
    files = sorted(folder.files)
    models = [file for file in files if file.lower().endswith((".onnx", ".npz", ".skops"))]
    pickled = [file for file in files if file.lower().endswith(PICKLES)]
    if models:
        return f"is a folder that holds {shorten(map(repr, models), 3)}. Give the file itself."
    if pickled:
        return (
            f"is a folder that holds {shorten(map(repr, pickled), 3)}: a pickle, which can run any code when "
            "it is opened. Export the model to ONNX, or save it as safetensors with its config.json."
        )
    holds = shorten(map(repr, files), 3) if files else "nothing"
    return (
        f"is a folder that holds {holds}. A model folder has a config.json (of transformers or timm) or a "
        "modules.json (of sentence-transformers)."
    )


def hub_advice(source: str | os.PathLike[str]) -> str:
    """Say how to fetch a model, if what was given looks like its name on a hub; else an empty text."""
    text = os.fspath(source)
    if not isinstance(text, str) or not _HUB_NAME.fullmatch(text):
        return ""
    return (
        f"is given as {text!r}, and there is no such folder here. If that is a model's name on a hub: "
        f"nothing is downloaded on its own. Fetch it (hf download {text} --local-dir FOLDER), and give that."
    )

"""Model folders as teachers: of transformers, of sentence-transformers with a head, or of timm.

Nothing in a folder is imported, unpickled or run, nothing is downloaded, and no file outside it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from consilience._optional import require
from consilience._words import shorten
from consilience.exceptions import TeacherError
from consilience.files.card import find_folder_card
from consilience.options import choice, option, takes
from consilience.teachers.base import Adapter, Teacher, teacher_name
from consilience.teachers.inputs import Input
from consilience.teachers.model_folder import CONFIG, MODULES, PICKLES, Batches, Folder, list_files
from consilience.teachers.outputs import ensure, in_the_name_of
from consilience.teachers.sentences import Sentences
from consilience.teachers.timm import Timm
from consilience.teachers.torch import Torch, TorchOptions, check_device, check_layer
from consilience.teachers.transformers import Checkpoint

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
_HALF = ("float16", "bfloat16")


class FolderOptions(TorchOptions):
    """What a model folder takes."""

    half: bool | None = option(
        choice(None, True, False),
        "Whether it runs in half precision. By default it does on a GPU, if its weights were saved so.",
        default=None,
    )


class ModelFolder(Torch):
    """A model folder (docs/model-folders.md).

    It holds a sequence or image classifier of transformers, an encoder of sentence-transformers with a
    linear head, or a network of timm. The network is loaded when it is first asked, in each process.

    Examples
    --------
    >>> ModelFolder("news", half=True).predict_logits(["the match"]).shape  # doctest: +SKIP
    (1, 2)
    """

    _loaded: Any = None
    _digest: str | None = None

    @takes(FolderOptions)
    def __init__(
        self,
        path: str | os.PathLike[str],
        classes: ArrayLike | None = None,
        name: str | None = None,
        options: Any = None,
    ) -> None:
        where = Path(path).absolute()
        card = find_folder_card(where)
        shown = teacher_name(name, where.name if card is None else card.name)
        try:
            self._folder = Folder(where, shown, list_files(where, shown), card)
        except OSError as error:
            raise TeacherError(shown, f"cannot be read from {where}: {error.strerror}.") from error
        make = kind_of(self._folder)
        self._folder.check_settings()
        kind = self._kind = make(self._folder)
        if options.output == "auto" and card is not None:
            options.output = card.output or "auto"
        # timm gets prepared images; others prepare their rows themselves
        self._takes_arrays = self._embeds_batches = isinstance(kind, Timm)
        if isinstance(kind, Timm):
            known = None if card is None else card.preprocess
            options.preprocess = options.preprocess or known or kind.images()
        else:
            self.inputs = (Input("X", kind.rows, (None,)),)
        ensure(
            self._takes_arrays or options.preprocess is None,
            shown,
            "prepares its rows as the folder says; {argument} is for networks of timm. Drop it.",
            argument="preprocess",
        )
        self._device, self._batch_size = options.device or "cpu", options.batch_size
        with in_the_name_of(shown, "cannot run: "):
            check_device(self._device)
        half = options.half
        if half is None:  # a processor is slower in half precision, and weights in full may need it
            half = not self._device.startswith("cpu") and kind.saved in _HALF
        # bfloat16 has the range of float32, so it never overflows
        self._dtype = (kind.saved if kind.saved in _HALF else "bfloat16") if half else "float32"
        self._signature = self._folder.signature()
        found = self._folder.classes(kind.own, kind.columns, classes)
        Adapter.__init__(self, shown, found, options, output="logits" if options.output == "auto" else None)
        self._take_card(where, card if card is not None and card.embed == options.embed else None)

    @property
    def _module(self) -> Any:
        return self._ready()[0]

    def _ready(self) -> tuple[Any, Batches | None]:
        """Return the network and what prepares its rows; they stay in memory until `release`."""
        if self._loaded is None:
            torch = require("torch", extra="hf", purpose="A model folder")
            problem = f"has changed: files in {self._folder.path} are others now. Open it again."
            ensure(self._folder.signature() == self._signature, self.name, problem)
            network, batches = self._kind.load(self._device, getattr(torch, self._dtype))
            check_layer(network, self._embed, self.name)
            self._loaded = network.eval(), batches
        found: tuple[Any, Batches | None] = self._loaded
        return found

    def release(self) -> None:
        """Free the memory of the network; it is loaded again when it is needed."""
        self._loaded = self._head = None

    def _batches(self, X: Any, rows: int) -> Iterator[tuple[Any, Any, Any]]:
        prepare = self._ready()[1]
        if prepare is None:
            yield from super()._batches(X, rows)
        else:
            for places, given, named in prepare(X, self._batch_size):
                yield np.arange(rows)[places], given, named

    def randomised(self, seed: int) -> Teacher | None:
        """Return a teacher of the same structure with random weights, if it is a plain network of timm."""
        if not self._takes_arrays:
            return None
        options = {"embed": self._embed, "preprocess": self.preprocess, "batch_size": self._batch_size}
        return Torch(self._module, self.classes, self.name, **options).randomised(seed)

    def _model_fingerprint(self) -> str | None:
        """Hash the files that are read; None if they have changed since the folder was opened."""
        if self._folder.signature() != self._signature:
            return None
        if self._digest is None:
            self._digest = self._folder.digest(self._folder.read)
        return f"{self._digest} {self._dtype}"

    def __getstate__(self) -> dict[str, Any]:
        # another process loads the network from the folder
        return {key: value for key, value in super().__getstate__().items() if key != "_loaded"}


def kind_of(folder: Folder) -> type[Checkpoint | Sentences | Timm]:
    """Tell what a folder holds, or say what to do with it.

    - ``modules.json``: an encoder of sentence-transformers;
    - ``config.json`` with ``architecture`` (one): a network of timm, also in the wrapper of transformers;
    - ``config.json`` with ``model_type`` or ``architectures``: a checkpoint of transformers.
    """
    # an adapter has no config.json of its own, or one of the model that it is for
    for file, what in _ADVICE.items():
        other = file in folder.files and (file == "adapter_config.json" or CONFIG not in folder.files)
        ensure(not other, folder.name, f"is a folder with {file}: {what}.")
    if MODULES in folder.files:
        return Sentences
    config = folder.json(CONFIG)
    ensure(isinstance(config, dict), folder.name, f"cannot be used: {CONFIG} must hold a JSON object.")
    if "architecture" in config and config.get("model_type") in (None, "timm_wrapper"):
        return Timm
    if "model_type" in config or "architectures" in config:
        return Checkpoint
    files = sorted(folder.files)
    models = [file for file in files if file.lower().endswith((".onnx", ".npz", ".skops"))]
    pickled = [file for file in files if file.lower().endswith(PICKLES)]
    holds = shorten(map(repr, models or pickled or files), 3) or "nothing"
    what = (
        f"A model folder has a {CONFIG} (of transformers or timm) or a {MODULES} (of sentence-transformers)."
    )
    if models:
        what = "Give the file itself."
    elif pickled:
        what = (
            "A pickle can run any code when it is opened. Export the model to ONNX, or save it as "
            f"safetensors with its {CONFIG}."
        )
    raise TeacherError(folder.name, f"is a folder that holds {holds}. {what}")


def hub_advice(source: str | os.PathLike[str]) -> str:
    """Say how to fetch a model, if what was given looks like its name on a hub; else an empty text."""
    text = os.fspath(source)
    if not isinstance(text, str) or not _HUB_NAME.fullmatch(text):
        return ""
    return (
        f"is given as {text!r}, and there is no such folder here. If that is a model's name on a hub: "
        f"nothing is downloaded on its own. Fetch it (hf download {text} --local-dir FOLDER), and give that."
    )

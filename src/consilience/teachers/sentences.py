"""Encoders of sentence-transformers with a linear head, as teachers.

The library loads the encoder, after the types of its modules were compared with a list. The head is a file
``head.safetensors`` in the same folder: ``weight`` (k, d), ``bias`` (k,), and in its metadata ``classes``, a
JSON list.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import check_count
from consilience._words import visible
from consilience.exceptions import TeacherError, UnsafeFileError
from consilience.files.ngram_model import as_texts
from consilience.teachers._base import BATCH_SIZE, Input, Options, Teacher, own_or_given
from consilience.teachers._networks import check_device
from consilience.teachers.checkpoints import (
    LOCAL,
    FolderTeacher,
    cannot_load,
    load_network,
    logits_only,
    prepare,
)
from consilience.teachers.model_folder import MODULES, Folder, list_files
from consilience.teachers.sentence_head import Head, read_head

_PURPOSE = "An encoder folder"
_AT_ONCE = 32  # texts of a batch on a processor: small batches stay in its cache
_MODULES = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "Normalize": "base.modules.normalize",
    "Dense": "base.modules.dense",
}
_TYPES = {
    f"sentence_transformers.{place}.{kind}": kind
    for kind, module in _MODULES.items()
    for place in ("models", module, module.rpartition(".")[0])
}
"""The types that modules.json may name: those that the library writes today, and wrote before."""


class SentenceTeacher(FolderTeacher):
    """An encoder of sentence-transformers with a linear head. Its embedding is that of the encoder."""

    _head: Head

    def _load(self, torch: Any) -> Any:
        return load_encoder(self._folder, self._device, getattr(torch, self._dtype))

    def _encoded(self, X: Any) -> NDArray[np.float32]:
        found = encode(self.loaded(), as_texts(X), self._batch_size)
        if found.shape[1] != self._head.weight.shape[1]:
            raise TeacherError(
                self.name,
                f"has a head for {self._head.weight.shape[1]} features, and its encoder gives "
                f"{found.shape[1]}. Fit the head on embeddings of this encoder.",
            )
        return found

    def _scores(self, X: Any, rows: int) -> Any:
        return self._head.logits(self._encoded(X))

    def _features(self, X: Any, rows: int) -> Any:
        return self._encoded(X) if self._embed is None else self._embed(X)

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        features = self._encoded(X)
        return self._head.logits(features), features if self._embed is None else self._embed(X)

    def _embeddable(self) -> bool:
        return True

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the head, unless embed= is something else."""
        return self._head.weight if self._embed is None else None

    @property
    def inputs(self) -> tuple[Input, ...]:
        """A list of texts."""
        return (Input("X", "text", (None,)),)


def sentence_teacher(folder: Folder, classes: ArrayLike | None, options: Options) -> Teacher:
    """Make a teacher of an encoder of sentence-transformers and its head."""
    check_encoder(folder)
    head = read_head(folder)
    if folder.card is not None and len(folder.card.classes) != len(head.weight):
        raise TeacherError(
            folder.name,
            f"has a head with {len(head.weight)} rows and {len(folder.card.classes)} classes on its card. "
            "Mend the card.",
        )
    own = head.classes if folder.card is None else folder.card.classes
    teacher = SentenceTeacher(
        folder.name, own_or_given(own, classes, folder.name), options, output=logits_only(folder, options)
    )
    prepare(teacher, folder, options)
    teacher._head = head
    return teacher


def encode_sentences(
    folder: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    batch_size: int = BATCH_SIZE,
    device: str | None = None,
) -> NDArray[np.float32]:
    """Return the embeddings of texts by an encoder folder of sentence-transformers.

    Fit a linear model on them, and put it into the folder with `save_sentence_head`.

    Parameters
    ----------
    folder : path
    texts : sequence of str
        n texts.
    batch_size : int
        Texts per pass, at most.
    device : str, optional
        Where torch runs; by default the processor.

    Returns
    -------
    (n, d) float32 array

    Examples
    --------
    >>> encode_sentences("all-MiniLM-L6-v2", ["a cat", "a dog"]).shape  # doctest: +SKIP
    (2, 384)
    """
    rows, size = as_texts(texts), check_count("batch_size", batch_size)
    where = Path(folder).absolute()
    if not where.is_dir():
        raise TeacherError(where.name, f"is given as {os.fspath(folder)!r}, which is no folder.")
    opened = Folder(where, where.name, list_files(where, where.name))
    opened.check_settings()
    check_encoder(opened)
    if device is not None:
        check_device(device)
    torch = require("torch", extra="hf", purpose=_PURPOSE)
    return encode(load_encoder(opened, device or "cpu", torch.float32), rows, size)


def check_encoder(folder: Folder) -> None:
    """Raise unless the modules of a folder are on the list, and their files in the folder."""
    if MODULES not in folder.files:
        raise TeacherError(
            folder.name, f"has no {MODULES}, so it is no folder that sentence-transformers saved."
        )
    found = folder.any_json(MODULES)
    if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
        raise TeacherError(folder.name, f"cannot be used: {MODULES} must hold a list of modules.")
    for entry in found:
        path, kind = entry.get("path", ""), str(entry.get("type", ""))
        if not isinstance(path, str) or path in ("..", ".") or set(path) & set("/\\:\0"):
            raise UnsafeFileError(
                f"{MODULES} of {folder.name!r} keeps a module in {visible(str(path))[:200]!r}. A module must "
                "lie in the folder itself or in a subfolder, named without any path."
            )
        if kind not in _TYPES:
            raise UnsafeFileError(
                f"{MODULES} of {folder.name!r} asks for {visible(kind)[:200]!r}. Code of a folder is never "
                f"run; {', '.join(_MODULES)} of sentence-transformers are loaded. Export other encoders to "
                "ONNX."
            )
        within = f"{path}/" if path else ""
        if _TYPES[kind] in ("Transformer", "Dense"):
            folder.weight_files(within)
        if _TYPES[kind] == "Transformer":
            folder.check_tokenizer(within)


def load_encoder(folder: Folder, device: str, dtype: Any) -> Any:
    """Have sentence-transformers load an encoder."""
    library = require("sentence_transformers", extra="hf", purpose=_PURPOSE)
    for entry in folder.any_json(MODULES):
        if _TYPES[entry["type"]] == "Transformer":  # it does not tell when weights are missing
            load_network(folder, f"{entry['path']}/" if entry.get("path") else "", "AutoModel", dtype)
    try:
        return library.SentenceTransformer(
            str(folder.path), device=device, **LOCAL, model_kwargs={"use_safetensors": True, "dtype": dtype}
        )
    except Exception as error:
        raise cannot_load(folder, "sentence-transformers", error) from error


def encode(encoder: Any, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """Return embeddings (n, d)."""
    size = min(batch_size, _AT_ONCE) if encoder.device.type == "cpu" else batch_size
    found = encoder.encode(list(texts), batch_size=size, show_progress_bar=False)
    return np.asarray(found, dtype=np.float32).reshape(len(texts), -1 if len(texts) else 0)

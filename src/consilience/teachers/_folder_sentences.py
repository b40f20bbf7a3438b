"""Encoders of sentence-transformers with a linear head, as teachers.

The encoder is read by transformers alone: a transformer, a pooling of its tokens and a scaling to length one
are all that most encoders have. The head is a file ``head.safetensors`` in the same folder: ``weight``
(k, d), ``bias`` (k,), and in its metadata ``classes``, a JSON list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import check_count
from consilience._words import shorten, visible
from consilience.exceptions import TeacherError, UnsafeFileError
from consilience.files.ngram_model import as_texts
from consilience.teachers._base import BATCH_SIZE, Input, Options, Teacher, own_or_given
from consilience.teachers._folder_files import CONFIG, MODULES, Folder, check_config, list_files
from consilience.teachers._folder_head import masked_mean
from consilience.teachers._folder_library import PURPOSE, load_config, load_model
from consilience.teachers._folder_sentence_head import HEAD, Head, read_head
from consilience.teachers._folder_tokens import Tokens, read_tokens, tokenizer_files, tokenizer_settings
from consilience.teachers._folder_transformers import FolderTeacher, logits_only, prepare, token_numbers
from consilience.teachers._networks import check_device

SETTINGS, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
_MODULES = ("Transformer", "Pooling", "Normalize")


def _first(states: Any, mask: Any) -> Any:
    return states[list(range(len(states))), mask.int().argmax(dim=1)]


def _largest(states: Any, mask: Any) -> Any:
    return states.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).max(dim=1).values


_POOLINGS: dict[str, Callable[[Any, Any], Any]] = {"cls": _first, "mean": masked_mean, "max": _largest}
# older folders have a key per kind of pooling, joined in this order
_OLD_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class EncoderSettings:
    """How a folder of sentence-transformers makes an embedding.

    Attributes
    ----------
    within : str
        The subfolder of the transformer, with a slash at its end, or an empty text.
    poolings : tuple of str
        What becomes of the tokens; several are put side by side.
    normalize : bool
        Whether embeddings are scaled to length one.
    max_length : int or None
        How many tokens of a text are read at most.
    lower : bool
        Whether capitals are made small first.
    prompt : str
        Put before each text.
    files : tuple of str
        All files that are read.
    """

    within: str
    poolings: tuple[str, ...]
    normalize: bool
    max_length: int | None
    lower: bool
    prompt: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder."""

    torch: Any
    module: Any
    tokens: Tokens
    settings: EncoderSettings
    device: str

    def encode(self, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        """Return embeddings (n, d)."""
        lower, prompt = self.settings.lower, self.settings.prompt
        prepared = [prompt + (text.lower() if lower else text) for text in texts]
        found: NDArray[np.float32] | None = None
        for rows, batch in self.tokens.batches(prepared, batch_size, self.device):
            part = self._run({key: self.torch.as_tensor(value) for key, value in batch.items()})
            found = np.empty((len(texts), part.shape[1]), np.float32) if found is None else found
            found[rows] = part
        return np.empty((0, 0), np.float32) if found is None else found

    def _run(self, batch: Mapping[str, Any]) -> NDArray[np.float32]:
        batch = {key: value.to(self.device) for key, value in batch.items()}
        with self.torch.inference_mode():
            states = self.module(**batch).last_hidden_state.float()
            mask = batch["attention_mask"]
            pooled = self.torch.cat([_POOLINGS[one](states, mask) for one in self.settings.poolings], dim=1)
            if self.settings.normalize:
                pooled = self.torch.nn.functional.normalize(pooled, dim=1)
        values: NDArray[np.float32] = pooled.cpu().numpy()
        return values


class SentenceTeacher(FolderTeacher):
    """An encoder of sentence-transformers with a linear head. Its embedding is that of the encoder."""

    _settings: EncoderSettings
    _head: Head

    def _load(self, torch: Any) -> Encoder:
        return load_encoder(torch, self._folder, self._settings, self._dtype, self._device)

    def _encoded(self, X: Any) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.loaded().encode(as_texts(X), self._batch_size)
        if found.shape[1] != self._head.weight.shape[1]:
            raise TeacherError(
                self.name,
                f"has a head for {self._head.weight.shape[1]} features, and its encoder gives "
                f"{found.shape[1]}. Fit the head on embeddings of this encoder.",
            )
        return found

    def _logits(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(features @ self._head.weight.T + self._head.bias, dtype=np.float64)

    def _scores(self, X: Any, rows: int) -> Any:
        return self._logits(self._encoded(X))

    def _features(self, X: Any, rows: int) -> Any:
        return self._encoded(X) if self._embed is None else self._embed(X)

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        features = self._encoded(X)
        return self._logits(features), features if self._embed is None else self._embed(X)

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
    settings = read_settings(folder)
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
    prepare(teacher, folder, [*settings.files, HEAD], options)
    teacher._settings, teacher._head = settings, head
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
    opened = open_encoder(folder)
    if device is not None:
        check_device(device)
    torch = require("torch", extra="hf", purpose=PURPOSE)
    encoder = load_encoder(torch, opened, read_settings(opened), "float32", device or "cpu")
    return encoder.encode(rows, size)


def open_encoder(path: str | os.PathLike[str]) -> Folder:
    """Return the folder of an encoder, after the check of its files."""
    where = Path(path).absolute()
    if not where.is_dir():
        raise TeacherError(where.name, f"is given as {os.fspath(path)!r}, which is no folder.")
    folder = Folder(where, where.name, list_files(where, where.name))
    if MODULES not in folder.files:
        raise TeacherError(
            where.name, f"has no {MODULES}, so it is no folder that sentence-transformers saved."
        )
    return folder


def load_encoder(torch: Any, folder: Folder, settings: EncoderSettings, dtype: str, device: str) -> Encoder:
    """Read the weights and the tokenizer of an encoder."""
    config = load_config(folder, folder.json(settings.within + CONFIG))
    files = folder.weight_files(settings.within)
    module = load_model(folder, config, "MODEL_MAPPING", None, getattr(torch, dtype), files)
    numbers = token_numbers(config)
    tokens = read_tokens(folder, numbers, within=settings.within, max_length=settings.max_length)
    return Encoder(torch, module.to(device), tokens, settings, device)


def read_settings(folder: Folder) -> EncoderSettings:
    """Read how a folder makes an embedding, or say what it has that is not read."""
    modules = _read_modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds not in (list(_MODULES[:2]), list(_MODULES)):
        raise TeacherError(
            folder.name,
            f"has the modules {shorten(kinds) or 'none'}; an encoder of {', '.join(_MODULES[:2])} and, if "
            f"you like, {_MODULES[2]} is read.",
        )
    within, pooling = modules[0][1], modules[1][1] + CONFIG
    config, settings = folder.json(within + CONFIG), folder.json(within + SETTINGS)
    check_config(folder, config)
    tokenizer_settings(folder, within)
    limit = settings.get("max_seq_length")
    used = (MODULES, PROMPTS, within + CONFIG, within + SETTINGS, pooling)
    return EncoderSettings(
        within,
        _read_poolings(folder, pooling),
        "Normalize" in kinds,
        limit if type(limit) is int and limit > 0 else None,
        settings.get("do_lower_case") is True,
        _read_prompt(folder, folder.json(pooling)),
        tuple(
            [file for file in used if file in folder.files]
            + [*folder.weight_files(within), *tokenizer_files(folder, within)]
        ),
    )


def _read_modules(folder: Folder) -> list[tuple[str, str]]:
    """Return the kind of each module, and its subfolder with a slash at its end."""
    found = folder.any_json(MODULES)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise TeacherError(folder.name, f"cannot be used: {MODULES} must hold a list of modules.")
    modules = []
    for entry in found:
        path, kind = entry.get("path", ""), str(entry.get("type", ""))
        plain = isinstance(path, str) and path not in ("..", ".") and not set(path) & set("/\\:\0")
        if not plain:
            raise UnsafeFileError(
                f"{MODULES} of {folder.name!r} keeps a module in {visible(str(path))[:200]!r}. A module must "
                "lie in the folder itself or in a subfolder, named without any path."
            )
        if not kind.startswith("sentence_transformers."):
            raise UnsafeFileError(
                f"{MODULES} of {folder.name!r} asks for the code {visible(kind)[:200]!r}, which is never run."
            )
        modules.append((visible(kind).rpartition(".")[2], f"{path}/" if path else ""))
    return modules


def _read_poolings(folder: Folder, file: str) -> tuple[str, ...]:
    settings = folder.json(file)
    given = settings.get("pooling_mode")
    if given is None:
        found = [kind for key, kind in _OLD_KEYS.items() if settings.get(key) is True] or ["mean"]
    else:
        found = [str(kind) for kind in (given if isinstance(given, list) else [given])]
    unknown = [kind for kind in found if kind not in _POOLINGS]
    if unknown or not found:
        raise TeacherError(
            folder.name,
            f"pools its tokens by {visible(shorten(unknown))[:100]!r}; {', '.join(_POOLINGS)} are read.",
        )
    return tuple(found)


def _read_prompt(folder: Folder, pooling: Mapping[str, Any]) -> str:
    """Return what is put before each text: the prompt that the folder names as its default."""
    settings = folder.json(PROMPTS)
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(prompt, str) or pooling.get("include_prompt") is False:
        raise TeacherError(
            folder.name,
            f"has a default prompt in {PROMPTS} that is missing, or left out of the pooling, which is not "
            "read. Remove default_prompt_name if your texts have no prompt.",
        )
    return prompt

"""Texts to tokens, by the ``tokenizer.json`` of a folder.

The file is a whole tokenizer as data, which the tokenizers library reads. Slow tokenizers are not used: they
read files of many kinds, pickles among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import TeacherError
from consilience.teachers._base import summary
from consilience.teachers._folder_files import Folder, check_config

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
MAX_TOKENIZER = 256 * 2**20
# tokens of a batch, padding included; small batches stay in the cache of a processor, which halves the time
CPU_TOKENS, GPU_TOKENS = 2**10, 2**14
_LEFT = ("xlnet",)  # filled up on the left, though not all of their folders say so
_LEAKY = ("convbert", "fnet", "funnel", "nystromformer", "yoso")
"""Networks whose answer depends on how much a text is filled up: their convolutions and sums see it."""
_ENDLESS = 10**6  # tokenizers without a limit write 1e30


@dataclass(frozen=True)
class Tokens:
    """What a folder's tokenizer makes of texts.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        Without padding; it cuts long texts off.
    pad : int or None
        The number of the token that fills up short texts. None: one text at a time.
    left : bool
        Whether short texts are filled up on the left.
    types : bool
        Whether the network is given `token_type_ids`, too.
    mixed : bool
        Whether a batch may hold texts of different lengths.
    """

    tokenizer: Any
    pad: int | None
    left: bool
    types: bool
    mixed: bool = True

    def batches(
        self, texts: Sequence[str], batch_size: int, device: str = "cpu"
    ) -> Iterator[tuple[NDArray[np.intp], dict[str, NDArray[np.int64]]]]:
        """Yield batches of texts of similar length: which rows they are, and the network's arguments.

        The longest come first, so that a machine with too little memory fails at once.
        """
        found = self.tokenizer.encode_batch(list(texts))
        lengths = np.array([len(one.ids) for one in found], dtype=np.intp)
        order = np.argsort(-lengths, kind="stable")
        most = CPU_TOKENS if device.startswith("cpu") else GPU_TOKENS
        start = 0
        while start < len(order):
            longest = int(lengths[order[start]])
            size = 1 if self.pad is None else max(1, min(batch_size, most // max(longest, 1)))
            rows = order[start : start + size]
            if not self.mixed:
                rows = rows[lengths[rows] == longest]
            yield rows, self._padded([found[row] for row in rows], longest)
            start += len(rows)

    def _padded(self, found: Sequence[Any], longest: int) -> dict[str, NDArray[np.int64]]:
        shape = (len(found), longest)
        ids = np.full(shape, self.pad or 0, dtype=np.int64)
        mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, one in enumerate(found):
            count = len(one.ids)
            part = slice(longest - count, longest) if self.left else slice(0, count)
            ids[row, part], mask[row, part], types[row, part] = one.ids, 1, one.type_ids
        batch = {"input_ids": ids, "attention_mask": mask}
        return batch | {"token_type_ids": types} if self.types else batch


def read_tokens(
    folder: Folder, config: Mapping[str, Any], *, within: str = "", max_length: int | None = None
) -> Tokens:
    """Read the tokenizer of a folder.

    Parameters
    ----------
    folder : Folder
    config : mapping
        The network's configuration, with the defaults of the library.
    within : str
        The subfolder, with a slash at its end.
    max_length : int, optional
        How many tokens of a text are read at most; by default what the folder says.
    """
    tokenizers = require("tokenizers", extra="hf", purpose="A model folder of texts")
    settings = tokenizer_settings(folder, within)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(folder.text(within + TOKENIZER, MAX_TOKENIZER))
    except Exception as error:  # the library raises a plain Exception
        raise TeacherError(folder.name, f"cannot be used: {TOKENIZER} ({summary(error)}).") from error
    tokenizer.no_padding()
    most = max_length or _max_length(settings, config)
    if most is None:
        tokenizer.no_truncation()
    else:
        side = "left" if settings.get("truncation_side") == "left" else "right"
        tokenizer.enable_truncation(max_length=most, direction=side)
    pad = config.get("pad_token_id")
    inputs = settings.get("model_input_names")
    types = "token_type_ids" in inputs if isinstance(inputs, list) else _number(config, "type_vocab_size") > 1
    kind = config.get("model_type")
    left = settings.get("padding_side", "left" if kind in _LEFT else "right") == "left"
    return Tokens(tokenizer, pad if type(pad) is int else None, left, types, kind not in _LEAKY)


def tokenizer_settings(folder: Folder, within: str = "") -> dict[str, Any]:
    """Return the settings of a folder's tokenizer, or say why it cannot be used."""
    if within + TOKENIZER not in folder.files:
        raise TeacherError(
            folder.name,
            f"has no {TOKENIZER}. Only this form of a tokenizer is read: older ones read files of many "
            f"kinds, pickles among them. Write it with "
            f"AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER).",
        )
    settings = folder.json(within + TOKENIZER_CONFIG)
    check_config(folder, settings, TOKENIZER_CONFIG)
    return settings


def tokenizer_files(folder: Folder, within: str = "") -> list[str]:
    """Return the files that make the tokens what they are."""
    return [within + file for file in (TOKENIZER, TOKENIZER_CONFIG) if within + file in folder.files]


def _max_length(settings: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    given = _number(settings, "model_max_length")
    places = _number(config, "max_position_embeddings")
    if places and config.get("pad_token_id") == 1:
        places -= 2  # RoBERTa and its kin count positions from after that of the padding token
    limits = [limit for limit in (given, places) if 0 < limit < _ENDLESS]
    return int(min(limits)) if limits else None


def _number(settings: Mapping[str, Any], key: str) -> float:
    value = settings.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0

"""Model folders as teachers: of transformers, of sentence-transformers with a head, or of timm.

A folder comes from strangers, and its files are checked as data before a library sees any of them. Links,
pickled weights, weights elsewhere, code, and settings that would fetch something are refused; what is left
goes to the library's own loader. Nothing is downloaded, and no file outside the folder is read.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._words import shorten
from consilience.exceptions import TeacherError, UnsafeFileError, shown
from consilience.files.card import FOLDER_CARD, Card, find_folder_card
from consilience.files.disk import file_sha256, read_bytes
from consilience.files.strict_json import Reader, mapping, parse_json, record, text
from consilience.options import choice, option, takes
from consilience.teachers.base import Adapter, KnownFiles, Teacher, own_or_given, teacher_name
from consilience.teachers.inputs import Input
from consilience.teachers.outputs import ensure, foreign, in_the_name_of
from consilience.teachers.torch import Torch, TorchOptions, check_device, check_layer

CONFIG, MODULES, TOKENIZER = "config.json", "modules.json", "tokenizer.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Endings of files that can hold pickled objects."""
MAX_JSON = 16 * 2**20
MAX_FILES = 10_000
MAX_TOKENIZER = 2**27
_TOKENIZER_RULES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MOST_GROWTH, _MOST_WORD = 100, 1000  # of a text by rules, in times; characters of a word
_MOST_ENTRIES = 100  # of a list in rules, such as tokens to add
# of regular expressions: escapes, classes, groups that only look or choose, back references, and repeats of
# groups or of repeats (a possessive + is none)
_ESCAPE = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)
_CLASS = re.compile(r"\[[^\]]*\]")
_GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|[ims-]+[:)])")
_REFERENCE = re.compile(r"\\[1-9kg]")
_REPEATED = re.compile(r"\)[*+{]|[*+?}][*{]|\}\+")
_PLACEHOLDER = re.compile(r"LABEL_\d+")  # what libraries call a class that nobody has named
_WEIGHTS, _SHARDS = "model.safetensors", "model.safetensors.index.json"
_READ = (".json", ".safetensors", ".txt", ".model")
_CODE = ("auto_map", "trust_remote_code")
_ELSEWHERE = ("transformers_weights", "distributed_config", "use_pretrained_backbone")
_ARGUMENTS = ("_args", "_kwargs")  # of a loader of sentence-transformers: they may name files elsewhere
_IMPLEMENTATIONS = (None, True, False, "eager", "sdpa")  # others are packages, or kernels of a hub
_SHARD = text(200, like=r"[^/\\:]+\.safetensors", says="a .safetensors file, named without any path")
_INDEX = record({"weight_map": mapping(_SHARD, 10**6, least=1)}, needs=["weight_map"], others=True)


_EXPECTED = (
    f"A model folder has a {CONFIG} (of transformers or timm) or a {MODULES} (of sentence-transformers)."
)
# what to do about other folders, by the ends of names in them, in lower case
_ADVICE: dict[tuple[str, ...], str] = {
    ("saved_model.pb",): "This is a TensorFlow model. Convert it to ONNX (tf2onnx), and give the .onnx file.",
    ("tf_model.h5", "flax_model.msgpack"): "Fetch the safetensors of this model.",
    ("mlmodel",): "This is an MLflow model. Give the model in it: its .onnx file, its folder of safetensors, "
    "or the loaded model itself.",
    (".onnx", ".npz", ".skops"): "Give the file itself.",
    PICKLES: "A pickle can run any code when it is opened. Export the model to ONNX, or save it as "
    f"safetensors with its {CONFIG}.",
    ("",): _EXPECTED,
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
        title = teacher_name(name, where.name if card is None else card.name)
        with foreign(title, f"cannot be read from {where}"):
            self._folder = folder = Folder(where, title, list_files(where, title), card)
        make = kind_of(folder)
        folder.check_settings()
        kind = self._kind = make(folder)
        if options.output == "auto" and card is not None:
            options.output = card.output or "auto"
        # timm gets prepared images; others prepare their rows themselves
        self._takes_arrays = self._embeds_batches = kind.rows is None
        if kind.rows is None:
            known = None if card is None else card.preprocess
            options.preprocess = options.preprocess or known or kind.images()
        else:
            self.inputs = (Input("X", kind.rows, (None,)),)
            ensure(
                options.preprocess is None,
                title,
                "prepares its rows as the folder says; {argument} is for networks of timm. Drop it.",
                argument="preprocess",
            )
        self._device, self._batch_size = options.device or "cpu", options.batch_size
        with in_the_name_of(title, "cannot run: "):
            check_device(self._device)
        half = options.half
        if half is None:  # a processor is slower in half precision, and weights in full may need it
            half = not self._device.startswith("cpu") and kind.saved in _HALF
        # bfloat16 has the range of float32, so it never overflows
        self._dtype = (kind.saved if kind.saved in _HALF else "bfloat16") if half else "float32"
        read = sorted(file for file in folder.files - {FOLDER_CARD} if file.endswith(_READ))
        self._files = KnownFiles(where / file for file in read)
        found = folder.classes(kind.own, kind.columns, classes)
        Adapter.__init__(self, title, found, options, output="logits" if options.output == "auto" else None)
        self._take_card(where, card if card is not None and card.embed == options.embed else None)

    @property
    def _module(self) -> Any:
        return self._ready()[0]

    def _ready(self) -> Any:
        """Return the network and what prepares its rows; they stay in memory until `release`."""
        if self._loaded is None:
            torch = require("torch", extra="hf", purpose="A model folder")
            ensure(
                not self._files.changed,
                self.name,
                f"has changed: files in {self._folder.path} are others now. Open it again.",
            )
            network, batches = self._kind.load(self._device, getattr(torch, self._dtype))
            check_layer(network, self._embed, self.name)
            self._loaded = network.eval(), batches
        return self._loaded

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
        return None if self._files.changed else f"{self._files.digest} {self._dtype}"

    def __getstate__(self) -> dict[str, Any]:
        # another process loads the network from the folder
        return {key: value for key, value in super().__getstate__().items() if key != "_loaded"}


def kind_of(folder: Folder) -> Any:
    """Tell what a folder holds, or say what to do with it.

    - ``modules.json``: an encoder of sentence-transformers;
    - ``config.json`` with ``architecture`` (one): a network of timm, also in the wrapper of transformers;
    - ``config.json`` with ``model_type`` or ``architectures``: a checkpoint of transformers.
    """
    # here, because they are made of this module, too
    from consilience.teachers.timm import Timm
    from consilience.teachers.transformers import Checkpoint, Sentences

    ensure(
        "adapter_config.json" not in folder.files,
        folder.name,
        "is a folder with adapter_config.json: an adapter without its model. Merge the two (merge_and_unload "
        "in peft), and save the result with save_pretrained.",
    )
    if MODULES in folder.files:
        return Sentences
    config = folder.json(CONFIG)
    ensure(isinstance(config, dict), folder.name, f"cannot be used: {CONFIG} must hold a JSON object.")
    if "architecture" in config and config.get("model_type") in (None, "timm_wrapper"):
        return Timm
    if "model_type" in config or "architectures" in config:
        return Checkpoint
    for endings, advice in _ADVICE.items():
        found = sorted(file for file in folder.files if file.lower().endswith(endings))
        holds = shorten(map(repr, found), 3)
        ensure(not found, folder.name, f"is a folder that holds {holds}. {advice}")
    raise TeacherError(folder.name, f"is a folder that holds nothing. {_EXPECTED}")


def hub_advice(source: str | os.PathLike[str]) -> str:
    """Say how to fetch a model, if what was given looks like its name on a hub; else an empty text."""
    text = os.fspath(source)
    if not isinstance(text, str) or not _HUB_NAME.fullmatch(text):
        return ""
    return (
        f"is given as {text!r}, and there is no such folder here. If that is a model's name on a hub: "
        f"nothing is downloaded on its own. Fetch it (hf download {text} --local-dir FOLDER), and give that."
    )


Batches = Callable[[Any, int], Iterator[tuple[Any, Sequence[Any], Mapping[str, Any]]]]
"""Called with rows and the most of a batch; yields which rows they are, and a network's arguments."""


@dataclass(frozen=True)
class Folder:
    """A model folder whose files have been listed and checked.

    Attributes
    ----------
    path : Path
        Absolute.
    name : str
        The teacher's name, for messages.
    files : frozenset of str
        The paths of all files in it, relative and with slashes. Hidden ones are left out. None is a link.
    card : Card or None
        The card next to the folder, or else the one in it.
    """

    path: Path
    name: str
    files: frozenset[str]
    card: Card | None = None

    def json(self, file: str, reader: Reader | None = None, most: int = MAX_JSON) -> Any:
        """Return what a JSON file of the folder holds, as a reader reads it; {} if there is none."""
        if file not in self.files:
            return {}
        with in_the_name_of(self.name):
            content = parse_json(read_bytes(self.path / file, file, most=most), file, foreign=True)
        with in_the_name_of(self.name, f"cannot be used: {file}: "):
            return content if reader is None else reader(content)

    def check_settings(self) -> None:
        """Raise where a setting asks for code, or for something that is not in the folder."""
        for file in sorted(self.files):
            name = file.rpartition("/")[2]
            # by pattern: libraries also read files of older names, such as sentence_roberta_config.json
            if name != MODULES and not re.search(r"config.*\.json$", name):
                continue
            for key, value in _entries(self.json(file)):
                arguments = key.endswith(_ARGUMENTS) and name.startswith("sentence_")
                kernel = key.endswith("_implementation") and value not in _IMPLEMENTATIONS
                if key in _CODE and value:
                    raise UnsafeFileError(
                        f"{file} of {self.name!r} asks for code of its own ({key}), which is never run. If "
                        f"the library knows this kind of model by itself, remove {key} from the file; "
                        "otherwise export the model to ONNX and give the .onnx file."
                    )
                if kernel or ((key in _ELSEWHERE or arguments) and value):
                    raise UnsafeFileError(
                        f"{file} of {self.name!r} sets {key} to {shown(value)}, which may be outside the "
                        "folder. Remove it from the file."
                    )

    def weight_files(self, within: str = "") -> tuple[str, ...]:
        """Return the safetensors files with the weights: one, or the shards that an index names.

        Parameters
        ----------
        within : str
            The subfolder, with a slash at its end.
        """
        if within + _WEIGHTS in self.files:
            return (within + _WEIGHTS,)
        shards = self.json(within + _SHARDS, _INDEX).get("weight_map", {})
        found = sorted({within + shard for shard in shards.values()})
        missing = [file for file in found or [within + _WEIGHTS] if file not in self.files]
        pickled = sorted(file for file in self.files if file.lower().endswith(PICKLES))
        problem = f"has no weights: {shorten(missing)} is missing. Fetch the folder again."
        if pickled:
            problem = (
                f"has its weights only in {shorten(map(repr, pickled), 3)}: a pickle, which can run any code "
                "when it is opened. Only safetensors are read. Fetch the safetensors of this model; or, if "
                "you trust its source, load it once with transformers and call "
                "save_pretrained(NEW_FOLDER), which writes them."
            )
        ensure(not missing, self.name, problem)
        return tuple(found)

    def check_tokenizer(self, within: str = "") -> None:
        """Raise unless the tokenizer is a file of data whose rules end soon on every text."""
        ensure(
            within + TOKENIZER in self.files,
            self.name,
            f"has no {TOKENIZER}. Only this form of a tokenizer is read. Write it with "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER).",
        )
        problem = _endless_rule(self.json(within + TOKENIZER, mapping(lambda value: value), MAX_TOKENIZER))
        ensure(
            not problem,
            self.name,
            f"has a {TOKENIZER} with {problem}, which can take all time or memory on some text. Export the "
            "model to ONNX, with its tokens as input.",
        )

    def classes(self, own: Sequence[Any] | None, columns: int, given: ArrayLike | None) -> NDArray[Any]:
        """Return the given classes, or the card's, or the folder's own unless they are placeholders."""
        known = None if any(_PLACEHOLDER.fullmatch(str(name)) for name in own or ()) else own
        known = known if self.card is None else self.card.classes
        what = f"a folder with {columns} columns"
        found = own_or_given(known, given, self.name, binding=False, what=what)
        ensure(
            len(found) == columns,
            self.name,
            f"has {columns} columns and {len(found)} classes ({shorten(found, 5)}). Give {{remedy}} one name "
            "per column.",
            remedy="classes",
        )
        return found

    @contextmanager
    def loaded_by(self, library: str, extra: str) -> Iterator[Any]:
        """Import a library, and word whatever it raises while it loads the folder."""
        with foreign(self.name, f"cannot be loaded by {library}"):
            yield require(library, extra=extra, purpose="A model folder")


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield key and value of every entry in what JSON holds, however deep."""
    waiting = [content]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield from found.items()
            found = list(found.values())
        waiting += found if isinstance(found, list) else []


def _endless_rule(tokenizer: Mapping[str, Any]) -> str:
    """Return a rule of a tokenizer that takes time or memory out of proportion, in words; "" if none does."""
    model = tokenizer.get("model")
    waiting, growth = [tokenizer.get(part) for part in _TOKENIZER_RULES], 1.0
    limit = model.get("max_input_chars_per_word") if isinstance(model, Mapping) else None
    if limit is not None and not (type(limit) is int and 0 <= limit <= _MOST_WORD):
        return f"max_input_chars_per_word {shown(limit)}"
    while waiting:
        rule = waiting.pop()
        waiting += rule.values() if isinstance(rule, dict) else rule if isinstance(rule, list) else []
        if isinstance(rule, list) and len(rule) > _MOST_ENTRIES:
            return f"a list of {len(rule)} entries in its rules"
        if not isinstance(rule, dict):
            continue
        pattern, content = rule.get("Regex"), rule.get("content")
        if isinstance(pattern, str) and not _is_quick(pattern):
            return f"the pattern {shown(pattern)}"
        if isinstance(content, str) and isinstance(rule.get("pattern"), dict):
            literal = rule["pattern"].get("String")  # a regular expression may match nothing, everywhere
            growth *= max(1, len(content) / len(literal)) if literal else 1 + len(content)
        if len(str(rule.get("prepend", ""))) > _MOST_GROWTH or growth > _MOST_GROWTH:
            return f"rules that make texts more than {_MOST_GROWTH} times as long"
    return ""


def _is_quick(pattern: str) -> bool:
    """Tell whether a regular expression repeats no group and refers to none, so that it cannot explode."""
    plain = _ESCAPE.sub("x", pattern)
    known_groups = plain.count("(?") == len(_GROUP.findall(plain))
    return known_groups and not _REFERENCE.search(pattern) and not _REPEATED.search(_CLASS.sub("x", plain))


def list_files(folder: Path, name: str) -> frozenset[str]:
    """Return the files of a folder and its subfolders, or raise where one is a link or no plain file."""
    found = set[str]()
    for place in folder.rglob("*"):
        file, mode = place.relative_to(folder), place.lstat().st_mode
        # hidden folders hold what downloads and version control left; nothing in them is read
        if stat.S_ISDIR(mode) or any(part.startswith(".") for part in file.parts):
            continue
        if not stat.S_ISREG(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "no plain file"
            raise UnsafeFileError(
                f"{str(file)!r} in the folder of {name!r} is {kind}, which may lead outside the folder. Put "
                "the file itself there: hf download NAME --local-dir FOLDER writes files, and cp -rL "
                "copies what links lead to."
            )
        found.add(file.as_posix())
        ensure(
            len(found) <= MAX_FILES, name, f"is a folder of more than {MAX_FILES} files, which is no model."
        )
    return frozenset(found)


def source_sha256(path: Path) -> str:
    """Return the checksum of a teacher's file, or of all files of a model folder but its card."""
    if not path.is_dir():
        return file_sha256(path)
    files = sorted(list_files(path, path.name) - {FOLDER_CARD})
    lines = "".join(f"{file}\0{file_sha256(path / file)}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()

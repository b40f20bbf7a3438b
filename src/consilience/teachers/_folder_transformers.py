"""Checkpoints of transformers as teachers: sequence classifiers and image classifiers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience._words import shorten, visible
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.ngram_model import as_texts
from consilience.files.preprocess import as_colour_images
from consilience.teachers._base import Adapter, Input, Options, Teacher, check_embed_function, own_or_given
from consilience.teachers._files import centres_of
from consilience.teachers._folder_files import CONFIG, PLACEHOLDER, Folder, Signature, check_config
from consilience.teachers._folder_head import HeadedModel
from consilience.teachers._folder_library import PURPOSE, load_config, load_image_processor, load_model
from consilience.teachers._folder_tokens import Tokens, read_tokens, tokenizer_files, tokenizer_settings
from consilience.teachers._networks import check_device

Batches = Iterator[tuple[NDArray[np.intp], Mapping[str, Any]]]

PROCESSOR, PROCESSORS = "preprocessor_config.json", "processor_config.json"
MAX_PIXELS = 2**23  # of a batch: 55 colour images of 224 x 224
_TASKS = re.compile(r"\w+For(Sequence|Image)Classification(WithTeacher)?")
_TABLES = {
    "Sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "Image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
}
_HALF = ("float16", "bfloat16")


class FolderTeacher(Adapter):
    """A network in a folder. It is loaded when it is first asked, and in each process that asks it."""

    _folder: Folder
    _files: tuple[str, ...]  # all that is read
    _signature: Signature
    _batch_size: int
    _device: str
    _dtype: str
    _digest: str | None = None
    _loaded: Any = None

    @abstractmethod
    def _load(self, torch: Any) -> Any:
        """Read the network and what prepares its rows."""

    def loaded(self) -> Any:
        """Return the network and what prepares its rows; they stay in memory until `release`."""
        if self._loaded is None:
            torch = require("torch", extra="hf", purpose=PURPOSE)
            if self._folder.signature(self._files) != self._signature:
                raise TeacherError(
                    self.name, f"has changed: files in {self._folder.path} are others now. Open it again."
                )
            self._loaded = self._load(torch)
        return self._loaded

    def release(self) -> None:
        """Free the memory of the network; it is loaded again when it is needed."""
        self._loaded = None

    def _model_fingerprint(self) -> str | None:
        """Hash the files that are read; None if they have changed since the folder was opened."""
        if self._folder.signature(self._files) != self._signature:
            return None
        if self._digest is None:
            self._digest = self._folder.digest(self._files)
        return f"{self._digest} {self._dtype}"

    def __getstate__(self) -> dict[str, Any]:
        # another process loads the network from the folder
        return {key: value for key, value in self.__dict__.items() if key != "_loaded"}


class CheckpointTeacher(FolderTeacher):
    """A classifier of transformers. Its embedding is the input of its last linear layer."""

    _config: Mapping[str, Any]
    _task: str

    def _network(self, torch: Any) -> tuple[Any, Any]:
        """Return the library's configuration, and the network with its head."""
        config = load_config(self._folder, self._config)
        module = load_model(
            self._folder, config, _TABLES[self._task], self._config["architectures"][0],
            getattr(torch, self._dtype), self._folder.weight_files(),
        )  # fmt: skip
        return config, HeadedModel(torch, module.to(self._device), len(self.classes), self.name)

    @property
    @abstractmethod
    def _model(self) -> HeadedModel:
        """The network with its head."""

    @abstractmethod
    def _batches(self, X: Any) -> Batches:
        """Yield which rows a batch has, and the network's arguments as arrays."""

    def _pass(self, X: Any, rows: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        torch = require("torch", extra="hf", purpose=PURPOSE)
        scores, features = np.empty((rows, len(self.classes))), None
        dtype = getattr(torch, self._dtype)
        for places, batch in self._batches(X):
            tensors = {key: torch.as_tensor(values, device=self._device) for key, values in batch.items()}
            for key, values in tensors.items():
                tensors[key] = values.to(dtype) if values.is_floating_point() else values
            logits, found = self._model.run(tensors)
            scores[places] = logits
            if found is not None:
                features = np.empty((rows, found.shape[1]), np.float32) if features is None else features
                features[places] = found
        return scores, features

    def _scores(self, X: Any, rows: int) -> Any:
        return self._pass(X, rows)[0]

    def _features(self, X: Any, rows: int) -> Any:
        return self._both(X, rows)[1]

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        scores, features = self._pass(X, rows)
        return scores, features if self._embed is None else self._embed(X)

    def _embeddable(self) -> bool:
        return self._embed is not None or self._model.has_features

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer. If several layers could be it, None before the first pass."""
        return self._model.weights if self._embed is None else None

    def find_head(self, X: Any) -> None:
        """Run one row if only a pass shows the head, as when outputs came from a store."""
        if self._embed is None and self._model.weights is None and self._model.has_features and n_rows(X):
            self.observe(X[:1])


class TextCheckpoint(CheckpointTeacher):
    """A sequence classifier of transformers."""

    def _load(self, torch: Any) -> tuple[HeadedModel, Tokens]:
        config, model = self._network(torch)
        return model, read_tokens(self._folder, token_numbers(config))

    @property
    def _model(self) -> HeadedModel:
        model: HeadedModel = self.loaded()[0]
        return model

    def _batches(self, X: Any) -> Batches:
        tokens: Tokens = self.loaded()[1]
        return tokens.batches(as_texts(X), self._batch_size, self._device)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """A list of texts."""
        return (Input("X", "text", (None,)),)


class ImageCheckpoint(CheckpointTeacher):
    """An image classifier of transformers."""

    _processor: Mapping[str, Any]

    def _load(self, torch: Any) -> tuple[HeadedModel, Any]:
        config, model = self._network(torch)
        return model, load_image_processor(self._folder, config.model_type, self._processor)

    @property
    def _model(self) -> HeadedModel:
        model: HeadedModel = self.loaded()[0]
        return model

    def _batches(self, X: Any) -> Batches:
        start = 0
        size = 1  # the first image shows how large all are
        while start < n_rows(X):
            part = as_colour_images(X[start : start + size], start)
            pixels = np.asarray(self.loaded()[1](part, return_tensors="np")["pixel_values"])
            yield np.arange(start, start + len(pixels)), {"pixel_values": pixels}
            start += len(pixels)
            size = max(1, min(self._batch_size, MAX_PIXELS // max(pixels[0].size, 1)))

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Images of any size."""
        return (Input("X", "image", (None,)),)


def transformers_teacher(folder: Folder, classes: ArrayLike | None, options: Options) -> Teacher:
    """Make a teacher of a sequence or image classifier of transformers.

    Parameters
    ----------
    folder : Folder
    classes : (k,) sequence, optional
        They rename those of the card, or of ``id2label``.
    options : Options
    """
    config = folder.json(CONFIG)
    check_config(folder, config)
    task = _task_of(folder, config)
    files = [CONFIG, *folder.weight_files()]
    if task == "Sequence":
        tokenizer_settings(folder)
        kind: type[CheckpointTeacher] = TextCheckpoint
        files += tokenizer_files(folder)
    else:
        kind = ImageCheckpoint
        files += [file for file in (PROCESSOR, PROCESSORS) if file in folder.files]
    teacher = kind(
        folder.name, classes_of(folder, config, classes), options, output=logits_only(folder, options)
    )
    prepare(teacher, folder, files, options, saved=config.get("dtype") or config.get("torch_dtype"))
    teacher._config, teacher._task = config, task
    if isinstance(teacher, ImageCheckpoint):
        teacher._processor = _processor_of(folder)
    return teacher


def prepare(
    teacher: FolderTeacher, folder: Folder, files: Sequence[str], options: Options, saved: Any = None
) -> None:
    """Tell a teacher what it needs to load its network, and check the options for that.

    Parameters
    ----------
    teacher : FolderTeacher
    folder : Folder
    files : sequence of str
        All files that are read.
    options : Options
    saved : object
        The precision that the weights were saved in, as far as the folder says.
    """
    check_embed_function(options.embed, folder.name)
    device = options.device or "cpu"
    if options.device is not None:
        try:
            check_device(device)
        except InvalidInputError as error:
            raise TeacherError(folder.name, f"cannot run: {error.message}").changed(**error.data) from error
    half = options.half
    if half is None:  # a processor is slower in half precision, and weights in full precision may need it
        half = device.partition(":")[0] != "cpu" and saved in _HALF
    # bfloat16 has the range of float32, so it never overflows
    teacher._dtype = "float32" if not half else str(saved) if saved in _HALF else "bfloat16"
    teacher._folder, teacher._files = folder, tuple(files)
    teacher._signature = folder.signature(files)
    teacher._batch_size, teacher._device = options.batch_size, device
    if options.embed is None:
        teacher.class_centres = centres_of(folder.card)


def logits_only(folder: Folder, options: Options) -> Any:
    """Return "logits", which a model folder gives, or raise if something else was asked for."""
    if options.output not in ("auto", "logits"):
        raise TeacherError(
            folder.name,
            "is a model folder and gives logits; drop {argument}.",
            argument="output",
            value=options.output,
        )
    return "logits"


def _task_of(folder: Folder, config: Mapping[str, Any]) -> str:
    """Return "Sequence" or "Image", or say why a checkpoint cannot be a teacher."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    found = _TASKS.fullmatch(first)
    if found is None:
        raise TeacherError(
            folder.name,
            f"is a {visible(first)[:100] or 'checkpoint of unknown architecture'}, and a teacher classifies. "
            f"Give a checkpoint whose architectures in config.json end in ForSequenceClassification or "
            "ForImageClassification.",
        )
    if config.get("quantization_config") is not None:
        raise TeacherError(
            folder.name,
            "is quantised (quantization_config), which needs libraries of its own. Give the folder with the "
            "full weights, or export the model to ONNX.",
        )
    problem = config.get("problem_type")
    if problem == "multi_label_classification":
        raise TeacherError(
            folder.name,
            "answers yes or no for each class on its own (problem_type multi_label_classification), so a row "
            "may have several classes or none, and its scores are no distribution over classes. If each row "
            "has one class in your data, give a function of X that returns the scores you want.",
        )
    if problem == "regression" or len(labels_of(folder, config)) == 1:
        raise TeacherError(
            folder.name, "gives a number, not classes: it has one label, or was made for regression."
        )
    return found[1]


def classes_of(folder: Folder, config: Mapping[str, Any], given: ArrayLike | None) -> NDArray[Any]:
    """Return the given classes, or those of the card, or of ``id2label`` if they are names."""
    labels = labels_of(folder, config)
    if folder.card is not None and len(folder.card.classes) != len(labels):
        raise TeacherError(
            folder.name,
            f"has {len(labels)} columns by its config.json and {len(folder.card.classes)} classes on its "
            f"card. Mend the card.",
        )
    if folder.card is not None:
        return own_or_given(folder.card.classes, given, folder.name)
    unnamed = [label for label in labels if PLACEHOLDER.fullmatch(label)]
    if unnamed and given is None:
        raise TeacherError(
            folder.name,
            f"does not name its classes: id2label in config.json has placeholders such as {unnamed[0]!r}. "
            f"Give {{remedy}} {len(labels)} names, one per column.",
            remedy="classes",
        )
    return own_or_given(labels, given, folder.name)


def labels_of(folder: Folder, config: Mapping[str, Any]) -> list[str]:
    """Return the labels in the order of the columns; placeholders where the folder has none."""
    found = config.get("id2label")
    if found is None:
        count = config.get("num_labels", config.get("_num_labels", 2))
        if type(count) is not int or not 0 < count < 10**7:
            raise TeacherError(folder.name, "has a num_labels in config.json that is no number of classes.")
        return [f"LABEL_{i}" for i in range(count)]
    try:
        labels = {int(key): label for key, label in found.items()}
    except (AttributeError, ValueError) as error:
        raise TeacherError(
            folder.name, "has an id2label in config.json that does not number its labels."
        ) from error
    wrong = [label for label in labels.values() if not isinstance(label, str)]
    if sorted(labels) != list(range(len(found))) or wrong or not labels:
        raise TeacherError(
            folder.name,
            f"has an id2label in config.json with the numbers {shorten(sorted(labels), 5)}; expected a text "
            f"for each number from 0 on.",
        )
    return [labels[i] for i in range(len(labels))]


def _processor_of(folder: Folder) -> Mapping[str, Any]:
    """Return the settings of the image processor."""
    if PROCESSOR in folder.files:
        settings: Any = folder.json(PROCESSOR)
    else:
        settings = folder.json(PROCESSORS).get("image_processor")
    if not isinstance(settings, Mapping):
        raise TeacherError(
            folder.name,
            f"has no {PROCESSOR}, so the size and scale of its images are unknown. Fetch that file, too.",
        )
    check_config(folder, settings, PROCESSOR)
    return settings


def token_numbers(config: Any) -> Mapping[str, Any]:
    """Return the entries of a configuration object that tokens depend on, with the library's defaults."""
    keys = ("model_type", "pad_token_id", "max_position_embeddings", "type_vocab_size")
    return {key: getattr(config, key, None) for key in keys}

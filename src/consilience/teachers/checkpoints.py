"""Classifiers of transformers, loaded by the library itself.

It gets a folder that was checked: safetensors alone, no code, nothing to fetch.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience._words import shorten, visible
from consilience.exceptions import InvalidInputError, MissingDependencyError, TeacherError
from consilience.files.ngram_model import as_texts
from consilience.files.preprocess import as_colour_images
from consilience.teachers._base import Adapter, Input, Options, Teacher, check_embed_function, own_or_given
from consilience.teachers._features import pool
from consilience.teachers._files import centres_of
from consilience.teachers._networks import check_device, logits_of
from consilience.teachers.model_folder import CONFIG, PLACEHOLDER, Folder, Signature

PURPOSE = "A model folder of transformers"
LOCAL: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""What every loader of transformers is told."""
# tokens of a batch, padding included; small batches stay in the cache of a processor, which halves the time
CPU_TOKENS, GPU_TOKENS = 2**10, 2**14
MAX_PIXELS = 2**23  # of a batch: 55 colour images of 224 x 224
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TASKS = re.compile(r"\w+For(Sequence|Image)Classification(WithTeacher)?")
_HALF = ("float16", "bfloat16")
_LEAKY = ("convbert", "fnet", "funnel", "nystromformer", "yoso")
"""Networks whose answer depends on how much a text is filled up: their convolutions and sums see it."""
_ENDLESS = 10**6  # tokenizers without a limit write 1e30

Batches = Iterator[tuple[NDArray[np.intp], Mapping[str, Any]]]


class FolderTeacher(Adapter):
    """A network in a folder. It is loaded when it is first asked, and in each process that asks it."""

    _folder: Folder
    _signature: Signature
    _batch_size: int
    _device: str
    _dtype: str
    _digest: str | None = None
    _loaded: Any = None

    @abstractmethod
    def _load(self, torch: Any) -> Any:
        """Have the library load the network and what prepares its rows."""

    def loaded(self) -> Any:
        """Return the network and what prepares its rows; they stay in memory until `release`."""
        if self._loaded is None:
            torch = require("torch", extra="hf", purpose=PURPOSE)
            if self._folder.signature() != self._signature:
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
        if self._folder.signature() != self._signature:
            return None
        if self._digest is None:
            self._digest = self._folder.digest(self._folder.read)
        return f"{self._digest} {self._dtype}"

    def __getstate__(self) -> dict[str, Any]:
        # another process loads the network from the folder
        return {key: value for key, value in self.__dict__.items() if key != "_loaded"}


class CheckpointTeacher(FolderTeacher):
    """A classifier of transformers. Its embedding is the input of its last linear layer."""

    _auto: str  # the library's loader

    def _network(self, torch: Any) -> tuple[Any, HeadedModel]:
        """Return the library's configuration, and the network with its head."""
        dtype = getattr(torch, self._dtype)
        config, module = load_network(self._folder, "", self._auto, dtype, return_dict=True)
        return config, HeadedModel(torch, module.to(self._device), len(self.classes), self.name)

    @abstractmethod
    def _batches(self, X: Any) -> Batches:
        """Yield which rows a batch has, and the network's arguments."""

    def _scores(self, X: Any, rows: int) -> Any:
        return self._pass(X, rows)[0]

    def _features(self, X: Any, rows: int) -> Any:
        return self._both(X, rows)[1]

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        scores, features = self._pass(X, rows)
        return scores, features if self._embed is None else self._embed(X)

    def _pass(self, X: Any, rows: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        model: HeadedModel = self.loaded()[0]
        scores, features = np.empty((rows, len(self.classes))), None
        for places, batch in self._batches(X):
            logits, found = model.run(batch, self._device, self._dtype)
            scores[places] = logits
            if found is not None:
                features = np.empty((rows, found.shape[1]), np.float32) if features is None else features
                features[places] = found
        return scores, features

    def _embeddable(self) -> bool:
        return self._embed is not None or self.loaded()[0].has_features

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer. If several layers could be it, None before the first pass."""
        return self.loaded()[0].weights if self._embed is None else None

    def find_head(self, X: Any) -> None:
        """Run one row if only a pass shows the head, as when outputs came from a store."""
        if self._embed is None and self.class_weights is None and self._embeddable() and n_rows(X):
            self.observe(X[:1])


class TextCheckpoint(CheckpointTeacher):
    """A sequence classifier of transformers."""

    _auto = "AutoModelForSequenceClassification"

    def _load(self, torch: Any) -> tuple[HeadedModel, Tokens]:
        config, model = self._network(torch)
        with _loading(self._folder) as transformers:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self._folder.path, **LOCAL)
            return model, Tokens(tokenizer, config)

    def _batches(self, X: Any) -> Batches:
        tokens: Tokens = self.loaded()[1]
        return tokens.batches(as_texts(X), self._batch_size, self._device)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """A list of texts."""
        return (Input("X", "text", (None,)),)


class ImageCheckpoint(CheckpointTeacher):
    """An image classifier of transformers."""

    _auto = "AutoModelForImageClassification"

    def _load(self, torch: Any) -> tuple[HeadedModel, Any]:
        _, model = self._network(torch)
        self._check_processor()
        with _loading(self._folder) as transformers:
            # its torchvision version gives other pixels
            processor = transformers.AutoImageProcessor.from_pretrained(
                self._folder.path, backend="pil", **LOCAL
            )
            return model, processor

    def _check_processor(self) -> None:
        """Raise unless the folder's image processor is one of an image classifier: others open files."""
        auto = require("transformers.models.auto.image_processing_auto", extra="hf", purpose=PURPOSE)
        models = require("transformers.models.auto.modeling_auto", extra="hf", purpose=PURPOSE)
        kinds = models.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
        known = {auto.IMAGE_PROCESSOR_MAPPING_NAMES.get(kind, {}).get("pil", "Pil") for kind in kinds}
        settings = self._folder.json(_PROCESSORS[0]) or self._folder.json(_PROCESSORS[1]).get(
            "image_processor"
        )
        named = settings.get("image_processor_type") if isinstance(settings, Mapping) else None
        if named is not None and f"{str(named).removesuffix('Fast').removesuffix('Pil')}Pil" not in known:
            raise TeacherError(
                self.name,
                f"has the image processor {visible(repr(named))[:100]}, which transformers does not have for "
                "image classification. Code of the folder is never run.",
            )

    def _batches(self, X: Any) -> Batches:
        start = 0
        size = 1  # the first image shows how large all are
        while start < n_rows(X):
            part = as_colour_images(X[start : start + size], start)
            batch = self.loaded()[1](part, return_tensors="pt")
            yield np.arange(start, start + len(part)), {"pixel_values": batch["pixel_values"]}
            start += len(part)
            size = max(1, min(self._batch_size, MAX_PIXELS // max(batch["pixel_values"][0].numel(), 1)))

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Images of any size."""
        return (Input("X", "image", (None,)),)


class Tokens:
    """Batches of tokens of similar length.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    config : PreTrainedConfig
        Of the network.
    """

    def __init__(self, tokenizer: Any, config: Any) -> None:
        self._tokenizer = tokenizer
        self._mixed = config.model_type not in _LEAKY
        pad = getattr(config, "pad_token_id", None)
        self._alone = pad is None  # decoders then look at the last token, which must not be padding
        if pad is not None and tokenizer.pad_token_id != pad:
            tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
        if config.model_type == "xlnet":
            tokenizer.padding_side = "left"
        places = getattr(config, "max_position_embeddings", None) or 0
        if pad == 1:
            places -= 2  # RoBERTa and its kin count positions from after that of the padding token
        limits = [limit for limit in (tokenizer.model_max_length, places) if 0 < limit < _ENDLESS]
        self._longest = int(min(limits)) if limits else None

    def batches(self, texts: Sequence[str], batch_size: int, device: str = "cpu") -> Batches:
        """Yield batches: which rows they are, and the network's arguments.

        The longest come first, so that a machine with too little memory fails at once.
        """
        found = self._tokenizer(list(texts), truncation=self._longest is not None, max_length=self._longest)
        lengths = np.array([len(ids) for ids in found["input_ids"]], dtype=np.intp)
        order = np.argsort(-lengths, kind="stable")
        most = CPU_TOKENS if device.startswith("cpu") else GPU_TOKENS
        start = 0
        while start < len(order):
            longest = int(lengths[order[start]])
            size = 1 if self._alone else max(1, min(batch_size, most // max(longest, 1)))
            rows = order[start : start + size]
            if not self._mixed:
                rows = rows[lengths[rows] == longest]
            part = {key: [values[row] for row in rows] for key, values in found.items()}
            padding = bool((lengths[rows] < longest).any())
            yield rows, dict(self._tokenizer.pad(part, padding=padding, return_tensors="pt"))
            start += len(rows)


class HeadedModel:
    """A network with a head: the linear layer with k outputs that runs last.

    Parameters
    ----------
    torch : module
    module : torch.nn.Module
        In eval mode. It returns logits (n, k), or an output that holds them by the name ``logits``.
    n_classes : int
    name : str
        The teacher's name, for messages.
    """

    def __init__(self, torch: Any, module: Any, n_classes: int, name: str) -> None:
        self._torch, self._module, self._name = torch, module, name
        self._heads = [
            part
            for part in module.modules()
            if isinstance(part, torch.nn.Linear) and part.out_features == n_classes
        ]
        # if several layers could be the head, only a pass shows which it is
        self._head = self._heads[0] if len(self._heads) == 1 else None
        self._k = n_classes

    @property
    def has_features(self) -> bool:
        """Whether there is a layer that could be the head."""
        return bool(self._heads)

    @property
    def weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the head, if it turns the embeddings into the logits; else None."""
        return None if self._head is None else self._head.weight.detach().cpu().float().numpy()

    def run(
        self, batch: Mapping[str, Any], device: str, dtype: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
        """Return the logits (n, k) and the embeddings (n, d) of one batch of tensors."""
        torch, seen = self._torch, list[tuple[Any, Any, Any]]()

        def see(part: Any, inputs: tuple[Any, ...], output: Any) -> None:
            seen[:] = [(part, inputs[0], output)]

        there = {key: values.to(device) for key, values in batch.items()}
        there = {
            key: values.to(getattr(torch, dtype)) if values.is_floating_point() else values
            for key, values in there.items()
        }
        handles = [part.register_forward_hook(see) for part in self._heads]
        try:
            with torch.inference_mode():
                logits = logits_of(self._module(**there))
        finally:
            for handle in handles:
                handle.remove()
        rows = len(next(iter(batch.values())))
        if not isinstance(logits, torch.Tensor) or tuple(logits.shape) != (rows, self._k):
            shape = tuple(getattr(logits, "shape", ()))
            raise TeacherError(
                self._name, f"returned scores of shape {shape} for {rows} rows; expected ({rows}, {self._k})."
            )
        features = None
        if seen:
            head, given, output = seen[0]
            features, linear = self._features(given, output, logits)
            self._head = head if linear else None
        return logits.double().cpu().numpy(), None if features is None else features.float().cpu().numpy()

    def _features(self, given: Any, output: Any, logits: Any) -> tuple[Any, bool]:
        """Return the embeddings (n, d), and whether the head turns them into the logits."""
        torch = self._torch
        if given.ndim == 2 and len(given) == len(logits):
            return given, output.shape == logits.shape and bool(torch.equal(output, logits))
        if given.ndim == 3 and output.ndim == 3 and len(given) == len(logits):
            # a decoder scores every token and answers with one of them: take the features of that one
            same = (output == logits[:, None]).all(dim=2)
            if bool(same.any(dim=1).all()):
                steps = torch.arange(same.shape[1], device=same.device)
                last = (same * (steps + 1)).argmax(dim=1)
                return given[torch.arange(len(given), device=given.device), last], True
        pooled = pool(given, channels_last=True)
        return (pooled if len(pooled) == len(logits) else None), False


def load_network(folder: Folder, within: str, auto: str, dtype: Any, **config: Any) -> tuple[Any, Any]:
    """Have transformers load a network, in eval mode; raise where weights are missing.

    Parameters
    ----------
    folder : Folder
        Checked.
    within : str
        The subfolder, with a slash at its end.
    auto : str
        The library's loader, such as ``"AutoModel"``.
    dtype : torch.dtype
    **config
        Settings that win over those of the folder.
    """
    path = folder.path / within
    with _loading(folder) as transformers:
        settings = transformers.AutoConfig.from_pretrained(path, **LOCAL, **config)
        model, report = getattr(transformers, auto).from_pretrained(
            path, config=settings, dtype=dtype, use_safetensors=True, output_loading_info=True,
            ignore_mismatched_sizes=True, **LOCAL,
        )  # fmt: skip
    # an encoder may come without the pooler, which is not used
    missing = sorted(key for key in map(str, report["missing_keys"]) if not key.startswith("pooler."))
    other = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing or other:
        lacks, differs = f"lacks the weights {shorten(missing, 3)}", shorten(other, 3)
        what = lacks if missing else f"has weights of another shape for {differs}"
        raise TeacherError(
            folder.name, f"{what}. The library would fill these with random numbers. Fetch the folder again."
        )
    return settings, model.eval()


@contextmanager
def _loading(folder: Folder) -> Iterator[Any]:
    """Import transformers, keep it quiet, and word what it raises for a folder."""
    require("torch", extra="hf", purpose=PURPOSE)
    library = require("transformers", extra="hf", purpose=PURPOSE)
    logging = library.utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield library
    except MissingDependencyError:
        raise
    except Exception as error:  # settings and weights can be wrong in any way
        raise cannot_load(folder, "transformers", error) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def cannot_load(folder: Folder, library: str, error: Exception) -> TeacherError:
    """Say what a library said about a folder; a torchvision that does not fit is a common cause."""
    text = visible(" ".join(str(error).split()))[:300]
    hint = ""
    if "torchvision" in text:
        hint = (
            " A torchvision that was built for another torch breaks it; install the one that fits, or remove "
            "torchvision, which is not needed here."
        )
    return TeacherError(folder.name, f"cannot be loaded by {library} ({type(error).__name__}: {text}).{hint}")


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
    kind: type[CheckpointTeacher] = TextCheckpoint
    if _task_of(folder, config) == "Sequence":
        folder.check_tokenizer()
    else:
        kind = ImageCheckpoint
        if not folder.files.intersection(_PROCESSORS):
            raise TeacherError(
                folder.name,
                f"has no {_PROCESSORS[0]}, so the size and scale of its images are unknown. Fetch that file, "
                "too.",
            )
    folder.weight_files()
    teacher = kind(
        folder.name, classes_of(folder, config, classes), options, output=logits_only(folder, options)
    )
    prepare(teacher, folder, options, saved=config.get("dtype") or config.get("torch_dtype"))
    return teacher


def prepare(teacher: FolderTeacher, folder: Folder, options: Options, saved: Any = None) -> None:
    """Tell a teacher what it needs to load its network, and check the options for that.

    Parameters
    ----------
    teacher : FolderTeacher
    folder : Folder
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
    teacher._folder, teacher._signature = folder, folder.signature()
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
            "Give a checkpoint whose architectures in config.json end in ForSequenceClassification or "
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
    if problem == "regression" or len(_labels_of(folder, config)) == 1:
        raise TeacherError(
            folder.name, "gives a number, not classes: it has one label, or was made for regression."
        )
    return found[1]


def classes_of(folder: Folder, config: Mapping[str, Any], given: ArrayLike | None) -> NDArray[Any]:
    """Return the given classes, or those of the card, or of ``id2label`` if they are names."""
    labels = _labels_of(folder, config)
    if folder.card is not None:
        if len(folder.card.classes) != len(labels):
            raise TeacherError(
                folder.name,
                f"has {len(labels)} columns by its config.json and {len(folder.card.classes)} classes on its "
                "card. Mend the card.",
            )
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


def _labels_of(folder: Folder, config: Mapping[str, Any]) -> list[str]:
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
            "for each number from 0 on.",
        )
    return [labels[i] for i in range(len(labels))]

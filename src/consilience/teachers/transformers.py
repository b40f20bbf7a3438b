"""Classifiers of transformers, loaded by the library itself from a folder that was checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from consilience._optional import require
from consilience._validation import n_rows
from consilience._words import shorten
from consilience.exceptions import TeacherError, shown
from consilience.files.ngram_model import as_texts
from consilience.files.preprocess import as_colour_images
from consilience.files.strict_json import listing, mapping, maybe, record, text, whole
from consilience.teachers.model_folder import CONFIG, Batches, Folder

LOCAL: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""What every loader of transformers is told."""
# tokens of a batch, padding included; small batches stay in the cache of a processor, which halves the time
CPU_TOKENS, GPU_TOKENS = 2**10, 2**14
MAX_PIXELS = 2**23  # of a batch: 55 colour images of 224 x 224
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_TASKS = re.compile(r"\w+For(Sequence|Image)Classification(WithTeacher)?")
_LEAKY = ("convbert", "fnet", "funnel", "nystromformer", "yoso")
"""Networks whose answer depends on how much a text is filled up: their convolutions and sums see it."""
_ENDLESS = 10**6  # tokenizers without a limit write 1e30
_MOST_CLASSES = 10**6
_SETTINGS = record(
    {
        "architectures": maybe(listing(text(), 100)),
        "id2label": maybe(mapping(text(), _MOST_CLASSES, keys=text(9, like=r"\d+", says="a number"))),
        "num_labels": maybe(whole(_MOST_CLASSES)),
        "problem_type": maybe(text()),
    },
    others=True,
)


class Checkpoint:
    """A sequence or image classifier of transformers."""

    def __init__(self, folder: Folder) -> None:
        config, settings = folder.json(CONFIG), folder.json(CONFIG, _SETTINGS)
        self.folder, self.saved = folder, config.get("dtype") or config.get("torch_dtype")
        first = (settings.get("architectures") or ["checkpoint of unknown architecture"])[0]
        labels = {int(number): label for number, label in (settings.get("id2label") or {}).items()}
        self.columns = len(labels) or settings.get("num_labels") or 2
        found, problem = _TASKS.fullmatch(first), settings.get("problem_type")
        what = ""
        if found is None:
            what = (
                f"is a {shorten([first])[:100]}, and a teacher classifies. Give a checkpoint whose "
                f"architectures in {CONFIG} end in ForSequenceClassification or ForImageClassification."
            )
        elif config.get("quantization_config") is not None:
            what = (
                "is quantised (quantization_config), which needs libraries of its own. Give the folder with "
                "the full weights, or export the model to ONNX."
            )
        elif problem == "multi_label_classification":
            what = (
                f"answers yes or no for each class on its own (problem_type {problem}), so a row may have "
                "several classes or none, and its scores are no distribution over classes. If each row has "
                "one class in your data, give a function of X that returns the scores you want."
            )
        elif problem == "regression" or self.columns == 1:
            what = "gives a number, not classes: it has one label, or was made for regression."
        elif labels and sorted(labels) != list(range(self.columns)):
            what = (
                f"has an id2label in {CONFIG} with the numbers {shorten(sorted(labels), 5)}; expected each "
                "number from 0 on."
            )
        elif found[1] == "Image" and not folder.files.intersection(_PROCESSORS):
            what = (
                f"has no {_PROCESSORS[0]}, so the size and scale of its images are unknown. Fetch that file, "
                "too."
            )
        if found is None or what:
            raise TeacherError(folder.name, what)
        self.own = [labels[i] for i in sorted(labels)] or None
        self.rows = "text" if found[1] == "Sequence" else "image"
        if self.rows == "text":
            folder.check_tokenizer()
        folder.weight_files()

    def load(self, device: str, dtype: Any) -> tuple[Any, Batches]:
        """Have the library load the network and what prepares its rows."""
        task = "Sequence" if self.rows == "text" else "Image"
        config, network = load_network(
            self.folder, "", f"AutoModelFor{task}Classification", dtype, return_dict=True
        )
        network.to(device)
        with loading(self.folder) as library:
            if self.rows == "text":
                tokenizer = library.AutoTokenizer.from_pretrained(self.folder.path, **LOCAL)
                return network, token_batches(tokenizer, config, device)
            self._check_processor()
            processor = (
                library.AutoImageProcessor.from_pretrained(  # its torchvision version has other pixels
                    self.folder.path, backend="pil", **LOCAL
                )
            )
        return network, image_batches(processor)

    def _check_processor(self) -> None:
        """Raise unless the folder's image processor is one of an image classifier: others open files."""
        auto = require("transformers.models.auto.image_processing_auto", extra="hf", purpose="A folder")
        models = require("transformers.models.auto.modeling_auto", extra="hf", purpose="A folder")
        kinds = models.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
        known = {auto.IMAGE_PROCESSOR_MAPPING_NAMES.get(kind, {}).get("pil", "Pil") for kind in kinds}
        one, several = map(self.folder.json, _PROCESSORS)
        settings = one or several.get("image_processor")
        named = settings.get("image_processor_type") if isinstance(settings, Mapping) else None
        if named is not None and f"{str(named).removesuffix('Fast').removesuffix('Pil')}Pil" not in known:
            raise TeacherError(
                self.folder.name,
                f"has the image processor {shown(named)}, which transformers does not have for image "
                "classification. Code of the folder is never run.",
            )


def token_batches(tokenizer: Any, config: Any, device: str = "cpu") -> Batches:
    """Return what makes batches of tokens of similar length, for a network with this configuration."""
    pad = getattr(config, "pad_token_id", None)
    if pad is not None and tokenizer.pad_token_id != pad:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
    if config.model_type == "xlnet":
        tokenizer.padding_side = "left"
    places = getattr(config, "max_position_embeddings", None) or 0
    places -= 2 if pad == 1 else 0  # RoBERTa and its kin count positions from after the padding token
    limits = [limit for limit in (tokenizer.model_max_length, places) if 0 < limit < _ENDLESS]
    longest = int(min(limits)) if limits else None
    tokens = CPU_TOKENS if device.startswith("cpu") else GPU_TOKENS

    def batches(X: Any, most: int) -> Iterator[tuple[Any, Any, Any]]:
        found = tokenizer(list(as_texts(X)), truncation=longest is not None, max_length=longest)
        lengths = np.array([len(ids) for ids in found["input_ids"]], dtype=np.intp)
        # the longest first, so that a machine with too little memory fails at once
        order = np.argsort(-lengths, kind="stable")
        while len(order):
            length = int(lengths[order[0]])
            size = max(1, min(most, tokens // max(length, 1)))
            # without a padding token, decoders look at the last token, which must not be padding
            rows = order[: 1 if pad is None else size]
            if config.model_type in _LEAKY:
                rows = rows[lengths[rows] == length]
            part = {key: [values[row] for row in rows] for key, values in found.items()}
            padding = bool((lengths[rows] < length).any())
            yield rows, (), dict(tokenizer.pad(part, padding=padding, return_tensors="pt"))
            order = order[len(rows) :]

    return batches


def image_batches(processor: Any) -> Batches:
    """Return what makes batches of images."""

    def batches(X: Any, most: int) -> Iterator[tuple[Any, Any, Any]]:
        start, size = 0, 1  # the first image shows how large all are
        while start < n_rows(X):
            part = as_colour_images(X[start : start + size], start)
            pixels = processor(part, return_tensors="pt")["pixel_values"]
            yield slice(start, start + len(part)), (), {"pixel_values": pixels}
            start += len(part)
            size = max(1, min(most, MAX_PIXELS // max(pixels[0].numel(), 1)))

    return batches


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
    with loading(folder) as library:
        settings = library.AutoConfig.from_pretrained(path, **LOCAL, **config)
        model, report = getattr(library, auto).from_pretrained(
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
def loading(folder: Folder) -> Iterator[Any]:
    """Import transformers, keep it quiet, and word what it raises for a folder."""
    with folder.loaded_by("transformers", "hf") as library:
        logging = library.utils.logging
        bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
        logging.disable_progress_bar()
        logging.set_verbosity(logging.CRITICAL)
        try:
            yield library
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()

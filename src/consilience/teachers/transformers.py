"""Classifiers of transformers, and encoders of sentence-transformers with a linear head, as model folders.

The libraries load the networks from a folder that was checked. The head of an encoder is a file
``head.safetensors`` in the same folder: ``weight`` (k, d), ``bias`` (k,), and in its metadata ``classes``, a
JSON list.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._optional import require
from consilience._validation import check_count, n_rows
from consilience._words import shorten
from consilience.exceptions import InvalidInputError, UnsafeFileError, shown
from consilience.files.disk import replacing
from consilience.files.ngram_model import as_texts
from consilience.files.strict_json import listing, mapping, maybe, parse_json, record, text, whole
from consilience.labels import class_list
from consilience.rows.images import as_colour_images
from consilience.teachers.base import own_or_given
from consilience.teachers.folders import CONFIG, MODULES, Batches, Folder, list_files
from consilience.teachers.outputs import ensure, foreign, in_the_name_of
from consilience.teachers.torch import check_device

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


HEAD = "head.safetensors"
PURPOSE = "An encoder folder"
_AT_ONCE = 32  # texts of a batch on a processor: small batches stay in its cache
_KINDS = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "Normalize": "base.modules.normalize",
    "Dense": "base.modules.dense",
}
_TYPES = {
    f"sentence_transformers.{place}.{kind}": kind
    for kind, module in _KINDS.items()
    for place in ("models", module, module.rpartition(".")[0])
}
"""The types that modules.json may name: those that the library writes today, and wrote before."""
_PLACE = text(200, like=r"(?!\.\.?$)[^/\\:\0]*", says="empty or a subfolder, named without any path")
_MODULES = listing(record({"type": text(), "path": maybe(_PLACE)}, needs=["type"], others=True), 100, least=1)


class Checkpoint:
    """A sequence or image classifier of transformers."""

    def __init__(self, folder: Folder) -> None:
        config, settings = folder.json(CONFIG), folder.json(CONFIG, _SETTINGS)
        self.folder, self.saved = folder, config.get("dtype") or config.get("torch_dtype")
        first = (settings.get("architectures") or ["checkpoint of unknown architecture"])[0]
        labels = {int(number): label for number, label in (settings.get("id2label") or {}).items()}
        self.columns = len(labels) or settings.get("num_labels") or 2
        ensure(
            _TASKS.fullmatch(first),
            folder.name,
            f"is a {shorten([first])[:100]}, and a teacher classifies. Give a checkpoint whose architectures "
            f"in {CONFIG} end in ForSequenceClassification or ForImageClassification.",
        )
        ensure(
            config.get("quantization_config") is None,
            folder.name,
            "is quantised (quantization_config), which needs libraries of its own. Give the folder with the "
            "full weights, or export the model to ONNX.",
        )
        problem = settings.get("problem_type")
        ensure(
            problem != "multi_label_classification",
            folder.name,
            f"answers yes or no for each class on its own (problem_type {problem}), so a row may have "
            "several classes or none, and its scores are no distribution over classes. If each row has one "
            "class in your data, give a function of X that returns the scores you want.",
        )
        ensure(
            problem != "regression" and self.columns > 1,
            folder.name,
            "gives a number, not classes: it has one label, or was made for regression.",
        )
        ensure(
            not labels or sorted(labels) == list(range(self.columns)),
            folder.name,
            f"has an id2label in {CONFIG} with the numbers {shorten(sorted(labels), 5)}; expected each "
            "number from 0 on.",
        )
        self.own = [labels[i] for i in sorted(labels)] or None
        self.rows = "text" if "ForSequence" in first else "image"
        if self.rows == "text":
            folder.check_tokenizer()
        else:
            ensure(
                folder.files.intersection(_PROCESSORS),
                folder.name,
                f"has no {_PROCESSORS[0]}, so the size and scale of its images are unknown. Fetch that file, "
                "too.",
            )
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
        ensure(
            named is None or f"{str(named).removesuffix('Fast').removesuffix('Pil')}Pil" in known,
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
            yield rows, (), dict(tokenizer.pad(part, padding=pad is not None, return_tensors="pt"))
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
    lost = [str(key) for key in report["missing_keys"] if not str(key).startswith("pooler.")]
    lost += [f"{key} (it has another shape)" for key, *_ in report["mismatched_keys"]]
    ensure(
        not lost,
        folder.name,
        f"lacks the weights {shorten(sorted(lost), 3)}. The library would fill these with random numbers. "
        "Fetch the folder again.",
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


class Sentences:
    """An encoder of sentence-transformers with a linear head, whose input is the embedding."""

    rows, saved = "text", None

    def __init__(self, folder: Folder) -> None:
        self.folder, self._modules = folder, read_modules(folder)
        self._weight, self._bias, self.own = read_head(folder)
        self.columns = len(self._weight)

    def load(self, device: str, dtype: Any) -> tuple[Any, Batches]:
        """Have the library load the encoder, which prepares rows for the head."""
        torch = require("torch", extra="hf", purpose=PURPOSE)
        encoder = load_encoder(self.folder, self._modules, device, dtype)
        k, d = self._weight.shape
        head = torch.nn.Linear(d, k)
        head.load_state_dict({"weight": torch.tensor(self._weight), "bias": torch.tensor(self._bias)})

        def batches(X: Any, most: int) -> Iterator[tuple[Any, Any, Any]]:
            found = encode(encoder, as_texts(X), most)
            ensure(
                found.shape[1] == d,
                self.folder.name,
                f"has a head for {d} features, and its encoder gives {found.shape[1]}. Fit the head on "
                "embeddings of this encoder.",
            )
            yield slice(None), [torch.from_numpy(found)], {}

        return head.to(device), batches


def read_modules(folder: Folder) -> list[tuple[str, str]]:
    """Return kind and subfolder of each module of an encoder, all of them on the list and in the folder."""
    ensure(
        MODULES in folder.files,
        folder.name,
        f"has no {MODULES}, so it is no folder that sentence-transformers saved.",
    )
    found = []
    for entry in folder.json(MODULES, _MODULES):
        within = f"{entry['path']}/" if entry.get("path") else ""
        if entry["type"] not in _TYPES:
            raise UnsafeFileError(
                f"{MODULES} of {folder.name!r} asks for {shown(entry['type'])}. Code of a folder is never "
                f"run; {', '.join(_KINDS)} of sentence-transformers are loaded. Export other encoders to "
                "ONNX."
            )
        kind = _TYPES[entry["type"]]
        found.append((kind, within))
        if kind in ("Transformer", "Dense"):
            folder.weight_files(within)
        if kind == "Transformer":
            folder.check_tokenizer(within)
    return found


def load_encoder(folder: Folder, modules: Sequence[tuple[str, str]], device: str, dtype: Any) -> Any:
    """Have sentence-transformers load an encoder."""
    for kind, within in modules:
        if kind == "Transformer":  # it does not tell when weights are missing
            load_network(folder, within, "AutoModel", dtype)
    with loading(folder), folder.loaded_by("sentence_transformers", "hf") as library:
        return library.SentenceTransformer(
            str(folder.path), device=device, **LOCAL, model_kwargs={"use_safetensors": True, "dtype": dtype}
        )


def encode(encoder: Any, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """Return embeddings (n, d)."""
    size = min(batch_size, _AT_ONCE) if encoder.device.type == "cpu" else batch_size
    found = encoder.encode(list(texts), batch_size=size, show_progress_bar=False)
    return np.asarray(found, dtype=np.float32).reshape(len(texts), -1 if len(texts) else 0)


def encode_sentences(
    folder: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    batch_size: int = 1024,
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
    ensure(where.is_dir(), where.name, f"is given as {os.fspath(folder)!r}, which is no folder.")
    opened = Folder(where, where.name, list_files(where, where.name))
    opened.check_settings()
    modules = read_modules(opened)
    check_device(device)
    torch = require("torch", extra="hf", purpose=PURPOSE)
    return encode(load_encoder(opened, modules, device or "cpu", torch.float32), rows, size)


def read_head(folder: Folder) -> tuple[NDArray[np.float32], NDArray[np.float32], list[Any]]:
    """Return the weights (k, d), the bias (k,) and the classes of the head of a folder."""
    ensure(
        HEAD in folder.files,
        folder.name,
        "is an encoder of sentences without a head, so it names no classes. Fit a linear model on "
        "encode_sentences(folder, texts), and put it there with save_sentence_head(folder, model), which "
        f"writes {HEAD}.",
    )
    safetensors = require("safetensors", extra="hf", purpose=PURPOSE)
    with (
        foreign(folder.name, f"has a head that cannot be read, {HEAD}"),
        safetensors.safe_open(folder.path / HEAD, framework="numpy") as file,
    ):
        told = (file.metadata() or {}).get("classes", "null")
        weight, bias = (np.asarray(file.get_tensor(key), np.float32) for key in ("weight", "bias"))
    with in_the_name_of(folder.name, f"has a head without classes, {HEAD}: "):
        classes = class_list(parse_json(told, "classes"))
    k = len(classes)
    ensure(
        weight.ndim == 2 and len(weight) == k and bias.shape == (k,),
        folder.name,
        f"has a head with weight {weight.shape} and bias {bias.shape} for {k} classes; {HEAD} must hold "
        f"weight ({k}, d) and bias ({k},).",
    )
    ensure(
        np.isfinite(weight).all() and np.isfinite(bias).all(),
        folder.name,
        f"has a head with numbers that are not finite: {HEAD}. Fit it again.",
    )
    return weight, bias, list(classes)


def save_sentence_head(folder: str | os.PathLike[str], model: Any, classes: ArrayLike | None = None) -> Path:
    """Put a fitted linear classifier into an encoder folder, which makes the folder a teacher.

    Nothing is pickled: ``head.safetensors`` holds ``weight`` (k, d), ``bias`` (k,) and, as metadata, the
    classes as a JSON list.

    Parameters
    ----------
    folder : path
        A folder that sentence-transformers saved. An older head in it is replaced.
    model : classifier
        A fitted linear model of scikit-learn, such as `LogisticRegression`, on the embeddings of this encoder
        (see `encode_sentences`). Linear steps before it, such as a `StandardScaler`, go into the weights.
    classes : (k,) sequence, optional
        Other names for its classes.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.linear_model import LogisticRegression
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "modules.json").write_text("[]")  # stands for an encoder
    >>> save_sentence_head(folder, LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])).name
    'head.safetensors'
    """
    where = Path(folder).absolute()
    if not (where / MODULES).is_file():
        raise InvalidInputError(f"{where.name!r} has no {MODULES}, so it is no encoder folder.")
    weight, bias = _linear(model)
    names = own_or_given(model.classes_, classes, type(model).__name__)
    save = require("safetensors.numpy", extra="hf", purpose=PURPOSE).save
    # in C order: safetensors writes the bytes as they lie in memory
    tensors = {"weight": weight.astype(np.float32, order="C"), "bias": bias.astype(np.float32)}
    with replacing(where / HEAD) as file:
        file.write(save(tensors, metadata={"classes": json.dumps(names.tolist(), ensure_ascii=False)}))
    return where / HEAD


def _linear(model: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights (k, d) and bias (k,) whose softmax is what a fitted model says, or raise.

    They are read off its scores for the origin and for the unit vectors.
    """
    kind = type(model).__name__
    with foreign(kind, "is no fitted linear classifier such as LogisticRegression"):
        d = model.n_features_in_
        rows = np.random.default_rng(0).standard_normal((16, d))
        scores = np.asarray(model.decision_function(np.vstack([np.zeros(d), np.eye(d), rows])))
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1) / 2
        bias, weight = scores[0], (scores[1 : d + 1] - scores[0]).T
        found, expected = rows @ weight.T + bias, scores[d + 1 :]
        if hasattr(model, "predict_proba"):
            found, expected = softmax(found, axis=1), model.predict_proba(rows)
    ensure(
        np.allclose(found, expected, atol=1e-6),
        kind,
        "has scores that are not linear, or probabilities that are no softmax of them, such as one against "
        "the rest. Use LogisticRegression.",
    )
    return weight, bias

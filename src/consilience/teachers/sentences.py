"""Encoders of sentence-transformers with a linear head.

The library loads the encoder, after the types of its modules were compared with a list. The head is a file
``head.safetensors`` in the same folder: ``weight`` (k, d), ``bias`` (k,), and in its metadata ``classes``, a
JSON list.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._optional import require
from consilience._validation import check_count
from consilience.exceptions import InvalidInputError, LabelSpaceError, TeacherError, UnsafeFileError, shown
from consilience.files.disk import replacing
from consilience.files.ngram_model import as_texts
from consilience.files.strict_json import listing, maybe, parse_json, record, text
from consilience.labels import class_list
from consilience.teachers.base import own_or_given
from consilience.teachers.model_folder import MODULES, Batches, Folder, list_files
from consilience.teachers.outputs import foreign
from consilience.teachers.torch import check_device
from consilience.teachers.transformers import LOCAL, load_network, loading

HEAD = "head.safetensors"
_PURPOSE = "An encoder folder"
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


class Sentences:
    """An encoder of sentence-transformers with a linear head, whose input is the embedding."""

    rows, saved = "text", None

    def __init__(self, folder: Folder) -> None:
        self.folder, self._modules = folder, read_modules(folder)
        self._weight, self._bias, self.own = read_head(folder)
        self.columns = len(self._weight)

    def load(self, device: str, dtype: Any) -> tuple[Any, Batches]:
        """Have the library load the encoder, which prepares rows for the head."""
        torch = require("torch", extra="hf", purpose=_PURPOSE)
        encoder = load_encoder(self.folder, self._modules, device, dtype)
        k, d = self._weight.shape
        head = torch.nn.Linear(d, k)
        head.load_state_dict({"weight": torch.tensor(self._weight), "bias": torch.tensor(self._bias)})

        def batches(X: Any, most: int) -> Iterator[tuple[Any, Any, Any]]:
            found = encode(encoder, as_texts(X), most)
            if found.shape[1] != d:
                raise TeacherError(
                    self.folder.name,
                    f"has a head for {d} features, and its encoder gives {found.shape[1]}. Fit the head on "
                    "embeddings of this encoder.",
                )
            yield slice(None), [torch.from_numpy(found)], {}

        return head.to(device), batches


def read_modules(folder: Folder) -> list[tuple[str, str]]:
    """Return kind and subfolder of each module of an encoder, all of them on the list and in the folder."""
    if MODULES not in folder.files:
        raise TeacherError(
            folder.name, f"has no {MODULES}, so it is no folder that sentence-transformers saved."
        )
    found = []
    for entry in folder.json(MODULES, _MODULES):
        kind, path = entry["type"], entry.get("path")
        if kind not in _TYPES:
            raise UnsafeFileError(
                f"{MODULES} of {folder.name!r} asks for {shown(kind)}. Code of a folder is never run; "
                f"{', '.join(_KINDS)} of sentence-transformers are loaded. Export other encoders to ONNX."
            )
        within = f"{path}/" if path else ""
        found.append((_TYPES[kind], within))
        if _TYPES[kind] in ("Transformer", "Dense"):
            folder.weight_files(within)
        if _TYPES[kind] == "Transformer":
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
    if not where.is_dir():
        raise TeacherError(where.name, f"is given as {os.fspath(folder)!r}, which is no folder.")
    opened = Folder(where, where.name, list_files(where, where.name))
    opened.check_settings()
    modules = read_modules(opened)
    if device is not None:
        check_device(device)
    torch = require("torch", extra="hf", purpose=_PURPOSE)
    return encode(load_encoder(opened, modules, device or "cpu", torch.float32), rows, size)


def read_head(folder: Folder) -> tuple[NDArray[np.float32], NDArray[np.float32], list[Any]]:
    """Return the weights (k, d), the bias (k,) and the classes of the head of a folder."""
    if HEAD not in folder.files:
        raise TeacherError(
            folder.name,
            f"is an encoder of sentences without a head, so it names no classes. Fit a linear model on "
            f"encode_sentences(folder, texts), and put it there with save_sentence_head(folder, model), "
            f"which writes {HEAD}.",
        )
    safetensors = require("safetensors", extra="hf", purpose=_PURPOSE)
    with (
        foreign(folder.name, f"has a head that cannot be read, {HEAD}"),
        safetensors.safe_open(folder.path / HEAD, framework="numpy") as file,
    ):
        told = (file.metadata() or {}).get("classes", "null")
        weight, bias = (np.asarray(file.get_tensor(key), np.float32) for key in ("weight", "bias"))
    try:
        classes = class_list(parse_json(told, "classes"))
    except InvalidInputError as error:
        raise TeacherError(folder.name, f"has a head without classes, {HEAD}: {error}") from error
    k = len(classes)
    if weight.ndim != 2 or len(weight) != k or bias.shape != (k,):
        raise TeacherError(
            folder.name,
            f"has a head with weight {weight.shape} and bias {bias.shape} for {k} classes; {HEAD} must hold "
            f"weight ({k}, d) and bias ({k},).",
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise TeacherError(folder.name, f"has a head with numbers that are not finite: {HEAD}. Fit it again.")
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
    try:
        told = json.dumps(class_list(names), ensure_ascii=False)
    except (TypeError, ValueError, LabelSpaceError) as error:
        raise InvalidInputError(f"The classes cannot be written: {error}") from error
    save = require("safetensors.numpy", extra="hf", purpose=_PURPOSE).save
    # in C order: safetensors writes the bytes as they lie in memory
    tensors = {"weight": weight.astype(np.float32, order="C"), "bias": bias.astype(np.float32)}
    with replacing(where / HEAD) as file:
        file.write(save(tensors, metadata={"classes": told}))
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
    if not np.allclose(found, expected, atol=1e-6):
        raise TeacherError(
            kind,
            "has scores that are not linear, or probabilities that are no softmax of them, such as one "
            "against the rest. Use LogisticRegression.",
        )
    return weight, bias

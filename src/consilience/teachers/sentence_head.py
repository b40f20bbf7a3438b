"""The linear head of an encoder folder: one safetensors file with its classes, read and written."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from consilience._optional import require
from consilience.exceptions import InvalidInputError, LabelSpaceError, TeacherError
from consilience.files.atomic import replacing
from consilience.files.strict_json import parse_json
from consilience.labels import class_list
from consilience.teachers._base import own_or_given, summary
from consilience.teachers._sklearn_features import last_layer_weights, split
from consilience.teachers.model_folder import MODULES, Folder

HEAD = "head.safetensors"
_PURPOSE = "The head of an encoder folder"


@dataclass(frozen=True)
class Head:
    """A linear layer.

    Attributes
    ----------
    weight : (k, d) float32 array
    bias : (k,) float32 array
    classes : tuple
        The class of each row.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    classes: tuple[Any, ...]

    def logits(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return logits (n, k) of embeddings (n, d)."""
        return np.asarray(features @ self.weight.T + self.bias, dtype=np.float64)


def read_head(folder: Folder) -> Head:
    """Read the head of a folder, or say what is wrong with it."""
    if HEAD not in folder.files:
        raise TeacherError(
            folder.name,
            f"is an encoder of sentences without a head, so it names no classes. Fit a linear model on "
            f"encode_sentences(folder, texts), and put it there with save_sentence_head(folder, model), "
            f"which writes {HEAD}.",
        )
    safetensors = require("safetensors", extra="hf", purpose=_PURPOSE)
    try:
        with safetensors.safe_open(folder.path / HEAD, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            found = {key: file.get_tensor(key) for key in file.keys() if key in ("weight", "bias")}  # noqa: SIM118
        classes = class_list(parse_json(metadata.get("classes", "null")))
    except Exception as error:  # the library has errors of its own
        raise TeacherError(
            folder.name, f"has a head that cannot be read: {HEAD} ({summary(error)}). Write it again."
        ) from error
    weight, bias = found.get("weight"), found.get("bias")
    shapes = {key: value.shape for key, value in found.items()}
    k = len(classes)
    if weight is None or bias is None or weight.ndim != 2 or len(weight) != k or bias.shape != (k,):
        raise TeacherError(
            folder.name,
            f"has a head with {shapes} for {k} classes; {HEAD} must hold weight ({k}, d) and bias ({k},).",
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise TeacherError(folder.name, f"has a head with numbers that are not finite: {HEAD}. Fit it again.")
    return Head(weight.astype(np.float32), bias.astype(np.float32), tuple(classes))


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
        (see `encode_sentences`). A `StandardScaler` before it in a pipeline is taken up into the weights.
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
        text = json.dumps(class_list(names), ensure_ascii=False)
    except (TypeError, ValueError, LabelSpaceError) as error:
        raise InvalidInputError(f"The classes cannot be written: {error}") from error
    save = require("safetensors.numpy", extra="hf", purpose=_PURPOSE).save
    # in C order: safetensors writes the bytes as they lie in memory
    tensors = {"weight": weight.astype(np.float32, order="C"), "bias": bias.astype(np.float32)}
    with replacing(where / HEAD) as file:
        file.write(save(tensors, metadata={"classes": text}))
    return where / HEAD


def _linear(model: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights (k, d) and bias (k,) whose softmax is what a fitted model says."""
    kind, parts = type(model).__name__, split(model)
    last = parts.last
    weight = last_layer_weights(last, len(model.classes_)) if hasattr(last, "coef_") else None
    scalers = [step for step in parts.before if type(step).__name__ == "StandardScaler"]
    if weight is None or len(scalers) < len(parts.before):
        raise TeacherError(
            kind,
            "is no fitted linear classifier, alone or after a StandardScaler. Give one such as "
            "LogisticRegression, fitted on the embeddings of the encoder.",
        )
    given = np.atleast_1d(np.asarray(last.intercept_, dtype=np.float64))
    bias = np.array([-given[0], given[0]]) / 2 if len(given) < len(weight) == 2 else given
    bias = np.broadcast_to(bias, len(weight)).copy()
    for step in reversed(scalers):
        scale = 1.0 if step.scale_ is None else step.scale_
        mean = 0.0 if step.mean_ is None else step.mean_
        weight = weight / scale
        bias = bias - np.broadcast_to(weight * mean, weight.shape).sum(axis=1)
    if hasattr(model, "predict_proba"):
        rows = np.random.default_rng(0).standard_normal((16, weight.shape[1]))
        if not np.allclose(softmax(rows @ weight.T + bias, axis=1), model.predict_proba(rows), atol=1e-6):
            raise TeacherError(
                kind,
                "has probabilities that are no softmax of linear scores, such as one against the rest. Use "
                "LogisticRegression.",
            )
    return weight, bias

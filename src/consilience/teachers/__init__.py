"""Teachers: any classifier, or its precomputed outputs, behind one method.

`as_teacher` picks an adapter by the tables below. It never imports or runs what a file names. It imports
torch, onnx and onnxruntime only when a source needs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from consilience._optional import is_instance_of
from consilience._validation import check_choice, check_count
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.preprocess import ImagePreprocess
from consilience.teachers._base import BATCH_SIZE, Options, Teacher, TeacherLike
from consilience.teachers._callable import callable_teacher
from consilience.teachers._classes import join_classes, rename_classes, split_classes
from consilience.teachers._features import Observed
from consilience.teachers._onnx import onnx_teacher
from consilience.teachers._outputs import FLOOR, LABEL_SMOOTHING, Output, check_floor, check_label_smoothing
from consilience.teachers._precomputed import (
    array_teacher,
    is_array,
    npy_teacher,
    parquet_teacher,
)
from consilience.teachers._remote import endpoint_teacher, remote_teacher
from consilience.teachers._remote_options import RemoteOptions, is_address
from consilience.teachers._sklearn import is_estimator, sklearn_teacher
from consilience.teachers._skops import skops_teacher
from consilience.teachers._text import is_ngram_classifier, ngram_teacher, text_or_outputs
from consilience.teachers._torch import torch_teacher
from consilience.teachers._wrapped import relabel
from consilience.teachers.folders import folder_teacher, hub_advice
from consilience.teachers.sentence_head import save_sentence_head
from consilience.teachers.sentences import encode_sentences

__all__ = [
    "ImagePreprocess",
    "Observed",
    "RemoteOptions",
    "Teacher",
    "TeacherLike",
    "as_teacher",
    "encode_sentences",
    "is_source",
    "join_classes",
    "rename_classes",
    "save_sentence_head",
    "split_classes",
]

Maker = Callable[[Any, ArrayLike | None, str | None, Options], Teacher]

_FILES: dict[str, Maker] = {
    ".onnx": onnx_teacher,
    ".npy": npy_teacher,
    ".npz": text_or_outputs,
    ".parquet": parquet_teacher,
    ".skops": skops_teacher,
    ".toml": endpoint_teacher,
}


def _around(obj: Any, classes: ArrayLike | None, name: str | None, options: Options) -> Teacher:
    """Return the teacher inside a loaded classifier."""
    return relabel(obj.teacher_, classes, name, options)


# the first test that holds decides; callables come last, since a torch module is callable, too
_OBJECTS: tuple[tuple[Callable[[Any], bool], Maker], ...] = (
    (lambda obj: not isinstance(obj, type) and isinstance(obj, Teacher | TeacherLike), relabel),
    (lambda obj: isinstance(getattr(obj, "teacher_", None), Teacher), _around),
    (lambda obj: is_instance_of(obj, "torch.nn", "Module"), torch_teacher),
    (is_array, array_teacher),
    (is_ngram_classifier, ngram_teacher),
    (is_estimator, sklearn_teacher),
    (callable, callable_teacher),
)


_TAKE_IMAGES = (
    torch_teacher,
    onnx_teacher,
    folder_teacher,
    remote_teacher,
    endpoint_teacher,
    callable_teacher,
    relabel,
    _around,
)
_WITHOUT_COSTS = (
    torch_teacher,
    onnx_teacher,
    folder_teacher,
    sklearn_teacher,
    skops_teacher,
    remote_teacher,
)


def as_teacher(
    obj: Any,
    classes: ArrayLike | None = None,
    name: str | None = None,
    *,
    output: Output = "auto",
    floor: float = FLOOR,
    label_smoothing: float = LABEL_SMOOTHING,
    batch_size: int = BATCH_SIZE,
    device: str | None = None,
    embed: Any = None,
    fingerprint: str | None = None,
    n_jobs: int = 1,
    remote: RemoteOptions | None = None,
    preprocess: ImagePreprocess | None = None,
    half: bool | None = None,
) -> Teacher:
    """Make a teacher out of a model, a function, an array or a file.

    Parameters
    ----------
    obj : object
        - a fitted scikit-learn-style classifier with `predict_proba`, or else `decision_function`. Margins
          count as logits: a binary margin d as [0, d] (so that softmax is sigmoid(d)), those of several
          classes as they are;
        - a `torch.nn.Module` that returns logits (n, k);
        - a path to an ``.onnx`` file. Files that it refers to are checked first;
        - a path to a model folder (docs/model-folders.md): a sequence or image classifier of transformers, an
          encoder of sentence-transformers with a linear head, or a network of timm;
        - a path to a ``.skops`` file with a fitted scikit-learn classifier, of types on our own list alone
          (docs/files.md);
        - an address ``https://HOST/v2/models/NAME`` of the Open Inference Protocol (docs/remote.md), or a
          path to a ``.toml`` file with one;
        - a `consilience.students.Ngrams`, or a path to the ``.npz`` file that it saved;
        - a function ``f(X) -> (n, k)``, or one that returns a ranked answer per row: pairs (class, score) or
          a dictionary, of all classes or the best few, and None to abstain;
        - precomputed outputs, a row per row of the transfer set: an array (n, k), a data frame, hard labels
          (n,) that name classes (None, NaN, or -1 if that is no class, abstain), or a path to ``.npy``,
          ``.npz`` (one of ``logits``, ``proba``, ``labels``; and ``classes``) or ``.parquet`` (a column per
          class, or one column ``label``);
        - a teacher, which is returned as it is (or under the given name and classes);
        - an object of your own with `name`, `classes` and `predict_logits` (see `TeacherLike`). Any other
          member of `Teacher` that it has is used, too.
    classes : (k,) sequence of str or int, optional
        The class of each column. By default those of the classifier, of the ONNX file, or of the card next
        to the file; `classes` renames them column by column. Hard labels must be among them.
    name : str, optional
        By default the card's name, the file's stem, the class of the model or the name of the function.
    output : {"auto", "logits", "probabilities", "costs", "labels"}
        What the source returns. "auto" knows it for scikit-learn and torch, reads it from the ONNX graph if
        it can, and otherwise decides on the first batch. Ranked answers need it. For scikit-learn, "logits"
        prefers `decision_function` to `predict_proba`. "costs" (of functions and arrays) are lower for more
        probable classes: their negatives are logits.
    floor : float
        Probabilities become ``log(max(p, floor))``. Classes that a ranked answer does not name get p = 0
        (the others are scaled to sum to one), the lowest logit of the answer, or its highest cost.
    label_smoothing : float
        For hard labels, s: the label's logit is log(1 - s + s / k), the others' log(s / k).
    batch_size : int
        Rows per call of a torch or ONNX model, or per request to a server, at most.
    device : str, optional
        Where a torch module (which is moved there) or a model folder runs; "cpu" or "cuda" for ONNX.
    embed : str, callable or array, optional
        The features of a row. By default the input of the last layer, if there is one: a torch module's last
        linear layer with k outputs, the last Gemm or MatMul with k columns of an ONNX graph, a linear model,
        an MLPClassifier. Or the name of a torch layer (its output; its input with ``":input"`` at the end),
        of a tensor of an ONNX graph, or of a step of a scikit-learn pipeline; or a function of X (for torch,
        of a batch as a tensor) that returns (n, d); or an array (n, d) for precomputed outputs. Feature maps
        and sequences are averaged over places and steps.
    fingerprint : str, optional
        A text that stands for this version of the model, so that its outputs can be stored. Change it when
        the model changes. Functions need one, and models on servers that tell no version; for all else it is
        computed from the content.
    n_jobs : int
        Processes in which to ask a slow function about many rows. Each loads what the function needs; the
        function must be importable.
    remote : RemoteOptions, optional
        For an address: the variable of its token, time-outs, limits.
    preprocess : ImagePreprocess, optional
        How images are prepared for this model (docs/images.md); by default as its card says. X is then a
        folder of images, paths, PIL images or arrays of pixels, of any sizes. For torch, ONNX, addresses,
        networks of timm and functions, which get prepared images (n, ...); so does a function `embed`.
    half : bool, optional
        For a model folder: whether the network runs in half precision. By default it does on a GPU, if its
        weights were saved so.

    Returns
    -------
    Teacher
        Its `predict_logits(X)` gives float64 logits (n, k); a row of NaN is an abstention. `Teacher` lists
        its other members (`embed`, `class_weights`, ...).

    Raises
    ------
    TeacherError
        The source cannot be used, now or when it is asked; the message has the remedy.
    UnsafeFileError
        An ONNX file or a model folder reaches for data outside its folder, or for code; or a ``.skops`` file
        holds a type that is not on the list.

    Examples
    --------
    >>> teacher = as_teacher([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"], name="pets")
    >>> teacher.classes.tolist()
    ['cat', 'dog']
    >>> teacher.predict_logits([0, 1]).round(2).tolist()
    [[-0.11, -2.3], [-1.61, -0.22]]
    """
    if name is not None and not isinstance(name, str):
        raise InvalidInputError("{argument} must be a text or None.", argument="name", value=name)
    check_choice("output", output, ("auto", "logits", "probabilities", "costs", "labels"))
    options = Options(
        output,
        check_floor(floor),
        check_label_smoothing(label_smoothing),
        check_count("batch_size", batch_size),
        device,
        embed,
        fingerprint,
        check_count("n_jobs", n_jobs),
        remote,
        preprocess,
        half,
    )
    make = _maker(obj, name)
    if remote is not None and (make is not remote_teacher or not isinstance(remote, RemoteOptions)):
        raise InvalidInputError("{argument} must be RemoteOptions, for an address.", argument="remote")
    if device is not None and make not in (torch_teacher, onnx_teacher, folder_teacher):
        raise TeacherError(
            name or type(obj).__name__,
            "has no device; {argument} is for torch, ONNX and model folders. Drop it.",
            argument="device",
        )
    _check_preprocess(preprocess, make, name or type(obj).__name__)
    if half is not None and (make is not folder_teacher or not isinstance(half, bool)):
        raise InvalidInputError(
            "{argument} must be True or False, for a model folder.", argument="half", value=half
        )
    if n_jobs > 1 and make is not callable_teacher:
        raise TeacherError(
            name or type(obj).__name__,
            "is asked in one process; {argument} is for functions. Drop it.",
            argument="n_jobs",
        )
    if output == "costs" and make in _WITHOUT_COSTS:
        raise TeacherError(
            name or type(obj).__name__,
            "gives no costs; {argument} is for functions and arrays. Drop it, or give a function.",
            argument="output",
            value=output,
        )
    if fingerprint is not None and (not isinstance(fingerprint, str) or not fingerprint):
        raise InvalidInputError(
            "{argument} must be a text that is not empty.", argument="fingerprint", value=fingerprint
        )
    teacher = make(obj, classes, name, options)
    if isinstance(obj, str | os.PathLike) and make is not remote_teacher:
        teacher.file = Path(obj).absolute()
    return teacher


def _check_preprocess(preprocess: Any, make: Maker, name: str) -> None:
    if preprocess is None:
        return
    if not isinstance(preprocess, ImagePreprocess):
        raise InvalidInputError(
            "{argument} must be an ImagePreprocess of consilience.teachers.",
            argument="preprocess",
            value=preprocess,
        )
    if make not in _TAKE_IMAGES:
        raise TeacherError(
            name,
            "takes no images; {argument} is for torch, ONNX, addresses and functions. Drop it, or give a "
            "function that prepares images and asks the model.",
            argument="preprocess",
        )


def is_source(obj: Any) -> bool:
    """Tell whether an object is of a kind that `as_teacher` takes.

    Examples
    --------
    >>> is_source("model.onnx"), is_source([[0.9, 0.1]]), is_source(None)
    (True, True, False)
    """
    return isinstance(obj, str | os.PathLike) or any(test(obj) for test, _ in _OBJECTS)


def _maker(obj: Any, name: str | None) -> Maker:
    if is_address(obj):
        return remote_teacher
    if isinstance(obj, str | os.PathLike):
        return _path_maker(obj, name)
    for test, make in _OBJECTS:
        if test(obj):
            return make
    kind = type(obj).__name__
    raise TeacherError(
        name or kind,
        f"is a {kind}, which is no classifier. Give a fitted classifier, a torch module, a path, a function "
        "or an array; for a model that only has predict, give its predictions as an array.",
    )


def _path_maker(path: str | os.PathLike[str], name: str | None) -> Maker:
    suffix = Path(path).suffix.lower()
    if suffix in _FILES:
        return _FILES[suffix]
    if os.fspath(path) and Path(path).is_dir():
        return folder_teacher
    raise TeacherError(
        name or Path(path).stem or str(path),
        hub_advice(path)
        or f"is given as {os.fspath(path)!r}; a teacher's file ends in {', '.join(_FILES)}, or it is a model "
        "folder.",
    )

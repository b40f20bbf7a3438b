"""Turn images into features: by a network that you name, or by one of two simple defaults.

Both defaults need no weights from elsewhere. *Pixels* are the principal components of the pixels. *Patches*
are those of random filters: each image is convolved with 64 random 5 x 5 filters, what is below zero is set
to zero, and the means over a 4 x 4 grid are taken. Features of a pretrained network are much better.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from consilience import as_teacher
from consilience.exceptions import InvalidInputError, visible
from consilience.teachers.onnx import load_safely

BATCH = 250
PCA_ROWS = 10_000  # at most so many rows decide about the components
FILTERS, FILTER_SIDE, GRID = 64, 5, 4

Floats = NDArray[np.float32]
Images = NDArray[np.uint8]
Network = Callable[[Floats], Any]
"""A function of images (n, 3, height, width) that returns features (n, d)."""


def pixels(images: Floats) -> Floats:
    """Return images (n, 3, h, w) as rows (n, 3 h w)."""
    return images.reshape(len(images), -1)


def patches(images: Floats) -> Floats:
    """Return the mean responses (n, 1024) of random filters over a grid."""
    random = np.random.RandomState(0)
    filters = random.randn(images.shape[1] * FILTER_SIDE**2, FILTERS).astype(np.float32)
    filters -= filters.mean(axis=0)  # so that plain areas answer nothing
    windows = sliding_window_view(images, (FILTER_SIDE, FILTER_SIDE), axis=(2, 3))
    n, _, height, width = windows.shape[:4]
    if min(height, width) < GRID:
        raise InvalidInputError(
            f"Images of {images.shape[3]} x {images.shape[2]} are too small; use --size 32."
        )
    flat = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, height * width, -1)
    answers = np.maximum(flat @ filters, 0).reshape(n, height, width, FILTERS)
    rows = np.array_split(np.arange(height), GRID)
    columns = np.array_split(np.arange(width), GRID)
    cells = [answers[:, r[:, None], c].mean(axis=(1, 2)) for r in rows for c in columns]
    return np.concatenate(cells, axis=1).astype(np.float32)


def onnx_network(path: Path) -> Network:
    """Return a function that asks an ONNX file: for what enters its last layer, or else for its output.

    The file takes float images (n, 3, height, width). It is checked as every ONNX teacher is.
    """
    model, _ = load_safely(path.resolve(), visible(path.name))
    width = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    if not width:
        raise InvalidInputError(
            f"{visible(str(path))} does not say how many values it returns for an image. Export it with a "
            "fixed number of outputs."
        )
    teacher = as_teacher(str(path), classes=list(range(width)), output="logits")

    def ask(images: Floats) -> Any:
        """Return the embedding of images, or what the network says of them."""
        found = teacher.embed(images)
        return teacher.predict_logits(images) if found is None else found

    return ask


def torch_network(module: Any) -> Network:
    """Return a function that asks a torch module which returns features, in eval mode."""
    import torch

    def ask(images: Floats) -> Any:
        """Return what the module makes of images."""
        was_training = module.training
        module.eval()
        with torch.inference_mode():
            found = module(torch.from_numpy(images)).numpy()
        module.train(was_training)
        return found

    return ask


def extract(
    network: Network, train: Images, test: Images, components: int, mean: float, std: float
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Return the features of both parts: principal components of the training part, on one common scale.

    Parameters
    ----------
    network : function
        Of images (n, 3, h, w).
    train, test : (n, h, w, 3) or (n, h, w) arrays of uint8
    components : int
        Most components to keep.
    mean, std : float
        The network gets ``(pixel / 255 - mean) / std``.
    """
    raw_train, raw_test = (_ask(network, images, mean, std) for images in (train, test))
    rows = np.random.RandomState(0).permutation(len(raw_train))[:PCA_ROWS]
    most = min(components, raw_train.shape[1], len(rows))
    pca = PCA(most, svd_solver="randomized", random_state=0).fit(raw_train[rows])
    kept, kept_test = pca.transform(raw_train), pca.transform(raw_test)
    scale = float(kept.std()) or 1.0
    return (kept / scale).astype(np.float16), (kept_test / scale).astype(np.float16)


def _ask(network: Network, images: Images, mean: float, std: float) -> Floats:
    found = []
    for start in range(0, len(images), BATCH):
        part = images[start : start + BATCH].astype(np.float32) / 255
        channels = part[:, None].repeat(3, axis=1) if part.ndim == 3 else part.transpose(0, 3, 1, 2)
        answer = np.asarray(network(np.ascontiguousarray((channels - mean) / std, dtype=np.float32)))
        found.append(answer.reshape(len(part), -1).astype(np.float32))
    features = np.concatenate(found)
    if not np.isfinite(features).all():
        raise InvalidInputError("The network returns values that are not finite. Check --mean and --std.")
    return features

"""Read labelled images: a folder for each class, CIFAR's binary files, or MNIST's files."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError, visible
from consilience.rows.images import IMAGES

CIFAR_SIDE = 32
CIFAR_RECORD = 2 + 3 * CIFAR_SIDE**2  # coarse label, fine label, then red, green and blue
CIFAR_NAMES = "fine_label_names.txt"
TEST_EVERY = 5  # of a class without a test folder, each fifth image is for the test
PARTS = ("train", "test")
MNIST_PARTS = {"train": "train", "test": "t10k"}

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Labelled:
    """Images (n, height, width, 3) or (n, height, width), their labels (n,), and the names of the classes."""

    train: Images
    y_train: NDArray[np.intp]
    test: Images
    y_test: NDArray[np.intp]
    classes: tuple[str, ...]


def read_images(folder: Path, side: int) -> Labelled:
    """Read a folder of images, whatever its form.

    Parameters
    ----------
    folder : Path
        With ``train.bin`` and ``test.bin`` of CIFAR-100, or a folder for each class, or folders ``train`` and
        ``test`` with a folder for each class.
    side : int
        Images in folders become squares of this many pixels.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"{visible(str(folder))} is no folder. Give the folder of your images.")
    binary = next((place for place in (folder, folder / "cifar-100-binary") if _has_binary(place)), None)
    if binary is not None:
        return read_cifar(binary)
    if (folder / "meta").is_file() and (folder / "train").is_file():
        raise InvalidInputError(
            f"{visible(str(folder))} has CIFAR-100's files for Python, which are pickled and are not opened. "
            "Take the binary version (train.bin, test.bin), or a folder of images for each class."
        )
    return read_folders(folder, side)


def read_cifar(folder: Path) -> Labelled:
    """Read ``train.bin`` and ``test.bin`` of CIFAR-100, with its fine labels."""
    parts = {}
    for part in PARTS:
        path = folder / f"{part}.bin"
        content = np.fromfile(path, dtype=np.uint8)
        if not len(content) or len(content) % CIFAR_RECORD:
            raise InvalidInputError(
                f"{visible(str(path))} has {len(content):,} bytes, not a multiple of {CIFAR_RECORD}. "
                "It is not of CIFAR-100's binary version, or not complete."
            )
        rows = content.reshape(-1, CIFAR_RECORD)
        pixels = rows[:, 2:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE).transpose(0, 2, 3, 1)
        parts[part] = np.ascontiguousarray(pixels), rows[:, 1].astype(np.intp)
    names = folder / CIFAR_NAMES
    most = 1 + max(int(y.max()) for _, y in parts.values())
    classes = names.read_text(encoding="utf-8").split() if names.is_file() else [str(k) for k in range(most)]
    if len(classes) < most:
        raise InvalidInputError(
            f"{visible(str(names))} names {len(classes)} classes, and labels go up to {most}."
        )
    return Labelled(*parts["train"], *parts["test"], tuple(classes))


def read_folders(folder: Path, side: int) -> Labelled:
    """Read a folder for each class. Without ``train`` and ``test``, each fifth image is for the test."""
    split = all((folder / part).is_dir() for part in PARTS)
    roots = {part: folder / part for part in PARTS} if split else {"train": folder}
    found = {part: _by_class(root) for part, root in roots.items()}
    classes = sorted(found["train"])
    if len(classes) < 2:
        raise InvalidInputError(
            f"{visible(str(folder))} has images of {len(classes)} classes. Give a folder with a folder for "
            "each class, or with train and test folders of that form."
        )
    if split:
        unknown = sorted(set(found["test"]) - set(classes))
        if unknown:
            raise InvalidInputError(f"test has a class that train has not: {visible(unknown[0])}.")
    else:
        found = {
            "train": {
                c: [p for i, p in enumerate(paths) if i % TEST_EVERY] for c, paths in found["train"].items()
            },
            "test": {c: paths[::TEST_EVERY] for c, paths in found["train"].items()},
        }
    train, y_train = _open(found["train"], classes, side)
    test, y_test = _open(found["test"], classes, side)
    return Labelled(train, y_train, test, y_test, tuple(classes))


def read_mnist(folder: Path) -> Labelled:
    """Read MNIST's four files, ``train-images-idx3-ubyte`` and so on, also with the ending ``.gz``."""
    parts = {}
    for part, prefix in MNIST_PARTS.items():
        images = _idx(folder, f"{prefix}-images-idx3-ubyte", 3)
        labels = _idx(folder, f"{prefix}-labels-idx1-ubyte", 1)
        if len(images) != len(labels):
            raise InvalidInputError(
                f"MNIST's {part} files have {len(images)} images and {len(labels)} labels."
            )
        parts[part] = images, labels.astype(np.intp)
    classes = tuple(map(str, range(1 + int(parts["train"][1].max()))))
    return Labelled(*parts["train"], *parts["test"], classes)


def _idx(folder: Path, name: str, dimensions: int) -> Images:
    """Read an IDX file of bytes: a magic number, the sizes in four bytes each, then the values."""
    paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if not paths:
        raise InvalidInputError(f"{name} is not in {visible(str(folder))}. Give the folder of MNIST's files.")
    content = gzip.decompress(paths[0].read_bytes()) if paths[0].suffix == ".gz" else paths[0].read_bytes()
    start = 4 * (1 + dimensions)
    header = (
        np.frombuffer(content[:start], dtype=">u4") if len(content) >= start else np.zeros(1, dtype=">u4")
    )
    if header[0] != 0x800 + dimensions or len(content) - start != np.prod(header[1:], dtype=np.int64):
        raise InvalidInputError(f"{visible(str(paths[0]))} is no IDX file of bytes, or not complete.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(header[1:].astype(int))


def _has_binary(folder: Path) -> bool:
    return all((folder / f"{part}.bin").is_file() for part in PARTS)


def _by_class(root: Path) -> dict[str, list[Path]]:
    """Return the images of each folder, in the order of their names."""
    found = {}
    for place in sorted(path for path in root.iterdir() if path.is_dir()):
        paths = sorted(path for path in place.iterdir() if path.suffix.lower() in IMAGES)
        if paths:
            found[place.name] = paths
    return found


def _open(
    by_class: dict[str, list[Path]], classes: Sequence[str], side: int
) -> tuple[Images, NDArray[np.intp]]:
    """Return images in colour as squares, and their labels."""
    pil = require("PIL.Image", extra="images", purpose="Reading images")
    images, labels = [], []
    for label, name in enumerate(classes):
        for path in by_class.get(name, []):
            try:
                with pil.open(path) as image:
                    images.append(np.asarray(image.convert("RGB").resize((side, side))))
            except (OSError, ValueError, SyntaxError, pil.DecompressionBombError) as error:
                raise InvalidInputError(
                    f"{visible(str(path))} cannot be read: {visible(str(error))}. Remove it, or mend it."
                ) from error
            labels.append(label)
    if not images:
        raise InvalidInputError("There are no images for the test. Give at least two of each class.")
    return np.stack(images), np.array(labels, dtype=np.intp)

"""The pixels of images: of files, PIL images and arrays, which need not have one size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._words import visible
from consilience.exceptions import InvalidInputError
from consilience.rows.tables import is_pil_image

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""The endings of image files."""
PURPOSE = "Reading images"
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP = ("I", "F")  # modes whose values would be cut off at 255
_ORIENTATION, _ON_ITS_SIDE = 274, (5, 6, 7, 8)  # a tag of EXIF, and its values for a picture on its side


def joined_images(images: Sequence[Any]) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
    """Return the pixels of PIL images (and arrays): one array if they have one size, else a list of arrays.

    They are (height, width, 3), or (height, width) if no image has colours.
    """
    grey = all(image.mode in _GREY if is_pil_image(image) else np.ndim(image) == 2 for image in images)
    mode = "L" if grey else "RGB"
    found = [pixels_of(image, mode) if is_pil_image(image) else image for image in images]
    return np.stack(found) if len({values.shape for values in found}) == 1 else found


def pixels_of(image: Any, mode: str) -> NDArray[np.uint8]:
    """Return the pixels of a PIL image in a mode, ``"L"`` or ``"RGB"``, turned as people see it."""
    if image.mode.startswith(_DEEP):
        raise InvalidInputError(
            f"An image has more than 8 bits a pixel ({image.mode}), which a picture of 8 bits cannot hold. "
            "Give an array of the values instead."
        )
    if "exif" in image.info:  # Pillow turns other formats itself
        operations = require("PIL.ImageOps", extra="images", purpose=PURPOSE)
        image = operations.exif_transpose(image)
    return np.asarray(image if image.mode == mode else image.convert(mode))


def read_header(path: str | os.PathLike[str], option: str = "X") -> tuple[int, int, bool]:
    """Return height and width of an image file as people see it, and whether it is grey; no pixels."""
    with _opened(path, option) as image:
        turned = "exif" in image.info and image.getexif().get(_ORIENTATION) in _ON_ITS_SIDE
        width, height = reversed(image.size) if turned else image.size
        return height, width, image.mode in _GREY


def read_image(path: str | os.PathLike[str], mode: str = "RGB", option: str = "X") -> NDArray[np.uint8]:
    """Return the pixels (height, width, 3) of an image file, or (height, width) with the mode ``"L"``."""
    with _opened(path, option) as image:
        return pixels_of(image, mode)


@contextmanager
def _opened(path: str | os.PathLike[str], option: str) -> Iterator[Any]:
    images = require("PIL.Image", extra="images", purpose=PURPOSE)
    try:
        with images.open(path) as image:
            yield image
    except InvalidInputError as error:
        reason = error.message.removeprefix("An image has ")
        raise InvalidInputError(f"{option}: {visible(str(path))} cannot be used: it has {reason}") from error
    except (OSError, ValueError, SyntaxError, images.DecompressionBombError) as error:
        reason = visible(" ".join(str(error).split())).rstrip(".") or type(error).__name__
        raise InvalidInputError(f"{option}: {visible(str(path))} cannot be read: {reason}.") from error

"""Rows that are images: arrays, PIL images or paths, as colour images."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import is_instance_of, require
from consilience._words import visible
from consilience.exceptions import InvalidInputError

_EXPECTED = (
    "expected images: uint8 arrays (height, width, 3) or (height, width), PIL images, or paths of image files"
)


def as_images(X: Any, start: int = 0) -> list[NDArray[np.uint8]]:
    """Return rows as colour images (height, width, 3), or raise with the number of the row.

    Parameters
    ----------
    X : array, or sequence of arrays, PIL images or paths
    start : int
        The number of the first row, for messages.
    """
    return [_as_image(image, start + row) for row, image in enumerate(X)]


def _as_image(image: Any, row: int) -> NDArray[np.uint8]:
    images = require("PIL.Image", extra="hf", purpose="A teacher of images")
    if isinstance(image, str | os.PathLike):
        try:
            with images.open(os.fspath(image)) as opened:
                return np.asarray(_eight_bits(opened, row).convert("RGB"))
        except (OSError, ValueError, SyntaxError, images.DecompressionBombError) as error:
            if isinstance(error, InvalidInputError):
                raise
            shown = visible(" ".join(str(error).split()))[:200]
            raise InvalidInputError(f"The image in row {{row}} cannot be read: {shown}.", row=row) from error
    if is_instance_of(image, "PIL.Image", "Image"):
        return np.asarray(_eight_bits(image, row).convert("RGB"))
    values = np.asarray(image)
    if values.ndim == 3 and values.shape[-1] == 1:
        values = values[..., 0]
    if values.dtype != np.uint8 or values.ndim not in (2, 3) or 0 in values.shape:
        raise InvalidInputError(
            f"X has {values.dtype} of shape {values.shape} in row {{row}}; {_EXPECTED}. Scale and round "
            f"floats to 0...255 first.",
            row=row,
        )
    if values.ndim == 3 and values.shape[-1] not in (3, 4):
        hint = " Move the channels to the end: X.transpose(0, 2, 3, 1)." if values.shape[0] in (1, 3) else ""
        raise InvalidInputError(f"X has shape {values.shape} in row {{row}}; {_EXPECTED}.{hint}", row=row)
    return np.asarray(images.fromarray(values).convert("RGB"))


def _eight_bits(image: Any, row: int) -> Any:
    if image.mode.startswith(("I", "F")):
        raise InvalidInputError(
            f"The image in row {{row}} has more than 8 bits a pixel ({image.mode}), which would be cut off "
            f"at 255. Scale it to 0...255 first.",
            row=row,
        )
    return image

"""A folder of images as rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.sources.source import Source, block_rows, cut

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""The endings of image files."""
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP = ("I", "F")  # modes whose values would be cut off at 255


class ImageSource(Source):
    """Images as rows (height, width, 3) of uint8, or (height, width) if the first one is grey.

    Parameters
    ----------
    paths : sequence of Path
        Image files of one size.
    option : str
        What named them, for messages.
    """

    def __init__(self, paths: Sequence[Path], option: str = "X") -> None:
        self._paths, self._option = list(paths), option
        self._mode: str | None = None
        first = self._open(0)
        self._mode = "L" if first.ndim == 2 else "RGB"
        self._shape = first.shape
        self.borders = cut([len(self._paths)], block_rows(first.nbytes, 1))

    def read(self, block: int) -> NDArray[np.uint8]:
        """Return the images (b, height, width, 3) of one block."""
        rows = self.rows_of(block)
        images = np.empty((rows.stop - rows.start, *self._shape), dtype=np.uint8)
        for i, image in enumerate(images):
            found = self._open(rows.start + i)
            if found.shape != self._shape:
                raise InvalidInputError(
                    f"{self._option}: {self._paths[rows.start + i]} is {_size(found)}, and the first image "
                    f"{_size(images[0])}. Bring all images to one size first."
                )
            image[:] = found
        return images

    def _open(self, number: int) -> NDArray[Any]:
        images = require("PIL.Image", extra="images", purpose="Reading images")
        path = self._paths[number]
        try:
            with images.open(path) as image:
                grey = image.mode in _GREY
                if image.mode.startswith(_DEEP):
                    raise ValueError(f"it has more than 8 bits a pixel ({image.mode}). Save it as .npy")
                if self._mode == "L" and not grey:
                    raise ValueError("it has colours, and the first image is grey. Bring all to one mode")
                return np.asarray(image.convert(self._mode or ("L" if grey else "RGB")))
        except (OSError, ValueError, SyntaxError, images.DecompressionBombError) as error:
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise InvalidInputError(f"{self._option}: {path} cannot be read: {reason}.") from error


def _size(image: NDArray[Any]) -> str:
    return f"{image.shape[1]} x {image.shape[0]}"

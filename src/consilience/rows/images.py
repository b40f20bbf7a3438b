"""A folder of images as rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._images import read_header, read_image
from consilience.exceptions import InvalidInputError
from consilience.rows.rows import BLOCK_BYTES, LOOKED_AT, Rows, block_rows

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""The endings of image files."""


class ImageRows(Rows):
    """Images as rows (height, width, 3) of uint8, or (height, width) if all of them are grey.

    The sizes come from the first bytes of the files; the pixels are read block by block. Images of one size
    come as one array (b, height, width, 3), others as a list of arrays.

    Parameters
    ----------
    paths : sequence of Path
        Image files.
    option : str
        What named them, for messages.

    Attributes
    ----------
    one_size : bool
        Whether all images have one size.
    """

    def __init__(self, paths: Sequence[Path], option: str = "X") -> None:
        self._paths, self._option = list(paths), option
        headers = [read_header(path, option) for path in self._paths]
        self._mode = "L" if all(header.grey for header in headers) else "RGB"
        self._sizes = np.array([header[:2] for header in headers], dtype=np.int64)
        self._bytes = self._sizes.prod(axis=1) * len(self._mode)
        self.one_size = bool((self._sizes == self._sizes[0]).all())
        self.borders = _cut_by_bytes(self._bytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, height, width, 3) of all rows; (n,) if they differ in size."""
        if not self.one_size:
            return (len(self),)
        height, width = map(int, self._sizes[0])
        return (len(self), height, width, 3) if self._mode == "RGB" else (len(self), height, width)

    @cached_property
    def head(self) -> Any:
        """The first few images; the rest of their block is not read."""
        first = self.rows_of(0)
        return self._images(range(first.start, min(first.stop, LOOKED_AT)))

    @property
    def n_bytes(self) -> int:
        """How much memory the pixels of all images would take."""
        return int(self._bytes.sum())

    def read(self, block: int) -> Any:
        """Return the images of one block: (b, height, width, 3), or a list if sizes differ."""
        rows = self.rows_of(block)
        return self._images(range(rows.start, rows.stop))

    def take(self, rows: NDArray[np.intp]) -> Any:
        """Return some images, by their positions. Only their files are read."""
        return self._images(rows.tolist())

    def _images(self, rows: Sequence[int]) -> Any:
        found = [self._image(row) for row in rows]
        if not self.one_size:
            return found
        return np.stack(found) if found else np.empty((0, *self.shape[1:]), np.uint8)

    def _image(self, row: int) -> NDArray[np.uint8]:
        values = read_image(self._paths[row], self._mode, self._option)
        if values.shape[:2] != tuple(self._sizes[row]):
            raise InvalidInputError(
                f"{self._option}: {self._paths[row]} is {values.shape[1]} x {values.shape[0]}, and was "
                f"{self._sizes[row, 1]} x {self._sizes[row, 0]} when it was first opened. Leave the files "
                "alone while they are read."
            )
        return values


def _cut_by_bytes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return borders of blocks of about `BLOCK_BYTES` each; a larger image is a block of its own."""
    borders, held = [0], 0
    for row, size in enumerate(sizes.tolist()):
        full = held + size > BLOCK_BYTES or row - borders[-1] >= block_rows(1, 1)
        if full and row > borders[-1]:
            borders.append(row)
            held = 0
        held += size
    return np.array([*borders, len(sizes)], dtype=np.int64)

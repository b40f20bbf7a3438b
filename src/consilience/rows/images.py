"""Images: their pixels, from files, PIL images and arrays of any sizes, and how a model wants them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._optional import require
from consilience._validation import n_rows
from consilience.exceptions import InvalidInputError, visible
from consilience.files.strict_json import checked, record
from consilience.options import check_count, check_number, choice, number, optional
from consilience.rows.tables import as_values, is_pil_image

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""The endings of image files."""
MOST_PIXELS = 4096
"""The longest side of a prepared image: a card of a stranger must not ask for all memory."""
_PURPOSE = "Reading images"
_MODES = {"rgb": "RGB", "bgr": "RGB", "grey": "L"}
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
        operations = require("PIL.ImageOps", extra="images", purpose=_PURPOSE)
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
    images = require("PIL.Image", extra="images", purpose=_PURPOSE)
    try:
        with images.open(path) as image:
            yield image
    except (OSError, ValueError, SyntaxError, images.DecompressionBombError) as error:
        reason = visible(" ".join(str(error).split())).rstrip(".") or type(error).__name__
        raise InvalidInputError(f"{option}: {visible(str(path))} cannot be read: {reason}.") from error


def _several(name: str, value: Any, n: int, what: str, check: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """Return one number, or `n` of them, as they are checked."""
    given = tuple(value) if isinstance(value, list | tuple | np.ndarray) else (value,)
    if len(given) not in (1, n):
        raise InvalidInputError(f"{{argument}} must be one number, or {what}.", argument=name, value=value)
    return tuple(check(name, one) for one in given)


def _sides(name: str, value: Any) -> tuple[int, int]:
    found = _several(name, value, 2, "height and width", partial(check_count, at_most=MOST_PIXELS))
    return found[0], found[-1]


_CHECKS = {
    "resize": choice("crop", "squash"),
    "interpolation": choice("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    "scale": optional(number(above=0)),
    "layout": choice("chw", "hwc"),
    "dtype": choice("float32", "float16", "float64", "uint8"),
    "colour": choice(*_MODES),
}


@dataclass(frozen=True)
class ImagePreprocess:
    """What is done with images before a model sees them. It is a function of rows: ``preprocess(X)``.

    The steps are: colours, resize, crop of the centre, ``(pixel * scale - mean) / std``, layout. Resizing is
    Pillow's (`Image.resize`), and the crop is that of torchvision and timm: its upper and left margins are
    half of what is cut off, rounded to even.

    Parameters
    ----------
    size : int or (int, int)
        Height and width that the model takes; one number for a square.
    resize : {"crop", "squash"}
        "crop" keeps the aspect ratio: the shorter side becomes `resize_to`, and the centre is cut out.
        "squash" makes both sides `resize_to`.
    resize_to : int or (int, int), optional
        The size before the crop, such as 256 for a `size` of 224; by default `size`.
    interpolation : {"bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"}
    scale : float, optional
        A factor for pixels from 0 to 255; by default 1 / 255, and 1 for uint8.
    mean, std : float or sequence of float, optional
        One number, or one for each channel in the order in which the model takes them; by default 0 and 1.
    layout : {"chw", "hwc"}
        Channels first, as torch has it, or last.
    dtype : {"float32", "float16", "float64", "uint8"}
        With uint8, pixels stay as they are: no `scale`, `mean` or `std`.
    colour : {"rgb", "bgr", "grey"}
        Order of the channels; "grey" has one.

    Examples
    --------
    >>> prepare = ImagePreprocess(size=2, mean=0.5, std=0.5)
    >>> X = [np.full((4, 6, 3), 255, np.uint8), np.zeros((3, 3), np.uint8)]
    >>> prepare(X).shape, prepare(X)[:, 0, 0, 0].tolist()
    ((2, 3, 2, 2), [1.0, -1.0])
    """

    size: Any
    resize: Literal["crop", "squash"] = "crop"
    resize_to: Any = None
    interpolation: str = "bilinear"
    scale: float | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    layout: Literal["chw", "hwc"] = "chw"
    dtype: str = "float32"
    colour: Literal["rgb", "bgr", "grey"] = "rgb"

    def __post_init__(self) -> None:
        values = {name: check.run(name, getattr(self, name)) for name, check in _CHECKS.items()}
        size = values["size"] = _sides("size", self.size)
        before = values["resize_to"] = size if self.resize_to is None else _sides("resize_to", self.resize_to)
        if before[0] < size[0] or before[1] < size[1]:
            raise InvalidInputError(
                f"{{argument}} must be at least the size {size}, which is cut out of it.",
                argument="resize_to",
                value=self.resize_to,
            )
        if self.dtype == "uint8" and not self.scale is self.mean is self.std is None:
            raise InvalidInputError(
                "dtype='uint8' keeps pixels as they are. Drop scale, mean and std, or use dtype='float32'."
            )
        what = f"{self.n_channels}: one for each channel"
        for name, above in (("mean", -math.inf), ("std", 0)):
            value, check = getattr(self, name), partial(check_number, above=above)
            values[name] = None if value is None else _several(name, value, self.n_channels, what, check)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def n_channels(self) -> int:
        """How many channels a prepared image has."""
        return 1 if self.colour == "grey" else 3

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """The shape of a prepared image."""
        channels, size = (self.n_channels,), tuple(self.size)
        return channels + size if self.layout == "chw" else size + channels

    @property
    def row_bytes(self) -> int:
        """The memory that a prepared image takes."""
        return math.prod(self.row_shape) * np.dtype(self.dtype).itemsize

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values, as a card has them; `from_dict` reads them back."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    @classmethod
    def from_dict(cls, values: ImagePreprocess | Mapping[str, Any]) -> ImagePreprocess:
        """Return what a card says, or raise where it says something else; an `ImagePreprocess` as it is.

        Examples
        --------
        >>> ImagePreprocess.from_dict({"size": [32, 32], "layout": "hwc"}).row_shape
        (32, 32, 3)
        """
        known = dict.fromkeys((field.name for field in fields(cls)), lambda value: value)
        read = record(known, needs=["size"])
        return values if isinstance(values, cls) else cls(**checked("preprocess", values, read))

    def __call__(self, X: Any) -> NDArray[Any]:
        """Return prepared images (n, channels, height, width) or (n, height, width, channels).

        Parameters
        ----------
        X : sequence of images, or array
            Paths, PIL images or arrays of uint8 (height, width), (height, width, 3) or (height, width, 4),
            of any sizes; or one array (n, ...) of such.
        """
        X = as_values(X)
        X = X.detach().cpu().numpy() if hasattr(X, "detach") else X
        prepared = np.empty((n_rows(X), *self.row_shape), self.dtype)
        for row, picture in enumerate(_pictures(X, _MODES[self.colour])):
            values = self._scaled(self._cut(picture))
            prepared[row] = values.transpose(2, 0, 1) if self.layout == "chw" else values
        return prepared

    def _cut(self, picture: Any) -> NDArray[np.uint8]:
        """Return the pixels (height, width, channels) of one image in the size and colours of the model."""
        images = require("PIL.Image", extra="images", purpose=_PURPOSE)
        height, width = self._resized_to(*picture.size[::-1])
        if picture.size != (width, height):
            picture = picture.resize((width, height), images.Resampling[self.interpolation.upper()])
        rows, columns = self.size
        top, left = round((height - rows) / 2), round((width - columns) / 2)  # to even, as torchvision
        values = np.atleast_3d(picture)[top : top + rows, left : left + columns]
        return values[:, :, ::-1] if self.colour == "bgr" else values

    def _resized_to(self, height: int, width: int) -> tuple[int, int]:
        """Return the size of an image before the crop."""
        to: tuple[int, int] = self.resize_to
        if self.resize == "squash":
            return to
        if to[0] == to[1]:  # the longer side is cut to whole pixels, as torchvision does it
            shorter = min(height, width)
            return int(to[0] * height / shorter), int(to[0] * width / shorter)
        ratio = min(height / to[0], width / to[1])  # and rounded, as timm does it
        return max(to[0], round(height / ratio)), max(to[1], round(width / ratio))

    def _scaled(self, values: NDArray[np.uint8]) -> NDArray[Any]:
        """Return pixels (height, width, channels) as numbers."""
        if self.dtype == "uint8":
            return values
        exact: Any = np.float64 if self.dtype == "float64" else np.float32  # float16 is rounded once
        given = ((self.scale, 1 / 255), (self.mean, 0), (self.std, 1))
        scale, mean, std = (np.asarray(default if one is None else one, exact) for one, default in given)
        return np.asarray((values * scale - mean) / std)


def as_colour_images(X: Any, start: int = 0) -> list[NDArray[np.uint8]]:
    """Return rows as colour images (height, width, 3) of their own sizes, for models that prepare them.

    Parameters
    ----------
    X : sequence of images, or array
        As `ImagePreprocess` takes them.
    start : int
        The number of the first row, for messages.

    Examples
    --------
    >>> images = as_colour_images([np.zeros((4, 5), np.uint8), np.zeros((2, 2, 4), np.uint8)])
    >>> [image.shape for image in images]
    [(4, 5, 3), (2, 2, 3)]
    """
    return [np.asarray(picture) for picture in _pictures(X, "RGB", start)]


def _pictures(X: Any, mode: str, start: int = 0) -> Iterator[Any]:
    """Yield rows as PIL images in a mode."""
    if isinstance(X, str | bytes | Mapping) or hasattr(X, "columns") or hasattr(X, "tocsr"):
        raise InvalidInputError(
            f"X is a {type(X).__name__}, and the model takes images. Give a list of paths, of PIL images or "
            "of arrays, or one array (n, height, width, 3)."
        )
    images = require("PIL.Image", extra="images", purpose=_PURPOSE)
    for row, image in enumerate(X, start):
        if is_pil_image(image):
            image = pixels_of(image, mode)
        elif isinstance(image, os.PathLike):
            image = read_image(image, mode)
        picture = images.fromarray(_checked_pixels(image, row))
        yield picture if picture.mode == mode else picture.convert(mode)


def _checked_pixels(image: Any, row: int) -> NDArray[np.uint8]:
    """Return pixels (height, width), (height, width, 3) or (height, width, 4)."""
    if isinstance(image, str):
        raise InvalidInputError(
            "X has a text in row {row}, and the model takes images. Give paths as pathlib.Path.", row=row
        )
    values = np.asarray(image)
    if values.dtype != np.uint8:
        raise InvalidInputError(
            f"X has {values.dtype} in row {{row}}; the pixels of an image are uint8, from 0 to 255. Give "
            "them as they are in the file: the model's preprocess scales them.",
            row=row,
        )
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (3, 4)) or 0 in values.shape:
        hint = " Move the channels to the end: np.moveaxis(image, 0, -1)." if values.shape[:1] == (3,) else ""
        raise InvalidInputError(
            f"X has an image of shape {values.shape} in row {{row}}; expected (height, width, 3), or "
            f"(height, width) for grey.{hint}",
            row=row,
        )
    return np.ascontiguousarray(values)

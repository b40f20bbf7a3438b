"""Augmentations: random changes of a batch that leave the classes of its rows as they are.

Each is called as ``augment(batch, generator)`` and returns a new batch of the same shape. All randomness
comes from the generator, which is on the CPU. To change an option, use `functools.partial`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from consilience._validation import check_number
from consilience.exceptions import InvalidInputError

Augment = Callable[[Tensor, torch.Generator], Tensor]

# Luma of red, green and blue (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)


def augment_images(
    batch: Tensor,
    generator: torch.Generator,
    *,
    flip: bool | None = None,
    degrees: float = 15.0,
    shift: float = 0.1,
    colour: float = 0.4,
) -> Tensor:
    """Flip, turn and shift each image, and distort its colours; values stay in the image's own range.

    Parameters
    ----------
    batch : (n, c, h, w) or (n, h, w) tensor of floats
    generator : torch.Generator
    flip : bool, optional
        Whether to mirror every other image, left to right. None does so for images of three channels only:
        mirrored digits and letters are different ones.
    degrees : float
        Rotation by up to this angle, either way.
    shift : float
        Shift by up to this part of the width and of the height.
    colour : float
        Contrast, brightness and, where there are three channels, saturation change by up to this part.

    Examples
    --------
    >>> images = torch.rand(5, 3, 8, 8)
    >>> augment_images(images, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 3, 8, 8])
    """
    if not batch.is_floating_point():
        raise InvalidInputError(f"augment_images got {batch.dtype}; expected floats: X.astype('float32').")
    if batch.ndim not in (3, 4):
        raise InvalidInputError(
            f"augment_images got a batch of shape {tuple(batch.shape)} and type {batch.dtype}; expected "
            "floats (n, channels, height, width) or (n, height, width). Reshape X, or use {remedy}.",
            remedy=("augment", "rows"),
        )
    for name, value in (("degrees", degrees), ("shift", shift), ("colour", colour)):
        check_number(name, value, at_least=0)
    images = batch if batch.ndim == 4 else batch[:, None]
    mirror = images.shape[1] == 3 if flip is None else flip
    images = _move(images, generator, mirror, math.radians(degrees), shift)
    return _distort(images, generator, colour).reshape(batch.shape)


def augment_rows(
    batch: Tensor, generator: torch.Generator, *, noise: float = 0.1, dropout: float = 0.1
) -> Tensor:
    """Add noise to features and drop some: for tables and embeddings.

    Parameters
    ----------
    batch : (n, ...) tensor of floats
    generator : torch.Generator
    noise : float
        Standard deviation of Gaussian noise, in units of each feature's own within the batch.
    dropout : float
        Part of the values to replace by their feature's mean within the batch, in [0, 1].

    Examples
    --------
    >>> rows = torch.ones(3, 2)
    >>> augment_rows(rows, torch.Generator().manual_seed(0)).tolist() == rows.tolist()  # nothing varies
    True
    """
    if not batch.is_floating_point():
        raise InvalidInputError(f"augment_rows got a batch of type {batch.dtype}; expected floats.")
    check_number("noise", noise, at_least=0)
    check_number("dropout", dropout, at_least=0, at_most=1)
    variance, mean = torch.var_mean(batch, dim=0, correction=0, keepdim=True)
    drawn = torch.randn(batch.shape, generator=generator).to(batch) * variance.sqrt()
    kept = (torch.rand(batch.shape, generator=generator) >= dropout).to(batch.device)
    return torch.where(kept, batch + noise * drawn, mean)


AUGMENTATIONS: dict[str, Augment] = {"images": augment_images, "rows": augment_rows}


def as_augmentation(source: Any) -> Augment | None:
    """Return the augmentation of this name, or a function or None unchanged."""
    if source is None or callable(source):
        return source  # type: ignore[no-any-return]
    if not isinstance(source, str) or source not in AUGMENTATIONS:
        raise InvalidInputError(
            "{argument} is unknown; use 'images', 'rows', None, or a function of (batch, generator) that "
            "returns a batch.",
            argument="augment",
            value=source,
        )
    return AUGMENTATIONS[source]


def _spread(n: int, width: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """Return n numbers from -width to width, on the device of `like`."""
    return ((2.0 * torch.rand(n, generator=generator) - 1.0) * width).to(like)


def _move(images: Tensor, generator: torch.Generator, mirror: bool, angle: float, shift: float) -> Tensor:
    """Return images (n, c, h, w) mirrored, turned and shifted, all in one interpolation."""
    n, _, height, width = images.shape
    turn = _spread(n, angle, generator, images)
    across, down = (2.0 * _spread(n, shift, generator, images) for _ in range(2))
    side = torch.sign(_spread(n, 1.0, generator, images) + 1e-12) if mirror else torch.ones_like(turn)
    # the grid runs from -1 to 1 along both axes, so rotating an oblong image must account for its shape
    aspect = height / width
    rows = (
        torch.stack([side * torch.cos(turn), -torch.sin(turn) * aspect, across], dim=1),
        torch.stack([side * torch.sin(turn) / aspect, torch.cos(turn), down], dim=1),
    )
    grid = affine_grid(torch.stack(rows, dim=1), list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


def _distort(images: Tensor, generator: torch.Generator, colour: float) -> Tensor:
    """Return images (n, c, h, w) of other contrast, brightness and saturation, within their own range."""
    n, channels = images.shape[:2]
    low, high = images.amin(dim=(1, 2, 3), keepdim=True), images.amax(dim=(1, 2, 3), keepdim=True)
    contrast, brightness, saturation = (
        _spread(n, colour, generator, images)[:, None, None, None] for _ in range(3)
    )
    out = images
    if channels == 3:
        grey = torch.einsum("nchw,c->nhw", images, torch.tensor(_LUMA).to(images))[:, None]
        out = out + saturation * (out - grey)
    mean = out.mean(dim=(1, 2, 3), keepdim=True)
    # half as much brightness, since it is relative to the whole range
    out = out + contrast * (out - mean) + 0.5 * brightness * (high - low)
    return torch.minimum(torch.maximum(out, low), high)

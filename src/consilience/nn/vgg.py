"""VGG4, the small convolutional network that the collision paper trains from scratch."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn

from consilience._validation import check_count
from consilience.exceptions import InvalidInputError


class _Column(NamedTuple):
    """One column of Table 8."""

    image: tuple[int, int, int]  # channels, height, width
    widths: tuple[int, ...]  # of the convolutions
    stride: int
    side: int  # of the image that the linear layer sees


_COLUMNS = (
    _Column((1, 28, 28), (64, 128, 256, 512), 1, 3),
    _Column((3, 32, 32), (32, 64, 128, 256), 1, 4),
    _Column((3, 96, 96), (128, 256, 512, 1024), 2, 1),
)


class VGG4(nn.Module):
    """Four convolutions and a linear layer, as in Table 8 of the collision paper.

    Each convolution (5 x 5, padding 2) is followed by batch normalisation and ReLU, and all but the last by
    max-pooling. The class itself is a factory: ``CollisionClustering(10, model=VGG4)`` makes the network for
    the images it is given.

    Parameters
    ----------
    n_features : int
        Values per image. They determine its kind: 784 (grey, 28 x 28), 3,072 (colour, 32 x 32) or 27,648
        (colour, 96 x 96).
    n_classes : int
        Number of logits, K.

    Examples
    --------
    >>> import torch
    >>> VGG4(784, 10)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        check_count("n_classes", n_classes)
        column = {math.prod(one.image): one for one in _COLUMNS}.get(n_features)
        if column is None:
            raise InvalidInputError(
                f"VGG4 has no layers for {n_features} values per image; give grey images of 28 x 28 (784), "
                "or colour ones of 32 x 32 (3072) or 96 x 96 (27648)."
            )
        self.image = column.image
        layers: list[nn.Module] = []
        width = column.image[0]
        for i, size in enumerate(column.widths):
            layers += [nn.MaxPool2d(2)] if i else []
            layers += [
                # no bias: the normalisation after it has one
                nn.Conv2d(width, size, 5, stride=column.stride, padding=2, bias=False),
                nn.BatchNorm2d(size),
                nn.ReLU(),
            ]
            width = size
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classify = nn.Linear(width * column.side**2, n_classes)

    def forward(self, X: Tensor) -> Tensor:
        """Return logits (n, K) of images (n, c, h, w), or of the same values in any other shape (n, ...)."""
        if X.ndim == 4 and tuple(X.shape[1:]) != tuple(self.image):
            # channels last, for example, would be scrambled silently
            raise InvalidInputError(
                f"VGG4 got images of shape {tuple(X.shape[1:])}; expected {tuple(self.image)}: "
                "(channels, height, width)."
            )
        # not len(X), which would fix the number of rows in an exported model
        images = X.reshape(X.shape[0], *self.image).to(self.classify.weight.dtype)
        logits: Tensor = self.classify(self.features(images))
        return logits

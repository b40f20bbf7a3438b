"""The module that a torch student trains if the user gives none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from consilience._validation import check_count


class Standardize(nn.Module):
    """Subtract a mean and divide by a scale. Both were computed once and are saved with the weights.

    Parameters
    ----------
    mean, scale : tensors
        Broadcast against the input.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, X: Tensor) -> Standardize:
        """Compute mean and scale per column of (n, d), or per channel (axis 1) of (n, c, ...)."""
        axes = [axis for axis in range(X.ndim) if axis != 1]
        variance, mean = torch.var_mean(X.float(), dim=axes, correction=0, keepdim=True)
        scale = variance.sqrt()
        # A column that is constant up to rounding is only centred.
        return cls(mean[0], torch.where(scale > 1e-6 * mean.abs(), scale, 1.0)[0])

    def forward(self, X: Tensor) -> Tensor:
        """Return the standardized input, as floats."""
        return (X.to(self.mean.dtype) - self.mean) / self.scale


def default_module(
    X: Any,
    n_classes: int,
    *,
    hidden: Sequence[int] = (256, 256),
    dropout: float = 0.1,
    standardize: bool = True,
) -> nn.Sequential:
    """Make a multilayer perceptron for tables and embeddings. Images are flattened.

    Parameters
    ----------
    X : (n, ...) array or tensor
        The rows to train on; they give the shape, and the mean and scale of each feature.
    n_classes : int
        Number of logits, L.
    hidden : sequence of int
        Widths of the hidden layers.
    dropout : float
        Probability of dropping a hidden unit during training.
    standardize : bool
        Whether to begin with `Standardize`.

    Examples
    --------
    >>> import numpy as np
    >>> default_module(np.ones((5, 2, 3)), 4, hidden=(8,))(torch.ones(7, 2, 3)).shape
    torch.Size([7, 4])
    """
    check_count("n_classes", n_classes)
    rows = torch.as_tensor(X)
    layers: list[nn.Module] = [Standardize.of(rows)] if standardize else []
    layers.append(nn.Flatten())
    width = math.prod(rows.shape[1:])
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, n_classes))

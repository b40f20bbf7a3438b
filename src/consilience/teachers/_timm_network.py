"""A network of timm whose features before the last layer can be seen. This file imports torch."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class TimmNetwork(nn.Module):
    """Logits of a network of timm; `embedding` sees what its last layer gets.

    Parameters
    ----------
    network : nn.Module
        With `forward_features` and `forward_head`, as all networks of timm have them.
    n_classes : int
    """

    def __init__(self, network: Any, n_classes: int) -> None:
        super().__init__()
        self.network, self.n_classes = network, n_classes
        self.embedding = nn.Identity()

    def forward(self, X: Tensor) -> Any:
        """Return logits (n, k)."""
        features = self.network.forward_features(X)
        self.embedding(self.network.forward_head(features, pre_logits=True))
        return self.network.forward_head(features)

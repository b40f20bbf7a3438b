"""Run a network once, and get its logits and the input of its last layer together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import TeacherError
from consilience.teachers._features import pool
from consilience.teachers._networks import logits_of


class HeadedModel:
    """A network with a head: the linear layer with k outputs that runs last.

    Parameters
    ----------
    torch : module
    module : torch.nn.Module
        In eval mode. It returns logits (n, k), or an output that holds them by the name ``logits``.
    n_classes : int
    name : str
        The teacher's name, for messages.
    """

    def __init__(self, torch: Any, module: Any, n_classes: int, name: str) -> None:
        self._torch, self._module, self._name = torch, module, name
        self._heads = [
            part
            for part in module.modules()
            if isinstance(part, torch.nn.Linear) and part.out_features == n_classes
        ]
        # if several layers could be the head, only a pass shows which it is
        self._head = self._heads[0] if len(self._heads) == 1 else None
        self._k = n_classes

    @property
    def has_features(self) -> bool:
        """Whether there is a layer that could be the head."""
        return bool(self._heads)

    @property
    def weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the head, if it turns the embeddings into the logits; else None."""
        return None if self._head is None else self._head.weight.detach().cpu().float().numpy()

    def run(self, batch: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
        """Return the logits (n, k) and the embeddings (n, d) of one batch.

        Parameters
        ----------
        batch : mapping
            The arguments of the network, as tensors on its device. The first axis is that of the rows.
        """
        seen: list[tuple[Any, Any, Any]] = []

        def see(part: Any, inputs: tuple[Any, ...], output: Any) -> None:
            seen[:] = [(part, inputs[0], output)]

        handles = [part.register_forward_hook(see) for part in self._heads]
        try:
            with self._torch.inference_mode():
                logits = logits_of(self._module(**batch))
        finally:
            for handle in handles:
                handle.remove()
        rows = len(next(iter(batch.values())))
        if not isinstance(logits, self._torch.Tensor) or tuple(logits.shape) != (rows, self._k):
            shape = tuple(getattr(logits, "shape", ()))
            raise TeacherError(
                self._name, f"returned scores of shape {shape} for {rows} rows; expected ({rows}, {self._k})."
            )
        features = None
        if seen:
            head, given, output = seen[0]
            features, linear = self._features(given, output, logits, batch.get("attention_mask"))
            self._head = head if linear else None
        return logits.double().cpu().numpy(), None if features is None else features.float().cpu().numpy()

    def _features(self, given: Any, output: Any, logits: Any, mask: Any) -> tuple[Any, bool]:
        """Return the embeddings (n, d), and whether the head turns them into the logits."""
        torch = self._torch
        if given.ndim == 2 and len(given) == len(logits):
            return given, output.shape == logits.shape and bool(torch.equal(output, logits))
        if given.ndim == 3 and output.ndim == 3 and len(given) == len(logits):
            # a decoder scores every token and answers with one of them: take the features of that one
            same = (output == logits[:, None]).all(dim=2)
            if bool(same.any(dim=1).all()):
                steps = torch.arange(same.shape[1], device=same.device)
                last = (same * (steps + 1)).argmax(dim=1)
                return given[torch.arange(len(given), device=given.device), last], True
            if mask is not None and tuple(mask.shape) == tuple(given.shape[:2]):
                return masked_mean(given, mask), False
        pooled = pool(given, channels_last=True)
        return (pooled if len(pooled) == len(logits) else None), False


def masked_mean(states: Any, mask: Any) -> Any:
    """Return the mean (n, d) of the states (n, t, d) of tokens where the mask (n, t) is not 0."""
    weight = mask.unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1).clamp(min=1e-9)

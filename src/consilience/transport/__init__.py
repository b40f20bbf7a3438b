"""Optimal transport between class sets: the Sinkhorn distance, class centres and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.transport.centres import class_centres, cost_matrix, ncm_accuracy
    from consilience.transport.costs import Constant, Embedding, Random, Superclass
    from consilience.transport.distance import SinkhornResult, convergence_curves, convergence_rate, sinkhorn

__all__ = [
    "Constant",
    "Embedding",
    "Random",
    "SinkhornResult",
    "Superclass",
    "class_centres",
    "convergence_curves",
    "convergence_rate",
    "cost_matrix",
    "ncm_accuracy",
    "sinkhorn",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Constant": "costs",
        "Embedding": "costs",
        "Random": "costs",
        "SinkhornResult": "distance",
        "Superclass": "costs",
        "class_centres": "centres",
        "convergence_curves": "distance",
        "convergence_rate": "distance",
        "cost_matrix": "centres",
        "ncm_accuracy": "centres",
        "sinkhorn": "distance",
    },
)

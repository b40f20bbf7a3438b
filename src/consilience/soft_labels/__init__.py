"""Soft labels: probabilities over all classes from what each teacher says about its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.soft_labels.agreement import agreement_temperatures, divide_by_temperatures
    from consilience.soft_labels.estimate import balance_weights, estimate_soft_labels

__all__ = ["agreement_temperatures", "balance_weights", "divide_by_temperatures", "estimate_soft_labels"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "agreement_temperatures": "agreement",
        "balance_weights": "estimate",
        "divide_by_temperatures": "agreement",
        "estimate_soft_labels": "estimate",
    },
)

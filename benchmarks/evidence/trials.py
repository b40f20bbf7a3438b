"""Trials as arrays over seeds, and as points of curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.evidence.claims import Values


def arrays(by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, Values]:
    """Return the figures of each method over seeds.

    Examples
    --------
    >>> arrays({1: {"a": 0.5}, 0: {"a": 0.25}})
    {'a': array([0.25, 0.5 ])}
    """
    names = next(iter(by_seed.values()))
    return {name: np.array([by_seed[seed][name] for seed in sorted(by_seed)]) for name in names}


def fewest(groups: Mapping[Any, Mapping[str, Values]]) -> int:
    """Return the number of trials of the smallest group."""
    return min(len(values) for own in groups.values() for values in own.values())


def point(x: float, values: Values) -> tuple[float, float, float]:
    """Return x, the mean of the values and its standard error."""
    return float(x), float(values.mean()), float(values.std() / np.sqrt(len(values)))

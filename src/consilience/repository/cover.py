"""A cheap set of models that together know some classes, and whose label sets are connected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from consilience._words import counted, shorten
from consilience.exceptions import LabelSpaceError
from consilience.options import did_you_mean

MOST_SEEDS = 20
"""Connected sets are grown from at most so many models."""
_FREE = 1e-9  # of the sum of all costs: what a model without a cost counts, so that paths have a length


def cover_classes(
    known: Mapping[str, frozenset[Any]],
    wanted: Sequence[Any],
    costs: Mapping[str, float],
    *,
    connected: bool = True,
) -> list[str]:
    """Return models that together know all wanted classes, a small and cheap set, in the order given.

    Without `connected`, it is the cheapest set: an integer program. Connected sets are grown from several
    models, again and again by the cheapest path to one that knows more of the classes; what is not needed is
    dropped, the dearest first, and the cheapest set is returned.

    Parameters
    ----------
    known : mapping
        The classes of each model.
    wanted : sequence
    costs : mapping
        The cost of each model, at least 0.
    connected : bool
        Whether the models must be connected: from each to each other by classes that two models share. Only
        then do they determine how probable a class of one is beside a class of another.

    Raises
    ------
    LabelSpaceError
        Nobody knows some class, or no set of models connects them.

    Examples
    --------
    >>> known = {"a": frozenset({1, 2}), "b": frozenset({2, 3}), "c": frozenset({3, 4})}
    >>> cover_classes(known, [1, 4], dict.fromkeys(known, 1.0))
    ['a', 'b', 'c']
    >>> cover_classes(known, [1, 4], dict.fromkeys(known, 1.0), connected=False)
    ['a', 'c']
    """
    everything = list(dict.fromkeys(label for classes in known.values() for label in classes))
    _check_known(everything, wanted)
    place = {label: i for i, label in enumerate(everything)}
    knows = np.zeros((len(known), len(everything)), bool)
    for i, classes in enumerate(known.values()):
        knows[i, [place[label] for label in classes]] = True
    price = np.array([costs[name] for name in known])
    price = price + _FREE * (price.sum() or 1.0)
    goal = knows[:, [place[label] for label in wanted]]
    if connected:
        chosen = _connected_set(knows, goal, price, wanted)
    else:
        found = milp(price, integrality=1, bounds=Bounds(0, 1), constraints=LinearConstraint(goal.T, lb=1))
        chosen = np.flatnonzero(found.x > 0.5).tolist()
    names = list(known)
    return [names[i] for i in sorted(chosen)]


def _check_known(everything: Sequence[Any], wanted: Sequence[Any]) -> None:
    missing = [label for label in wanted if label not in everything]
    if missing:
        hint = did_you_mean(str(missing[0]), everything)
        raise LabelSpaceError(f"No model knows {shorten(missing)}.{hint} Add a model that does.")


def _connected_set(
    knows: NDArray[np.bool_], goal: NDArray[np.bool_], price: NDArray[Any], wanted: Sequence[Any]
) -> list[int]:
    """Return the cheapest of the connected sets that are grown from models which know wanted classes."""
    shared = csr_array(knows.astype(np.float64))
    shared = (shared @ shared.T).tocoo()  # how many classes two models share
    roads = csr_array((price[shared.coords[1]], shared.coords), shape=shared.shape)
    group = connected_components(roads, directed=False)[1]
    parts: dict[int, list[Any]] = {}
    for label, knowing in zip(wanted, goal.T, strict=True):
        parts.setdefault(group[knowing.argmax()], []).append(label)
    if len(parts) > 1:
        listing = " | ".join(shorten(part, 5) for part in parts.values())
        raise LabelSpaceError(
            f"No models connect these classes; they fall into {counted(len(parts), 'group')}: {listing}. "
            "Add a model that knows a class of each, or take them unconnected with {remedy}.",
            remedy=("connected", False),
        )
    with np.errstate(divide="ignore"):
        seeds = np.argsort(price / goal.sum(axis=1), kind="stable")[: min(MOST_SEEDS, goal.any(axis=1).sum())]
    grown = [_pruned(_grown(roads, goal, seed), roads, goal, price) for seed in seeds.tolist()]
    return min(grown, key=lambda chosen: (price[chosen].sum(), len(chosen)))


def _grown(roads: csr_array, goal: NDArray[np.bool_], seed: int) -> list[int]:
    """Return a connected cover that contains a model."""
    chosen = [seed]
    while not (done := goal[chosen].any(axis=0)).all():
        gains = (goal & ~done).sum(axis=1)
        far, before, _ = dijkstra(roads, indices=chosen, min_only=True, return_predecessors=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = int(np.argmin(np.where(gains > 0, far / gains, np.inf)))
        while step not in chosen:
            chosen.append(step)
            step = int(before[step])
    return chosen


def _pruned(
    chosen: Sequence[int], roads: csr_array, goal: NDArray[np.bool_], price: NDArray[Any]
) -> list[int]:
    """Return the models without those that are not needed; the dearest are tried first."""
    kept = list(chosen)
    for one in sorted(chosen, key=lambda i: -price[i]):
        rest = [i for i in kept if i != one]
        if rest and goal[rest].any(axis=0).all():
            count, _ = connected_components(roads[rest][:, rest], directed=False)
            kept = rest if count == 1 else kept
    return kept

"""A cheap set of models that together know some classes, and whose label sets are connected."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.labels.space import connected_classes
from consilience._words import counted, shorten
from consilience.exceptions import LabelSpaceError

Costs = Mapping[str, float]
Known = Mapping[str, frozenset[Any]]


def cover_classes(known: Known, wanted: Sequence[Any], costs: Costs, *, connected: bool = True) -> list[str]:
    """Return models that together know all wanted classes, a small and cheap set, in the order given.

    The cheapest set is hard to find (it contains set cover). This takes the model with the least cost per new
    class, again and again; joins what is not connected by the cheapest path of further models; and drops
    what is not needed, the dearest first. A second set grows from one model, connected at each step. The
    cheaper of the two is returned.

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
    goal = frozenset(wanted)
    _check_known(known, wanted)
    if connected:
        _check_connected(known, wanted)
    order = list(known)
    chosen = _greedy(known, goal, costs)
    if connected:
        chosen = _joined(known, chosen, costs)
    sets = [_pruned(known, chosen, goal, costs, connected)]
    if connected:
        sets += [_pruned(known, grown, goal, costs, True) for grown in _grown(known, goal, costs)]
    best = min(sets, key=lambda names: (sum(costs[name] for name in names), len(names)))
    return sorted(best, key=order.index)


def _check_known(known: Known, wanted: Sequence[Any]) -> None:
    everything = frozenset().union(*known.values())
    missing = [name for name in wanted if name not in everything]
    if not missing:
        return
    texts = [name for name in everything if isinstance(name, str)]
    near = difflib.get_close_matches(str(missing[0]), texts, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise LabelSpaceError(f"No model knows {shorten(missing)}.{hint} Add a model that does.")


def _check_connected(known: Known, wanted: Sequence[Any]) -> None:
    """Raise unless all models together connect the wanted classes."""
    group = _groups(known, list(known))
    of_class = {name: group[model] for model, classes in known.items() for name in classes}
    parts: dict[int, list[Any]] = {}
    for name in wanted:
        parts.setdefault(of_class[name], []).append(name)
    if len(parts) > 1:
        listing = " | ".join(shorten(part, 5) for part in parts.values())
        raise LabelSpaceError(
            f"No models connect these classes; they fall into {counted(len(parts), 'group')}: {listing}. "
            "Add a model that knows a class of each, or take them unconnected with {remedy}.",
            remedy=("connected", False),
        )


def _groups(known: Known, names: Sequence[str]) -> dict[str, int]:
    """Return a number for each model; models that classes connect have the same."""
    codes: dict[Any, int] = {}
    columns = [codes.setdefault(label, len(codes)) for name in names for label in known[name]]
    offsets = np.cumsum([0, *(len(known[name]) for name in names)])
    component = connected_classes(np.array(columns, dtype=np.intp), offsets, len(codes))
    return {name: int(component[columns[start]]) for name, start in zip(names, offsets[:-1], strict=True)}


def _greedy(known: Known, goal: frozenset[Any], costs: Costs) -> list[str]:
    """Return a cover: again and again the model with the least cost per class that is still missing."""
    chosen: list[str] = []
    missing = set(goal)
    # gains only fall, so a model is looked at again only when it comes to the top
    waiting = [
        (costs[name] / len(gain), i, name) for i, name in enumerate(known) if (gain := known[name] & goal)
    ]
    heapq.heapify(waiting)
    while missing:
        _, i, name = heapq.heappop(waiting)
        gain = known[name] & missing
        if not gain:
            continue
        price = costs[name] / len(gain)
        if waiting and (price, i) > waiting[0][:2]:
            heapq.heappush(waiting, (price, i, name))
            continue
        chosen.append(name)
        missing -= gain
    return chosen


def _joined(known: Known, chosen: Sequence[str], costs: Costs) -> list[str]:
    """Return the models and those that connect them: again and again the cheapest path between two groups."""
    result = list(chosen)
    while True:
        group = _groups(known, result)
        if len(set(group.values())) <= 1:
            return result
        paths = []
        for number in set(group.values()):
            start = [name for name in result if group[name] == number]
            other = [name for name in result if group[name] != number]
            paths.append(_path(known, start, frozenset().union(*(known[name] for name in other)), costs))
        _, path = min((one for one in paths if one is not None), key=lambda one: one[0])
        result += [name for name in path if name not in result]


def _path(
    known: Known, start: Sequence[str], target: frozenset[Any], costs: Costs
) -> tuple[float, list[str]] | None:
    """Return the cheapest models that lead from some to one that knows a class of `target`, or None."""
    holders: dict[Any, list[str]] = {}
    for name, classes in known.items():
        for label in classes:
            holders.setdefault(label, []).append(name)
    waiting: list[tuple[float, int, str, tuple[str, ...]]] = [
        (0.0, i, name, ()) for i, name in enumerate(start)
    ]
    done: set[str] = set()
    seen: set[Any] = set()
    count = len(waiting)
    while waiting:
        cost, _, name, path = heapq.heappop(waiting)
        if name in done:
            continue
        done.add(name)
        if known[name] & target and (path or name not in start):
            return cost, list(path)
        for label in known[name] - seen:
            seen.add(label)
            for other in holders[label]:
                if other not in done:
                    count += 1
                    heapq.heappush(waiting, (cost + costs[other], count, other, (*path, other)))
    return None


def _grown(known: Known, goal: frozenset[Any], costs: Costs) -> Iterator[list[str]]:
    """Yield connected covers, each grown from one of the models that know most of the wanted classes."""
    seeds = sorted(known, key=lambda name: (costs[name] / (len(known[name] & goal) or 1e-9), name))[:3]
    for seed in seeds:
        chosen, missing = [seed], set(goal - known[seed])
        while missing:
            found = _path(known, chosen, frozenset(missing), costs)
            if found is None:
                break
            chosen += found[1]
            for name in found[1]:
                missing -= known[name]
        if not missing:
            yield chosen


def _pruned(
    known: Known, chosen: Sequence[str], goal: frozenset[Any], costs: Costs, connected: bool
) -> list[str]:
    """Return the models without those that are not needed; the dearest are tried first."""
    kept = list(chosen)
    for name in sorted(chosen, key=lambda one: -costs[one]):
        rest = [one for one in kept if one != name]
        if not rest or not goal <= frozenset().union(*(known[one] for one in rest)):
            continue
        if connected and len(set(_groups(known, rest).values())) > 1:
            continue
        kept = rest
    return kept

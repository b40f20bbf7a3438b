"""Independent work on a Ray cluster: one task for each teacher."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, nullcontext
from typing import Any

from consilience.exceptions import InvalidInputError, ScoringError
from consilience.scoring.ray import connected, offer
from consilience.scoring.ray_options import RayOptions
from consilience.teachers.base import summary

RETRIES = 2
"""How often a task is started again whose process died."""


def map_on_ray(
    function: Callable[[Any, Any], Any],
    shared: Any,
    items: Sequence[Any],
    *,
    options: RayOptions,
    needs: Sequence[Mapping[str, float]] = (),
) -> Iterator[tuple[int, Any]]:
    """Yield ``function(shared, item)`` for all items, with their positions, as they are finished.

    Parameters
    ----------
    function : callable
        Handles its own errors.
    shared : object
        The same for all items; pickled once.
    items : sequence
    options : RayOptions
    needs : sequence of dict
        ``num_cpus`` and ``num_gpus`` of each item.

    Yields
    ------
    position : int
    result : object
        A `ScoringError` if the process of a task died, and its retries, too.
    """
    with connected(options.address) as ray:
        kept = ray.put(_pickled(ray, shared))
        task = ray.remote(max_retries=RETRIES)(_call)
        waiting = {}
        for i, item in enumerate(items):
            wanted = needs[i] if needs else {}
            resources = {"num_cpus": wanted.get("num_cpus", 1), "num_gpus": wanted.get("num_gpus", 0)}
            sent = _pickled(ray, (os.getcwd(), function, item))
            waiting[task.options(**resources).remote(kept, sent)] = i
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1, timeout=options.timeout)
                if not done:
                    raise ScoringError(
                        f"{len(waiting)} of {len(items)} tasks on Ray are left, and none was finished in "
                        f"{options.timeout:g} seconds; {offer(ray)}. If they only need longer, raise timeout."
                    )
                position = waiting.pop(done[0])
                try:
                    yield position, ray.get(done[0])
                except ray.exceptions.RayError as error:
                    yield position, ScoringError(f"Its process on Ray ended: {summary(error)}")
        finally:
            for left in waiting:
                ray.cancel(left, force=True)


def _call(shared: bytes, sent: bytes) -> Any:
    from ray import cloudpickle

    # unpickled here: Ray would share arrays read-only, and not every model takes that
    folder, function, item = cloudpickle.loads(sent)  # the user's own, from the driver
    with chdir(folder) if os.path.isdir(folder) else nullcontext():  # paths may be relative
        return function(cloudpickle.loads(shared), item)


def _pickled(ray: Any, value: Any) -> bytes:
    try:
        sent: bytes = ray.cloudpickle.dumps(value)
    except Exception as error:  # whatever a model's parts raise
        raise InvalidInputError(
            f"This cannot be sent to the workers of Ray ({summary(error)}). Give models as files or as "
            "objects that can be pickled, or run on one machine."
        ) from error
    return sent

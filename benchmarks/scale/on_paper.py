"""What a billion rows on a hundred machines would take, computed from what was measured on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROWS, NODES, CORES = 10**9, 100, 8
NETWORK = 1.25e9
"""Bytes a second that a machine sends or receives: 10 Gbit/s."""
DISK = 5e8
"""Bytes a second of a machine's disk."""
SHARED = 5e9
"""Bytes a second that the shared storage gives or takes, over all machines."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A step of the work, and what bounds it.

    Attributes
    ----------
    name : str
    n_bytes : float
        That are moved or kept; 0 if it only computes.
    seconds : float
    where : str
    """

    name: str
    n_bytes: float
    seconds: float
    where: str


@dataclass(frozen=True)
class Measured:
    """What the model takes from the measurements: all per row."""

    teachers: float  # core seconds of all teachers
    soft_labels: float  # core seconds
    other: float  # core seconds of a stream beyond teachers and soft labels
    store_bytes: float
    columns: int
    logits: int
    classes: int

    @classmethod
    def of(cls, loop: Record, stream: Record, stored: Record) -> Measured:
        """Read the records of a plain loop, of a stream and of one with a store, on the same rows."""
        rows = loop["rows"]
        share = stream["steps"]["soft labels"] / stream["seconds"]
        labels = share * stream["cpu_seconds"] / rows
        other = max(0.0, (stored["cpu_seconds"] - loop["cpu_seconds"]) / rows - labels)
        return cls(
            loop["cpu_seconds"] / rows,
            labels,
            other,
            stored["store_bytes"] / stored["rows"],
            loop["columns"],
            loop["logits"],
            loop["classes"],
        )


def on_workers(found: Measured) -> list[Step]:
    """Return the steps at the workers, which ask the teachers."""
    cores = NODES * CORES
    read, kept = 4.0 * found.columns * ROWS, found.store_bytes * ROWS
    return [
        Step("read the rows", read, read / SHARED, "shared storage"),
        Step("ask the teachers", 0, found.teachers * ROWS / cores, "cores of the workers"),
        Step("digests, look-up, checks", 0, found.other * ROWS / cores, "cores of the workers"),
        Step("write the store", kept, kept / SHARED, "shared storage"),
    ]


def at_one_machine(found: Measured) -> list[Step]:
    """Return the further steps at the machine that gets all logits."""
    logits, labels = 4.0 * found.logits * ROWS, 4.0 * found.classes * ROWS
    return [
        Step("send logits to it", logits, logits / NETWORK, "its network"),
        Step("keep logits and soft labels", logits + labels, (2 * logits + labels) / DISK, "its disk"),
        Step("make soft labels", 0, found.soft_labels * ROWS / CORES, "its cores"),
    ]


def slowest(steps: list[Step]) -> Step:
    """Return the step that takes longest: steps overlap, so it bounds the rest."""
    return max(steps, key=lambda step: step.seconds)

"""How a repository lies in storage: what a folder of this machine and a bucket have in common.

`LocalLayout` is a folder of this machine, and `BucketLayout` lies behind a URL. Both have one shape, so that
one can be copied to the other with any tool.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from consilience.exceptions import InvalidInputError
from consilience.repository.entry import ModelEntry

OWN = "_repository"
README = "README.txt"
README_TEXT = """Models that consilience keeps: a folder per model, with its file and its card.
The index here is made from the cards: delete it whenever you like. Staging holds unfinished adds.
"""
STALE = 3600.0
"""Seconds without a write after which unfinished files are taken for those of a killed add."""
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
DESCRIPTION = re.compile(r"description-[0-9a-f]{32}\.npz")

Stamp = tuple[int, ...]
"""What tells whether a card is still the one that was read."""


@dataclass(frozen=True)
class Stage:
    """Folders of this machine in which a model is made.

    Attributes
    ----------
    top : Path
        For the card; all paths on it are relative to this.
    files : Path
        For the model's files: the same folder, or one in it.
    """

    top: Path
    files: Path


class Layout(Protocol):
    """What a repository asks of the place where it lies."""

    shown: str
    """The place, for people."""
    root: Any
    """The place, as users give it."""
    appends: bool
    """Whether `append_own` works: buckets have whole files only."""

    def stamps(self) -> dict[str, Stamp]:
        """Return a stamp of the card of each model, by folder, in order; no card is opened."""

    def strangers(self) -> list[str]:
        """Return what lies there and belongs to no model."""

    def read_card(self, folder: str, most: int) -> bytes:
        """Return the content of a model's card, or raise where it is no regular file or too long."""

    def files(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """Return the size of each regular file of a model by its path, and the paths of all that is none."""

    def sha256(self, folder: str, path: str) -> str:
        """Return the checksum of a file of a model."""

    def model_path(self, entry: ModelEntry) -> Path:
        """Return the file or folder of a model on this machine; raise where its files are not plain ones."""

    def staging(self) -> AbstractContextManager[Stage]:
        """Give a new place to make a model in; what is still there when the block ends is deleted."""

    def publish(self, stage: Stage, folder: str) -> None:
        """Put a finished model to its place; raise if there is one of that name."""

    def remove(self, folder: str, paths: Collection[str]) -> None:
        """Take a model away, whose files have these paths."""

    def sweep(self, used: Mapping[str, Collection[str] | None]) -> int:
        """Delete what killed processes left, if it was not written to for an hour; count it.

        Parameters
        ----------
        used : mapping
            The paths of the files of each model, by folder; None where its card cannot be read.
        """

    def read_own(self, name: str, most: int) -> bytes | None:
        """Return a file of the repository's own; None where there is none that can be read."""

    def write_own(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file of the repository's own, whole or not at all."""

    def append_own(self, name: str, data: bytes) -> bool:
        """Add to a file of the repository's own with one write; False where there is none."""

    def own_path(self, name: str) -> Path | None:
        """Return a file of the repository's own on this machine; None where there is none."""

    def beside(self, folder: str, name: str, most: int) -> Path | None:
        """Return a file in the folder of a model on this machine; None where there is none, or a longer."""

    def write_beside(self, folder: str, name: str, data: bytes) -> None:
        """Write a file into the folder of a model, whole or not at all."""


def card_file(folder: str) -> str:
    """Return the file name of a model's card."""
    return f"{folder}.card.json"


def card_copy(entry: ModelEntry) -> str | None:
    """Return the path of a second card, beside the model's file; None where the first one is there.

    In a bucket, the files of each add have a folder of their own. `as_teacher` looks for a card there.
    """
    above = entry.file.rpartition("/")[0]
    return f"{above}/{card_file(entry.folder)}" if above else None


def name_taken(folder: str) -> InvalidInputError:
    """Return the error for a second model of one name."""
    return InvalidInputError(
        f"The repository has a model {folder!r} already (capitals do not tell names apart). Remove it first, "
        "or give {remedy} another.",
        remedy="name",
    )


def check_is_repository(shown: str, names: Collection[str], marked: bool) -> None:
    """Raise if a place holds other things than a repository."""
    if set(names) - {OWN} and not marked:
        raise InvalidInputError(
            f"The folder {shown!r} holds other files and is no repository. Give a new or an empty folder, "
            "and add the models to it."
        )

"""Opening a teacher's file: the checks that every kind of file shares."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import TeacherError
from consilience.files.card import Card, find_card
from consilience.teachers._base import Options


def open_source(
    path: str | os.PathLike[str], name: str | None, options: Options
) -> tuple[Path, str, Options, Card | None]:
    """Return a file's path, the teacher's name, the options and the card next to the file.

    The card's name and output are used where the caller left them open.
    """
    source = Path(path)
    shown = name or source.stem
    try:
        status = source.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TeacherError(shown, f"cannot be read from {source}: {reason}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise TeacherError(shown, f"cannot be read from {source}: it is not a regular file.")
    card = find_card(source)
    if card is not None:
        shown = name or card.name
        if options.output == "auto" and card.output is not None:
            options = replace(options, output=card.output)
    return source, shown, options, card


def with_preprocess(options: Options, card: Card | None) -> Options:
    """Return options with the preprocessing on the card, where the caller gave none."""
    if options.preprocess is not None or card is None or card.preprocess is None:
        return options
    return replace(options, preprocess=card.preprocess)


def centres_of(card: Card | None) -> NDArray[np.float64] | None:
    """Return the class centres (k, d) on a card, or None."""
    return None if card is None or card.centres is None else np.asarray(card.centres, dtype=np.float64)

"""Folders that hold a checkpoint of transformers, as teachers."""

from __future__ import annotations

from numpy.typing import ArrayLike

from consilience.exceptions import TeacherError
from consilience.teachers._base import Options, Teacher
from consilience.teachers._folder_files import Folder


def transformers_teacher(folder: Folder, classes: ArrayLike | None, options: Options) -> Teacher:
    """Make a teacher of a checkpoint of transformers.

    Parameters
    ----------
    folder : Folder
        Its files are listed and checked, and it has the name, and the card if there is one.
    classes : (k,) sequence, optional
        They rename the classes of the folder, or of its card.
    options : Options
        With the output on the card, where the caller left it open.
    """
    raise TeacherError(
        folder.name, "is a checkpoint of transformers, which is not read yet. Export it to ONNX."
    )

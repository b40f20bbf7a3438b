"""Distil: train a student with teachers whose classes differ from its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._lazy import lazy

if TYPE_CHECKING:
    from consilience.distil.distiller import CrossTaskDistiller
    from consilience.distil.teacher_check import TeacherCheck

__all__ = [
    "CrossTaskDistiller",
    "TeacherCheck",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CrossTaskDistiller": "distiller",
        "TeacherCheck": "teacher_check",
    },
)

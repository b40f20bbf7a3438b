"""Distil: train a student with teachers whose classes differ from its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience._optional import lazy

if TYPE_CHECKING:
    from consilience.distil.distiller import CrossTaskDistiller
    from consilience.distil.losses import KD, RKD, FitNet, LabelsOnly, Own, Refilled, Sinkhorn
    from consilience.distil.teacher_check import TeacherCheck

_LOSSES = ("KD", "RKD", "FitNet", "LabelsOnly", "Own", "Refilled", "Sinkhorn")
__all__ = [
    "KD",
    "RKD",
    "CrossTaskDistiller",
    "FitNet",
    "LabelsOnly",
    "Own",
    "Refilled",
    "Sinkhorn",
    "TeacherCheck",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(_LOSSES, "losses"),
        "CrossTaskDistiller": "distiller",
        "TeacherCheck": "teacher_check",
    },
)

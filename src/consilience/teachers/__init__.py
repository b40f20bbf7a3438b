"""Teachers: any classifier, or its precomputed outputs, behind one method.

`as_teacher` picks an adapter. It never imports or runs what a file names. It imports torch, onnx and
onnxruntime only when a source needs them.
"""

from __future__ import annotations

from consilience.rows.images import ImagePreprocess
from consilience.teachers.base import Teacher, TeacherLike
from consilience.teachers.classes import join_classes, rename_classes, split_classes
from consilience.teachers.folders import ModelFolder
from consilience.teachers.function import Function
from consilience.teachers.given import as_teacher, is_source
from consilience.teachers.onnx import Onnx
from consilience.teachers.outputs import Observed
from consilience.teachers.precomputed import HardLabels, Precomputed
from consilience.teachers.remote import Remote
from consilience.teachers.sklearn import Sklearn, Skops
from consilience.teachers.text_model import TextModel
from consilience.teachers.torch import Torch
from consilience.teachers.transformers import encode_sentences, save_sentence_head

__all__ = [
    "Function",
    "HardLabels",
    "ImagePreprocess",
    "ModelFolder",
    "Observed",
    "Onnx",
    "Precomputed",
    "Remote",
    "Sklearn",
    "Skops",
    "Teacher",
    "TeacherLike",
    "TextModel",
    "Torch",
    "as_teacher",
    "encode_sentences",
    "is_source",
    "join_classes",
    "rename_classes",
    "save_sentence_head",
    "split_classes",
]

"""Models of texts as teachers, saved or in memory."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import is_instance_of
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.disk import file_sha256
from consilience.files.ngram_model import read_model
from consilience.options import takes
from consilience.teachers.base import (
    Adapter,
    Input,
    TeacherOptions,
    check_embed_function,
    open_source,
    own_or_given,
    teacher_name,
)


class TextModel(Adapter):
    """A `consilience.students.Ngrams`, or the ``.npz`` file that it saved; it gives logits.

    Its embedding is the input of its softmax layer.
    """

    @takes(TeacherOptions)
    def __init__(
        self, source: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        self._sha256, path, card = None, None, None
        if isinstance(source, str | os.PathLike):
            path, shown, card = open_source(source, name, options)
            try:
                self._model = read_model(path)
            except InvalidInputError as error:
                raise TeacherError(shown, f"cannot be used: {error}") from error
            self._sha256 = file_sha256(path)
        else:
            shown = teacher_name(name, type(source).__name__)
            if not hasattr(source, "model_"):
                raise TeacherError(shown, "is not fitted. Call fit before making a teacher of it.")
            self._model = source.model_
        if options.output not in ("auto", "logits"):
            raise TeacherError(
                shown,
                "is a model of texts and gives logits; drop {argument}.",
                argument="output",
                value=options.output,
            )
        check_embed_function(options.embed, shown)
        found = own_or_given(self._model.classes, classes, shown)
        super().__init__(shown, found, options, output="logits")
        if path is not None:
            self._take_card(path, card)

    def _run(self, X: Any, rows: int, *, scores: bool, features: bool) -> tuple[Any, Any]:
        inside: Any = self._model.embed(X) if scores or self._embed is None else None
        seen = None
        if features:
            seen = inside if self._embed is None else self._embed(X)
        return self._model.logits_of(inside) if scores else None, seen

    def _embeddable(self) -> bool:
        return True

    @property
    def inputs(self) -> tuple[Input, ...]:
        """A list of texts."""
        return (Input("X", "text", (None,)),)

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer, unless embed= is something else."""
        return self._model.weights.T if self._embed is None else None

    def _model_fingerprint(self) -> str | None:
        if self._sha256 is not None:
            return self._sha256
        content = hashlib.blake2b(repr(self._model.reading).encode(), digest_size=32)
        for values in (self._model.embeddings, self._model.weights, self._model.bias):
            content.update(repr(values.shape).encode())
            content.update(np.ascontiguousarray(values).data)
        return content.hexdigest()


def is_ngram_classifier(obj: Any) -> bool:
    """Tell whether an object is a `consilience.students.Ngrams`."""
    return is_instance_of(obj, "consilience.students.ngrams", "Ngrams")

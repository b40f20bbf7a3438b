"""Models of texts as teachers, saved or in memory."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience._optional import is_instance_of
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.files.ngram_model import TextModel, is_text_model, read_model
from consilience.files.opener import file_sha256
from consilience.teachers._base import Adapter, Input, Options, Teacher, check_embed_function, own_or_given
from consilience.teachers._files import centres_of, open_source
from consilience.teachers._precomputed import npz_teacher


class TextTeacher(Adapter):
    """A model of `consilience.students.Ngrams`."""

    _model: TextModel
    _sha256: str | None = None  # of its file

    def _scores(self, X: Any, rows: int) -> Any:
        return self._model.predict_logits(X)

    def _features(self, X: Any, rows: int) -> Any:
        return self._model.embed(X) if self._embed is None else self._embed(X)

    def _both(self, X: Any, rows: int) -> tuple[Any, Any]:
        if self._embed is not None:
            return super()._both(X, rows)
        features = self._model.embed(X)
        return self._model.logits_of(features), features

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


def text_or_outputs(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of an .npz file: a model of texts, or precomputed outputs."""
    make = text_teacher if is_text_model(path) else npz_teacher
    return make(path, classes, name, options)


def text_teacher(
    path: str | os.PathLike[str], classes: ArrayLike | None, name: str | None, options: Options
) -> Teacher:
    """Make a teacher of a saved model of texts; it gives logits."""
    source, shown, options, card = open_source(path, name, options)
    try:
        model = read_model(source)
    except InvalidInputError as error:
        raise TeacherError(shown, f"cannot be used: {error}") from error
    teacher = _made(model, classes, shown, options)
    known = None if card is None else card.sha256  # which was compared with the file
    teacher._sha256 = (known or file_sha256(source)).lower()
    teacher.class_centres = centres_of(card)
    return teacher


def is_ngram_classifier(obj: Any) -> bool:
    """Tell whether an object is a `consilience.students.Ngrams`."""
    return is_instance_of(obj, "consilience.students.ngrams", "Ngrams")


def ngram_teacher(classifier: Any, classes: ArrayLike | None, name: str | None, options: Options) -> Teacher:
    """Make a teacher of a fitted `consilience.students.Ngrams`, as of its file."""
    shown = name or type(classifier).__name__
    if not hasattr(classifier, "model_"):
        raise TeacherError(shown, "is not fitted. Call fit before making a teacher of it.")
    return _made(classifier.model_, classes, shown, options)


def _made(model: TextModel, classes: ArrayLike | None, name: str, options: Options) -> TextTeacher:
    if options.output not in ("auto", "logits"):
        raise TeacherError(
            name,
            "is a model of texts and gives logits; drop {argument}.",
            argument="output",
            value=options.output,
        )
    check_embed_function(options.embed, name)
    teacher = TextTeacher(name, own_or_given(model.classes, classes, name), options, output="logits")
    teacher._model = model
    return teacher

"""Saved models of texts as teachers."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import ArrayLike, NDArray

from consilience._text_model import TextModel, is_text_model, read_model
from consilience.card import file_sha256
from consilience.exceptions import InvalidInputError, TeacherError
from consilience.teachers._base import Adapter, Options, Teacher, check_embed_function, own_or_given
from consilience.teachers._files import centres_of, open_source
from consilience.teachers._precomputed import npz_teacher


class TextTeacher(Adapter):
    """A model that `consilience.text.NgramClassifier` saved."""

    _model: TextModel
    _sha256: str

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
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer, unless embed= is something else."""
        return self._model.weights.T if self._embed is None else None

    def _model_fingerprint(self) -> str | None:
        return self._sha256


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
    if options.output not in ("auto", "logits"):
        raise TeacherError(shown, f"is a model of texts and gives logits; drop output={options.output!r}.")
    check_embed_function(options.embed, shown)
    try:
        model = read_model(source)
    except InvalidInputError as error:
        raise TeacherError(shown, f"cannot be used: {error}") from error
    teacher = TextTeacher(shown, own_or_given(model.classes, classes, shown), options, output="logits")
    known = None if card is None else card.sha256  # which was compared with the file
    teacher._model, teacher._sha256 = model, (known or file_sha256(source)).lower()
    teacher.class_centres = centres_of(card)
    return teacher

"""Models of texts as teachers, saved or in memory."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import ArrayLike, NDArray

from consilience.files.disk import file_sha256
from consilience.files.ngram_model import read_model
from consilience.options import takes
from consilience.teachers.base import (
    Adapter,
    TeacherOptions,
    check_embed_function,
    open_source,
    own_or_given,
    teacher_name,
)
from consilience.teachers.fingerprints import fingerprint_of
from consilience.teachers.inputs import Input
from consilience.teachers.outputs import ensure, in_the_name_of


class TextModel(Adapter):
    """A `consilience.students.Ngrams`, or the ``.npz`` file that it saved; it gives logits.

    Its embedding is the input of its softmax layer.

    Examples
    --------
    >>> TextModel("news.npz").predict_logits(["the match"]).shape  # doctest: +SKIP
    (1, 2)
    """

    inputs = (Input("X", "text", (None,)),)
    _digest: str | None = None

    @takes(TeacherOptions)
    def __init__(
        self, source: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        card = None
        if isinstance(source, str | os.PathLike):
            path, shown, card = open_source(source, name, options)
            with in_the_name_of(shown):
                self._model, self._digest = read_model(path), file_sha256(path)
            self._take_card(path, card)
        else:
            shown = teacher_name(name, type(source).__name__)
            ensure(hasattr(source, "model_"), shown, "is not fitted. Call fit before making a teacher of it.")
            self._model = source.model_
        check_embed_function(options.embed, shown)
        self.own_classes = self._model.classes.tolist()  # that the file names; a card may name others
        found = own_or_given(self._model.classes if card is None else card.classes, classes, shown)
        super().__init__(shown, found, options, output="logits")

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        inside = self._model.embed(X)
        return self._model.logits_of(inside), inside

    def _embeddable(self) -> bool:
        return True

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of the last layer, unless embed= is something else."""
        return self._model.weights.T if self._embed is None else None

    def _model_fingerprint(self) -> str | None:
        model = self._model
        return self._digest or fingerprint_of([model.reading, model.embeddings, model.weights, model.bias])

"""Train the unified model from the identifiers and text, and use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from examples.language_identification import DIM, EPOCHS
from examples.language_identification.languages import name_of

from consilience.exceptions import InvalidInputError
from consilience.run import Progress, silent
from consilience.teachers import Teacher, as_teacher

if TYPE_CHECKING:
    from consilience.unify.unifier import Unifier


@dataclass(frozen=True)
class Settings:
    """Settings of the training.

    Attributes
    ----------
    method, calibrate, off_set, temperature, balance, self_label
        As in `consilience.Unifier`, its method and its student.
    epochs, dim, buckets_log2, longest_ngram, dropout
        Options of the student, `consilience.students.Ngrams`. The number of buckets is a power of 2.
    seed : int
    """

    method: str = "ce"
    calibrate: bool = True
    off_set: bool = True
    temperature: float = 1.0
    balance: Literal["auto", "sqrt"] | bool = "sqrt"
    self_label: bool = False
    epochs: int = EPOCHS
    dim: int = DIM
    buckets_log2: int = 17
    longest_ngram: int = 4
    dropout: float = 0.7  # the text has few words of each language, so the student must not memorise them
    seed: int = 0


DEFAULT = Settings()


def train(
    rows: Sequence[str],
    teachers: Sequence[Teacher],
    settings: Settings = DEFAULT,
    *,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Unifier:
    """Train one classifier of all the teachers' languages on unlabelled text.

    Parameters
    ----------
    rows : sequence of str
    teachers : sequence of Teacher
    settings : Settings
    cache : path, optional
        A folder that keeps the teachers' answers. Another run asks them only about new text.
    progress : callable
        Called with (task, done, total).
    """
    from consilience.methods import METHODS
    from consilience.run import Run
    from consilience.students.ngrams import Ngrams
    from consilience.unify.unifier import Unifier

    student = Ngrams(
        ngram_range=(1, settings.longest_ngram),
        n_buckets=2**settings.buckets_log2,
        dim=settings.dim,
        max_iter=settings.epochs,
        dropout=settings.dropout,
        self_label=settings.self_label,
        random_state=settings.seed,
    )
    heat = "agreement" if settings.calibrate else None
    method = METHODS[settings.method](temperature=settings.temperature, teacher_temperatures=heat)
    if settings.method == "ce":
        method.set_params(off_set=settings.off_set)
    unifier = Unifier(
        teachers,
        student,
        method,
        balance=settings.balance,
        random_state=settings.seed,
        run=Run(cache=cache, progress=progress),
    )
    return unifier.fit(list(rows))


def open_model(path: Path) -> Teacher:
    """Return a saved model, which is a teacher like any other."""
    if not path.is_file():
        raise InvalidInputError(
            f"There is no model {path}. Make it with the command unify, or say with --model where it is."
        )
    return as_teacher(path)


@dataclass(frozen=True)
class Guess:
    """A language that a text may be in.

    Attributes
    ----------
    code : str
        The ISO 639-3 code.
    name : str
    probability : float
    """

    code: str
    name: str
    probability: float


def identify(model: Teacher, texts: Sequence[str], top: int = 3) -> list[list[Guess]]:
    """Return the most probable languages of each text, best first. A text without letters has none."""
    lettered = [i for i, text in enumerate(texts) if any(map(str.isalpha, text))]
    found: list[list[Guess]] = [[] for _ in texts]
    if not lettered:
        return found
    logits = model.predict_logits([texts[i] for i in lettered])
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    for i, row in zip(lettered, proba, strict=True):
        for k in np.argsort(-row, kind="stable")[:top].tolist():
            code = str(model.classes[k])
            found[i].append(Guess(code, name_of(code), float(row[k])))
    return found


def as_lines(text: str, guesses: Sequence[Guess]) -> str:
    """Return a text and its probable languages as readable lines."""
    lines = [f"  {guess.probability:6.1%}  {guess.code}  {guess.name}" for guess in guesses]
    return "\n".join([text, *(lines or ["  no letters, and so no language"])])


def as_json(text: str, guesses: Sequence[Guess]) -> str:
    """Return the same as one line of JSON."""
    found = {"text": text, "languages": [asdict(guess) for guess in guesses]}
    return json.dumps(found, ensure_ascii=False)

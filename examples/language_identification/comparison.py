"""Compare the unified model with its teachers on labelled sentences: answers and texts per second."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from examples.language_identification.evaluation import CEILING, NOTHING, Evaluation, evaluate, plurality
from examples.language_identification.languages import before_split, canonical
from examples.language_identification.texts import read_text
from numpy.typing import NDArray

from consilience import Run, methods
from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace
from consilience.run import Progress, silent
from consilience.teachers import Teacher

UNIFIED = "unified model"
SPEED_ROWS = 200


@dataclass(frozen=True)
class Sentences:
    """Labelled sentences.

    Attributes
    ----------
    codes : tuple of str
        Languages by their ISO 639-3 names.
    texts : tuple of str
    """

    codes: tuple[str, ...]
    texts: tuple[str, ...]


def read_sentences(path: Path, rows: int | None = None, seed: int = 0) -> Sentences:
    """Read lines of ``code<TAB>text`` from a .tsv or .tsv.gz file. Skip lines without a text.

    Parameters
    ----------
    path : path
    rows : int, optional
        The most sentences, drawn at random. By default, all.
    seed : int
        The seed of the draw.
    """
    pairs = []
    for number, line in enumerate(read_text(path, last_column=False), start=1):
        if line.strip():
            code, tab, text = line.partition("\t")
            if not tab or not code.strip() or " " in code.strip():
                raise InvalidInputError(f"Line {number} of {path} is not a code, a tab and a text.")
            if text.strip():  # an empty text has no language
                pairs.append((canonical(code), text))
    if not pairs:
        raise InvalidInputError(f"{path} has no sentences.")
    if rows is not None and rows < len(pairs):
        chosen = np.sort(np.random.default_rng(seed).permutation(len(pairs))[:rows])
        pairs = [pairs[i] for i in chosen.tolist()]
    codes, texts = zip(*pairs, strict=True)
    return Sentences(codes, texts)


def compare(
    sentences: Sentences,
    teachers: Sequence[Teacher],
    model: Teacher | None,
    *,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Evaluate each teacher, their vote, their consensus and the unified model.

    Parameters
    ----------
    sentences : Sentences
    teachers : sequence of Teacher
    model : Teacher, optional
        The unified model. Without it, the table by language shows the consensus.
    cache : path, optional
        A folder that keeps the teachers' answers.
    progress : callable
        Called with (task, done, total).
    """
    from consilience.unify.unifier import Unifier

    texts = list(sentences.texts)
    plain = Unifier(teachers, method=methods.CE(temperature=1.0), run=Run(cache=cache, progress=progress))
    packed = plain.score_teachers(texts)
    space = plain.label_space()
    answers, sure = _decisions(packed, space)
    answers["plurality vote"] = plurality(list(answers.values()), sure)
    silent_rows = np.isnan(packed[:, space.offsets[:-1]]).all(axis=1)
    calibrated = Unifier(
        teachers,
        method=methods.CE(temperature=1.0, off_set=True, teacher_temperatures="agreement"),
        run=Run(progress=progress),
    )
    consensuses = {"plain ce": plain, "calibrated ce": calibrated}
    for name, consensus in consensuses.items():
        best = space.classes[consensus.estimate(texts, logits=packed).argmax(axis=1)].astype(object)
        best[silent_rows] = NOTHING
        answers[name] = best
    if model is not None:
        answers[UNIFIED] = model.classes[model.predict_logits(texts).argmax(axis=1)]
    known = {
        name: list(before_split(name, one.tolist()))
        for name, one in zip(space.names, space.class_lists, strict=True)
    }
    sizes = {name: len(space.classes) for name in ("plurality vote", *consensuses, CEILING)}
    if model is not None:
        sizes[UNIFIED] = len(model.classes)
    return evaluate(sentences.codes, answers, known, look_at=list(answers)[-1], n_classes=sizes)


def _decisions(packed: NDArray[np.float64], space: LabelSpace) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return each teacher's best class for each row, and the probability it gives to that class.

    A macro-language that is split for the consensus is whole here. Its members have the same score, so the
    first would win, and the teacher would be judged by an answer that it never gave.
    """
    answers: dict[str, Any] = {}
    sure = np.zeros((space.n_teachers, len(packed)))
    for i, name in enumerate(space.names):
        columns = before_split(name, space.class_lists[i].tolist())
        block = packed[:, space.block(i)][:, list(columns.values())]
        answered = ~np.isnan(block[:, 0])
        best = np.full(len(packed), NOTHING, dtype=object)
        best[answered] = np.array(list(columns), dtype=object)[block[answered].argmax(axis=1)]
        shifted = block[answered] - block[answered].max(axis=1, keepdims=True)
        sure[i, answered] = 1 / np.exp(shifted).sum(axis=1)
        answers[name] = best
    return answers, sure


def texts_per_second(
    asked: Mapping[str, Teacher], texts: Sequence[str], *, progress: Progress = silent
) -> dict[str, float]:
    """Return how many texts per second each system handles, timed one after another.

    Parameters
    ----------
    asked : mapping of name to Teacher
    texts : sequence of str
        `SPEED_ROWS` of them are used, evenly spaced: files are often sorted by language.
    progress : callable
        Called with ("timing", systems done, systems in all).
    """
    count = min(len(texts), SPEED_ROWS)
    sample = [texts[i * len(texts) // count] for i in range(count)]
    found = {}
    for done, (name, teacher) in enumerate(asked.items(), start=1):
        teacher.predict_logits(sample)  # loads its model; lingua loads each language when it first needs it
        start = time.perf_counter()
        teacher.predict_logits(sample)
        found[name] = len(sample) / (time.perf_counter() - start)
        progress("timing", done, len(asked))
    return found

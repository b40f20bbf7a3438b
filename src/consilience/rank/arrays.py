"""The metrics of rankings on arrays: what `score` of a metric does."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience._validation import (
    as_numbers,
    as_random_state,
    check_count,
    check_distributions,
    check_weights,
)
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.labels import read_labels
from consilience.rank.metrics import SCORES, Case, otce_rows
from consilience.rank.options import NCE, OTCE, Metric
from consilience.rows import HeldRows
from consilience.teachers import Observed

LARGEST = 1e100  # of a feature: its square must not overflow


def score_outputs(metric: Metric, proba: Any, y: Any, folds: int, random_state: int | None) -> float:
    """Return the score of probabilities (n, m) for labels (n,); see `OutputMetric`."""
    if isinstance(metric, NCE):  # only the largest of each row counts
        logits = _matrix("proba", proba)
    else:
        with np.errstate(divide="ignore"):
            logits = np.log(check_distributions("proba", proba))
    if logits.ndim != 2:
        raise InvalidInputError(f"proba has shape {logits.shape}; expected (n, m), one column per class.")
    return _score(metric, Observed(logits, None), y, folds, random_state)


def score_embeddings(metric: Metric, embeddings: Any, y: Any, folds: int, random_state: int | None) -> float:
    """Return the score of embeddings (n, d) for labels (n,); see `FeatureMetric`."""
    F = _matrix("embeddings", embeddings)
    return _score(metric, Observed(np.zeros((len(F), 1)), F), y, folds, random_state)


def score_otce(
    metric: OTCE, source: tuple[Any, Any, Any], embeddings: Any, y: Any, folds: int, random_state: int | None
) -> float:
    """Return the score of a teacher's rows, with labels and weights, and of others; see `OTCE.score`."""
    metric.check_options()
    S, F = _matrix("source_embeddings", source[0]), _matrix("embeddings", embeddings)
    classes, codes = read_labels(source[1], len(S), where="source_y")
    if (codes < 0).any():
        raise InvalidInputError("source_y has rows without a label; leave these rows out of the source.")
    if S.shape[1] != F.shape[1]:
        raise InvalidInputError(
            f"source_embeddings have {S.shape[1]} columns, but embeddings have {F.shape[1]}."
        )
    weight = check_weights("source_weight", source[2], len(S))
    if not weight.any():
        raise InvalidInputError("source_weight is 0 for every row; give some rows of the source a weight.")
    case, mass = _case(Observed(np.zeros((len(F), 1)), F), y, folds, random_state), weight / weight.sum()
    rows = otce_rows(S, (codes, len(classes)), mass, case.embeddings, case.codes, case.held_out, metric)
    return float(rows.mean())


def _score(metric: Metric, observed: Observed, y: Any, folds: int, random_state: int | None) -> float:
    """Return the mean that a metric gives the rows that have a label."""
    metric.check_options()
    return float(SCORES[type(metric)](_case(observed, y, folds, random_state), metric).mean())


def _case(observed: Observed, y: Any, folds: int, random_state: int | None) -> Case:
    """Return the rows that have a label as the case of a teacher that is not known."""
    seed = int(as_random_state(random_state).randint(2**31)) if random_state is None else random_state
    classes, codes = read_labels(y, len(observed.logits), at_least=2)
    known = codes >= 0
    return Case(
        None, HeldRows(codes), np.flatnonzero(known), codes[known], codes[known], len(classes),
        observed.take(known), check_count("folds", folds), seed, intervals=False,
    )  # fmt: skip


def _matrix(name: str, values: Any) -> Floats:
    """Return finite numbers (n, d) as float64, or raise."""
    expected = "expected numbers (n, d), one row per sample"
    array = as_numbers(name, values, expected)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    numbers = array.astype(np.float64, copy=False)
    bad = ~(np.abs(numbers) <= LARGEST).all(axis=1)
    if bad.any():
        raise InvalidInputError(
            f"{name} has NaN, infinity or a number beyond {LARGEST:g} in row {{row}} ({int(bad.sum())} such "
            "rows).",
            row=int(bad.argmax()),
        )
    return numbers

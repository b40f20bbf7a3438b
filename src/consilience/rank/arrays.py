"""The metrics of rankings on arrays: what `score` of a metric does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from consilience._validation import as_numbers, as_random_state, check_count, check_distributions
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
        return _score(metric, Observed(_matrix("proba", proba), None), y, folds, random_state)
    theta = check_distributions("proba", proba)
    if theta.ndim != 2:
        raise InvalidInputError(f"proba has shape {theta.shape}; expected (n, m), one column per class.")
    with np.errstate(divide="ignore"):
        return _score(metric, Observed(np.log(theta), None), y, folds, random_state)


def score_embeddings(metric: Metric, embeddings: Any, y: Any, folds: int, random_state: int | None) -> float:
    """Return the score of embeddings (n, d) for labels (n,); see `FeatureMetric`."""
    F = _matrix("embeddings", embeddings)
    return _score(metric, Observed(np.zeros((len(F), 1)), F), y, folds, random_state)


def score_otce(
    metric: OTCE, source: tuple[Any, Any, Any], embeddings: Any, y: Any, folds: int, random_state: int | None
) -> float:
    """Return the score of a teacher's rows, with labels and weights, and of others; see `OTCE.score`."""
    S, F = _matrix("source_embeddings", source[0]), _matrix("embeddings", embeddings)
    classes, codes = read_labels(source[1], len(S), where="source_y")
    if (codes < 0).any():
        raise InvalidInputError("source_y has rows without a label; leave these rows out of the source.")
    if S.shape[1] != F.shape[1]:
        raise InvalidInputError(
            f"source_embeddings have {S.shape[1]} columns, but embeddings have {F.shape[1]}."
        )
    expected = f"expected {len(S)} numbers of at least 0, not all 0"
    weight = np.ones(len(S)) if source[2] is None else as_numbers("source_weight", source[2], expected)
    if weight.shape != (len(S),) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InvalidInputError(f"source_weight is wrong: {expected}; it has shape {weight.shape}.")

    def rows(case: Case, metric: OTCE) -> Floats:
        share = weight.astype(np.float64) / weight.sum()
        return otce_rows(S, (codes, len(classes)), share, case.embeddings, case.codes, case.held_out, metric)

    return _score(metric, Observed(np.zeros((len(F), 1)), F), y, folds, random_state, rows)


def _score(
    metric: Metric,
    observed: Observed,
    y: Any,
    folds: int,
    random_state: int | None,
    rows: Callable[[Case, Any], Floats] | None = None,
) -> float:
    """Return the mean that a metric gives the rows that have a label."""
    metric.check_options()
    seed = int(as_random_state(random_state).randint(2**31)) if random_state is None else random_state
    classes, codes = read_labels(y, len(observed.logits), at_least=2)
    known = codes >= 0
    case = Case(
        None, HeldRows(codes), np.flatnonzero(known), codes[known], codes[known], len(classes),
        observed.take(known), check_count("folds", folds), seed, intervals=False,
    )  # fmt: skip
    return float((rows or SCORES[type(metric)])(case, metric).mean())


def _matrix(name: str, values: Any) -> Floats:
    """Return finite numbers (n, d) as float64, or raise."""
    expected = "expected numbers (n, d), one row per sample"
    array = as_numbers(name, values, expected)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{name} has shape {array.shape} and type {array.dtype}; {expected}.")
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise InvalidInputError(
            f"{name} has NaN or infinity in row {{row}} ({int(bad.sum())} such rows).", row=int(bad.argmax())
        )
    numbers = array.astype(np.float64, copy=False)
    largest = float(np.abs(numbers).max())
    if largest > LARGEST:
        raise InvalidInputError(
            f"{name} reach {largest:g} in size; divide them, so their squares can be summed."
        )
    return numbers

"""Self-labelling of rows that are read block by block: prices from a sample, labels for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from consilience.files.spool import Spool
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.prices import fair_prices, labels_at_prices
from consilience.unify.self_labels import LAM, fair_share, find, label_fairly, mix
from consilience.unify.stream import Streamed, StreamedLabels

SAMPLE_ROWS = 2**14
"""Rows from which the prices of the classes are found."""


class OwnLabels(NamedTuple):
    """What a student learns next, on disk.

    Attributes
    ----------
    labels, targets : Spool
        (n, L): fair pseudo-labels, with NaN in rows of which nothing is known; their mean with soft labels.
    row_weights : Spool
        (n,)
    """

    labels: Spool
    targets: Spool
    row_weights: Spool


def label_by_blocks(
    student: Any,
    as_seen: Callable[[Any], Any],
    streamed: Streamed,
    found: StreamedLabels,
    class_weights: Floats,
    temperature: float,
) -> OwnLabels:
    """Return fair labels from the predictions of a fitted student.

    The prices that make labels fair come from a random sample of rows; see `labels_at_prices`. Known labels
    are kept.
    """
    source, L = streamed.source, streamed.space.n_classes
    share = fair_share(found.mean, class_weights)
    some = source.sample_rows(SAMPLE_ROWS)
    some = some[streamed.covered[some]]
    Q = found.soft_labels[some].astype(np.float64)
    findings = find(student, as_seen(source.take(some)), Q, class_weights, temperature)
    prices = fair_prices(label_fairly(findings, share, streamed.known(some)).labels, share, LAM)
    own = OwnLabels(Spool((L,), np.float32), Spool((L,), np.float32), Spool((), np.float32))
    for block in source.blocks():
        Q = found.soft_labels[block.rows].astype(np.float64)
        findings = find(student, as_seen(block.X), Q, class_weights, temperature)
        fair, known = labels_at_prices(findings.sigma, prices), streamed.known(block.rows)
        fair[known >= 0] = np.eye(L)[known[known >= 0]]
        mixed = mix(fair, findings)
        own.targets.append(mixed.targets)
        own.row_weights.append(mixed.row_weights)
        fair[~streamed.covered[block.rows]] = np.nan
        own.labels.append(fair)
    return own

"""Labels that a student makes itself: its predictions, made fair, and mixed with the soft labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.collision.pseudo_labels import collision_pseudo_labels
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import responsibilities, weigh

# Weight of fairness in the pseudo-labels: on the digits trials, 1 to 100 hardly differ.
LAM = 10.0


class FairLabels(NamedTuple):
    """What a student learns next."""

    labels: Floats  # (n, L) fair pseudo-labels from its predictions
    targets: Floats  # (n, L) the mean of these and of the soft labels
    row_weights: Floats  # (n,)


class Findings(NamedTuple):
    """What a fitted student and the soft labels say together."""

    sigma: Floats  # (n, L) the predictions times the soft labels, renormalised
    labels: Floats  # (n, L) the soft labels, weighted by class and renormalised
    mass: Floats  # (n,) what was divided by


def find(student: Any, X: Any, Q: Floats, class_weights: Floats, temperature: float) -> Findings:
    """Combine the predictions of a fitted student with the soft labels that it has learnt.

    Parameters
    ----------
    student : fitted student
    X : n rows
        As the student sees them.
    Q : (n, L) array
        The soft labels.
    class_weights : (L,) array
    temperature : float
        At which the student has learnt.
    """
    labels, mass = weigh(Q, class_weights)
    if student.scores == "logits":
        proba = np.asarray(softmax(student.predict_logits(X) / temperature, axis=1))
    else:
        proba = student.predict_all(X, Q.shape[1])
    return Findings(responsibilities(proba, labels), labels, mass)


def fair_share(mean: Floats, class_weights: Floats) -> Floats:
    """Return the share (L,) of each class, by the mean soft label: with balancing, an equal one."""
    share = mean * class_weights
    return np.asarray(share / share.sum())


def label_fairly(findings: Findings, share: Floats, known: NDArray[np.intp]) -> FairLabels:
    """Return fair labels of all rows.

    Parameters
    ----------
    findings : Findings
    share : (L,) array
        From `fair_share`.
    known : (n,) array of int
        The position of a known label, -1 without one.
    """
    fair = collision_pseudo_labels(findings.sigma, LAM, prior=share, fixed=known).labels
    return mix(fair, findings)


def mix(fair: Floats, findings: Findings) -> FairLabels:
    """Return what a student learns next, from fair labels (n, L)."""
    targets, row_weights = weigh(
        (fair + findings.labels * findings.mass[:, None]) / 2, np.ones(fair.shape[1])
    )
    return FairLabels(fair, targets, row_weights)

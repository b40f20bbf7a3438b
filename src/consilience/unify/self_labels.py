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


def label_fairly(
    student: Any, X: Any, Q: Floats, class_weights: Floats, known: NDArray[np.intp], temperature: float
) -> FairLabels:
    """Return fair labels from the predictions of a fitted student.

    Parameters
    ----------
    student : fitted student
    X : n rows
    Q : (n, L) array
        The soft labels that it has learnt.
    class_weights : (L,) array
    known : (n,) array of int
        The position of a known label, -1 without one.
    temperature : float
        At which the student has learnt.
    """
    n_classes = Q.shape[1]
    labels, mass = weigh(Q, class_weights)
    if student.scores == "logits":
        proba = np.asarray(softmax(student.predict_logits(X) / temperature, axis=1))
    else:
        proba = student.predict_all(X, n_classes)
    share = (Q * class_weights).mean(axis=0)  # with balancing, equal for all classes that have mass
    fair = collision_pseudo_labels(
        responsibilities(proba, labels), LAM, prior=share / share.sum(), fixed=known
    ).labels
    targets, row_weights = weigh((fair + labels * mass[:, None]) / 2, np.ones(n_classes))
    return FairLabels(fair, targets, row_weights)

"""Labels that a student makes itself: its predictions, made fair, and mixed with the soft labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from consilience.collision.pseudo_labels import collision_pseudo_labels
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import responsibilities, weigh
from consilience.kernels.collision.fair_labels import fair_prices, labels_at_prices
from consilience.rows import new_array
from consilience.run import Run
from consilience.unify.answers import Answers

# Weight of fairness in the pseudo-labels: on the digits trials, 1 to 100 hardly differ.
LAM = 10.0
# Rows from which the prices of the classes are found.
SAMPLE_ROWS = 2**14


class OwnLabels(NamedTuple):
    """What a student learns next."""

    labels: NDArray[Any]  # (n, L) fair pseudo-labels; NaN in rows of which nothing is known
    targets: NDArray[Any]  # (n, L) the mean of these and of the soft labels
    row_weights: NDArray[Any]  # (n,)


def own_labels(
    student: Any,
    as_seen: Callable[[Any], Any],
    answers: Answers,
    Q: NDArray[Any],
    class_weights: Floats,
    share: Floats,
    temperature: float,
    run: Run,
) -> OwnLabels:
    """Return fair labels from the predictions of a fitted student and the soft labels that it has learnt.

    The prices that make labels fair come from a random sample of rows; see `labels_at_prices`. Known labels
    are kept.

    Parameters
    ----------
    student : fitted student
    as_seen : callable
        From rows to what the student sees of them.
    answers : Answers
    Q : (n, L) array
        The soft labels.
    class_weights, share : (L,) array
        With what the student has learnt classes, and which share of the rows each shall have.
    temperature : float
        At which the student has learnt.
    run : Run
    """
    rows, covered, (n, L) = answers.rows, answers.covered, Q.shape

    def find(X: Any, where: Any) -> tuple[Floats, Floats, Floats]:
        """Return predictions times soft labels (b, L), weighted soft labels (b, L) and their mass (b,)."""
        labels, mass = weigh(np.asarray(Q[where], dtype=np.float64), class_weights)
        if student.scores == "logits":
            proba = np.asarray(softmax(student.predict_logits(as_seen(X)) / temperature, axis=1))
        else:
            proba = student.predict_all(as_seen(X), L)
        return responsibilities(proba, labels), labels, mass

    some = rows.sample_rows(SAMPLE_ROWS)
    some = some[covered[some]]
    sigma = find(rows.take(some), some)[0]
    fair = collision_pseudo_labels(sigma, LAM, prior=share, fixed=answers.labels[some]).labels
    prices = fair_prices(fair, share, LAM)
    own = OwnLabels(new_array((n, L), run), new_array((n, L), run), new_array((n,), run))
    for block in rows.blocks():
        sigma, labels, mass = find(block.X, block.rows)
        fair, known = labels_at_prices(sigma, prices), answers.labels[block.rows]
        fair[known >= 0] = np.eye(L)[known[known >= 0]]
        own.targets[block.rows], own.row_weights[block.rows] = weigh(
            (fair + labels * mass[:, None]) / 2, np.ones(L)
        )
        fair[~covered[block.rows]] = np.nan
        own.labels[block.rows] = fair
    return own

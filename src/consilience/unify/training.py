"""What a `Unifier` can train its student on besides soft labels: its own labels, and the loss of a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.collision.pseudo_labels import collision_pseudo_labels
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.kernels.collision.entropy import responsibilities, weigh
from consilience.kernels.collision.fair_labels import fair_prices, labels_at_prices
from consilience.labels import LabelSpace
from consilience.methods import MFLF, Auto, Method
from consilience.rows import new_array
from consilience.rows.targets import TargetRows
from consilience.run import Run
from consilience.students.classifier import AsSeen

if TYPE_CHECKING:
    from consilience.unify.unifier import Estimate

# The logit of a known label, in units of teacher logits at temperature 1: log-odds of about 1e6 : 1.
LABEL_LOGIT = 14.0
# Weight of fairness in a student's own labels: on the digits trials, 1 to 100 hardly differ.
LAM = 10.0
# Rows from which the prices of the classes are found.
SAMPLE_ROWS = 2**14


def own_labels(
    found: Estimate,
    student: Any,
    as_seen: Callable[[Any], Any],
    class_weights: Floats,
    share: Floats,
    run: Run,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return what a fitted student learns next: its predictions, made fair, and mixed with the soft labels.

    The prices that make labels fair come from a random sample of rows; see `labels_at_prices`. Known labels
    are kept.

    Parameters
    ----------
    found : Estimate
    student : fitted student
    as_seen : callable
        From rows to what the student sees of them.
    class_weights, share : (L,) array
        With what the student has learnt classes, and which share of the rows each shall have.
    run : Run

    Returns
    -------
    fair : (n, L) array
        Fair pseudo-labels; NaN in rows of which nothing is known.
    targets : (n, L) array
        The mean of these and of the soft labels.
    row_weights : (n,) array
    """
    rows, Q = found.rows, np.asanyarray(found.soft_labels)
    n, L = Q.shape

    def find(X: Any, where: Any) -> tuple[Floats, Floats, Floats]:
        """Return predictions times soft labels (b, L), weighted soft labels (b, L) and their mass (b,)."""
        labels, mass = weigh(np.asarray(Q[where], dtype=np.float64), class_weights)
        return responsibilities(student.predict_all(as_seen(X), L), labels), labels, mass

    some = rows.sample_rows(SAMPLE_ROWS)
    some = some[found.covered[some]]
    sigma = find(rows.take(some), some)[0]
    fair = collision_pseudo_labels(sigma, LAM, prior=share, fixed=found.labels[some]).labels
    prices = fair_prices(fair, share, LAM)
    every, targets, row_weights = new_array((n, L), run), new_array((n, L), run), new_array((n,), run)
    for block in rows.blocks():
        sigma, labels, mass = find(block.X, block.rows)
        fair, known = labels_at_prices(sigma, prices), found.labels[block.rows]
        fair[known >= 0] = np.eye(L)[known[known >= 0]]
        both = (fair + labels * mass[:, None]) / 2
        targets[block.rows], row_weights[block.rows] = weigh(both, np.ones(L))
        fair[~found.covered[block.rows]] = np.nan
        every[block.rows] = fair
    return every, targets, row_weights


def method_with_loss(method: Method, balance: Any) -> Method:
    """Return the method whose loss a network learns; raise if it has none, or an option needs soft labels."""
    if not method.has_loss:
        raise InvalidInputError(
            "{argument} has no loss of its own that a network could learn; use {remedy}.",
            argument="method",
            value=method.name,
            remedy=("train", "estimate"),
        )
    kept = {"teacher_temperatures"} if isinstance(method, Auto) else {"teacher_temperatures", "temperature"}
    given = {} if balance == "auto" else {"balance": balance}
    for name, option in method.declared().items():
        if name not in kept and getattr(method, name) != option.default:
            given[name] = getattr(method, name)
    for name, value in given.items():
        if value:
            raise InvalidInputError(
                "{argument} needs soft labels; use {remedy}.",
                argument=name,
                value=value,
                remedy=("train", "estimate"),
            )
    if isinstance(method, Auto):
        return MFLF(teacher_temperatures=method.teacher_temperatures)
    return method


def train_backprop(found: Estimate, student: Any, as_seen: AsSeen, run: Run) -> None:
    """Fit a network to the loss of the method.

    Known labels are one more teacher. It answers only on labelled rows, where the others abstain, so no loss
    needs to know about labels.
    """
    from consilience.nn import BACKPROP_LOSSES

    space, rows, m = found.space, found.rows, found.space.n_columns
    if (found.labels >= 0).any():
        lists, names = [*space.class_lists, space.classes], [*space.names, "known labels"]
        space = LabelSpace(lists, names=names, disconnected="ignore")
    targets = new_array((len(rows), space.n_columns), run)
    for number in range(rows.n_blocks):
        block = rows.rows_of(number)
        part, labels = targets[block], found.labels[block]
        part[:, :m], part[:, m:] = found.logits(block), np.nan
        known = np.flatnonzero(labels >= 0)
        part[known, :m] = np.nan
        part[known, m:] = LABEL_LOGIT * np.eye(part.shape[1] - m)[labels[known]]
    temperature = found.method.temperature
    student.learn_loss(
        TargetRows(rows, targets, None, found.covered, as_seen),
        space.n_classes,
        BACKPROP_LOSSES[found.method.name](space, temperature=temperature),
        temperature=temperature,
        run=run,
    )

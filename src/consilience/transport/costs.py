"""Costs between the classes of a teacher and a student: the paper's, and the baselines of Table 8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience.exceptions import InvalidInputError
from consilience.options import Options, anything, check_choice, choice, flag, option


class Cost(Options):
    """How far each class of a teacher is from each of yours. Its subclasses are the costs."""


class Embedding(Cost):
    """The distance of class centres in the teacher's embedding: eq. (7).

    A teacher without an embedding (a forest, a function, precomputed outputs) gets one: the square roots of
    its probabilities. Its own class m is then the m-th unit vector, and the distance is Hellinger's, up to a
    factor. A class of the student is close to class m if the teacher predicts m for its rows.

    Examples
    --------
    >>> Embedding(centres="predictions")
    Embedding(centres='predictions')
    """

    normalize: bool = option(
        flag(),
        "Whether both sides are scaled to unit length; costs then lie in [0, 2]. Without it, your centres "
        "keep their lengths, while the weights of eq. (8) always have length one: different units.",
        default=True,
    )
    centres: str = option(
        choice("auto", "card", "weights", "predictions"),
        "Where the centres of the teacher's classes come from: its card, the weights of its last layer (eq. "
        "8), or its predictions (ours): the mean of the rows, weighted by the teacher's probability for the "
        "class. 'auto' takes the first of these that exists. It skips weights that disagree with the teacher "
        "on more than half of the rows (see `ncm_accuracy`), with a warning.",
        default="auto",
    )
    other: Any = option(
        anything("teacher or None"),
        "Use the embedding of this teacher instead (Table 8, IV). It must know all classes of the teacher.",
        default=None,
    )


class Constant(Cost):
    """0 between classes of the same name, else 1.

    Examples
    --------
    >>> from consilience import as_teacher, cost_matrix
    >>> teacher = as_teacher(lambda rows: rows, ["cat", "dog"])
    >>> cost_matrix(teacher, cost=Constant(), classes=["dog", "car"]).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """


class Random(Cost):
    """Like `Embedding`, but in a random embedding.

    A torch teacher gets random weights. Others get a random projection of the embedding, and random
    vectors for their classes.

    Examples
    --------
    >>> Random(normalize=False)
    Random(normalize=False)
    """

    normalize: bool = option(flag(), "Whether both sides are scaled to unit length.", default=True)


class Superclass(Cost):
    """0 between classes of the same superclass, else 1.

    Examples
    --------
    >>> Superclass({"cat": "animal", "dog": "animal", "car": "vehicle"}).superclasses["cat"]
    'animal'
    """

    superclasses: Mapping[Any, Any] = option(
        anything("mapping"), "The superclass of each class of the teacher and of the student."
    )

    def check_options(self) -> None:
        """Raise unless the superclasses are a mapping."""
        if not isinstance(self.superclasses, Mapping):
            raise InvalidInputError(
                f"superclasses is a {type(self.superclasses).__name__}; give a mapping from classes to "
                "superclasses."
            )


COSTS: dict[str, type[Cost]] = {"embedding": Embedding, "constant": Constant, "random": Random}
"""The costs that need no options, by their short names."""


def as_cost(name: str, given: Any) -> Cost:
    """Return the checked cost that a short name stands for, or the one given."""
    if not isinstance(given, Cost):
        check_choice(name, given, COSTS)
        given = COSTS[given]()
    cost: Cost = given
    cost.check_options()
    return cost

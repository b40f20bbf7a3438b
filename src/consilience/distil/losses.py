"""What `CrossTaskDistiller` may be given: its losses, each with its options, and its own options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from consilience.exceptions import InvalidInputError
from consilience.options import (
    Options,
    anything,
    choice,
    flag,
    function_of_yours,
    number,
    one_of,
    option,
    temperature,
)
from consilience.students import STUDENT
from consilience.transport.costs import COSTS, Cost

_TAU: Any = option(
    temperature(),
    "tau of eq. (10), for teacher and student in the teachers' part. `predict_proba` is at temperature 1.",
    default=3.0,
)
_EPSILON: Any = option(
    choice("auto", check=number(above=0)),
    "Regularisation of eq. (5). 'auto' is half the standard deviation of the cost, as in `sinkhorn`.",
    default="auto",
)
_MATCH: Any = option(
    flag(),
    "Whether to shift the costs of each of your classes so that transported labels have the class shares of "
    "y on average (ours). Without it, as in the paper, rows of a class that is nearest to no class of the "
    "teacher are pulled towards other classes.",
    default=True,
)


class Loss(Options):
    """What teachers add to the cross-entropy with y. Its subclasses are the losses.

    The class attributes stand for options that a loss does not have; the teacher check uses them.
    """

    name: ClassVar[str]
    checked: ClassVar[bool] = False
    """Whether teachers are checked. The check looks at transported labels, not at embeddings."""
    torch_only: ClassVar[bool] = True
    """Whether only networks can learn by it."""
    temperature: Any = 3.0
    epsilon: Any = "auto"
    match_shares: Any = True

    sharpness: float = option(
        number(at_least=0),
        "The weights of several teachers are softmax(sharpness * s), with s their scores less the mean, in "
        "standard deviations. 0 gives all the same weight.",
        default=1.0,
    )


class Sinkhorn(Loss):
    """The Sinkhorn distance between the predictions of student and teacher: eq. (5).

    Examples
    --------
    >>> Sinkhorn(temperature=1.0, match_shares=False)
    Sinkhorn(temperature=1.0, match_shares=False)
    """

    name, checked, torch_only = "sinkhorn", True, False
    temperature: Any = _TAU
    epsilon: Any = _EPSILON
    match_shares: Any = _MATCH
    regularizer: str = option(choice("entropy", "kl"), "See `consilience.sinkhorn`.", default="entropy")


class KD(Loss):
    """Plain distillation, by the divergence of the student from teachers of the same classes: eq. (2).

    Examples
    --------
    >>> KD(temperature=2.0)
    KD(temperature=2.0)
    """

    name, checked, torch_only = "kd", True, False
    temperature: Any = _TAU


class RKD(Loss):
    """Distances and angles between the rows of a batch, in the embedding: Park et al. 2019.

    Examples
    --------
    >>> RKD().name
    'rkd'
    """

    name = "rkd"


class FitNet(Loss):
    """A linear map from the student's features to the embedding: Romero et al. 2015.

    Examples
    --------
    >>> FitNet().name
    'fitnet'
    """

    name = "fitnet"


class Refilled(Loss):
    """Which rows the embedding finds near, and the nearest class mean in it: Ye et al. 2020.

    Examples
    --------
    >>> Refilled(temperature=2.0)
    Refilled(temperature=2.0)
    """

    name = "refilled"
    temperature: Any = _TAU


class LabelsOnly(Loss):
    """Nothing: teachers are not asked.

    Examples
    --------
    >>> LabelsOnly().name
    'none'
    """

    name, torch_only = "none", False


class Own(Loss):
    """A function of yours, for networks.

    It is called as ``function(student_logits, teacher_logits, cost=cost, epsilon=epsilon,
    temperature=temperature)`` with tensors (n, K), (n, m) and (m, K), and returns a scalar or a value for
    each row (n,).

    Examples
    --------
    >>> def gap(student_logits, teacher_logits, *, cost, epsilon, temperature):
    ...     return (student_logits - teacher_logits).square().mean(dim=1)
    >>> Own(gap, temperature=1.0).name
    'gap'
    """

    checked = True
    function: Callable[..., Any] = option(function_of_yours(), "The function.")  # type: ignore[misc]
    temperature: Any = _TAU
    epsilon: Any = _EPSILON
    match_shares: Any = _MATCH

    @property
    def name(self) -> str:  # type: ignore[override]
        """What messages and files call it."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def check_options(self) -> None:
        """Raise if an option is wrong, or the function cannot be called as it will be."""
        super().check_options()
        try:
            inspect.signature(self.function).bind(None, None, cost=None, epsilon=None, temperature=None)
        except TypeError as error:
            raise InvalidInputError(
                f"loss={self.name} cannot be called as loss(student_logits, teacher_logits, cost=..., "
                f"epsilon=..., temperature=...): {error}."
            ) from None
        except ValueError:  # a builtin without a signature
            pass


LOSSES: dict[str, type[Loss]] = {one.name: one for one in (Sinkhorn, KD, RKD, FitNet, Refilled, LabelsOnly)}
"""Every loss by its short name; `consilience.distil.teacher_signal` has what students learn by each."""


class DistilOptions(Options):
    """Options of `CrossTaskDistiller`."""

    teachers: Any = option(
        anything("teacher, list, dict or Ranking"),
        "Anything that `as_teacher` takes; a list of these, or a dict by name; or the result of "
        "`rank_teachers`. None if there is nothing to learn from any.",
    )
    student: Any = option(
        STUDENT,
        "What learns; see `Unifier`. Networks and the default student are trained for 800 steps or more, "
        "without held-out rows. Give a `consilience.students.Network` to choose otherwise.",
        default=None,
    )
    loss: Any = option(
        one_of(LOSSES, Loss, "str, Loss or callable", lambda given: Own(function=given)),
        "What the teachers add: 'sinkhorn', 'kd', 'rkd', 'fitnet', 'refilled' or 'none'; one of them with "
        "options, such as ``distil.Sinkhorn(temperature=1)``; or a function of your own, see `distil.Own`. "
        "'kd' needs teachers with the student's classes. scikit-learn students can learn by 'sinkhorn', 'kd' "
        "and 'none'.",
        default="sinkhorn",
    )
    teacher_weight: Any = option(
        choice("auto", check=number(at_least=0)),
        "Weight of the teachers' part, lambda of eq. (11); 10 or 100 in the paper. 0 trains with the labels "
        "only. With 'auto' each teacher has to earn its weight on held-out labels (ours): 0, 10, 30 or 100, "
        "and for networks 0, 3, 10 or 30. A third of it counts on labelled rows; see `check`. A number is "
        "used as it is, for every teacher and on all rows.",
        default="auto",
    )
    check: Any = option(
        choice("auto", True, False),
        "Whether teachers have to earn their weight on held-out labels. A teacher is dropped unless it knows "
        "more about them than the other labels do, and makes a student better; see "
        "`consilience.distil.teacher_check`. 'auto' checks unless the weight is a number. True with a number "
        "drops teachers that do not earn this weight. Without a check, an automatic weight is 10.",
        default="auto",
    )
    cost: Any = option(
        one_of(COSTS, Cost, "str, Cost or (m, K) array", lambda given: given),  # matrices: see `make_signal`
        "Distance between the teacher's classes and yours: 'embedding', 'constant' or 'random'; one of "
        "`consilience.transport` with options, such as ``transport.Superclass(mapping)``; or your own "
        "matrix, for several teachers a list of matrices.",
        default="embedding",
    )
    random_state: Any = option(
        anything("int, RandomState or None"), "Makes the student reproducible.", default=None
    )
    run: Any = option(anything("Run or None"), "How the work is run: memory, cache, progress.", default=None)

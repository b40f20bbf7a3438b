"""Methods that make soft labels of what teachers say, each with its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from consilience.options import (
    Options,
    choice,
    count,
    flag,
    function_of_yours,
    number,
    one_of,
    option,
    optional,
    temperature,
)

_TEMPERATURE = "T of eq. (2), for the teachers' outputs and the student's alike. Predictions are at T = 1."
_NEIGHBORS = (
    "Average the soft labels over this many nearest rows of X, 0 for none. Neighbours weigh up to one half, "
    "and less if they often disagree: see docs/how/default.md."
)
_GRADIENT = "Stop when the norm of the gradient of ce is at most this."
_TOL = "Stop when the root-mean-square change of u and of v in one iteration is at most this."


class Method(Options):
    """A way to make soft labels. Its subclasses are the methods; a short name stands for one with defaults.

    Examples
    --------
    >>> from consilience.methods import CE
    >>> isinstance(CE(temperature=1.0), Method)
    True
    """

    name: ClassVar[str]
    has_loss: ClassVar[bool] = True
    """Whether a network can be trained on the method's own loss."""

    temperature: float = option(temperature(), _TEMPERATURE, default=3.0)
    n_neighbors: int | None = option(count(at_least=0), _NEIGHBORS, default=0)
    teacher_temperatures: str | None = option(
        choice(None, "agreement"),
        "'agreement' divides each teacher's logits by its own temperature first, estimated from how often "
        "the others agree with it; see `agreement_temperatures`. Use it if some teachers are surer of "
        "themselves than others, such as models of different makers.",
        default=None,
    )

    def __str__(self) -> str:
        plain = isinstance(self, Own) or repr(self) == f"{type(self).__name__}()"
        return self.name if plain else repr(self)


class SD(Method):
    """The mean of the zero-padded outputs: the naive baseline.

    Examples
    --------
    >>> SD(temperature=1.0)
    SD(temperature=1.0)
    """

    name, has_loss = "sd", False


class CE(Method):
    """Cross-entropy, eq. (9), by Newton's method.

    Examples
    --------
    >>> CE(temperature=1.0, off_set=True)
    CE(temperature=1.0, off_set=True)
    """

    name = "ce"
    off_set: bool = option(
        flag(),
        "Weight a teacher on a row by the mass that the estimate gives to its classes there. If none of them "
        "fits the row, its answer is noise, and would have a full vote. Use it if each teacher knows a small "
        "part of the classes.",
        default=False,
    )
    tol: float = option(number(above=0), _GRADIENT, default=1e-8)
    max_iter: int = option(count(), "Most iterations.", default=200)


class MFP(Method):
    """Matrix factorisation of probabilities: Algorithm 1.

    Examples
    --------
    >>> MFP(max_iter=100)
    MFP(max_iter=100)
    """

    name = "mf-p"
    tol: float = option(number(above=0), _TOL, default=1e-3)
    max_iter: int = option(count(), "Most iterations.", default=3000)


class MFLV(Method):
    """Matrix factorisation of logits with v, Algorithm 2: alternating least squares.

    Examples
    --------
    >>> MFLV(ridge=0.1)
    MFLV(ridge=0.1)
    """

    name = "mf-lv"
    tol: float = option(number(above=0), _TOL, default=1e-3)
    max_iter: int = option(count(), "Most iterations.", default=3000)
    ridge: float = option(number(above=0), "Regularisation, lambda of eq. (15).", default=0.01)


class MFLF(Method):
    """Matrix factorisation of logits with v = 1, eq. (17): least squares, in closed form.

    Examples
    --------
    >>> MFLF(n_neighbors=10)
    MFLF(n_neighbors=10)
    """

    name = "mf-lf"


class Ranks(Method):
    """Least squares on ranks over the rows, which make teachers comparable that share no class.

    Examples
    --------
    >>> Ranks(temperature=0.5)
    Ranks(temperature=0.5)
    """

    name, has_loss = "ranks", False
    temperature: float = option(temperature(), _TEMPERATURE, default=1.0)


class Auto(Method):
    """Ranks, mf-lf and ce pooled, weighted by how well each predicts a teacher from the others.

    Examples
    --------
    >>> Auto(n_neighbors=0)
    Auto(n_neighbors=0)
    """

    name = "auto"
    temperature: float = option(temperature(), _TEMPERATURE, default=1.0)
    n_neighbors: int | None = option(
        optional(count(at_least=0)),
        _NEIGHBORS + " None means 10 if X is made of numbers and the student is 'logistic' or a network.",
        default=None,
    )
    tol: float = option(number(above=0), _GRADIENT, default=1e-8)
    max_iter: int = option(count(), "Most iterations.", default=200)


class Own(Method):
    """A function of yours.

    ``function(logits, space, temperature)`` gets packed logits (n, m) in double precision, checked and
    read-only. It returns probabilities (n, L) in the order of ``space.classes``.

    Examples
    --------
    >>> Own(lambda logits, space, temperature: ..., temperature=1.0).name
    '<lambda>'
    """

    has_loss = False
    function: Callable[..., Any] = option(function_of_yours(), "The function.")  # type: ignore[misc]

    @property
    def name(self) -> str:  # type: ignore[override]
        """What messages and files call it."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


METHODS: dict[str, type[Method]] = {one.name: one for one in (Auto, Ranks, MFLF, CE, MFP, MFLV, SD)}
"""Every method by its short name; `consilience.soft_labels.solvers` has the function of each."""


METHOD = one_of(METHODS, Method, "str, Method or callable", lambda given: Own(function=given))
"""The check of an option ``method=``."""


def as_method(value: Any, name: str = "method") -> Method:
    """Return the method that an object, a short name or a function stands for, or raise if it is wrong."""
    method: Method = METHOD.run(name, value)
    return method

"""Losses between a network's logits and soft labels: collision, Shannon, generalised and Renyi.

Each is called as ``loss(logits, target)`` with logits (n, K) and soft labels (n, K) or class indices (n,),
and works in log space. Equation numbers are those of "Collision Cross-entropy for Soft Class Labels".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from consilience._validation import check_choice, check_count, check_number, check_order, check_transition
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.nn.losses import RowLoss

# Row sums of soft labels may differ from one by this much. Those of a half-precision softmax do.
_SUM_ERROR = 1e-2
# Powers and orders may be from one over this to this. Beyond, single precision overflows.
_LARGEST = 1e12
# Orders of Renyi nearer to 1 than this, other than 1 itself, lose their digits in single precision.
_NEAR_ONE = 1e-3
# No loss of a row exceeds the largest number over this, so that the sum over as many rows is finite.
_MOST_ROWS = 1e8
IGNORED = -100
"""The class index that counts for nothing, as in torch."""


class TargetLoss(RowLoss, ABC):
    """Base of the losses on soft labels: class weights, temperature, transition, row weights, reduction.

    Finite logits of any size give finite losses. To this end a logit that is too far below the largest of its
    row (3e30 times the temperature in single precision, 1e300 in double) is raised to that distance. NaN and
    infinity give NaN, as in torch.

    Parameters
    ----------
    weight : (K,) array, optional
        Weight w of each class; one by default. A row with label y counts w.y times, with w * y / w.y as its
        label. In Shannon's cross-entropy weights do just that; for one-hot labels it is the label's weight.
    temperature : float
        Divides the logits, from 1e-6 to 1e6; give the temperature at which the soft labels were made.
    reduction : {"mean", "sum", "none"}
        As in torch's ``cross_entropy``: the mean of soft labels is over rows, whatever their weights; that of
        class indices is over rows that are not ignored, weighted by `weight`. "none" gives shape (n,). The
        mean of no rows is 0.
    transition : (K, K) array, optional
        For noisy labels: ``transition[l, k]`` is the probability to observe label l if class k is true. An
        observed label l then counts as the soft label ``transition[l]``, soft labels y as ``y @ transition``.
    weighted : bool
        Whether the target's rows are labels times a weight of the row. Each loss is then that of the label
        times its weight, and a row of zeros counts for nothing. By default rows must sum to one.
    ignore_index : int
        Rows with this class index add nothing. It has no meaning for soft labels.
    check_targets : bool
        Whether to raise on targets that are no probabilities or no class indices. The check waits for the
        device once in each call. Without it, wrong targets give wrong losses.
    """

    weight: Tensor | None
    transition: Tensor | None

    def __init__(
        self,
        weight: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
        weighted: bool = False,
        *,
        ignore_index: int = IGNORED,
        check_targets: bool = True,
    ) -> None:
        super().__init__(temperature, reduction)
        check_choice("weighted", weighted, (True, False))
        check_choice("check_targets", check_targets, (True, False))
        self.weighted, self.check_targets = weighted, check_targets
        self.ignore_index = check_count("ignore_index", ignore_index, at_least=-(2**30))
        weights = None if weight is None else torch.as_tensor(weight, dtype=torch.float32)
        if weights is not None and (
            weights.ndim != 1 or not bool(((weights >= 0) & weights.isfinite()).all())
        ):
            raise InvalidInputError(
                f"weight has shape {tuple(weights.shape)}; expected (K,): "
                "a finite number of at least 0 per class."
            )
        Q = None if transition is None else torch.as_tensor(check_transition(transition))
        # not persistent: they belong to the training, not to saved weights
        self.register_buffer("weight", weights, persistent=False)
        self.register_buffer("transition", Q, persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        logits : (n, K) tensor
        target : (n, K) tensor of probabilities, or (n,) tensor of class indices
        """
        z = logits.float() if logits.dtype.itemsize < 4 else logits
        y, row_weights = self._soft(z, target)
        if self.weight is not None:
            # In Shannon's cross-entropy a weight multiplies a class's share of the label. That is to say, the
            # row counts w.y times and its label is w * y / w.y; the other losses follow this rule.
            w, tiny = self.weight.to(y.dtype), torch.finfo(y.dtype).tiny
            mass = (y @ w) / y.sum(dim=1).clamp_min(tiny)
            y, row_weights = y * w / mass.clamp_min(tiny)[:, None], mass * row_weights
        if self.transition is not None:
            y = y @ self.transition.to(z.dtype)
        # masked first: a row without weight may have an infinite loss
        rows = self._rows(self._log_softmax(z), y).masked_fill(row_weights == 0, 0.0) * row_weights
        if target.ndim == 1 and self.reduction == "mean":
            return rows.sum() / row_weights.sum().clamp_min(torch.finfo(z.dtype).tiny)
        return self.reduced(rows)

    @abstractmethod
    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row (n,) from ln sigma (n, K) and soft labels y (n, K)."""

    def _log_softmax(self, z: Tensor) -> Tensor:
        """Return ln softmax(z / T) (n, K), finite for finite logits of any size."""
        below = z - z.detach().amax(dim=1, keepdim=True)  # before the division, which could overflow
        lowest = torch.finfo(z.dtype).min / _MOST_ROWS * self.temperature
        # not clamp, which gives NaN a gradient of zero
        return torch.log_softmax(below.masked_fill(below < lowest, lowest) / self.temperature, dim=1)

    def _soft(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the target as soft labels (n, K), and the weights of the rows (n,)."""
        expected = None if self.transition is None else len(self.transition)
        if logits.ndim != 2 or (expected is not None and logits.shape[1] != expected):
            raise InvalidInputError(
                f"Logits have shape {tuple(logits.shape)}, not (n, {expected or 'K'}): a column per class."
            )
        if self.weight is not None and len(self.weight) != logits.shape[1]:
            raise InvalidInputError(f"weight has {len(self.weight)} entries for {logits.shape[1]} classes.")
        if target.ndim == 1 and not target.is_floating_point() and len(target) == len(logits):
            return self._one_hot(target, logits)
        if target.shape != logits.shape:
            raise InvalidInputError(
                f"Logits have shape {tuple(logits.shape)} and soft labels {tuple(target.shape)}; "
                "both must be (n, K), or the target (n,) class indices."
            )
        y = target.to(logits.dtype)
        mass = y.sum(dim=1)
        if self.check_targets:
            self._check_labels(y, mass)
        if not self.weighted:
            return y, torch.ones_like(mass)
        return y / torch.where(mass > 0, mass, 1.0)[:, None], mass

    def _one_hot(self, target: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return class indices (n,) as rows of zeros and a one, and which rows count: 0 or 1 each."""
        n_classes, target = logits.shape[1], target.long()
        counted_rows = target != self.ignore_index
        if self.check_targets:
            wrong = counted_rows & ((target < 0) | (target >= n_classes))
            if bool(wrong.any()):
                found = target[counted_rows]
                raise InvalidInputError(
                    f"Class indices run from {int(found.min())} to {int(found.max())}; "
                    f"expected 0 to {n_classes - 1}, or ignore_index={self.ignore_index}."
                )
        counts = counted_rows.to(logits.dtype)
        places = target.masked_fill(~counted_rows, 0)[:, None]
        # not one_hot, which would check the indices again
        return torch.zeros_like(logits).scatter(1, places, counts[:, None]), counts

    def _check_labels(self, y: Tensor, mass: Tensor) -> None:
        """Raise unless the rows of y (n, K) are labels."""
        # NaN fails both tests
        sums = mass.isfinite() if self.weighted else (mass - 1).abs() <= _SUM_ERROR
        wrong = ~((y >= 0).all(dim=1) & sums)
        if not bool(wrong.any()):  # the device is asked once
            return
        row = int(wrong.nonzero()[0])
        values = y[row].detach()
        bad = values[~((values >= 0) & values.isfinite())]
        problem = f"have {float(bad[0]):g}" if len(bad) else f"sum to {float(mass[row]):g}"
        expected = (
            "finite numbers of at least 0."
            if self.weighted
            else "probabilities, which sum to 1. If these are logits, apply softmax. If rows have weights, "
            "make the loss with {remedy}."
        )
        raise InvalidInputError(
            f"Soft labels {problem} in row {row} ({counted(int(wrong.sum()), 'such row')}); "
            f"expected {expected}",
            remedy=("weighted", True),
        )


def _check_power(name: str, value: float, *, or_zero: bool = False) -> float:
    """Return a power or an order, or raise unless single precision can compute with it."""
    number = check_number(name, value)
    if not (1 / _LARGEST <= number <= _LARGEST or (or_zero and number == 0)):
        raise InvalidInputError(
            f"{{argument}} must be {'0, or ' if or_zero else ''}from {1 / _LARGEST:g} to {_LARGEST:g}.",
            argument=name,
            value=value,
        )
    return number


class SoftCrossEntropy(TargetLoss):
    r"""Shannon's cross-entropy between soft labels and the student, with a weight per class.

    .. math:: J = -\sum_l w_l \, q_l \log \mathrm{softmax}(s / T)_l

    The weights are those of Sec. 3.5.2 of "Unifying Heterogeneous Classifiers": one over the mean of q(l)
    over the transfer set.

    Parameters
    ----------
    weight, temperature, reduction, transition, weighted, ignore_index, check_targets
        See `TargetLoss`.

    Examples
    --------
    >>> import torch
    >>> round(SoftCrossEntropy()(torch.zeros(1, 2), torch.tensor([[0.5, 0.5]])).item(), 4)
    0.6931
    """

    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        return _sum(-log_sigma, y)


class GeneralisedCrossEntropy(TargetLoss):
    r"""The generalised cross-entropy of Zhang and Sabuncu (2018), for soft labels too.

    .. math:: J = \sum_k y_k (1 - \sigma_k^q) / q

    Parameters
    ----------
    q : float
        Above 0: towards 0 it is Shannon's cross-entropy, at 1 the mean absolute error. 0.7 is their choice.
    weight, temperature, reduction, transition, weighted, ignore_index, check_targets
        See `TargetLoss`.

    Examples
    --------
    >>> import torch
    >>> GeneralisedCrossEntropy(1.0)(torch.zeros(1, 2), torch.tensor([0])).item()
    0.5
    """

    def __init__(
        self,
        q: float = 0.7,
        weight: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
        weighted: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(weight, temperature, reduction, transition, weighted, **options)
        self.q = _check_power("q", q)

    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        return _sum(-torch.expm1(self.q * log_sigma) / self.q, y)


class RenyiCrossEntropy(TargetLoss):
    r"""The Renyi cross-entropy of order alpha; see `consilience.collision.entropy.renyi_cross_entropy`.

    .. math:: J = \frac{1}{1 - \alpha} \ln \sum_k y_k \sigma_k^{\alpha - 1}

    Parameters
    ----------
    alpha : float
        Above 0: 1 is Shannon's cross-entropy, 2 the collision cross-entropy.
    weight, temperature, reduction, transition, weighted, ignore_index, check_targets
        See `TargetLoss`.

    Examples
    --------
    >>> import torch
    >>> logits, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.7, 0.3]])
    >>> (RenyiCrossEntropy(2.0)(logits, y) == CollisionCrossEntropy()(logits, y)).item()
    True
    """

    def __init__(
        self,
        alpha: float = 2.0,
        weight: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
        weighted: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(weight, temperature, reduction, transition, weighted, **options)
        self.alpha = check_order(_check_power("alpha", alpha), _NEAR_ONE)

    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        if self.alpha == 1.0:
            return _sum(-log_sigma, y)
        return _log_sum((self.alpha - 1.0) * log_sigma, y) / (1.0 - self.alpha)


class CollisionCrossEntropy(TargetLoss):
    r"""Minus the log-probability that predicted and true class collide, or its generalised form.

    .. math:: p = \sum_k y_k \sigma_k, \qquad J = -\ln p \ (q = 0), \quad J = (1 - p^q) / q \ (q > 0)

    Eq. (9). Equal to Shannon's cross-entropy for one-hot labels; a uniform label has no gradient; bounded for
    labels that rule no class out. With ``transition`` it is the forward correction for noisy labels (Sec. 3).

    Parameters
    ----------
    q : float
        At least 0: 0 is the collision cross-entropy, 1 one minus the collision probability. The more noise in
        the labels, the more a larger q helps; it is bounded by 1 / q.
    weight, temperature, reduction, transition, weighted, ignore_index, check_targets
        See `TargetLoss`.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0, -1.0]])
    >>> round(CollisionCrossEntropy()(logits, torch.tensor([0])).item(), 4)  # as Shannon's
    0.1698
    >>> round(CollisionCrossEntropy()(logits, torch.full((1, 3), 1 / 3)).item(), 4)  # log 3 for any logits
    1.0986
    """

    def __init__(
        self,
        q: float = 0.0,
        weight: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
        weighted: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(weight, temperature, reduction, transition, weighted, **options)
        self.q = _check_power("q", q, or_zero=True)

    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        log_p = _log_sum(log_sigma, y)
        return -torch.expm1(self.q * log_p) / self.q if self.q else -log_p


def _sum(terms: Tensor, y: Tensor) -> Tensor:
    """Return sum_k y_k terms_k (n,); a class with y_k = 0 counts for nothing, however large its term."""
    return (y * terms.masked_fill(y == 0, 0.0)).sum(dim=1)


def _log_sum(terms: Tensor, y: Tensor) -> Tensor:
    """Return ln sum_k y_k exp(terms_k) (n,), minus infinity without a gradient where y has no mass."""
    possible = y > 0
    log_y = torch.where(possible, y, 1.0).log()
    empty = ~possible.any(dim=1)
    # the rows without mass are masked before the sum: the gradient of a log-sum over nothing is NaN
    joint = (terms + log_y).masked_fill(~possible & ~empty[:, None], -math.inf)
    return torch.logsumexp(joint, dim=1).masked_fill(empty, -math.inf)

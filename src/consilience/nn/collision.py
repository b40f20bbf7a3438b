"""Losses between a network's logits and soft labels: collision, Shannon, generalised and Renyi.

Each is called as ``loss(logits, target)`` with logits (n, K) and soft labels (n, K) or class indices (n,),
and works in log space. Equation numbers are those of "Collision Cross-entropy for Soft Class Labels".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from consilience._validation import check_choice, check_number, check_transition
from consilience.exceptions import InvalidInputError
from consilience.nn.losses import REDUCTIONS


class TargetLoss(nn.Module, ABC):
    """Base of the losses on soft labels: class weights, temperature, transition and reduction.

    Parameters
    ----------
    class_weights : (K,) array, optional
        Weight of each class; one by default. A row with label y counts w.y times, with w * y / w.y as its
        label: what weights do in Shannon's cross-entropy, and for one-hot labels the label's own weight.
    temperature : float
        Divides the logits; give the temperature at which the soft labels were made.
    reduction : {"mean", "sum", "none"}
        The mean is over rows, whatever their weights; "none" gives shape (n,).
    transition : (K, K) array, optional
        For noisy labels: ``transition[l, k]`` is the probability to observe label l where class k is true. An
        observed label l then counts as the soft label ``transition[l]``, soft labels y as ``y @ transition``.
    """

    class_weights: Tensor | None
    transition: Tensor | None

    def __init__(
        self,
        class_weights: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
    ) -> None:
        super().__init__()
        self.temperature = check_number("temperature", temperature, above=0)
        check_choice("reduction", reduction, REDUCTIONS)
        self.reduction = reduction
        weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
        if weights is not None and (
            weights.ndim != 1 or not bool(((weights >= 0) & weights.isfinite()).all())
        ):
            raise InvalidInputError(
                f"class_weights have shape {tuple(weights.shape)}; expected (K,): "
                "a finite weight of at least 0 per class."
            )
        Q = None if transition is None else torch.as_tensor(check_transition(transition))
        # not persistent: they belong to the training and not in saved weights
        self.register_buffer("class_weights", weights, persistent=False)
        self.register_buffer("transition", Q, persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        logits : (n, K) tensor
        target : (n, K) tensor of probabilities, or (n,) tensor of class indices
        """
        z = logits.float() if logits.dtype.itemsize < 4 else logits
        y, mass = self._weighted(self._soft(z, target))
        if self.transition is not None:
            y = y @ self.transition.to(z.dtype)
        rows = self._rows(torch.log_softmax(z / self.temperature, dim=1), y)
        if mass is not None:
            # masked first: a row without weight may have an infinite loss
            rows = rows.masked_fill(mass == 0, 0.0) * mass
        if self.reduction == "none":
            return rows
        return rows.sum() if self.reduction == "sum" else rows.sum() / max(len(rows), 1)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        return f"temperature={self.temperature:g}, reduction={self.reduction!r}"

    @abstractmethod
    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row (n,) from ln sigma (n, K) and soft labels y (n, K)."""

    def _weighted(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the labels after weighting, of the same mass as before, and the weight (n,) of each row.

        In Shannon's cross-entropy a weight multiplies a class's share of the label. That is to say, the row
        counts w.y times and its label is w * y / w.y; the other losses follow this rule.
        """
        if self.class_weights is None:
            return y, None
        w = self.class_weights.to(y.dtype)
        if len(w) != y.shape[1]:
            raise InvalidInputError(f"There are {len(w)} class_weights for {y.shape[1]} classes.")
        tiny = torch.finfo(y.dtype).tiny
        mass = (y @ w) / y.sum(dim=1).clamp_min(tiny)
        return y * w / mass.clamp_min(tiny)[:, None], mass

    def _soft(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the target as soft labels (n, K)."""
        expected = None if self.transition is None else len(self.transition)
        if logits.ndim != 2 or (expected is not None and logits.shape[1] != expected):
            raise InvalidInputError(
                f"Logits have shape {tuple(logits.shape)}, not (n, {expected or 'K'}): a column per class."
            )
        if target.ndim == 1 and not target.is_floating_point() and len(target) == len(logits):
            n_classes = logits.shape[1]
            if len(target) and not (int(target.min()) >= 0 and int(target.max()) < n_classes):
                raise InvalidInputError(
                    f"Class indices run from {int(target.min())} to {int(target.max())}; "
                    f"expected 0 to {n_classes - 1}."
                )
            return nn.functional.one_hot(target.long(), n_classes).to(logits.dtype)
        if target.shape != logits.shape:
            raise InvalidInputError(
                f"Logits have shape {tuple(logits.shape)} and soft labels {tuple(target.shape)}; "
                "both must be (n, K), or the target (n,) class indices."
            )
        return target.to(logits.dtype)


class SoftCrossEntropy(TargetLoss):
    r"""Shannon's cross-entropy between soft labels and the student, with a weight per class.

    .. math:: J = -\sum_l w_l \, q_l \log \mathrm{softmax}(s / T)_l

    The weights are those of Sec. 3.5.2 of "Unifying Heterogeneous Classifiers": one over the mean of q(l)
    over the transfer set.

    Parameters
    ----------
    class_weights, temperature, reduction, transition
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
    class_weights, temperature, reduction, transition
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
        class_weights: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
    ) -> None:
        super().__init__(class_weights, temperature, reduction, transition)
        self.q = check_number("q", q, above=0)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        return f"q={self.q:g}, {super().extra_repr()}"

    def _rows(self, log_sigma: Tensor, y: Tensor) -> Tensor:
        return _sum(-torch.expm1(self.q * log_sigma) / self.q, y)


class RenyiCrossEntropy(TargetLoss):
    r"""The Renyi cross-entropy of order alpha; see `consilience.collision.entropy.renyi_cross_entropy`.

    .. math:: J = \frac{1}{1 - \alpha} \ln \sum_k y_k \sigma_k^{\alpha - 1}

    Parameters
    ----------
    alpha : float
        Above 0: 1 is Shannon's cross-entropy, 2 the collision cross-entropy.
    class_weights, temperature, reduction, transition
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
        class_weights: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
    ) -> None:
        super().__init__(class_weights, temperature, reduction, transition)
        self.alpha = check_number("alpha", alpha, above=0)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        return f"alpha={self.alpha:g}, {super().extra_repr()}"

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
    class_weights, temperature, reduction, transition
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
        class_weights: ArrayLike | None = None,
        temperature: float = 1.0,
        reduction: str = "mean",
        transition: ArrayLike | None = None,
    ) -> None:
        super().__init__(class_weights, temperature, reduction, transition)
        self.q = check_number("q", q, at_least=0)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        return f"q={self.q:g}, {super().extra_repr()}"

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

"""The Sinkhorn distance between a student's and a teacher's predictions, as a loss.

Equation numbers are those of "Selective Cross-Task Distillation".
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from consilience._validation import (
    check_choice,
    check_cost,
    check_count,
    check_number,
    check_sharpness,
    check_temperature,
)
from consilience._words import counted
from consilience.exceptions import ConvergenceWarning, InvalidInputError
from consilience.kernels.transport import sinkhorn as kernels
from consilience.nn import _sinkhorn as twin
from consilience.nn._base import REDUCTIONS

GRADIENTS = ("dual", "unrolled")


class SinkhornLoss(nn.Module):
    r"""The Sinkhorn distance between a student's and a teacher's predictions. Their classes may differ.

    .. math:: S_\epsilon(p_T, p_S) = \min_{T \in \Pi(p_T, p_S)} \langle T, M \rangle - \epsilon H(T)

    This is eq. (5), with the predictions of eq. (10) at a temperature. It is the second term of eq. (11): add
    the loss on labels, and weight this one. As in the paper, there is no factor of the squared temperature.

    Parameters
    ----------
    cost : (m, k) array
        M, the cost of moving mass from each class of the teacher to each class of the student; see
        `consilience.cost_matrix`. It is a buffer of the module: it moves with ``.to`` and is saved with it.
        It is in double precision, or in single precision after ``.float()``, ``.half()`` or ``.bfloat16()``:
        half precision would change the costs.
    epsilon : float or "auto"
        How smooth the plan is, in units of the cost. "auto" is half the standard deviation of the cost.
    temperature : float
        Divides the student's and the teacher's logits.
    reduction : {"mean", "sum", "none"}
        The mean is over the rows where the teacher does not abstain. "none" returns shape (n,).
    regularizer : {"entropy", "kl"}
        As in `consilience.sinkhorn`. The plans are the same, but the gradients differ: "entropy" also pulls
        the student towards uniform predictions, by epsilon; "kl" does not.
    gradient : {"dual", "unrolled"}
        "dual" is Prop. 4.2: the dual beta is the gradient. It stores nothing of the iterations, and the loss
        can be differentiated once. "unrolled" differentiates through plain iterations (Alg. 3). Use it to
        stop early, by `max_iter`, and get the gradient of exactly what was computed; it does not warn when
        it stops. It needs memory for each iteration, and starts from scratch each time.
    tol : float
        Tolerance on the L1 error of the plans' marginals.
    max_iter : int
        Stop after this many iterations; with the gradient "dual", warn.
    n_samples : int, optional
        Remember the duals of this many samples, and start from them when ``forward`` gets their indices.
        Only for the gradient "dual".

    Examples
    --------
    >>> import torch
    >>> loss = SinkhornLoss([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], epsilon=0.1)
    >>> student = torch.zeros(4, 2, requires_grad=True)
    >>> loss(student, torch.tensor([[3.0, 0.0, 0.0]] * 4)).backward()
    >>> bool((student.grad[:, 0] < student.grad[:, 1]).all())  # towards the class near the teacher's first
    True
    """

    cost: Tensor
    duals: Tensor | None
    # Options that a warning may tell the user to change; an estimator that has fewer sets this.
    adjustable: tuple[str, ...] = ("max_iter", "epsilon", "tol")

    def __init__(
        self,
        cost: ArrayLike,
        epsilon: float | str = "auto",
        temperature: float = 3.0,
        reduction: str = "mean",
        *,
        regularizer: str = "entropy",
        gradient: str = "dual",
        tol: float = 1e-6,
        max_iter: int = 10_000,
        n_samples: int | None = None,
    ) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)
        check_choice("reduction", reduction, REDUCTIONS)
        check_choice("regularizer", regularizer, kernels.REGULARISERS)
        check_choice("gradient", gradient, GRADIENTS)
        self.reduction, self.regularizer, self.gradient = reduction, regularizer, gradient
        self.tol, self.max_iter = check_number("tol", tol, above=0), check_count("max_iter", max_iter)
        if isinstance(epsilon, str):
            check_choice("epsilon", epsilon, ("auto",))
        self._epsilon = epsilon if isinstance(epsilon, str) else check_number("epsilon", epsilon, above=0)
        on_cpu = cost.detach().cpu() if isinstance(cost, Tensor) else cost
        matrix = torch.from_numpy(check_cost(on_cpu).copy())
        self.register_buffer("cost", matrix.to(cost.device) if isinstance(cost, Tensor) else matrix)
        check_sharpness(self.epsilon, matrix.numpy())
        count = None if n_samples is None else check_count("n_samples", n_samples)
        if count is not None and gradient == "unrolled":
            raise InvalidInputError(
                "{argument} remembers duals to start from, but gradient='unrolled' cannot use them. Leave "
                "one of the two out.",
                argument="n_samples",
                value=count,
            )
        duals = None if count is None else self.cost.new_full((count, matrix.shape[1]), np.nan)
        # not persistent, because the duals belong to the samples of one training run
        self.register_buffer("duals", duals, persistent=False)

    @property
    def epsilon(self) -> float:
        """The epsilon in use. "auto" follows the cost."""
        if isinstance(self._epsilon, str):
            return kernels.automatic_epsilon(self.cost.double().cpu().numpy())
        return self._epsilon

    def _apply(self, fn: Any, recurse: bool = True) -> SinkhornLoss:
        """Move and convert like any module, but keep costs and duals in at least single precision."""
        before = {"cost": self.cost, "duals": self.duals}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = getattr(self, name)
            if old is not None and new.dtype.itemsize < 4:
                setattr(self, name, old.to(new.device, torch.float32))
        return self

    def forward(self, input: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:  # noqa: A002
        """Return the loss of a batch.

        Parameters
        ----------
        input : (n, k) tensor
            The student's logits. Minus infinity excludes a class. NaN or infinity, from a training run that
            has diverged, is an error.
        target : (n, m) tensor
            The teacher's logits. A row of NaN means that the teacher abstains; such rows are ignored.
        index : (n,) tensor of int, optional
            The numbers of these samples, from 0, to start from their duals (with `n_samples`).
        """
        answered = self._check(input, target)
        index = None if index is None else self._check_index(index, len(input))
        z = input.float() if input.dtype.itemsize < 4 else input
        chosen = slice(None) if answered is None else answered
        p_T = torch.softmax(target.detach()[chosen].to(z.dtype) / self.temperature, dim=1)
        rows = self._distances(z[chosen], p_T, None if index is None else index[chosen])
        if self.reduction != "none":
            return rows.sum() if self.reduction == "sum" else rows.sum() / max(len(rows), 1)
        return rows if answered is None else z.new_zeros(len(z)).masked_scatter(answered, rows)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        m, k = self.cost.shape
        return (
            f"{m} to {k} classes, epsilon={self.epsilon:g}, temperature={self.temperature:g}, "
            f"reduction={self.reduction!r}, regularizer={self.regularizer!r}, gradient={self.gradient!r}"
        )

    def _check(self, input: Tensor, target: Tensor) -> Tensor | None:  # noqa: A002
        """Check the logits; return the rows where the teacher answers, or None if it always does."""
        m, k = self.cost.shape
        for whose, logits in (("Student", input), ("Teacher", target)):
            if not isinstance(logits, Tensor) or not logits.is_floating_point():
                kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
                raise InvalidInputError(f"{whose} logits have type {kind}; give a tensor of floats.")
        given = (tuple(input.shape), tuple(target.shape))
        n = given[0][0] if given[0] else 0
        if given != ((n, k), (n, m)):
            raise InvalidInputError(
                f"Student logits have shape {given[0]} and teacher logits {given[1]}; "
                f"expected (n, {k}) and (n, {m}), because the cost is {m} by {k}."
            )
        finite = target.isfinite().all(dim=1)
        silent = None if bool(finite.all()) else target.isnan().all(dim=1)
        if silent is not None:
            _refuse("Teacher", ~finite & ~silent, ", or NaN in the whole row where the teacher abstains")
        # minus infinity excludes a class, but one class must be left
        wrong = ~input.detach().amax(dim=1).isfinite()
        _refuse("Student", wrong if silent is None else wrong & ~silent, "; a lower learning rate may help")
        return None if silent is None else ~silent

    def _check_index(self, index: Tensor, n: int) -> Tensor:
        """Return positions (n,) among the duals, or raise."""
        if self.duals is None or not isinstance(index, Tensor) or index.shape != (n,):
            shape = (
                f"shape {tuple(index.shape)}" if isinstance(index, Tensor) else f"type {type(index).__name__}"
            )
            raise InvalidInputError(
                f"index has {shape} and n_samples is {None if self.duals is None else len(self.duals)}; "
                f"give a tensor ({n},), one index per row, and {{remedy}} the number of samples when making "
                "the loss.",
                remedy="n_samples",
            )
        if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise InvalidInputError(f"index has type {index.dtype}; give whole numbers.")
        places = index.to(self.duals.device, torch.int64)
        wrong = places[(places < 0) | (places >= len(self.duals))]
        if len(wrong):
            raise InvalidInputError(
                f"index has {int(wrong[0])}; expected 0 to {len(self.duals) - 1}, because n_samples is "
                f"{len(self.duals)}."
            )
        return places

    def _distances(self, z: Tensor, p_T: Tensor, index: Tensor | None) -> Tensor:
        """Return the distance of each row (n,) from student logits."""
        if self.gradient == "unrolled":
            p_S, kl = torch.softmax(z / self.temperature, dim=1), self.regularizer == "kl"
            return twin.unrolled(p_T, p_S, self.cost, self.epsilon, self.tol, self.max_iter, kl)
        start = None if index is None else cast(Tensor, self.duals)[index]
        rows, beta = cast(Any, _Distance).apply(z, p_T, self, start)
        if index is not None and self.training:
            cast(Tensor, self.duals)[index] = beta.to(self.cost.dtype)
        return cast(Tensor, rows)


def _refuse(whose: str, wrong: Tensor, hint: str) -> None:
    """Raise if some rows (n,) are wrong."""
    if bool(wrong.any()):
        raise InvalidInputError(
            f"{whose} logits are not finite in row {int(wrong.nonzero()[0])} "
            f"({counted(int(wrong.sum()), 'such row')}). "
            f"Give finite numbers{hint}."
        )


class _Distance(torch.autograd.Function):
    """The distance of each row. Its gradient follows from the dual beta (Prop. 4.2).

    Only the gradient of eq. (15) is saved: no iterations, and no predictions of the student.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, p_T: Tensor, loss: SinkhornLoss, start: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        p_S = torch.softmax(z / loss.temperature, dim=1)
        solved = twin.solve(p_T, p_S, loss.cost, loss.epsilon, loss.tol, loss.max_iter, start)
        message = kernels.shortfall(
            solved.residual.cpu().numpy(),
            solved.n_iter.cpu().numpy(),
            loss.tol,
            loss.max_iter,
            loss.adjustable,
        )
        if message:
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        value, gradient = solved.value, solved.beta
        if loss.regularizer == "kl":
            value, gradient = twin.to_kl(p_T, p_S, loss.epsilon, value, gradient)
        gradient = gradient.to(z.dtype)
        mean = (gradient * p_S).sum(dim=1, keepdim=True)
        ctx.save_for_backward((gradient - mean) * p_S / loss.temperature)
        ctx.mark_non_differentiable(solved.beta)
        return value.to(z.dtype), solved.beta

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
        if torch.is_grad_enabled():  # create_graph=True would be wrong without the derivative of beta
            raise InvalidInputError(
                "SinkhornLoss with {argument} can be differentiated once, but create_graph=True asks for "
                "more. Use {remedy}.",
                argument="gradient",
                value="dual",
                remedy=("gradient", "unrolled"),
            )
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None, None

"""The Sinkhorn distance between a student's and a teacher's predictions, as a loss.

Equation numbers are those of "Selective Cross-Task Distillation". The iterations are those of the numpy
kernel: tensors of other devices are solved on the CPU, and come back as a value and a gradient.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from consilience._validation import check_choice, check_cost, check_count, check_epsilon, check_number
from consilience._words import counted
from consilience.exceptions import ConvergenceWarning, InvalidInputError, warn
from consilience.kernels.transport import sinkhorn as kernels
from consilience.nn.losses import RowLoss, check_logits


class SinkhornLoss(RowLoss):
    r"""The Sinkhorn distance between a student's and a teacher's predictions. Their classes may differ.

    .. math:: S_\epsilon(p_T, p_S) = \min_{T \in \Pi(p_T, p_S)} \langle T, M \rangle - \epsilon H(T)

    This is eq. (5), with the predictions of eq. (10) at a temperature. It is the second term of eq. (11): add
    the loss on labels, and weight this one. As in the paper, there is no factor of the squared temperature.

    The gradient is Prop. 4.2: the dual beta. Nothing is stored of the iterations, and the loss can be
    differentiated once.

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
    tol : float
        Tolerance on the L1 error of the plans' marginals.
    max_iter : int
        Stop after this many iterations, and warn.

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
        tol: float = 1e-6,
        max_iter: int = 10_000,
    ) -> None:
        super().__init__(temperature, reduction)
        check_choice("regularizer", regularizer, kernels.REGULARISERS)
        self.regularizer = regularizer
        self.tol, self.max_iter = check_number("tol", tol, above=0), check_count("max_iter", max_iter)
        self._epsilon = epsilon
        on_cpu = cost.detach().cpu() if isinstance(cost, Tensor) else cost
        matrix = torch.from_numpy(check_cost(on_cpu).copy())
        self.register_buffer("cost", matrix.to(cost.device) if isinstance(cost, Tensor) else matrix)
        check_epsilon(epsilon, matrix.numpy())

    @property
    def epsilon(self) -> float:
        """The epsilon in use. "auto" follows the cost."""
        return check_epsilon(self._epsilon, self.cost.double().cpu().numpy())

    def _apply(self, fn: Any, recurse: bool = True) -> SinkhornLoss:
        """Move and convert like any module, but keep the cost in at least single precision."""
        before = self.cost
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.cost.dtype.itemsize < 4:
            self.cost = before.to(self.cost.device, torch.float32)
        return self

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002
        """Return the loss of a batch.

        Parameters
        ----------
        input : (n, k) tensor
            The student's logits. Minus infinity excludes a class. NaN or infinity, from a training run that
            has diverged, is an error.
        target : (n, m) tensor
            The teacher's logits. A row of NaN means that the teacher abstains; such rows are ignored.
        """
        check_logits(input, target, self.cost.shape[1], self.cost.shape[0])
        answered = ~target.isnan().all(dim=1)
        wrong = answered & ~target.isfinite().all(dim=1)
        _refuse("Teacher", wrong, ", or NaN in the whole row where the teacher abstains")
        # minus infinity excludes a class, but one class must be left
        wrong = answered & ~input.detach().amax(dim=1).isfinite()
        _refuse("Student", wrong, "; a lower learning rate may help")
        z = input.float() if input.dtype.itemsize < 4 else input
        chosen = slice(None) if bool(answered.all()) else answered  # saves no mask
        p_T = torch.softmax(target.detach()[chosen].to(z.dtype) / self.temperature, dim=1)
        rows = cast(Any, _Distance).apply(z[chosen], p_T, self)
        if self.reduction == "none":
            return z.new_zeros(len(z)).masked_scatter(answered, rows)
        return self.reduced(rows)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``."""
        m, k = self.cost.shape
        return f"{m} to {k} classes, epsilon={self.epsilon:g}, {super().extra_repr()}"


def _refuse(whose: str, wrong: Tensor, hint: str) -> None:
    """Raise if some rows (n,) are wrong."""
    if bool(wrong.any()):
        raise InvalidInputError(
            f"{whose} logits are not finite in row {int(wrong.nonzero()[0])} "
            f"({counted(int(wrong.sum()), 'such row')}). Give finite numbers{hint}."
        )


class _Distance(torch.autograd.Function):
    """The distance of each row. Its gradient follows from the dual beta (Prop. 4.2).

    Only the gradient of eq. (15) is saved: no iterations, and no predictions of the student.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, p_T: Tensor, loss: SinkhornLoss) -> Tensor:
        p_S = torch.softmax(z / loss.temperature, dim=1)
        a, b = (p.detach().cpu().double() for p in (p_T, p_S))
        # float32 rows sum to one only up to 1e-7; if two sums differ, no exact plan exists
        a, b = a / a.sum(dim=1, keepdim=True), b / b.sum(dim=1, keepdim=True)
        cost, epsilon = loss.cost.detach().cpu().double().numpy(), loss.epsilon
        solved = kernels.solve(a.numpy(), b.numpy(), cost, epsilon, loss.tol, loss.max_iter)
        message = kernels.shortfall(solved.residual, solved.n_iter, loss.tol, loss.max_iter, loss.adjustable)
        if message:
            warn(ConvergenceWarning(message))
        value, gradient = torch.from_numpy(solved.value), torch.from_numpy(solved.beta)
        if loss.regularizer == "kl":
            # epsilon KL(T || a b^T) in place of the entropy; beta is the c-transform where b is zero
            value = value + epsilon * (1 - torch.xlogy(a, a).sum(dim=1) - torch.xlogy(b, b).sum(dim=1))
            gradient = gradient - epsilon * b.where(b > 0, 1.0).log()
        slope = gradient.to(z) - (gradient.to(z) * p_S).sum(dim=1, keepdim=True)
        ctx.save_for_backward(slope * p_S / loss.temperature)
        return value.to(z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled():  # create_graph=True would be wrong without the derivative of beta
            raise InvalidInputError(
                "SinkhornLoss can be differentiated once, but create_graph=True asks for more. Leave it out."
            )
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None

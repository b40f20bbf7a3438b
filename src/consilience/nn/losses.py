"""Losses that train a student on the teachers' outputs directly, without soft labels in between.

They are the backprop variants of "Unifying Heterogeneous Classifiers with Distillation", Sec. 3.5.1. The
student's output takes the place of u in a method's objective. The other variables are solved in closed form
with u fixed, and the value is backpropagated through u. By the envelope theorem the derivative of
min_v J(u, v) is that of J(u, v*) with v* held fixed. So v* is detached: the gradient is exact, and the graph
is short.

Each loss is called as ``loss(student_logits, packed_logits)`` with shapes (n, L) and (n, m).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from consilience._validation import check_choice, check_number, check_temperature
from consilience.exceptions import InvalidInputError
from consilience.labels import LabelSpace

# How far below the largest of its block a logit may be: its square is still far from overflow in float32.
LOWEST = -1e15


REDUCTIONS = ("mean", "sum", "none")


class RowLoss(nn.Module):
    """Base of losses that have a value per row.

    Parameters
    ----------
    temperature : float
        Divides logits; from 1e-6 to 1e6.
    reduction : {"mean", "sum", "none"}
    """

    def __init__(self, temperature: float, reduction: str) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)
        check_choice("reduction", reduction, REDUCTIONS)
        self.reduction = reduction

    def reduced(self, rows: Tensor, count: Any = None) -> Tensor:
        """Return the losses of rows (n,), or their sum, or their mean over `count`; of no rows it is 0."""
        if self.reduction == "none":
            return rows
        total = rows.sum()
        return total if self.reduction == "sum" else total / max(len(rows) if count is None else count, 1)

    def extra_repr(self) -> str:
        """Describe the loss in ``repr``: its options that are numbers or texts."""
        public = [name for name in vars(self) if name != "training" and not name.startswith("_")]
        options = {name: getattr(self, name) for name in public}
        return ", ".join(f"{k}={v!r}" for k, v in options.items() if isinstance(v, int | float | str))


def check_logits(student: Any, teacher: Any, n_classes: int, n_columns: int) -> None:
    """Raise unless these are the logits (n, n_classes) of a student and (n, n_columns) of its teachers."""
    for whose, logits in (("Student", student), ("Teacher", teacher)):
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidInputError(f"{whose} logits have type {kind}; give a tensor of floats.")
    given, rows = (tuple(student.shape), tuple(teacher.shape)), student.shape[:1]
    if given != ((*rows, n_classes), (*rows, n_columns)):
        raise InvalidInputError(
            f"Student logits have shape {given[0]} and teacher logits {given[1]}; expected (n, {n_classes}) "
            f"and (n, {n_columns}): a row per sample, a column per class of the student, or of each teacher."
        )


class PackedLoss(RowLoss, ABC):
    """Base of the losses on packed teacher logits: the layout, abstentions and the reduction.

    Both sides are divided by the temperature. A teacher with NaN in its block of a row abstains there and is
    left out of that row. A row on which all abstain has a loss of zero. A logit that is more than 1e15 below
    the largest of its block, at the temperature, is raised to that: its square would overflow.

    Parameters
    ----------
    space : LabelSpace
        Where each teacher's columns are. Student columns are in the order of ``space.classes``.
    temperature : float
        Divides the student's and the teachers' logits; from 1e-6 to 1e6. The paper uses 3.
    reduction : {"mean", "sum", "none"}
        The mean is over the rows on which at least one teacher answers; "none" gives shape (n,).
    """

    columns: Tensor
    owner: Tensor
    sizes: Tensor

    def __init__(self, space: LabelSpace, temperature: float = 3.0, reduction: str = "mean") -> None:
        super().__init__(temperature, reduction)
        self.n_classes, self.n_teachers = space.n_classes, space.n_teachers
        sizes = torch.as_tensor(space.offsets[1:] - space.offsets[:-1], dtype=torch.int64)
        # Not persistent: they follow from the label space, and saved weights need not have them.
        self.register_buffer("columns", torch.as_tensor(space.columns, dtype=torch.int64), persistent=False)
        self.register_buffer("owner", torch.arange(len(sizes)).repeat_interleave(sizes), persistent=False)
        self.register_buffer("sizes", sizes, persistent=False)

    def forward(self, student_logits: Tensor, packed_logits: Tensor) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        student_logits : (n, L) tensor
            The student's output, a column per class of the label space.
        packed_logits : (n, m) tensor
            The teachers' logits, teacher after teacher; NaN in a block where its teacher abstains.
        """
        check_logits(student_logits, packed_logits, self.n_classes, len(self.columns))
        active = self._active(packed_logits)
        # Squares of logits overflow in half precision.
        u = student_logits.float() if student_logits.dtype.itemsize < 4 else student_logits
        # Masked before any arithmetic: the gradient of 0 * NaN would be NaN.
        z = packed_logits.masked_fill(~self._spread(active), 0.0)
        # No loss depends on a shift of a teacher's logits. Removing it before the cast keeps the digits.
        z = ((z - self._block_max(z)).to(u.dtype) / self.temperature).clamp_min(LOWEST)
        rows = self._rows(u / self.temperature, z, active)
        return self.reduced(rows, active.any(dim=1).sum())

    @abstractmethod
    def _rows(self, u: Tensor, z: Tensor, active: Tensor) -> Tensor:
        """Return the objective of each row, (n,), from u (n, L), z (n, m) and active (n, N)."""

    def _active(self, packed_logits: Tensor) -> Tensor:
        """Return which teachers answer, (n, N), or raise on a block that is neither finite nor all NaN."""
        if bool(packed_logits.isfinite().all()):  # the common case, at a tenth of the cost
            return packed_logits.new_ones(len(packed_logits), self.n_teachers, dtype=torch.bool)
        finite = self._block_sum(packed_logits.isfinite().to(torch.int64))
        missing = self._block_sum(packed_logits.isnan().to(torch.int64))
        wrong = (finite != self.sizes) & (missing != self.sizes)
        if bool(wrong.any()):
            row, teacher = (int(i) for i in wrong.nonzero()[0])
            raise InvalidInputError(
                f"Packed teacher logits of row {row} are not finite for teacher {teacher + 1} of "
                f"{self.n_teachers}. Give finite numbers, or NaN in its whole block where it abstains."
            )
        return finite == self.sizes

    def _gather(self, u: Tensor) -> Tensor:
        """Lay out values per class as packed columns: (n, L) to (n, m)."""
        # index_select, not u[:, columns], whose backward sorts the indices and takes many times as long
        return u.index_select(1, self.columns)

    def _spread(self, x: Tensor) -> Tensor:
        """Repeat values per teacher over its columns: (n, N) to (n, m)."""
        return x.index_select(1, self.owner)

    def _block_sum(self, x: Tensor) -> Tensor:
        """Sum each teacher's block: (n, m) to (n, N)."""
        # index_add, not a product with a 0/1 matrix: nothing of size (m, N), and autocast leaves it alone
        return x.new_zeros(len(x), self.n_teachers).index_add(1, self.owner, x)

    def _block_max(self, x: Tensor) -> Tensor:
        """Maximum of each teacher's block, spread back to the columns and detached: (n, m) to (n, m)."""
        index = self.owner.expand(len(x), -1)
        largest = x.detach().new_zeros(len(x), self.n_teachers)
        return self._spread(largest.scatter_reduce(1, index, x.detach(), "amax", include_self=False))

    def _block_softmax(self, x: Tensor) -> Tensor:
        """Softmax within each teacher's block: (n, m) to (n, m)."""
        scaled = torch.exp(x - self._block_max(x))
        return scaled / self._spread(self._block_sum(scaled))

    def _centre(self, x: Tensor) -> Tensor:
        """Remove the mean of each teacher's block, the projector P_k of eq. (17): (n, m) to (n, m)."""
        return x - self._spread(self._block_sum(x) / self.sizes)


class CEBPLoss(PackedLoss):
    r"""Cross-entropy between each teacher and the student restricted to its classes (CE-BP).

    Eq. (9) with u the student's logits over the temperature:

    .. math:: J(u) = -\sum_i \sum_{l \in L_i} p_i(l) \Big(u_l - \log \sum_{k \in L_i} \exp u_k\Big)

    Parameters
    ----------
    space, temperature, reduction
        See `PackedLoss`.

    Examples
    --------
    >>> import torch
    >>> from consilience.labels import LabelSpace
    >>> space = LabelSpace([["cat", "dog"], ["bird", "dog"]])
    >>> packed = torch.tensor([[0.0, 0.0, float("nan"), float("nan")]])
    >>> round(CEBPLoss(space)(torch.zeros(1, 3), packed).item(), 4)  # log 2: one teacher answers
    0.6931
    """

    def _rows(self, u: Tensor, z: Tensor, active: Tensor) -> Tensor:
        gathered = self._gather(u)
        # p_i sums to one, so the block maximum can be subtracted from both terms
        shifted = gathered - self._block_max(gathered)
        log_sum = self._block_sum(shifted.exp()).log()
        terms = log_sum - self._block_sum(self._block_softmax(z) * shifted)
        return terms.masked_fill(~active, 0.0).sum(dim=1)


class MFPBPLoss(PackedLoss):
    r"""Matrix factorisation in probability space (MF-P-BP).

    Eq. (12) with u the student's probabilities at the temperature and v solved with u fixed:

    .. math:: J(u) = \sum_i \sum_{l \in L_i} (p_i(l) - v_i u_l)^2,
              \quad v_i = \max\Big(0, \frac{\sum_{l \in L_i} p_i(l) u_l}{\sum_{l \in L_i} u_l^2}\Big)

    Parameters
    ----------
    space, temperature, reduction
        See `PackedLoss`.

    Examples
    --------
    >>> import torch
    >>> from consilience.labels import LabelSpace
    >>> loss = MFPBPLoss(LabelSpace([["cat", "dog"]]))
    >>> loss(torch.tensor([[0.0, 3.0]]), torch.tensor([[1.0, 4.0]])).item() < 1e-12
    True
    """

    def _rows(self, u: Tensor, z: Tensor, active: Tensor) -> Tensor:
        gathered = self._gather(u)
        # v_i absorbs any factor common to a block. So u can be exp(logit - block maximum) instead of the
        # softmax over all classes: value and gradient are the same, and it cannot underflow if the student
        # gives a whole block almost no probability. Both factors are positive, so max(0, .) is not needed.
        w = torch.exp(gathered - self._block_max(gathered))
        p = self._block_softmax(z)
        v = (self._block_sum(p * w) / self._block_sum(w * w)).detach()  # envelope theorem
        terms = self._block_sum((p - self._spread(v) * w).square())
        return terms.masked_fill(~active, 0.0).sum(dim=1)


class MFLVBPLoss(PackedLoss):
    r"""Matrix factorisation in logit space with variable v (MF-LV-BP; the paper's table says MF-LU).

    Eq. (15) with u the student's logits over the temperature, v and c solved jointly with u fixed:

    .. math:: J(u) = \sum_i \sum_{l \in L_i} (z_{il} - v_i u_l - c_i)^2 + \lambda (\|u\|^2 + \|v\|^2),

    where with centred sums over L_i
    :math:`v_i = \max(0, \mathrm{cov}_i(z, u) / (\lambda + \mathrm{var}_i(u)))` and
    :math:`c_i = \bar z_i - v_i \bar u_i`.

    Parameters
    ----------
    space, temperature, reduction
        See `PackedLoss`.
    ridge : float
        Weight of the regularizer, lambda of eq. (15).

    Examples
    --------
    >>> import torch
    >>> from consilience.labels import LabelSpace
    >>> loss = MFLVBPLoss(LabelSpace([["cat", "dog"]]), temperature=1.0, ridge=0.5)
    >>> loss(torch.tensor([[-1.0, 1.0]]), torch.tensor([[5.0, 5.0]])).item()  # only ridge * ||u||^2
    1.0
    """

    def __init__(
        self, space: LabelSpace, temperature: float = 3.0, ridge: float = 0.01, reduction: str = "mean"
    ) -> None:
        super().__init__(space, temperature, reduction)
        self.ridge = check_number("ridge", ridge, at_least=0)

    def _rows(self, u: Tensor, z: Tensor, active: Tensor) -> Tensor:
        # centring both sides is what the optimal c does
        uc, zc = self._centre(self._gather(u)), self._centre(z)
        # the floor is for ridge = 0 and a constant block, where the covariance is zero too
        scale = (self.ridge + self._block_sum(uc * uc)).clamp_min(torch.finfo(u.dtype).tiny)
        v = (self._block_sum(zc * uc) / scale).clamp_min(0.0).detach()  # envelope theorem
        terms = self._block_sum((zc - self._spread(v) * uc).square()) + self.ridge * v.square()
        rows = terms.masked_fill(~active, 0.0).sum(dim=1) + self.ridge * u.square().sum(dim=1)
        return rows.masked_fill(~active.any(dim=1), 0.0)


class MFLFBPLoss(PackedLoss):
    r"""Matrix factorisation in logit space with v fixed to one (MF-LF-BP).

    Eq. (17) with u the student's logits over the temperature, v = 1 and no regularizer; P_k removes the mean:

    .. math:: J(u) = \sum_i \|P_{|L_i|}(z_i - [u]_{L_i})\|^2

    Parameters
    ----------
    space, temperature, reduction
        See `PackedLoss`.

    Examples
    --------
    >>> import torch
    >>> from consilience.labels import LabelSpace
    >>> loss = MFLFBPLoss(LabelSpace([["cat", "dog"]]), temperature=1.0)
    >>> loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[4.0, 6.0]])).item()
    2.0
    """

    def _rows(self, u: Tensor, z: Tensor, active: Tensor) -> Tensor:
        terms = self._block_sum(self._centre(z - self._gather(u)).square())
        return terms.masked_fill(~active, 0.0).sum(dim=1)


BACKPROP_LOSSES: dict[str, type[PackedLoss]] = {
    "ce": CEBPLoss,
    "mf-p": MFPBPLoss,
    "mf-lv": MFLVBPLoss,
    "mf-lf": MFLFBPLoss,
}
"""The loss of each method, for ``train="backprop"``."""

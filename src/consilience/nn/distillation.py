"""Losses by which a student learns from a teacher, and their sum, which a distiller minimises.

Each is called as ``loss(input, target)``, with the student's logits or features and the teacher's. A row of
NaN in the target (the teacher abstained) adds nothing.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import normalize, smooth_l1_loss

from consilience._validation import check_count, check_number
from consilience.exceptions import InvalidInputError
from consilience.nn.losses import RowLoss

MOST_ANGLES = 2**19
"""RKD looks at the angles of all triples of a batch, up to this many; beyond, it takes fewer vertices."""

SHORTEST = 1e-2
"""Sides of an angle that are shorter than this, in units of the mean distance, count less."""


class AnsweredLoss(RowLoss, ABC):
    """Base of losses on the rows of a batch that the teacher answered; the others add nothing."""

    fewest = 0  # rows that the loss needs
    same_width = False

    def __init__(self, temperature: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(temperature, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Return the loss of the student's logits or features (n, d) and the teacher's (n, e)."""
        wrong = input.ndim != 2 or target.ndim != 2 or len(input) != len(target)
        if wrong or (self.same_width and input.shape != target.shape):
            expected = "the same shape (n, K)" if self.same_width else "(n, d) and (n, e), with the same n"
            raise InvalidInputError(
                f"input has shape {tuple(input.shape)} and target {tuple(target.shape)}; expected {expected}."
            )
        # chosen before any arithmetic: the gradient of 0 * NaN is NaN
        answered = ~target.isnan().any(dim=1)
        S, T = input[answered], target[answered].to(input.dtype)
        if len(S) < self.fewest:
            return input.sum() * 0.0
        loss = self._loss(S, T)
        if loss.ndim == 0:
            return loss
        return self.reduced(loss.new_zeros(len(input)).masked_scatter(answered, loss))

    @abstractmethod
    def _loss(self, S: Tensor, T: Tensor) -> Tensor:
        """Return the loss of the rows that were answered: of each, or of all."""


class KDLoss(AnsweredLoss):
    r"""Standard distillation: the divergence of the student from the teacher, over the same classes.

    .. math:: \mathrm{KL}(\rho_\tau(f_T), \rho_\tau(f_S))

    Eq. (2) of "Selective Cross-Task Distillation", without Hinton's factor tau^2, as there.

    Parameters
    ----------
    temperature : float
        tau, for both.
    reduction : {"mean", "sum", "none"}
        The mean is over all rows, including those on which the teacher abstained.

    Examples
    --------
    >>> import torch
    >>> abs(KDLoss()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()) < 1e-6
    True
    """

    same_width = True

    def __init__(self, temperature: float = 3.0, reduction: str = "mean") -> None:
        super().__init__(temperature, reduction)

    def _loss(self, S: Tensor, T: Tensor) -> Tensor:
        return _divergence(T / self.temperature, S / self.temperature)


class RKDLoss(AnsweredLoss):
    """Relational distillation (Park et al. 2019): distances and angles between the rows of a batch.

    Distances are divided by their mean over the batch, so the two spaces may differ in scale and in the
    number of dimensions. Differences of distances and of angles enter by Huber's loss, averaged over pairs
    and triples.

    Parameters
    ----------
    distance, angle : float
        Weights of the two parts; 1 and 2 as in the paper.

    Examples
    --------
    >>> import torch
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> RKDLoss()(3 * points, points).item() < 1e-6  # the same shape, larger
    True
    """

    fewest = 2

    def __init__(self, distance: float = 1.0, angle: float = 2.0) -> None:
        super().__init__()
        self.distance = check_number("distance", distance, at_least=0)
        self.angle = check_number("angle", angle, at_least=0)

    def _loss(self, S: Tensor, T: Tensor) -> Tensor:
        loss = self.distance * smooth_l1_loss(_relative_distances(S), _relative_distances(T))
        if self.angle and len(S) > 2:
            # batches are shuffled: the first rows are a sample
            vertices = max(1, min(len(S), MOST_ANGLES // (len(S) * max(*S.shape, *T.shape))))
            loss = loss + self.angle * smooth_l1_loss(_cosines(S, vertices), _cosines(T, vertices))
        return loss


class FitNetLoss(AnsweredLoss):
    """Hints (Romero et al. 2015): a linear map from student features to embeddings, learnt along the way.

    The loss is the mean squared difference over entries and rows. The map belongs to the loss, and is dropped
    with it.

    Parameters
    ----------
    n_embedding : int
        Columns of the teacher's embedding.
    n_features : int, optional
        Columns of the student's features. If they are not known yet, call `prepare` later.

    Examples
    --------
    >>> loss = FitNetLoss(n_embedding=4, n_features=3)
    >>> loss(torch.zeros(5, 3), torch.zeros(5, 4)).shape
    torch.Size([])
    """

    hint: nn.Linear | None

    def __init__(self, n_embedding: int, n_features: int | None = None) -> None:
        super().__init__()
        self.n_embedding = check_count("n_embedding", n_embedding)
        self.hint = None
        if n_features is not None:
            self.prepare(n_features)

    def prepare(self, n_features: int) -> None:
        """Make the map. Call this before an optimiser takes the parameters."""
        self.hint = nn.Linear(check_count("n_features", n_features), self.n_embedding)

    def _loss(self, S: Tensor, T: Tensor) -> Tensor:
        if self.hint is None:
            raise InvalidInputError("FitNetLoss does not know n_features yet; give it, or call prepare.")
        gap: Tensor = self.hint(S) - T
        return gap.square().mean(dim=1)


class RelationLoss(AnsweredLoss):
    r"""Match which rows the teacher finds near, in the style of ReFilled (Ye et al. 2020).

    For every row i of a batch, the distances to the other rows give a distribution over them,

    .. math:: p(j | i) \propto \exp(-\lVert\phi_i - \phi_j\rVert / (\mu\tau)), \quad j \neq i,

    with mu the mean distance in the batch. The loss is the KL divergence between the teacher's distribution
    and the student's. ReFilled draws a positive and some negatives per anchor; here all rows of the batch
    take part.

    Parameters
    ----------
    temperature : float
        tau.

    Examples
    --------
    >>> import torch
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> abs(RelationLoss()(3 * points, points).item()) < 1e-6
    True
    """

    fewest = 3

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__(temperature)

    def _loss(self, S: Tensor, T: Tensor) -> Tensor:
        near = [-_relative_distances(phi) / self.temperature for phi in (T, S)]
        return _divergence(*near).mean()


class FunctionLoss(AnsweredLoss):
    """A distillation loss of the user's own, on the rows that the teacher answered.

    Parameters
    ----------
    function : callable
        Called as ``function(student_logits, teacher_logits, cost=cost, epsilon=epsilon,
        temperature=temperature)`` with tensors (n, K), (n, m) and (m, K) and two floats. It returns a scalar
        (a mean over the rows) or a value for each row (n,). A module is copied, and its parameters are
        trained.
    cost : (m, K) array
        A buffer: it moves with ``.to``.
    epsilon, temperature : float

    Examples
    --------
    >>> import torch
    >>> def gap(student_logits, teacher_logits, *, cost, epsilon, temperature):
    ...     return (student_logits - teacher_logits).square().sum(dim=1)
    >>> loss = FunctionLoss(gap, [[0.0, 1.0], [1.0, 0.0]], 0.1, 3.0)
    >>> loss(torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [torch.nan, torch.nan]])).item()  # 2 and nothing
    1.0
    """

    fewest = 1  # of none, a function of means would make NaN
    cost: Tensor

    def __init__(
        self, function: Callable[..., Any], cost: ArrayLike, epsilon: float, temperature: float
    ) -> None:
        super().__init__(temperature)
        self.function = copy.deepcopy(function) if isinstance(function, nn.Module) else function
        self.register_buffer("cost", torch.tensor(cost, dtype=torch.float64))
        self.epsilon = epsilon

    def _loss(self, S: Tensor, T: Tensor) -> Tensor:
        options = {"cost": self.cost.to(S.dtype), "epsilon": self.epsilon, "temperature": self.temperature}
        result = self.function(S, T, **options)
        if not isinstance(result, Tensor) or result.shape not in ((), (len(S),)):
            got = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
            raise InvalidInputError(
                f"The loss function returned {got} for {len(S)} rows; expected a tensor of shape () or "
                f"({len(S)},)."
            )
        rows: Tensor = result.expand(len(S))  # a scalar is the mean over the rows
        return rows


class Term(NamedTuple):
    """One teacher's part in a `CrossTaskLoss`."""

    loss: nn.Module
    columns: slice  # of the target
    weight: float
    of: Literal["logits", "features"] = "logits"


class CrossTaskLoss(nn.Module):
    r"""Cross-entropy with the labels plus a term per teacher.

    .. math:: \frac{1}{N} \sum_i \ell(y_i, f_S(x_i)) + \sum_h \lambda_h D_h(x_i)

    Eq. (11) of "Selective Cross-Task Distillation", for several teachers. The first K columns of the target
    are the label, one-hot. A row of zeros has no label; only the teachers act on it.

    Parameters
    ----------
    n_classes : int
        K.
    terms : sequence of Term
    labelled : float
        Share of the rows that have a label, over all batches. The cross-entropy is the mean over these rows.
    """

    def __init__(self, n_classes: int, terms: Sequence[Term], labelled: float = 1.0) -> None:
        super().__init__()
        self.n_classes, self.labelled = n_classes, check_number("labelled", labelled, above=0)
        self.losses = nn.ModuleList(term.loss for term in terms)
        self.parts = [(term.columns, term.weight, term.of) for term in terms]
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._features: Tensor | None = None

    def attach(self, module: nn.Module, example: Tensor) -> None:
        """Record the features of `module` from now on, until `detach`.

        The features are the input of its head: the linear layer with K outputs that runs last. If there is
        none, the logits are the features. The rows `example` pass through the module once, since layers need
        not run in the order in which they are registered.
        """
        self.detach()
        heads = [p for p in module.modules() if isinstance(p, nn.Linear) and p.out_features == self.n_classes]
        self._hooks = [head.register_forward_pre_hook(self._keep) for head in heads]
        with torch.no_grad():
            module(example)
        width = self.n_classes if self._features is None else self._features.shape[1]
        for loss in self.losses:
            if isinstance(loss, FitNetLoss) and loss.hint is None:
                loss.prepare(width)

    def detach(self) -> None:
        """Remove the hooks from the module."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._features = [], None

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of student logits (n, K) and targets (n, K + the teachers' columns)."""
        y = target[:, : self.n_classes].to(logits.dtype)
        loss = -(y * torch.log_softmax(logits, dim=1)).sum() / (max(len(y), 1) * self.labelled)
        features = logits if self._features is None else self._features
        for term, (columns, weight, of) in zip(self.losses, self.parts, strict=True):
            loss = loss + weight * term(features if of == "features" else logits, target[:, columns])
        return loss

    def _keep(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # autocast gives features in half precision
        seen = inputs[0].float() if inputs[0].dtype.itemsize < 4 else inputs[0]
        # if a row has several vectors, such as one per word, take their mean
        self._features = seen if seen.ndim == 2 else seen.flatten(1, -2).mean(dim=1)


def _divergence(of: Tensor, by: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence (n,) of softmax(of) from softmax(by)."""
    log_of, log_by = torch.log_softmax(of, dim=1), torch.log_softmax(by, dim=1)
    return (log_of.exp() * (log_of - log_by)).sum(dim=1)


def _relative_distances(phi: Tensor) -> Tensor:
    """Return the distances (n, n - 1) of each row to the others, in units of their mean."""
    n = len(phi)
    others = ~torch.eye(n, dtype=torch.bool, device=phi.device)
    # the product form loses near distances in float32
    distances = torch.cdist(phi, phi, compute_mode="donot_use_mm_for_euclid_dist")[others]
    return (distances / distances.mean().clamp_min(torch.finfo(phi.dtype).tiny)).view(n, n - 1)


def _cosines(phi: Tensor, vertices: int) -> Tensor:
    """Return the cosine of the angle at each of the first rows between each two rows: (vertices, n, n)."""
    sides = phi[None] - phi[:vertices, None]
    with torch.no_grad():
        typical = float(sides.norm(dim=2).mean())
    # the angle between rows that nearly coincide says nothing, and its gradient grows as 1 / distance
    sides = normalize(sides, dim=2, eps=max(SHORTEST * typical, torch.finfo(phi.dtype).tiny))
    return sides @ sides.transpose(1, 2)

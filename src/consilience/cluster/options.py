"""What `CollisionClustering` and `CollisionClassifier` may be given: losses, models, options of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from consilience.options import (
    Check,
    Options,
    anything,
    check_choice,
    check_number,
    choice,
    count,
    function_of_yours,
    number,
    one_of,
    option,
    optional,
)

# Larger weights of a part of an objective overflow, or lose the other part to rounding.
_MOST_WEIGHT = 1e15
_WEIGHT = number(at_least=0, at_most=_MOST_WEIGHT)


class Loss(Options):
    """What a clustering minimises: its subclasses. A short name stands for one with defaults."""

    steps: ClassVar[int] = 5
    """Of L-BFGS in a round: few if labels are made anew in each, many if nothing changes."""
    takes_prior: ClassVar[bool] = True

    label_weight: float = option(
        _WEIGHT, "Weight of the cross-entropy on labelled rows, if there are some.", default=2.0
    )


_LAM = (
    "Weight of fair shares. 100 asks for clusters of nearly equal size (or of the sizes in `prior`); use "
    "about 1 if sizes may differ."
)


class Collision(Loss):
    """The collision cross-entropy with exact pseudo-labels for all rows at once: eq. (11).

    Examples
    --------
    >>> Collision(lam=1)
    Collision(lam=1)
    """

    lam: float = option(_WEIGHT, _LAM, default=100.0)
    solver: str = option(
        choice("auto", "interior-point", "em", "pgd"),
        "Of the pseudo-labels; see `collision_pseudo_labels`.",
        default="auto",
    )


class MI(Loss):
    """Mutual information of predictions averaged over neighbours: eq. (1), MI-GD and IMSAT.

    Examples
    --------
    >>> MI(lam=10)
    MI(lam=10)
    """

    steps = 20
    lam: float | None = option(
        optional(_WEIGHT),
        "Weight of fair shares: 100 by default, and 4 for networks, as in IMSAT, where larger ones drown the "
        "entropy.",
        default=None,
    )


class SELA(Loss):
    """Shannon's cross-entropy with labels whose shares are exact: eq. (4), Asano et al. 2020.

    Examples
    --------
    >>> SELA(label_weight=5)
    SELA(label_weight=5)
    """


class MIADM(Loss):
    """Shannon's cross-entropy with labels whose shares may differ: eq. (5), Jabi et al. 2021.

    Examples
    --------
    >>> MIADM(lam=1)
    MIADM(lam=1)
    """

    lam: float = option(_WEIGHT, _LAM, default=100.0)


class IIC(Loss):
    """Invariant information between a row and its neighbours: Ji et al. 2019. It asks for equal shares.

    Examples
    --------
    >>> IIC(lam=1.5)
    IIC(lam=1.5)
    """

    steps, takes_prior = 20, False
    lam: float = option(_WEIGHT, "The exponent of the marginals.", default=1.0)


class Own(Loss):
    """A function of yours, which needs no labels.

    ``function(proba, mean_proba)`` gets predictions (n, K) and their means over neighbours. It returns the
    value, its gradient by `proba` and its gradient by `mean_proba`, each (n, K) or 0.0.

    Examples
    --------
    >>> Own(lambda proba, mean_proba: (-(proba * mean_proba).sum(), -mean_proba, -proba)).steps
    20
    """

    steps, takes_prior = 20, False
    function: Callable[..., Any] = option(function_of_yours(), "The function.")  # type: ignore[misc]


LOSSES: Mapping[str, type[Loss]] = {
    "collision": Collision,
    "mi": MI,
    "sela": SELA,
    "mi-adm": MIADM,
    "iic": IIC,
}
"""Every loss of clustering by its short name; `consilience.cluster.losses` has the function of each."""


class Linear(Options):
    """A linear softmax model on the features: eq. (3).

    Examples
    --------
    >>> Linear(max_iter=20)
    Linear(max_iter=20)
    """

    weight_decay: float = option(_WEIGHT, "Half of it times the squared weights is added.", default=5e-4)
    max_iter: int | None = option(
        optional(count()), "Most rounds of labelling and training: 100, or 10 as in the paper.", default=None
    )
    tol: float | None = option(
        optional(number(at_least=0)),
        "Stop when at most this share of rows, or a single row, changes its cluster in a round. By default "
        "0.01 from the graph, where more rounds do harm, and 0.001 otherwise.",
        default=None,
    )


class Network(Options):
    """A network, eq. (2), such as `consilience.students.modules.VGG4`, trained with Adam on batches.

    It returns logits (n, K), and is copied, never changed. In each round it passes over the rows once
    (docs/how/clustering.md).

    Examples
    --------
    >>> Network(lambda n_features, n_classes: None, augment="rows", max_iter=20).augment
    'rows'
    """

    module: Any = option(
        anything("torch.nn.Module, factory of one, or students.Network"),
        "The network. A `consilience.students.Network` says the optimiser, learning rate and device, too.",
    )
    augment: Any = option(
        anything("'images', 'rows', function or None", str),
        "A change of rows that leaves their classes as they are: `consilience.nn.augment_images`, "
        "`augment_rows`, or ``augment(batch, generator)``. Predictions become E_t[sigma(t(X))], and the "
        "network is trained on augmented rows.",
        default=None,
    )
    weight_decay: float | None = option(
        optional(_WEIGHT), "Of the optimiser, 5e-4 by default. The objective leaves it out.", default=None
    )
    max_iter: int | None = option(optional(count()), "Most rounds: 50 by default.", default=None)
    tol: float | None = option(
        optional(number(at_least=0)), "As of a linear model: 0.001 by default.", default=None
    )
    batch_size: int | None = option(
        optional(count()), "250 by default, less with fewer than 2,500 rows.", default=None
    )

    def check_options(self) -> None:
        """Raise if an option is wrong."""
        from consilience.students.make import check_model

        check_model(self.module)
        super().check_options()


class Softmax(Options):
    """A linear model of `CollisionClassifier`, trained by L-BFGS from zero weights; it needs no torch.

    Examples
    --------
    >>> Softmax(weight_decay=0.1)
    Softmax(weight_decay=0.1)
    """

    weight_decay: float | None = option(
        optional(number(at_least=0)),
        "Half of it times the squared weights, without biases, is added to the mean loss. By default 0.01, "
        "or chosen by cross-validation with ``noise='auto'``.",
        default=None,
    )
    standardize: bool | str | None = option(
        optional(choice(True, False, "common")),
        "True trains on features of mean 0 and variance 1. 'common' divides all features by one number, so "
        "that their variance is 1 on average: for features in the same unit, such as pixels. False leaves "
        "them alone. By default True, or chosen of True and 'common' with ``noise='auto'``.",
        default=None,
    )
    max_iter: int = option(count(), "Most steps of L-BFGS.", default=500)
    tol: float = option(number(above=0), "Stop when no entry of the gradient exceeds this.", default=1e-4)


class GeneralisedCollision(Options):
    """(1 - p^q) / q, with p the probability that predicted and true class are equal; -ln p for q = 0.

    Examples
    --------
    >>> GeneralisedCollision(q=0.3)
    GeneralisedCollision(q=0.3)
    """

    q: float = option(
        number(at_least=0), "The power: 0 is ``'collision'``, larger ones withstand more noise.", default=0.5
    )


class GCE(Options):
    """The generalised cross-entropy of Zhang and Sabuncu 2018, whose choice of the power is the default.

    Examples
    --------
    >>> GCE(q=0.5)
    GCE(q=0.5)
    """

    q: float = option(number(above=0), "The power.", default=0.7)


class Shannon(Options):
    """Shannon's cross-entropy."""


NOISY_LOSSES: Mapping[str, Callable[[], Options]] = {
    "collision": partial(GeneralisedCollision, q=0.0),
    "generalised-collision": GeneralisedCollision,
    "cross-entropy": Shannon,
    "gce": GCE,
}
"""Every loss of `CollisionClassifier` by its short name."""


def _model(linear: type[Options]) -> Check:
    """A linear model, by its name "linear" or with options, or a `Network`."""
    says = f"'linear', {linear.__name__}, torch.nn.Module, factory of one, students.Network or Network"
    return one_of({"linear": linear}, (linear, Network), says, lambda given: Network(module=given))


def _noise(name: str, value: Any) -> Any:
    if isinstance(value, str):
        check_choice(name, value, ("auto",))
    elif not hasattr(value, "__len__") and value is not None:
        check_number(name, value, at_least=0, at_most=1)
    return value


_RANDOM_STATE = anything("int, RandomState or None", int)
_RUN = anything("Run or None")


class ClusteringOptions(Options):
    """Options of `CollisionClustering`."""

    n_clusters: int = option(count(), "K.", default=8, flag="--clusters")
    loss: Any = option(
        one_of(LOSSES, (Loss,), "str, Loss or function", lambda given: Own(function=given)),
        "What to minimise: 'collision', or a loss that the paper compares with, 'mi', 'sela', 'mi-adm' or "
        "'iic', with the same neighbours and starts; one of them with options, such as "
        "``cluster.Collision(lam=1)``; or a function of yours, see `cluster.Own`.",
        default="collision",
    )
    model: Any = option(
        _model(Linear),
        "A linear model on the features, or a network, each with options, such as "
        "``cluster.Linear(weight_decay=0.01)`` and ``cluster.Network(VGG4, augment='images')``.",
        default="linear",
    )
    prior: Any = option(
        anything("(K,) array or None"), "u, the share of each cluster; equal by default.", default=None
    )
    n_neighbors: int = option(
        count(at_least=0),
        "Nearest neighbours of each row to average predictions over; 0 for none. At most as many are used as "
        "a cluster of n / K rows has other rows. For a network they are neighbours by the values of X, and "
        "with 0 it starts from its own predictions.",
        default=10,
    )
    n_init: int = option(
        count(),
        "Starts; `init` says what they are. A network is trained once: it starts from the best linear model.",
        default=10,
    )
    init: str = option(
        choice("graph", "k-means++"),
        "With 'graph', a start is a run of k-means on a diffusion map of the graph of neighbours; half as "
        "many more are on the features. The best start is found by mutual information between neighbours, "
        "and one model is trained from it. With the collision loss and `lam` of 100 or more, a second model "
        "is trained towards exact shares for a few rounds, and kept if neighbours agree with it as well. "
        "With 'k-means++', a start takes random rows far from each other as centres, a model is trained from "
        "each, and the one with the least objective is kept. That takes many times as long. It is also what "
        "``n_neighbors=0`` and labelled rows use.",
        default="graph",
    )
    protocol: str = option(
        choice("full-batch", "paper"),
        "'paper' trains as Appendix E.2 does: stochastic gradient steps of 0.1 on batches of 250, labels "
        "made within a batch, one random start, no neighbours. Use it to reproduce the paper; it finds worse "
        "clusters. A network takes steps of Adam, on two augmentations of each row if there are any.",
        default="full-batch",
    )
    random_state: Any = option(_RANDOM_STATE, "Makes the result reproducible.", default=None, flag="--seed")
    run: Any = option(
        _RUN,
        "How the work is run: `n_jobs` models at a time, in threads, if `init` asks for several; `progress`.",
        default=None,
    )


class ClassifierOptions(Options):
    """Options of `CollisionClassifier`."""

    loss: Any = option(
        one_of(NOISY_LOSSES, (GeneralisedCollision, GCE, Shannon), "str or object"),
        "What to minimise between prediction and soft label: 'collision', 'generalised-collision' (better "
        "still if many labels are wrong), 'cross-entropy' or 'gce'; with another power, "
        "``cluster.GeneralisedCollision(q)`` or ``cluster.GCE(q)``.",
        default="collision",
    )
    model: Any = option(
        _model(Softmax),
        "A linear model, with options ``cluster.Softmax(weight_decay=0.1)``, or a network. A "
        "`consilience.students.Network` sets its epochs, learning rate and so on.",
        default="linear",
    )
    noise: Any = option(
        Check(_noise, "float from 0 to 1, 'auto', (K, K) array or None", str),
        "What happened to the labels. A number is the share that was replaced by one drawn from all classes "
        "with equal probability: eta of Fig. 2. An observed label becomes the soft label "
        "eta / K + (1 - eta) * onehot. 'auto' estimates it by cross-validation on the labels as they are, "
        "with a linear model, in about ten times as long. For noise of any kind give a matrix: "
        "``noise[l, k]`` is the probability to observe label l if class k is true, in the order of "
        "`classes_` (Sec. 3: the forward correction).",
        default=None,
    )
    classes: Any = option(
        anything("sequence or None"),
        "Names of the columns of soft labels; 0 to K - 1 by default. For hard labels they are those that "
        "occur. Give them if some never occur, in the order of a `noise` matrix.",
        default=None,
    )
    random_state: Any = option(
        _RANDOM_STATE,
        "Makes the training of a network reproducible, and cross-validation for ``noise='auto'``. Nothing "
        "else is random.",
        default=None,
    )
    run: Any = option(_RUN, "How the work is run: `progress` of a network.", default=None)

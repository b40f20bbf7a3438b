"""One trial of "Unifying Heterogeneous Classifiers with Distillation", Sec. 4: teachers, then every method.

This departs from the paper in three ways. Teachers are small models on features (or pixels), not fine-tuned
networks. Students are trained with Adam (1e-3, then 1e-4 for the second half), which does not need the
paper's 150-fold rate for MF-P-BP. The number of epochs is an option.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from benchmarks.papers.sources import Rows, Source, split
from benchmarks.papers.trials import SIZES, Trial, random_classes
from consilience import ConvergenceWarning, Unifier, as_teacher
from consilience.methods import METHODS as BY_NAME
from consilience.nn import SoftCrossEntropy
from consilience.students import Network
from consilience.students.training import Trainer
from consilience.teachers import Precomputed

HIDDEN = 256  # as in the heads of the paper's networks
ADJUSTMENT_ROWS = 50  # per class, for the accuracy analysis
NOISE_STEP = 1.15


class Method(NamedTuple):
    """How the Unifier is called for a name of Table 2."""

    method: str
    train: Literal["estimate", "backprop"] = "estimate"
    balance: bool = False


_PROPOSED = {"CE": "ce", "MF-P": "mf-p", "MF-LV": "mf-lv", "MF-LF": "mf-lf"}
METHODS: dict[str, Method] = {
    "SD": Method("sd"),
    **{f"{name}-E": Method(m) for name, m in _PROPOSED.items()},
    **{f"{name}-BP": Method(m, train="backprop") for name, m in _PROPOSED.items()},
    "SD-BS": Method("sd", balance=True),
    **{f"{name}-BS": Method(m, balance=True) for name, m in _PROPOSED.items()},
    "RANKS-BS": Method("ranks", balance=True),
    "AUTO-BS": Method("auto", balance=True),
}
"""The methods of Table 2 without SPV, and ours. The paper's text calls MF-LV MF-LU."""

# Fig. 3 shows SD, "SD-BP" (SD has no backprop form; SD-BS is meant) and three BP methods; MF-LF-BS is added.
SENSITIVITY_METHODS = ("SD", "SD-BS", "MF-P-BP", "MF-LF-BP", "CE-BP", "MF-LF-BS")


class Family(NamedTuple):
    """A kind of teacher. `last_layer` finds the weights of its last layer, to add noise to them."""

    make: Callable[[int], Any]
    last_layer: Callable[[Any], NDArray[np.floating[Any]]] | None


FAMILIES: dict[str, Family] = {
    "linear": Family(lambda seed: LogisticRegression(C=0.1, max_iter=200), lambda model: model.coef_),
    "mlp": Family(
        lambda seed: MLPClassifier((HIDDEN,), max_iter=20, learning_rate_init=3e-3, random_state=seed),
        lambda model: model.coefs_[-1],
    ),
    "forest": Family(lambda seed: RandomForestClassifier(100, min_samples_leaf=2, random_state=seed), None),
    "lda": Family(lambda seed: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), None),
}
CROWDS: dict[str, tuple[str, ...]] = {"networks": ("linear", "mlp"), "mixed": tuple(FAMILIES)}
"""The families that teachers are drawn from. "networks" is close to the paper: with two views, two heads on
two backbones make four architectures. "mixed" adds a forest, whose probabilities are often zero, and an LDA,
which is overconfident."""


@dataclass(frozen=True)
class Setting:
    """Everything that decides a trial's outcome, except the seed.

    Attributes
    ----------
    data : str
        A key of `benchmarks.papers.sources.LOADERS`.
    configuration : {"random", "overlapping"}
        The two columns of Table 1.
    methods : tuple of str
        Names of Table 2, and SPV.
    temperature : float
        T of eq. (2).
    transfer_rows : int
        Most rows of the transfer set.
    accuracy : float or None
        Noise lowers the teachers' accuracy to this value. None adds no noise.
    epochs, batch_size : int
        Of the students.
    crowd : str
        The kinds of teachers: a key of `CROWDS`.
    smoothing : float
        See `Unifier`. The paper does not smooth.
    """

    data: str
    configuration: str
    methods: tuple[str, ...]
    temperature: float = 3.0
    transfer_rows: int = 10_000
    accuracy: float | None = None
    epochs: int = 6
    batch_size: int = 128
    crowd: str = "networks"
    smoothing: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Accuracy of each method, and figures that describe the trial."""

    accuracy: dict[str, float]
    n_classes: int
    teachers: tuple[str, ...]
    teacher_accuracy: float


def run_trial(source: Source, setting: Setting, seed: int) -> Outcome:
    """Train teachers, score the transfer set once, and train a student with every method."""
    rows = split(source, seed, setting.transfer_rows)
    trial = random_classes(
        rows.y_train,
        **SIZES[source.sizes],
        completely_overlapping=setting.configuration == "overlapping",
        random_state=seed,
    )
    known = np.isin(rows.y_test, trial.classes)
    X_test, y_test = rows.X_test[known], rows.y_test[known]
    with _expected_warnings():
        teachers = train_teachers(source, rows, trial, setting, seed)
        logits = np.hstack([t.logits(rows.X_transfer) for t in teachers])
        predictors = _fit_all(logits, rows, trial, setting, seed)
        accuracy = {name: float(np.mean(predict(X_test) == y_test)) for name, predict in predictors}
    return Outcome(
        accuracy,
        len(trial.classes),
        tuple(t.name for t in teachers),
        float(np.mean([t.score(X_test, y_test) for t in teachers])),
    )


class TrainedTeacher(NamedTuple):
    """A fitted model and the columns that it uses."""

    name: str
    model: Any
    view: slice

    def logits(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the model's logits (n, k)."""
        return as_teacher(self.model).predict_logits(X[:, self.view])

    def score(self, X: NDArray[Any], y: NDArray[Any]) -> float:
        """Return the accuracy on rows of the teacher's own classes."""
        own = np.isin(y, self.model.classes_)
        return float(self.model.score(X[own][:, self.view], y[own]))


def train_teachers(
    source: Source, rows: Rows, trial: Trial, setting: Setting, seed: int
) -> list[TrainedTeacher]:
    """Train a model of a random family on a random view for each teacher of the trial."""
    random = np.random.RandomState(seed)
    names = CROWDS[setting.crowd]
    teachers = []
    for own_rows in trial.teacher_rows:
        name, view = names[random.randint(len(names))], random.randint(len(source.views))
        columns = source.views[view]
        X, y = rows.X_train[own_rows][:, columns], rows.y_train[own_rows]
        if setting.accuracy is None:
            model = FAMILIES[name].make(seed).fit(X, y)
        else:
            held = _adjustment_rows(y, random)
            model = FAMILIES[name].make(seed).fit(X[~held], y[~held])
            model = spoil(model, FAMILIES[name], X[held], y[held], setting.accuracy, random)
        teachers.append(TrainedTeacher(f"{name}-{view}", model, columns))
    return teachers


def spoil(
    model: Any,
    family: Family,
    X: NDArray[Any],
    y: NDArray[Any],
    accuracy: float,
    random: np.random.RandomState,
) -> Any:
    """Add growing Gaussian noise to the last layer until the accuracy on (X, y) falls to the target."""
    assert family.last_layer is not None
    weights = family.last_layer(model)
    noise = random.standard_normal(weights.shape).astype(weights.dtype) * weights.std()
    scale, noisy = 0.05, model
    while noisy.score(X, y) > accuracy and scale < 1e6:
        noisy = copy.deepcopy(model)
        family.last_layer(noisy)[...] = weights + scale * noise
        scale *= NOISE_STEP
    return noisy


def _adjustment_rows(y: NDArray[Any], random: np.random.RandomState) -> NDArray[np.bool_]:
    """Hold out 50 rows of each class, but at most half of them."""
    held = np.zeros(len(y), dtype=bool)
    for name in np.unique(y):
        own = random.permutation(np.flatnonzero(y == name))
        held[own[: min(ADJUSTMENT_ROWS, len(own) // 2)]] = True
    return held


Predict = Callable[[NDArray[Any]], NDArray[Any]]


def _fit_all(
    logits: NDArray[np.float64], rows: Rows, trial: Trial, setting: Setting, seed: int
) -> Iterator[tuple[str, Predict]]:
    """Train every method in turn. The teachers score the rows only once."""
    space = trial.label_space
    blocks = [
        Precomputed(logits[:, space.block(i)], own, output="logits", smoothing=setting.smoothing)
        for i, own in enumerate(trial.teacher_classes)
    ]
    for name in setting.methods:
        if name == "SPV":
            yield name, _fit_supervised(rows, trial, setting, seed)
            continue
        how = METHODS[name]
        unified = Unifier(
            blocks,
            _student(setting).set_params(train=how.train),
            how.method if how.method in ("ranks", "auto") else BY_NAME[how.method](setting.temperature),
            balance=how.balance,
            random_state=seed,
        )
        yield name, unified.fit(rows.X_transfer).predict


def _fit_supervised(rows: Rows, trial: Trial, setting: Setting, seed: int) -> Predict:
    """Train on the teachers' own training data, with labels."""
    own = trial.union_rows
    codes = np.searchsorted(trial.classes, rows.y_train[own])
    student = _student(setting).set_params(random_state=seed)
    targets = np.eye(len(trial.classes))[codes]
    student.fit(rows.X_train[own], targets, n_classes=len(trial.classes), criterion=SoftCrossEntropy())
    return lambda X: trial.classes[student.predict_logits(X).argmax(axis=1)]


def _student(setting: Setting) -> Network:
    """Return a student. The seed fixes its weights and the order of batches."""

    def slower(trainer: Trainer) -> None:
        if len(trainer.history) == max(1, setting.epochs // 2):
            for group in trainer.optimizer.param_groups:
                group["lr"] *= 0.1

    return Network(
        _head,
        max_iter=setting.epochs,
        batch_size=setting.batch_size,
        patience=None,
        validation_fraction=0.0,
        callbacks=[slower],
        standardize=True,
    )


def _head(n_features: int, n_classes: int) -> nn.Module:
    """Make the paper's head: fully connected layers with 256 hidden nodes, batch normalisation and ReLU."""
    return nn.Sequential(
        nn.Linear(n_features, HIDDEN),
        nn.BatchNorm1d(HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, n_classes),
    )


@contextmanager
def _expected_warnings() -> Iterator[None]:
    """Silence warnings: as in the paper, MF-P and MF-LV stop at 3000 iterations, and teachers stop early."""
    torch.set_num_threads(1)  # so that results and times do not depend on the number of jobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        yield

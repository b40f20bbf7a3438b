"""A student that trains a torch module on soft labels or on packed teacher logits."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from torch import Tensor, nn

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience._validation import as_random_state, check_choice, check_count, check_fitted, check_number
from consilience._words import counted
from consilience.exceptions import InvalidInputError
from consilience.nn._threads import multiplications_per_row, torch_threads_for
from consilience.nn.modules import Standardize, default_module

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    # fused: one step for all weights at once
    "adam": (torch.optim.Adam, {"fused": True}),
    "adamw": (torch.optim.AdamW, {"fused": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),  # the paper's momentum
}

MIN_ROWS_TO_SPLIT = 20
"""With fewer rows nothing is held out: the validation loss of one or two rows is only noise."""


class TorchStudent(BaseEstimator):
    """Train a torch module with skorch, and give its logits.

    Parameters
    ----------
    module : torch.nn.Module, callable or None
        A module whose output is logits (n, L); it is copied, never changed. Or a factory that makes one.
        Its arguments ``n_features`` (values per row) and ``n_classes`` are passed by name. Two required
        arguments of other names get these two values in this order. Any other factory is called without
        arguments. None makes `default_module`.
    optimizer : {"adam", "adamw", "sgd"} or optimiser class
        How to minimise the loss.
    lr : float
        Learning rate.
    max_iter : int
        The most epochs, that is passes over the rows.
    patience : int or None
        Stop after this many epochs without a better validation loss and keep the best weights; None trains
        for `max_iter` and keeps the last weights.
    validation_fraction : float
        Share of the rows held out for `patience`, in [0, 1). With fewer than 20 rows nothing is held out.
    callbacks : sequence of skorch callbacks
        Passed to skorch, such as learning-rate schedules.
    device : str
        Where to train, such as ``"cpu"`` or ``"cuda"``.
    weight_decay : float
        The optimiser's weight decay.
    standardize : bool or None
        Whether to scale each feature (or channel) of X to mean 0 and variance 1. The scaling becomes part of
        the module. None does so for the default module only.
    batch_size : int
        Rows per step.
    random_state : int, RandomState or None
        Seeds the initial weights of a factory, the held-out rows, the order of rows and dropout. The global
        state of torch stays as it was.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module, in eval mode.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Per epoch: ``epoch``, ``train_loss``, ``valid_loss`` if rows are held out, and what callbacks add.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.nn import SoftCrossEntropy
    >>> X, Q = np.array([[0.0], [1.0]] * 8), np.array([[0.9, 0.1], [0.2, 0.8]] * 8)
    >>> student = TorchStudent(max_iter=30, lr=0.01, random_state=0)
    >>> _ = student.fit(X, Q, n_classes=2, criterion=SoftCrossEntropy())
    >>> student.predict_logits(X[:2]).argmax(axis=1).tolist()
    [0, 1]
    """

    scores = "logits"

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module] | None = None,
        *,
        optimizer: str | type[torch.optim.Optimizer] = "adam",
        lr: float = 1e-3,
        max_iter: int = 50,
        patience: int | None = 5,
        validation_fraction: float = 0.1,
        callbacks: Sequence[Any] = (),
        device: str = "cpu",
        weight_decay: float = 0.0,
        standardize: bool | None = None,
        batch_size: int = 128,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self.lr = lr
        self.max_iter = max_iter
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.callbacks = callbacks
        self.device = device
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        targets: ArrayLike | Tensor,
        *,
        n_classes: int,
        criterion: nn.Module,
        progress: Progress = silent,
    ) -> TorchStudent:
        """Train the module.

        A keyboard interrupt is raised; skorch would end the training silently.

        Parameters
        ----------
        X : (n, ...) array or tensor
            Inputs, two or more dimensions. Floats become float32; integers stay int64, for embeddings.
        targets : (n, k) array or tensor
            Soft labels (n, L), or packed teacher logits (n, m).
        n_classes : int
            L, the number of logits the module must give.
        criterion : torch.nn.Module
            Called as ``criterion(student_logits, batch_of_targets)``; returns a scalar. A criterion that
            looks inside the module has methods ``attach(module, example)``, with two rows of X, and
            ``detach()``, called before and after training. Its own parameters are trained too.
        progress : callable
            Called as ``progress("training", epoch, max_iter)`` after each epoch.
        """
        require("skorch", extra="torch", purpose="Training a torch student")
        from consilience.nn._training import run

        with self.training(X, targets, n_classes=n_classes, criterion=criterion, progress=progress) as (
            net,
            rows,
        ):
            run(net, rows)
        return self

    @contextmanager
    def training(
        self, X: Any, targets: ArrayLike | Tensor, *, n_classes: int, criterion: nn.Module, progress: Progress
    ) -> Iterator[tuple[Any, Any]]:
        """Set up the training, and keep its result when the block ends without an error.

        The block gets a skorch net, not initialised, and its dataset, and runs as many epochs as it likes.
        The parameters are those of `fit`.
        """
        from consilience.nn._training import Rows, history_of

        self._check_params()
        check_count("n_classes", n_classes)
        rows = as_rows(X)
        if len(rows) == 0:
            raise InvalidInputError("X has no rows to train on.")
        goals = targets.detach().cpu() if isinstance(targets, Tensor) else torch.tensor(np.asarray(targets))
        goals = goals.to(torch.float32)
        if goals.ndim != 2 or len(goals) != len(rows):
            raise InvalidInputError(
                f"targets have shape {tuple(goals.shape)} for {len(rows)} rows of X; "
                f"expected ({len(rows)}, k)."
            )
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        with _seeded(seed, self.device):
            module = self._make_module(rows, n_classes)
            _check_output(module, rows, n_classes)
            work = multiplications_per_row(module, rows[:2], self.device)
            with _attached(criterion, module, rows[:2]), torch_threads_for(work * self.batch_size):
                net = self._make_net(module, criterion, len(rows), seed, progress)
                yield net, Rows(rows, goals)
        self.module_ = module.eval()
        self.history_ = history_of(net)
        self.n_iter_ = len(self.history_)
        self._shape, self._dtype, self._work = tuple(rows.shape[1:]), rows.dtype, work

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, L) of each row, in eval mode."""
        check_fitted(self, "module_")
        rows = self._check_rows(X)
        self.module_.eval()
        with torch.no_grad(), torch_threads_for(self._work * min(self.batch_size, len(rows))):
            parts = [self.module_(p.to(self.device)).cpu() for p in torch.split(rows, self.batch_size)]
        return np.asarray(torch.cat(parts).numpy(), dtype=np.float64)

    def to_onnx(self, X_example: Any) -> Any:
        """Return the module as an ``onnx.ModelProto`` with an input ``X`` (n, ...) and an output ``logits``.

        Parameters
        ----------
        X_example : (n, ...) array or tensor
            At least one row, for its shape and type.
        """
        check_fitted(self, "module_")
        from consilience.nn._onnx import module_to_onnx

        return module_to_onnx(self.module_, self._check_rows(X_example))

    def _check_params(self) -> None:
        if isinstance(self.optimizer, str):
            check_choice("optimizer", self.optimizer, OPTIMIZERS)
        elif not callable(self.optimizer):
            raise InvalidInputError(
                "{argument} must be a name or a torch optimiser class.",
                argument="optimizer",
                value=self.optimizer,
            )
        check_number("lr", self.lr, above=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        check_count("max_iter", self.max_iter)
        check_count("batch_size", self.batch_size)
        if self.patience is not None:
            check_count("patience", self.patience)
        check_number("validation_fraction", self.validation_fraction, at_least=0, below=1)
        check_choice("standardize", self.standardize, (True, False, None))

    def _make_net(
        self, module: nn.Module, criterion: nn.Module, n_rows: int, seed: int, progress: Progress
    ) -> Any:
        from skorch import NeuralNet
        from skorch.callbacks import EarlyStopping
        from skorch.dataset import ValidSplit

        from consilience.nn._training import Watch, as_is

        fraction = float(self.validation_fraction) if n_rows >= MIN_ROWS_TO_SPLIT else 0.0
        callbacks: list[Any] = [Watch(progress, self.max_iter, self.lr), *self.callbacks]
        if fraction and self.patience is not None:
            # Last: it stops skorch by an exception, and callbacks after it would miss the final epoch.
            callbacks.append(EarlyStopping(patience=self.patience, load_best=True))
        named = isinstance(self.optimizer, str)
        optimizer, options = OPTIMIZERS[str(self.optimizer)] if named else (self.optimizer, {})
        if self.weight_decay:  # not every optimiser has it
            options = {**options, "weight_decay": self.weight_decay}
        n_train = n_rows - math.ceil(fraction * n_rows)
        return NeuralNet(
            module,
            criterion=criterion,
            optimizer=optimizer,
            lr=self.lr,
            max_epochs=self.max_iter,
            batch_size=self.batch_size,
            train_split=ValidSplit(fraction, random_state=seed) if fraction else None,
            callbacks=callbacks,
            device=self.device,
            verbose=0,
            callbacks__print_log=None,  # it would format a table per epoch, and not print it
            iterator_train__shuffle=True,
            # Batch normalisation cannot train on a last batch of one row. Each epoch leaves out another row.
            iterator_train__drop_last=n_train > self.batch_size and n_train % self.batch_size == 1,
            iterator_train__collate_fn=as_is,
            iterator_valid__collate_fn=as_is,
            **{f"optimizer__{name}": value for name, value in options.items()},
        )

    def _check_rows(self, X: Any) -> Tensor:
        rows = as_rows(X).to(self._dtype)
        # Images may have another size: a convolutional module can take them.
        if rows.ndim != len(self._shape) + 1 or (rows.ndim == 2 and rows.shape[1:] != self._shape):
            expected = ", ".join(str(size) for size in ("n", *self._shape))
            raise InvalidInputError(
                f"X has shape {tuple(rows.shape)}; the student was fitted on ({expected})."
            )
        return rows

    def _make_module(self, rows: Tensor, n_classes: int) -> nn.Module:
        if self.module is None:
            return default_module(rows, n_classes, standardize=self.standardize is not False)
        if isinstance(self.module, nn.Module):
            module = copy.deepcopy(self.module)
        elif callable(self.module):
            module = _call_factory(self.module, math.prod(rows.shape[1:]), n_classes)
        else:
            raise InvalidInputError(
                f"module is a {type(self.module).__name__}; give a torch module, a function that makes one, "
                "or None."
            )
        return nn.Sequential(Standardize.of(rows), module) if self.standardize else module


def as_torch_student(
    source: TorchStudent | nn.Module | Callable[..., nn.Module] | None, random_state: Any
) -> TorchStudent:
    """Return an unfitted copy of a TorchStudent, or a new one around a module or a factory.

    A student with a random state keeps it; any other gets `random_state`.
    """
    if isinstance(source, TorchStudent):
        own: TorchStudent = clone(source)
        return own if own.random_state is not None else own.set_params(random_state=random_state)
    return TorchStudent(source, random_state=random_state)


def as_rows(X: Any) -> Tensor:
    """Return X as a tensor (n, ...) of float32 or int64, or say what is wrong with it."""
    if hasattr(X, "toarray"):
        raise InvalidInputError("X is a sparse matrix; a torch module needs a dense array: X.toarray().")
    rows = X.detach().cpu() if isinstance(X, Tensor) else _from_numpy(np.asarray(X))
    if rows.ndim < 2:
        raise InvalidInputError(
            f"X has shape {tuple(rows.shape)}; expected two dimensions or more, (n, ...)."
        )
    if not rows.is_floating_point() and rows.dtype != torch.bool:
        return rows.to(torch.int64)
    rows = rows.to(torch.float32)
    bad = ~rows.isfinite().flatten(1).all(dim=1)
    if bool(bad.any()):
        raise InvalidInputError(
            f"X is not finite in row {{row}} ({counted(int(bad.sum()), 'such row')}). "
            "Fill missing values first.",
            row=int(bad.nonzero()[0]),
        )
    return rows


def _from_numpy(values: NDArray[Any]) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(f"X has entries of type {values.dtype}; a torch module needs numbers.")
    # torch has few unsigned types, and warns about read-only arrays.
    kind = np.float32 if values.dtype.kind in "bf" else np.int64
    return torch.from_numpy(np.require(values, dtype=kind, requirements=["C", "W"]))


def _call_factory(factory: Callable[..., Any], n_features: int, n_classes: int) -> nn.Module:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin has no signature
        parameters = {}.values()
    given = {"n_features": n_features, "n_classes": n_classes}
    named = {p.name: given[p.name] for p in parameters if p.name in given and p.kind != p.POSITIONAL_ONLY}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    try:
        module = factory(*given.values()) if not named and len(required) == 2 else factory(**named)
    except TypeError as error:
        raise InvalidInputError(
            f"The module factory failed ({error}). It takes n_features and n_classes, or nothing."
        ) from error
    if not isinstance(module, nn.Module):
        raise InvalidInputError(f"The module factory returned a {type(module).__name__}, not a torch module.")
    return module


def _check_output(module: nn.Module, rows: Tensor, n_classes: int) -> None:
    """Run two rows through the module. This also sets up lazy layers before the optimiser sees them."""
    example = rows[:2]
    module.eval()  # so that batch statistics stay as they are
    try:
        with torch.no_grad():
            output = module(example)
    except Exception as error:
        hint = (
            " Integer X stays int64, for embeddings; give floats otherwise."
            if rows.dtype == torch.int64
            else ""
        )
        raise InvalidInputError(
            f"The module {type(module).__name__} failed on rows of shape {tuple(example.shape)} and type "
            f"{example.dtype}: {error}.{hint}"
        ) from error
    if not isinstance(output, Tensor) or tuple(output.shape) != (len(example), n_classes):
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise InvalidInputError(
            f"The module {type(module).__name__} gave {got} for {len(example)} rows; "
            f"expected logits of shape ({len(example)}, {n_classes})."
        )


@contextmanager
def _attached(criterion: nn.Module, module: nn.Module, example: Tensor) -> Iterator[None]:
    """Attach the criterion to the module during training, if it has `attach`."""
    watcher: Any = criterion if hasattr(criterion, "attach") else None
    if watcher is not None:
        watcher.attach(module, example)
    try:
        yield
    finally:
        if watcher is not None:
            watcher.detach()


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """Seed the global generators, which factories, shuffling and dropout use; restore them afterwards."""
    cuda = torch.device(device).type == "cuda"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
        # not torch.manual_seed, which would seed devices that are not restored
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed_all(seed)
        yield

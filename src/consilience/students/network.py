"""A student that trains a torch module on soft labels or on packed teacher logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from torch import Tensor, nn

from consilience._optional import require
from consilience._progress import Progress, silent
from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    take_rows,
)
from consilience.exceptions import InvalidInputError
from consilience.files.storage import StoragePath
from consilience.options import Options, anything, choice, count, flag, number, option, optional
from consilience.rows.targets import MIN_ROWS_TO_SPLIT, TargetRows
from consilience.students._contexts import attached, seeded
from consilience.students._precision import PRECISIONS, Precision, half_type
from consilience.students._rows import LazyRows, Preprocess, as_is, batches, student_rows
from consilience.students._threads import multiplications_per_row, torch_threads_for
from consilience.students._validation_rows import Validation, check_pair, read_codes
from consilience.students.estimator import Student
from consilience.students.modules import Standardize, call_factory, check_output, default_module
from consilience.teachers.torch import check_device, logits_of

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    # fused: one step for all weights at once
    "adam": (torch.optim.Adam, {"fused": True}),
    "adamw": (torch.optim.AdamW, {"fused": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),  # the paper's momentum
}


Train = Literal["estimate", "backprop"]


class Training(Options):
    """How a network is made and trained."""

    module: Any = option(
        anything("torch.nn.Module, callable or None"),
        "A module whose output is logits (n, L), or an output that has them as ``.logits`` or "
        '``["logits"]``; it is copied, never changed. Or a factory that makes one. Its arguments '
        "``n_features`` (values per row) and ``n_classes`` are passed by name. Two required arguments of "
        "other names get these two values in this order. Any other factory is called without arguments. None "
        "makes `default_module`.",
        default=None,
    )
    optimizer: Any = option(
        anything("{'adam', 'adamw', 'sgd'} or optimiser class", str),
        "How to minimise the loss.",
        default="adam",
    )
    lr: float = option(number(above=0), "Learning rate.", default=1e-3)
    max_iter: int | None = option(
        optional(count()),
        "The most epochs, that is passes over the rows; by default 50, but at most 20 million row visits, "
        "and at least one pass.",
        default=None,
    )
    patience: int | None = option(
        optional(count()),
        "Stop after this many epochs without a better validation loss and keep the best weights; None trains "
        "for `max_iter` and keeps the last weights.",
        default=5,
    )
    validation_fraction: float = option(
        number(at_least=0, below=1),
        "Share of the rows held out for `patience`. With fewer than 20 rows nothing is held out, nor with "
        "`validation`.",
        default=0.1,
    )
    callbacks: Sequence[Any] = option(
        anything("sequence of skorch callbacks"), "Passed to skorch.", default=()
    )
    device: str = option(anything("str", str), "Where to train, such as 'cpu' or 'cuda'.", default="cpu")
    weight_decay: float = option(number(at_least=0), "The optimiser's weight decay.", default=0.0)
    standardize: bool | None = option(
        optional(flag()),
        "Whether to scale each feature (or channel) of X to mean 0 and variance 1. The scaling becomes part "
        "of the module. None does so for the default module only.",
        default=None,
    )
    batch_size: int = option(count(), "Rows per step.", default=128)
    validation: Any = option(
        anything("(X, y) pair or None"),
        "Labelled rows to measure each epoch on, in place of held-out rows. `patience` then watches the "
        "cross-entropy with these labels. In an estimator such as `Unifier`, y has the names of classes, as "
        "in its `fit`; otherwise positions from 0. Rows without a label (None, NaN, -1) are left out.",
        default=None,
    )
    num_workers: int = option(
        count(at_least=0),
        "Processes that read the batches of a torch dataset, or blocks of rows. 0 reads them in this "
        "process. The order of rows is the same for every number above 0.",
        default=0,
    )
    precision: Precision = option(
        choice(*PRECISIONS),
        "What layers compute in during training. Half precision is torch's autocast; weights, losses and "
        "predictions stay in single precision. 'auto' is half precision on CUDA devices (bfloat16 if the "
        "hardware has it) and single precision elsewhere.",
        default="auto",
    )
    preprocess: Preprocess | None = option(
        anything("callable or None"),
        "Turns rows, as the teachers see them, into numbers (n, ...) for the module: a tokenizer of texts, "
        "for example. It is called with all rows, or with some of them, in training and prediction.",
        default=None,
    )


class Network(Student, Training):
    """Train a torch module with skorch, and give its logits.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module, in eval mode.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Per epoch: ``epoch``, ``train_loss``, ``valid_loss`` if rows are held out or `validation` is given,
        with the latter ``valid_accuracy``, and what callbacks add.

    Examples
    --------
    >>> import numpy as np
    >>> from consilience.nn import SoftCrossEntropy
    >>> X, Q = np.array([[0.0], [1.0]] * 8), np.array([[0.9, 0.1], [0.2, 0.8]] * 8)
    >>> student = Network(max_iter=30, lr=0.01, random_state=0)
    >>> _ = student.fit(X, Q, n_classes=2, criterion=SoftCrossEntropy())
    >>> student.predict_logits(X[:2]).argmax(axis=1).tolist()
    [0, 1]
    """

    scores = "logits"
    train: Train = option(
        choice("estimate", "backprop"),
        "Learn soft labels that were estimated before, or (of a `Unifier`) the method's own loss of the "
        "teachers' outputs, UHC Sec. 2.5.",
        default="estimate",
    )

    def fit(
        self,
        X: Any,
        targets: ArrayLike | Tensor,
        *,
        n_classes: int,
        criterion: nn.Module,
        progress: Progress = silent,
    ) -> Network:
        """Train the module.

        A keyboard interrupt is raised; skorch would end the training silently.

        Parameters
        ----------
        X : (n, ...) array, tensor or torch dataset
            Inputs, two or more dimensions. Floats become float32; integers stay int64, for embeddings. A
            dataset is read batch by batch. With `preprocess`, whatever that takes.
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
        from consilience.students._training import run

        with self.training(X, targets, n_classes=n_classes, criterion=criterion, progress=progress) as both:
            run(*both)
        return self

    def fit_by_passes(
        self,
        rows: TargetRows,
        *,
        n_classes: int,
        criterion: nn.Module,
        progress: Progress = silent,
        memory: int = 2**31,
        checkpoint: StoragePath | None = None,
        key: str = "",
    ) -> Network:
        """Train the module on rows that are read block by block, in passes over them.

        An epoch is a pass, or a part of one if there are more than 2^20 rows: `patience` counts these. Rows
        are shuffled in a buffer. At most 20,000 rows are held out. Mean and scale of `standardize` come from
        about 100,000 random rows.

        Parameters
        ----------
        rows : TargetRows
            Inputs and targets, as in `fit`. Weights of rows are multiplied with the targets, so that only a
            criterion with ``weighted=True`` fits.
        n_classes, criterion, progress
            As in `fit`.
        memory : int
            Bytes that the training may take, about. A quarter of it is the buffer.
        checkpoint : StoragePath, optional
            A folder. About every minute, between epochs, the state of the training is written there. A run
            that was killed goes on from it, if `key`, the seed, the rows and the parameters are the same, and
            comes to the same result. Students with `callbacks` have no checkpoints, since they have a state
            of their own.
        key : str
            Names the rows and targets.
        """
        require("skorch", extra="torch", purpose="Training a torch student")
        from consilience.students._passes import plan_passes
        from consilience.students._training import run

        self._check_params()
        seed = self._seed()
        plan = plan_passes(self, rows, memory, seed)
        kept = None
        if checkpoint is not None and not self.callbacks:
            from consilience.students._checkpoint import Checkpoint, identity_of

            kept = Checkpoint(checkpoint, identity_of(self, plan, seed, criterion, key), plan.data)
            plan.callbacks.append(kept)
        with self._trained(plan, seed, n_classes=n_classes, criterion=criterion, progress=progress) as net:
            run(net, plan.data)
        if kept is not None:
            kept.finish()
        return self

    @contextmanager
    def training(
        self, X: Any, targets: ArrayLike | Tensor, *, n_classes: int, criterion: nn.Module, progress: Progress
    ) -> Iterator[tuple[Any, Any]]:
        """Set up the training, and keep its result when the block ends without an error.

        The block gets a skorch net, not initialised, and its dataset, and runs as many epochs as it likes.
        The parameters are those of `fit`.
        """
        self._check_params()
        rows = student_rows(X, self.preprocess)
        if len(rows) == 0:
            raise InvalidInputError("X has no rows to train on.")
        goals = targets.detach().cpu() if isinstance(targets, Tensor) else torch.tensor(np.asarray(targets))
        goals = goals.to(torch.float32)
        if goals.ndim != 2 or len(goals) != len(rows):
            raise InvalidInputError(
                f"targets have shape {tuple(goals.shape)} for {len(rows)} rows of X; "
                f"expected ({len(rows)}, k)."
            )
        seed = self._seed()
        plan = self._plan(rows, goals, seed)
        with self._trained(plan, seed, n_classes=n_classes, criterion=criterion, progress=progress) as net:
            yield net, plan.data

    @contextmanager
    def _trained(
        self,
        plan: Any,
        seed: int,
        *,
        n_classes: int,
        criterion: nn.Module,
        progress: Progress,
        wrap: Callable[[nn.Module], nn.Module] = as_is,
    ) -> Iterator[Any]:
        """Make a net of the module, wrapped for training; keep it when the block ends without an error."""
        from consilience.students._training import history_of

        check_count("n_classes", n_classes)
        rows = plan.rows
        labelled = self._read_validation(rows, n_classes)
        with seeded(seed, self.device):
            module = self._make_module(rows, n_classes)
            check_output(module, rows, n_classes)
            work = multiplications_per_row(module, rows[:2], self.device)
            with attached(criterion, module, rows[:2]), torch_threads_for(work * self.batch_size):
                net = self._make_net(wrap(module), criterion, plan, progress, labelled)
                yield net
        self._keep(module, history_of(net), rows, work)

    def _keep(
        self, module: nn.Module, history: list[dict[str, Any]], rows: Tensor | LazyRows, work: float
    ) -> None:
        """Keep a trained module."""
        self.module_, self.history_, self.n_iter_ = module.eval(), history, len(history)
        self._shape, self._dtype, self._work = tuple(rows.shape[1:]), rows.dtype, work

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, L) of each row, in eval mode."""
        check_fitted(self, "module_")
        rows = self._check_rows(X)
        self.module_.eval()
        with torch.no_grad(), torch_threads_for(self._work * min(self.batch_size, len(rows))):
            parts = [
                logits_of(self.module_(part.to(self.device))).to("cpu", torch.float64)
                for part in batches(rows, self.batch_size, self.num_workers)
            ]
        return np.asarray(torch.cat(parts).numpy())

    def prepare(self, X: Any) -> NDArray[Any]:
        """Return rows (n, ...) as the module takes them, after `preprocess`, in memory."""
        rows = student_rows(X, self.preprocess)
        return np.asarray(rows[:].numpy())

    def encode_validation(self, encode: Callable[[Any], NDArray[Any]]) -> None:
        """Replace the labels of `validation` by positions, for an estimator that knows names of classes.

        Parameters
        ----------
        encode : callable
            From labels (n,) to positions (n,), -1 where there is no label.
        """
        if self.validation is not None:
            X, y = check_pair(self.validation)
            self.validation = (X, encode(y))

    def to_onnx(self, X_example: Any) -> Any:
        """Return the module as an ``onnx.ModelProto`` with an input ``X`` (n, ...) and an output ``logits``.

        Parameters
        ----------
        X_example : (n, ...) array or tensor
            At least one row, for its shape and type.
        """
        check_fitted(self, "module_")
        from consilience.students._onnx import module_to_onnx

        return module_to_onnx(self.module_, self._check_rows(X_example)[:])

    def _check_params(self) -> None:
        if isinstance(self.optimizer, str):
            check_choice("optimizer", self.optimizer, OPTIMIZERS)
        elif not callable(self.optimizer):
            raise InvalidInputError(
                "{argument} must be a name or a torch optimiser class.",
                argument="optimizer",
                value=self.optimizer,
            )
        self.check_options()
        check_device(self.device)

    def _seed(self) -> int:
        return int(as_random_state(self.random_state).randint(2**31 - 1))

    def _plan(self, rows: Tensor | LazyRows, goals: Tensor, seed: int) -> Any:
        """Plan the training on rows that are there already: a tenth held out, the others shuffled."""
        from skorch.dataset import ValidSplit

        from consilience.students._training import EPOCHS, Plan, Rows

        n_rows, workers = len(rows), self._workers(rows)
        split = self.validation is None and n_rows >= MIN_ROWS_TO_SPLIT
        fraction = float(self.validation_fraction) if split else 0.0
        n_train = n_rows - math.ceil(fraction * n_rows)
        iterator = {
            "shuffle": True,
            # Batch normalisation cannot train on a last batch of one row. Each epoch leaves out another row.
            "drop_last": n_train > self.batch_size and n_train % self.batch_size == 1,
            "collate_fn": as_is,
            "num_workers": workers,
            "persistent_workers": workers > 0,
        }
        held_out = ValidSplit(fraction, random_state=seed) if fraction else None
        return Plan(rows, Rows(rows, goals), held_out, self.max_iter or EPOCHS, iterator, workers, [])

    def _make_net(
        self,
        module: nn.Module,
        criterion: nn.Module,
        plan: Any,
        progress: Progress,
        labelled: Validation | None,
    ) -> Any:
        from skorch.callbacks import EarlyStopping

        from consilience.students._training import LabelledRows, StudentNet, Watch, silence

        callbacks: list[Any] = [Watch(progress, plan.epochs, self.lr), *plan.callbacks]
        if labelled is not None:
            callbacks.append(LabelledRows(*labelled, self._workers(labelled.X)))
        callbacks += self.callbacks
        if (plan.split or labelled is not None) and self.patience is not None:
            callbacks.append(EarlyStopping(patience=self.patience, load_best=True, sink=silence))
        named = isinstance(self.optimizer, str)
        optimizer, options = OPTIMIZERS[str(self.optimizer)] if named else (self.optimizer, {})
        if self.weight_decay:  # not every optimiser has it
            options = {**options, "weight_decay": self.weight_decay}
        return StudentNet(
            module,
            half=half_type(self.precision, self.device),
            criterion=criterion,
            optimizer=optimizer,
            lr=self.lr,
            max_epochs=plan.epochs,
            batch_size=self.batch_size,
            train_split=plan.split,
            callbacks=callbacks,
            device=self.device,
            # Callbacks print only if the net is verbose. The one that skorch adds itself stays silent.
            verbose=1,
            callbacks__print_log=None,
            iterator_valid__collate_fn=as_is,
            iterator_valid__num_workers=plan.num_workers,
            **{f"iterator_train__{name}": value for name, value in plan.iterator.items()},
            **{f"optimizer__{name}": value for name, value in options.items()},
        )

    def _workers(self, rows: Tensor | LazyRows) -> int:
        """Return how many processes read the batches of rows: none if they are in memory."""
        return self.num_workers if isinstance(rows, LazyRows) else 0

    def _read_validation(self, rows: Tensor | LazyRows, n_classes: int) -> Validation | None:
        """Return the labelled rows as tensors; they must look like the rows to train on."""
        if self.validation is None:
            return None
        X, y = check_pair(self.validation)
        codes = read_codes(y, n_classes)
        known = np.flatnonzero(codes >= 0)
        found = student_rows(X if len(known) == len(codes) else take_rows(X, known), self.preprocess)
        found = found.to(rows.dtype) if isinstance(found, Tensor) else found
        self._check_shape(found, tuple(rows.shape[1:]), "The rows of validation have")
        return Validation(found, torch.as_tensor(codes[known], dtype=torch.int64))

    def _check_rows(self, X: Any) -> Tensor | LazyRows:
        rows = student_rows(X, self.preprocess, self._dtype)
        self._check_shape(rows, self._shape, "X has")
        return rows

    def _check_shape(self, rows: Tensor | LazyRows, fitted: tuple[int, ...], what: str) -> None:
        # Images may have another size: a convolutional module can take them.
        if rows.ndim != len(fitted) + 1 or (rows.ndim == 2 and rows.shape[1:] != fitted):
            expected = ", ".join(str(size) for size in ("n", *fitted))
            hint = "" if self.preprocess is None else " Let preprocess pad or cut rows to one length."
            raise InvalidInputError(
                f"{what} shape {tuple(rows.shape)}; the student was fitted on ({expected}).{hint}"
            )

    def _make_module(self, rows: Tensor | LazyRows, n_classes: int) -> nn.Module:
        if self.module is None:
            return default_module(rows, n_classes, standardize=self.standardize is not False)
        if isinstance(self.module, nn.Module):
            module = copy.deepcopy(self.module)
        elif callable(self.module):
            module = call_factory(self.module, math.prod(rows.shape[1:]), n_classes)
        else:
            raise InvalidInputError(
                f"module is a {type(self.module).__name__}; give a torch module, a function that makes one, "
                "or None."
            )
        return nn.Sequential(Standardize.of(rows), module) if self.standardize else module


def as_torch_student(source: Any, random_state: Any) -> Network:
    """Return an unfitted copy of a `Network`, or a new one around a module or a factory.

    A student with a random state keeps it; any other gets `random_state`.

    Examples
    --------
    >>> student = as_torch_student(lambda n_features, n_classes: nn.Linear(n_features, n_classes), 0)
    >>> type(student).__name__, student.random_state
    ('Network', 0)
    """
    if isinstance(source, Network):
        own: Network = clone(source)
        check_device(own.device)
        return own if own.random_state is not None else own.set_params(random_state=random_state)
    return Network(source, random_state=random_state)

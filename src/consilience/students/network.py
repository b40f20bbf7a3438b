"""A student that trains a torch module on soft labels or on packed teacher logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from torch import Tensor, nn

from consilience._validation import (
    as_random_state,
    check_choice,
    check_count,
    check_fitted,
    n_rows,
    take_rows,
)
from consilience.exceptions import InvalidInputError
from consilience.kernels.arrays import Floats
from consilience.rows import as_rows
from consilience.rows.tables import as_values
from consilience.rows.targets import TargetRows
from consilience.run import Run, resolve_run
from consilience.scoring.ray import engine_options
from consilience.students.batches import Pair, Plan, plan_training, prepared
from consilience.students.modules import Standardize, call_factory, check_output, default_module
from consilience.students.options import NetworkOptions
from consilience.students.student import Student
from consilience.students.training import (
    OPTIMIZERS,
    Checkpoint,
    Trainer,
    checkpoint_file,
    identity_of,
    multiplications_per_row,
    seeded,
    torch_threads_for,
)
from consilience.teachers.torch import check_device, logits_of


class Network(Student, NetworkOptions):
    """Train a torch module, and give its logits.

    Attributes
    ----------
    module_ : torch.nn.Module
    history_ : list of dict
        Per epoch: ``epoch``, ``train_loss``, ``valid_loss`` if rows are held out or `validation` is given,
        and with the latter ``valid_accuracy``.

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

    def fit(
        self,
        X: Any,
        targets: ArrayLike | Tensor,
        *,
        n_classes: int,
        criterion: nn.Module,
        run: Run | None = None,
    ) -> Self:
        """Train the module on rows with their targets.

        Parameters
        ----------
        X : (n, ...) array, tensor, torch dataset or other rows
            Inputs, two or more dimensions. Floats become float32; integers stay int64, for embeddings. With
            `preprocess`, whatever that takes.
        targets : (n, k) array or tensor
            Soft labels (n, L), or packed teacher logits (n, m).
        n_classes : int
            L, the number of logits the module must give.
        criterion : torch.nn.Module
            Called as ``criterion(student_logits, batch_of_targets)``; returns a scalar. A criterion that
            looks inside the module has methods ``attach(module, example)``, with two rows of X, and
            ``detach()``, called before and after training. Its own parameters are trained too.
        run : Run, optional
        """
        rows = as_rows(X)
        goals = targets.detach().cpu().numpy() if isinstance(targets, Tensor) else np.asarray(targets)
        if goals.ndim != 2 or len(goals) != len(rows):
            raise InvalidInputError(
                f"targets have shape {goals.shape} for {len(rows)} rows of X; expected ({len(rows)}, k)."
            )
        return self.learn_loss(TargetRows(rows, goals), n_classes, criterion, run=run)

    def learn_loss(
        self,
        rows: TargetRows,
        n_classes: int,
        criterion: nn.Module,
        *,
        temperature: float = 1.0,
        run: Run | None = None,
        key: str = "",
    ) -> Self:
        """Train the module by a loss of its own, by passes over rows.

        Parameters
        ----------
        rows : TargetRows
            Their weights are multiplied with the targets, so that only a criterion with ``weighted=True``
            fits.
        n_classes, criterion
            As in `fit`.
        temperature, run, key
            As in `learn`.
        """
        self.check_options()
        self.temperature_ = float(temperature)
        self._train(rows, check_count("n_classes", n_classes), criterion, resolve_run(run), key)
        return self

    def learn_rows(self, rows: TargetRows, class_weights: Floats, run: Run, key: str) -> None:
        """Train the module by a cross-entropy with soft labels."""
        from consilience.nn import CollisionCrossEntropy, SoftCrossEntropy

        make = CollisionCrossEntropy if self.loss == "collision" else SoftCrossEntropy
        weighted = rows.sample(1, 0)[2] is not None
        criterion = make(weight=class_weights, temperature=self.temperature_, weighted=weighted)
        self._train(rows, rows.n_columns, criterion, run, key)

    def _train(self, rows: TargetRows, n_classes: int, criterion: nn.Module, run: Run, key: str) -> None:
        """Train the module by passes over rows.

        An epoch is a pass, or a part of one if there are more than 2^20 rows: `patience` counts these. Rows
        are shuffled in a buffer of 64 MB, whatever the memory, so the same call gives the same model. At most
        20,000 rows are held out. Mean and scale of `standardize` come from about 100,000 random rows.

        With a cache and a `key`, the state of the training is written there about every minute, between
        epochs. A run that was killed goes on from it, if key, seed, rows and parameters are the same, and
        comes to the same result.
        """
        if run.engine == "ray" and engine_options(run).train_workers is not None:
            from consilience.students.ray_train import learn_on_ray

            learn_on_ray(self, rows, n_classes, criterion, run, key)
            return
        seed = self.seed()
        plan = plan_training(self, rows, seed)
        with checkpoint_file(run, key) as file:
            kept = None
            if file is not None and not self.callbacks:
                kept = Checkpoint(file, identity_of(self, plan, seed, criterion, key))
            with self.training(plan, seed, n_classes, criterion) as trainer:
                trainer.run(run.report, kept)

    @contextmanager
    def training(
        self, plan: Plan, seed: int, n_classes: int, criterion: nn.Module, **options: Any
    ) -> Iterator[Trainer]:
        """Give a `Trainer` of a new module; keep the module when the block ends without an error.

        `options` are those of the trainer.
        """
        rows, labelled = plan.rows, self._read_validation(plan.rows, n_classes)
        with seeded(seed, self.device), ExitStack() as stack:
            module = self.make_module(rows, n_classes)
            check_output(module, rows, n_classes)
            work = multiplications_per_row(module, rows[:2], self.device)
            watcher: Any = criterion
            if hasattr(watcher, "attach"):
                watcher.attach(module, rows[:2])
                stack.callback(watcher.detach)
            stack.enter_context(torch_threads_for(work * self.batch_size))
            trainer = Trainer(self, module, criterion, plan, labelled, **options)
            yield trainer
        self.keep(module, trainer.history, rows)

    def keep(self, module: nn.Module, history: list[dict[str, Any]], rows: Tensor) -> None:
        """Predict with a module that was trained on rows like these."""
        self.module_, self.history_, self.n_iter_ = module.eval(), history, len(history)
        self._shape, self._dtype = tuple(rows.shape[1:]), rows.dtype
        self._work = multiplications_per_row(module, rows[:2].to(self.device), self.device)

    def predict_logits(self, X: Any) -> Floats:
        """Return the logits (n, L) of each row, in eval mode."""
        check_fitted(self, "module_")
        rows = self._check_rows(X)
        self.module_.eval()
        with torch.no_grad(), torch_threads_for(self._work * min(self.batch_size, len(rows))):
            parts = [
                logits_of(self.module_(part.to(self.device))).to("cpu", torch.float64)
                for part in torch.split(rows, self.batch_size)
            ]
        return np.asarray(torch.cat(parts).numpy())

    def predict_all(self, X: Any, n_classes: int) -> Floats:
        """Return probabilities (n, L), at the temperature of the soft labels."""
        return np.asarray(softmax(self.predict_logits(X) / self.temperature_, axis=1))

    def prepare(self, X: Any) -> NDArray[Any]:
        """Return rows (n, ...) as the module takes them, after `preprocess`, in memory."""
        return np.asarray(prepared(as_values(X), self.preprocess).numpy())

    def to_onnx(self, X_example: Any) -> Any:
        """Return the module as an ``onnx.ModelProto`` with an input ``X`` (n, ...) and an output ``logits``.

        Parameters
        ----------
        X_example : (n, ...) array or tensor
            At least one row, for its shape and type.
        """
        check_fitted(self, "module_")
        from consilience.students.modules import module_to_onnx

        return module_to_onnx(self.module_, self._check_rows(X_example))

    def check_options(self) -> None:
        """Raise if an option is wrong."""
        if isinstance(self.optimizer, str):
            check_choice("optimizer", self.optimizer, OPTIMIZERS)
        elif not callable(self.optimizer):
            raise InvalidInputError(
                "{argument} must be a name or a torch optimiser class.",
                argument="optimizer",
                value=self.optimizer,
            )
        super().check_options()
        check_device(self.device)
        if self.validation is not None:
            _check_pair(self.validation)

    def seed(self) -> int:
        """Draw the seed of a training."""
        return int(as_random_state(self.random_state).randint(2**31 - 1))

    def make_module(self, rows: Tensor, n_classes: int) -> nn.Module:
        """Return a new module for rows like these."""
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

    def _read_validation(self, rows: Tensor, n_classes: int) -> Pair | None:
        """Return the labelled rows, which must look like the rows to train on, and positions of labels."""
        if self.validation is None:
            return None
        X, y = self.validation
        codes = _read_codes(y, n_classes)
        known = np.flatnonzero(codes >= 0)
        found = prepared(take_rows(as_values(X), known), self.preprocess).to(rows.dtype)
        self._check_shape(found, tuple(rows.shape[1:]), "The rows of validation have")
        return found, torch.as_tensor(codes[known], dtype=torch.int64)

    def _check_rows(self, X: Any) -> Tensor:
        rows = prepared(as_values(X), self.preprocess).to(self._dtype)
        self._check_shape(rows, self._shape, "X has")
        return rows

    def _check_shape(self, rows: Tensor, fitted: tuple[int, ...], what: str) -> None:
        # Images may have another size: a convolutional module can take them.
        if rows.ndim != len(fitted) + 1 or (rows.ndim == 2 and rows.shape[1:] != fitted):
            expected = ", ".join(str(size) for size in ("n", *fitted))
            hint = "" if self.preprocess is None else " Let preprocess pad or cut rows to one length."
            raise InvalidInputError(
                f"{what} shape {tuple(rows.shape)}; the student was fitted on ({expected}).{hint}"
            )


def _check_pair(validation: Any) -> None:
    """Raise unless ``validation=`` is a pair of rows and as many labels."""
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise InvalidInputError(
            f"validation is a {type(validation).__name__}; give a pair of rows and labels: (X, y)."
        )
    rows, labels = n_rows(as_values(validation[0])), n_rows(validation[1])
    if rows != labels:
        raise InvalidInputError(f"validation has {rows} rows and {labels} labels; give a label for each row.")


def _read_codes(y: Any, n_classes: int) -> NDArray[np.intp]:
    """Return positions (n,) of labels among the classes, -1 for no label, or raise."""
    codes = np.asarray(y)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise InvalidInputError(
            f"The labels of validation have shape {codes.shape} and type {codes.dtype}; expected (n,) whole "
            f"numbers from 0 to {n_classes - 1}, the positions of classes. Unifier takes names of classes."
        )
    wrong = codes[(codes < -1) | (codes >= n_classes)]
    if len(wrong):
        raise InvalidInputError(
            f"validation has the label {wrong[0]}; expected 0 to {n_classes - 1}, or -1 for no label."
        )
    if (codes < 0).all():
        raise InvalidInputError("validation has no row with a label. Give some, or leave validation out.")
    return codes.astype(np.intp)

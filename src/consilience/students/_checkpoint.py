"""Checkpoints of a training by passes: a run that was killed goes on from the last one."""

from __future__ import annotations

import json
import time
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from skorch.callbacks import Callback, EarlyStopping, PassthroughScoring
from torch import Tensor

from consilience.exceptions import ConsilienceWarning, StorageError
from consilience.files.storage import StoragePath
from consilience.students._passes import ShuffledBatches
from consilience.students._training import history_of

FILE = "training.npz"
INTERVAL = 60.0
"""Seconds between checkpoints, at the least. They are written between epochs."""


class Checkpoint(Callback):
    """Writes all there is to know about a training after an epoch, and restores it at the start.

    A file that is damaged or from another training is ignored, and then replaced. When training is over, the
    file is removed.

    Parameters
    ----------
    folder : StoragePath
        Where the file is; it is made if it does not exist.
    identity : dict
        What must agree for a training to go on, as JSON values.
    data : ShuffledBatches
        What the net trains on.
    """

    last = True  # see StudentNet.initialize_callbacks

    def __init__(self, folder: StoragePath, identity: Mapping[str, Any], data: ShuffledBatches) -> None:
        self.folder, self.identity, self.data, self.interval = folder, identity, data, INTERVAL
        folder.make_root()

    def on_train_begin(self, net: Any, **_: Any) -> None:
        """Go on where an earlier run of the same training ended."""
        self._written = time.monotonic()
        found = self._read()
        if found is None:
            return
        about, arrays = found
        _restore(net, about, arrays)
        done = len(about["history"])
        net.max_epochs -= done
        self.data.skip(done)
        torch.set_rng_state(torch.from_numpy(arrays["random"]))  # after all draws that a start makes

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Write a checkpoint if the last one is old."""
        if time.monotonic() - self._written >= self.interval:
            about, arrays = _state(net)
            about["identity"] = self.identity
            arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
            self._write(arrays)
            self._written = time.monotonic()

    def finish(self) -> None:
        """Remove the file: the training is over."""
        (self.folder / FILE).delete()

    def _read(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        try:
            with self._opened() as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(arrays.pop("about").tobytes())
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return (about, arrays) if about.get("identity") == json.loads(json.dumps(self.identity)) else None

    def _opened(self) -> Any:
        """Open the last checkpoint, as a context; raise OSError if there is none."""
        return (self.folder / FILE).reading()

    def _write(self, arrays: dict[str, NDArray[Any]]) -> None:
        try:
            with (self.folder / FILE).writing(durable=True) as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
        except StorageError as error:  # a bucket that does not answer is no reason to stop
            warnings.warn(f"No checkpoint: {error}", ConsilienceWarning, stacklevel=2)


def identity_of(student: Any, plan: Any, seed: int, criterion: Any, key: str) -> dict[str, Any]:
    """Return what must be the same for a training to go on, as JSON values."""
    names = ("lr", "batch_size", "max_iter", "patience", "weight_decay", "standardize", "precision", "device")
    data = plan.data
    return {
        "key": key,
        "seed": seed,
        "workers": plan.workers,
        "student": {name: getattr(student, name) for name in names},
        "module": repr(student.module),
        "optimizer": repr(student.optimizer),
        "criterion": repr(criterion),
        "rows": [data.epochs.n_rows, data.blocks.rows.n_columns, *data.X.shape],
        "torch": torch.__version__,
    }


def _state(net: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return numbers and names of a training as JSON values, and its arrays by name."""
    arrays = {"random": torch.get_rng_state().numpy()}
    for part, values in (("module", net.module_.state_dict()), ("criterion", net.criterion_.state_dict())):
        arrays.update({f"{part}/{name}": plain_array(value) for name, value in values.items()})
    optimizer = net.optimizer_.state_dict()
    scalars: dict[str, Any] = {}
    for place, state in optimizer["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                arrays[f"optimizer/{place}/{name}"] = plain_array(value)
            else:
                scalars[f"{place}/{name}"] = value
    about: dict[str, Any] = {"history": history_of(net), "scalars": scalars}
    about["groups"] = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer["param_groups"]
    ]
    about["scaler"] = None if net.scaler is None else net.scaler.state_dict()
    stopping = _early_stopping(net)
    if stopping is not None:
        about["stopping"] = [stopping.misses_, float(stopping.dynamic_threshold_), stopping.best_epoch_]
        for name, value in (stopping.best_model_weights_ or {}).items():
            arrays[f"best/{name}"] = plain_array(value)
    return about, arrays


def _restore(net: Any, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Put a net into the state that `_state` returned."""
    net.module_.load_state_dict(tensors_like(arrays, "module/", net.module_.state_dict()))
    net.criterion_.load_state_dict(tensors_like(arrays, "criterion/", net.criterion_.state_dict()))
    optimizer = net.optimizer_.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for name, value in arrays.items():
        if name.startswith("optimizer/"):
            _, place, what = name.split("/")
            state.setdefault(int(place), {})[what] = torch.from_numpy(value)
    for name, value in about["scalars"].items():
        place, what = name.split("/")
        state.setdefault(int(place), {})[what] = value
    groups = [
        {**group, **saved} for group, saved in zip(optimizer["param_groups"], about["groups"], strict=True)
    ]
    net.optimizer_.load_state_dict({"state": state, "param_groups": groups})
    if net.scaler is not None:
        net.scaler.load_state_dict(about["scaler"])
    for row in about["history"]:
        net.history_.append({"batches": [], **row})
    for _, found in net.callbacks_:
        if isinstance(found, PassthroughScoring):  # skorch's own, which marks the best epochs
            losses = [row[found.name] for row in about["history"] if found.name in row]
            found.best_score_ = min(losses, default=np.inf)
    stopping = _early_stopping(net)
    if stopping is not None:
        stopping.misses_, stopping.dynamic_threshold_, stopping.best_epoch_ = about["stopping"]
        if any(name.startswith("best/") for name in arrays):
            stopping.best_model_weights_ = tensors_like(arrays, "best/", net.module_.state_dict())


def _early_stopping(net: Any) -> Any:
    return next((found for _, found in net.callbacks_ if isinstance(found, EarlyStopping)), None)


def plain_array(value: Tensor) -> NDArray[Any]:
    """Return a tensor as an array; numpy does not know bfloat16."""
    plain = value.detach().cpu().contiguous()
    return np.array(plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy())


def tensors_like(arrays: dict[str, NDArray[Any]], part: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the arrays of a part as tensors of the types and on the devices of others."""
    return {
        name: torch.from_numpy(arrays[part + name]).to(value.device, value.dtype)
        for name, value in like.items()
    }

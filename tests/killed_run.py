"""A run on rows in a file that ends its own process once, for test_killed.py; also started as a program."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from consilience import CrossTaskDistiller, Unifier, as_teacher
from consilience.rows import rows
from consilience.run import Run
from consilience.students import Network, training

N, BATCH = 256, 16


class Noting:
    """A teacher that notes the rows it is asked about, and may end the process."""

    name, classes, fingerprint = "noting", ("a", "b", "c"), "v1"

    def __init__(self, folder: Path, end: Any) -> None:
        self.log, self.end = folder / "asked", end

    def predict_logits(self, X: Any) -> Any:
        with self.log.open("a") as file:
            file.writelines(f"{value:.6f}\n" for value in X[:, 0])
        self.end("scoring", len(self.log.read_text().split()))
        return X[:, :3] * 3


def run(verb: str, folder: Path, when: str = "never", by: str = "SIGKILL") -> Any:
    """Do what a verb does, and end at the first chance after `when` has begun."""
    X = np.random.default_rng(0).normal(size=(N, 5))
    np.save(folder / "X.npy", X)

    def end(task: str, done: int) -> None:
        if task == when and done >= (N // 2 if task == "scoring" else 3):
            # it is ignored where tests run in the background
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.kill(os.getpid(), getattr(signal, by))

    def progress(task: str, done: int, total: int) -> None:
        if task == "training":
            with (folder / "epochs").open("a") as file:
                file.write(f"{done}\n")
            end(task, done)

    options: dict[str, Any] = {"cache": folder / "cache", "memory": "12KB", "progress": progress}
    teacher = as_teacher(Noting(folder, end))
    student = Network(max_iter=6, patience=None, lr=0.01)
    if verb == "distil":
        y = np.where(np.arange(N) % 4 == 0, X[:, 0] > 0, -1)
        distiller = CrossTaskDistiller(
            teacher,
            student,
            teacher_weight=1.0,
            check=False,
            random_state=0,
            run=Run(rows_per_call=BATCH, **options),
        )
        return distiller.fit(folder / "X.npy", y).predict_proba(X)
    unifier = Unifier([teacher], student, random_state=0, run=Run(rows_per_call=BATCH, **options))
    return unifier.fit(folder / "X.npy").predict_proba(X)


def small_steps() -> dict[Any, dict[str, Any]]:
    """Return what to set so that few rows make many blocks, and all is written at once."""
    return {
        rows: {"BLOCK_ROWS": 64},
        training: {"INTERVAL": 0.0},
    }


if __name__ == "__main__":
    for module, values in small_steps().items():
        for name, value in values.items():
            setattr(module, name, value)
    run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])

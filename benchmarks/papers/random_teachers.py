"""Put teachers that know nothing into a repository, and count the rankings that they win.

A task has rows of a few classes. Six real teachers know all, half or none of these classes. They are
networks, logistic regressions or forests. Every metric scores them and each random teacher, in the form of
its paper (``folds=1``) and cross-fitted (``folds=2``). Two true answers are recorded for each real teacher:
the accuracy of students trained with it by the loss (11) of SCTD, and that of a logistic regression on its
embedding.

Run from the root of the repository::

    python -m benchmarks.papers.random_teachers --data digits cub cifar100 clinc --trials 3 --seed 10
    python -m benchmarks.render

Every task appends a line to ``random_teachers.jsonl`` in the folder of ``--results``. With ``--resume``,
tasks that are there are skipped.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.assess import METRICS
from benchmarks.papers.render_assess import RANDOM_RESULTS
from benchmarks.papers.sources import Source, load
from benchmarks.papers.windows import Rows, Task, Window, make_task, split_rows, student_view, train_students
from consilience import Teacher, as_teacher, rank_teachers
from consilience.run import Run
from consilience.scoring import observe
from consilience.transport.centres import features

FOLDS = (1, 2)
PER_CLASS = (2, 5, 10)
TEST_ROWS = 1000
TEACHER_ROWS = 1500
# the classes of a task, the weight of the loss (11), the columns that students see
SETTINGS = {
    "digits": Window(4, 0, 0, 10.0, 0, (), students=4, steps=100),
    "cub": Window(20, 0, 0, 30.0, 48, (), hidden=64, students=4, steps=100),
    "cifar100": Window(20, 0, 0, 30.0, 48, (), hidden=64, students=4, steps=100),
    "clinc": Window(15, 0, 0, 30.0, 48, (), hidden=64, students=4, steps=100),
}
# the share of the task's classes that a teacher knows, and its kind
KNOWN = {
    "shared": ((1.0, "network"), (1.0, "forest"), (0.5, "network"), (0.5, "logistic"), (0.0, "network"),
               (0.0, "forest")),
    "other": ((0.0, "network"), (0.0, "forest"), (0.0, "logistic"), (0.0, "network"), (0.0, "forest"),
              (0.0, "network")),
}  # fmt: skip


class RandomTeacher:
    """A teacher whose outputs and embeddings have nothing to do with the rows."""

    batched = False

    def __init__(self, n: int, n_classes: int, width: int, sure: bool, rng: np.random.RandomState) -> None:
        self.name, self.classes = "random", np.arange(n_classes)
        guesses = np.eye(n_classes)[rng.randint(n_classes, size=n)]
        self._logits = 9.0 * guesses if sure else rng.randn(n, n_classes)
        self._embeddings = rng.randn(n, width).astype(np.float32)
        self.class_weights = rng.randn(n_classes, width)

    def predict_logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits, whatever X is."""
        return self._logits

    def embed(self, X: Any) -> NDArray[np.float32]:
        """Return the embeddings, whatever X is."""
        return self._embeddings


# classes, width of the embedding, and whether it is sure of one class
RANDOM = {
    "1,000 classes, sure": (1000, 64, True),
    "1,000 classes, unsure": (1000, 64, False),
    "200 classes, sure": (200, 512, True),
    "width 2,048": (10, 2048, False),
}


@dataclass(frozen=True)
class Repository:
    """Real teachers by name, the rows, what students see of them, and the classes of the task."""

    teachers: dict[str, Teacher]
    rows: Rows
    view: NDArray[np.float32]
    asked: NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RANDOM_RESULTS)
    torch.set_num_threads(1)  # so that results do not depend on the machine
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    about = records.provenance("random_teachers")
    seeds = range(options.seed, options.seed + options.trials)
    sources = {data: load(data, options.data_dir) for data in options.data}
    for seed, data, classes in itertools.product(seeds, sources, KNOWN):
        settings = [{"data": data, "classes": classes, "per_class": count} for count in PER_CLASS]
        missing = [setting for setting in settings if (setting, seed) not in done]
        repository = make_repository(sources[data], SETTINGS[data], classes, seed) if missing else None
        for setting in missing:
            started = time.perf_counter()
            found = run(repository, replace(SETTINGS[data], per_class=setting["per_class"]), seed)
            seconds = round(time.perf_counter() - started, 1)
            record = {"experiment": "random_teachers", "setting": setting, "seed": seed, **found}
            records.append(options.results, {**record, "seconds": seconds, **about})
            print(f"{setting}, seed {seed}, {seconds:.0f} s", flush=True)


def run(repository: Repository, window: Window, seed: int) -> dict[str, Any]:
    """Return every score of every teacher, and what students and embeddings of the real ones reach."""
    task = make_task(repository.rows, repository.asked, window.per_class, repository.view)
    rng = np.random.RandomState(seed)
    random = {name: RandomTeacher(len(task.y), *kind, rng) for name, kind in RANDOM.items()}
    scores = {f"folds={folds}": scored({**repository.teachers, **random}, task, folds) for folds in FOLDS}
    real = repository.teachers.items()
    truth = {
        "distil": {name: train_students(task, window, seed, teacher).accuracy for name, teacher in real},
        "reuse": {name: reuse_accuracy(task, repository.rows.X_test, teacher) for name, teacher in real},
    }
    return {"truth": truth, "scores": scores}


def scored(teachers: Mapping[str, Any], task: Task, folds: int) -> dict[str, dict[str, float | None]]:
    """Return the score of each teacher by metric; None where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranking = rank_teachers(teachers, task.X, task.y, metric=METRICS, folds=folds, confidence=None)
    rows = ranking.to_dict()["teachers"]
    return {metric: {row["name"]: row["scores"].get(metric) for row in rows} for metric in METRICS}


def make_repository(source: Source, window: Window, classes: str, seed: int) -> Repository:
    """Train the real teachers on one half of the rows. Tasks come from the other half."""
    rng = np.random.RandomState(seed)
    rows = split_rows(source, rng)
    view = student_view(rows.X.shape[1], window.seen, rng)
    order = rng.permutation(np.unique(rows.y))
    asked, others = np.sort(order[: window.window]), order[window.window :]
    teachers: dict[str, Teacher] = {}
    for share, kind in KNOWN[classes]:
        shared = asked[: round(share * len(asked))]
        more = rng.permutation(others)[: len(asked) - len(shared)]
        name = f"{kind} {len(teachers) + 1}, {100 * share:.0f} %"
        teachers[name] = train_teacher(rows, np.concatenate([shared, more]), kind, seed)
    kept = np.flatnonzero(np.isin(rows.y_test, asked))[:TEST_ROWS]
    rows = rows._replace(X_test=rows.X_test[kept], y_test=rows.y_test[kept])
    return Repository(teachers, rows, view, asked)


def train_teacher(rows: Rows, classes: NDArray[Any], kind: str, seed: int) -> Teacher:
    """Train a teacher of these classes."""
    own = rows.ours[np.isin(rows.y[rows.ours], classes)][:TEACHER_ROWS]
    models = {
        "network": MLPClassifier(64, max_iter=40, random_state=seed),
        "forest": RandomForestClassifier(50, min_samples_leaf=2, random_state=seed),
        "logistic": LogisticRegression(max_iter=200),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return as_teacher(models[kind].fit(rows.X[own], rows.y[own]))


def reuse_accuracy(task: Task, X_test: NDArray[np.float32], teacher: Teacher) -> float:
    """Return the test accuracy of a logistic regression on the teacher's embedding."""
    F, F_test = (features(observe(teacher, X, Run())).astype(np.float64) for X in (task.X, X_test))
    mean, scale = F.mean(axis=0), np.sqrt(F.var(axis=0).mean())
    model = LogisticRegression(max_iter=500).fit((F - mean) / scale, task.codes)
    return float(model.score((F_test - mean) / scale, task.codes_test))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.random_teachers", description=__doc__)
    parser.add_argument("--data", nargs="+", choices=sorted(SETTINGS), default=["digits"])
    parser.add_argument("--data-dir", help="folder of the data; default: the variable CONSILIENCE_DATA")
    parser.add_argument("--trials", type=int, default=1, help="draws of classes and rows (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial (0)")
    results.add_options(parser)
    parser.add_argument("--resume", action="store_true", help="skip tasks that are in the file")
    return parser


if __name__ == "__main__":
    main()

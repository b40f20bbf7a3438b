"""Rerun the teacher assessment of "Selective Cross-Task Distillation" (SCTD, Sec. 6.2) on features.

For each task, every metric scores every teacher, and a student is trained with each teacher. The result is
Pearson's correlation between scores and the students' test accuracies (Table 11). The record also has the
seconds per teacher (Table 13), the three ways to compute eq. (24) (Fig. 8), and how far the fictitious
student is from the true ones (Table 12).

Run from the root of the repository::

    python -m benchmarks.papers.assess --data cub --resume
    python -m benchmarks.render

Every task appends a line to ``assess.jsonl`` in the folder of ``--results``. With ``--resume``, tasks that
are already there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import load
from benchmarks.papers.windows import Repository, Students, Task, Window, make_repository, train_students
from consilience import Teacher, rank_teachers
from consilience.kernels.rank.probe import probe_logits
from consilience.rank import Transport
from consilience.rank.metrics import unit_scale
from consilience.run import Run
from consilience.scoring import observe
from consilience.transport.centres import features

RESULTS = records.FOLDER / "assess.jsonl"
METRICS = ("transport", "nce", "leep", "logme", "h_score", "n_leep", "gbc", "otce", "transrate")
# variants of the transport metric, to see how much each part contributes
PRINTED: dict[str, Any] = {
    "score": "distance",
    "temperature": 3.0,
    "epsilon": 0.1,
}  # and one fold
CROSS_FITTED = ("nce", "leep", "h_score", "n_leep", "otce", "transrate")
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"{metric}, as published": {"metric": metric, "folds": 1} for metric in CROSS_FITTED},
    "eq. (24), as printed": {"metric": Transport(**PRINTED), "folds": 1},
    "eq. (24), automatic epsilon": {"metric": Transport(**{**PRINTED, "epsilon": "auto"}), "folds": 1},
    "plain cost <T, M>": {"metric": Transport(score="cost", temperature=3.0), "folds": 1},
    "likelihood, temperature 3": {"metric": Transport(temperature=3.0)},
    "likelihood, l2 0.01": {"metric": Transport(weight_decay=1e-2)},
    "likelihood, in-sample": {"folds": 1},
    "likelihood, centres not normalised": {"metric": Transport(normalize=False)},
    "likelihood, Approximation I": {"metric": Transport(student="alone")},
    "eq. (24), Approximation I": {"metric": Transport(**PRINTED, student="alone"), "folds": 1},
    "likelihood, exact": {"metric": Transport(student="taught")},
    "eq. (24), exact": {"metric": Transport(**PRINTED, student="taught"), "folds": 1},
}
KL_TEMPERATURES = (1.0, 3.0)  # our default's, and the paper's
PROBE_WEIGHT_DECAY = 1e-3  # the default of `rank_teachers`
SETTINGS = {
    "digits": Window(5, 1, 8, 10.0, 0, ((64,), (128, 32)), students=3, steps=100, teacher_steps=150),
    "cub": Window(100, 25, 8, 100.0, 48, ((256,), (64,)), hidden=64, students=2),
    "cifar100": Window(50, 10, 8, 30.0, 48, ((128,), (64,)), hidden=64, students=2),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    setting = SETTINGS[options.data]
    networks = [list(hidden) for hidden in setting.networks]  # as JSON has them
    described = {"data": options.data, **asdict(setting), "networks": networks}
    done = [(r["setting"], r["seed"], t["task"]) for r in records.read(options.results) for t in r["tasks"]]
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    source = load(options.data, options.data_dir)
    about = records.provenance("assess")
    for seed in range(options.seed, options.seed + options.trials):
        repository = make_repository(source, setting, seed)
        for place in range(len(repository.tasks)) if options.tasks is None else options.tasks:
            if options.resume and (described, seed, place) in done:
                continue
            started = time.perf_counter()
            task = {"task": place, **run_task(repository, place, setting, seed, options.only)}
            seconds = round(time.perf_counter() - started, 1)
            record = {"experiment": "assess", "setting": described, "seed": seed, "tasks": [task]}
            records.append(options.results, {**record, "seconds": seconds, **about})
            shown = ", ".join(f"{name} {value:.2f}" for name, value in task["pearson"].items())
            print(f"{options.data}, seed {seed}, task {place}, {seconds:.0f} s: {shown}", flush=True)


@dataclass(frozen=True)
class Trained:
    """A student that is already trained, with the interface that `rank_teachers` needs."""

    logits: NDArray[np.float32]
    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any) -> Trained:
        """Do nothing: the student has already learnt from these rows."""
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities (n, K) of the rows that it learnt from."""
        return np.asarray(softmax(self.logits.astype(np.float64), axis=1))


def run_task(
    repository: Repository, place: int, setting: Window, seed: int, names: Sequence[str] | None
) -> dict[str, Any]:
    """Return the accuracies, scores, correlations and seconds per teacher of one task."""
    ways = {**{metric: {"metric": metric} for metric in METRICS}, **VARIANTS}
    task, teachers = repository.tasks[place], repository.teachers
    alone = train_students(task, setting, seed)
    taught = {name: train_students(task, setting, seed, teacher) for name, teacher in teachers.items()}
    truth = {name: students.accuracy for name, students in taught.items()}
    scores, pearson, seconds = {}, {}, {}
    for name in names or ways:
        scores[name], seconds[name] = assessed(teachers, task, ways[name], alone, taught)
        pearson[name] = correlation(scores[name], truth)
    return {
        "alone": alone.accuracy,
        "accuracy": truth,
        "scores": scores,
        "pearson": pearson,
        "seconds": seconds,
        "overlap": {
            name: float(np.isin(task.y, teacher.classes).mean()) for name, teacher in teachers.items()
        },
        "kl": {name: student_gap(task, teacher, taught[name]) for name, teacher in teachers.items()},
    }


def assessed(
    teachers: Mapping[str, Teacher],
    task: Task,
    options: Mapping[str, Any],
    alone: Students,
    taught: Mapping[str, Students],
) -> tuple[dict[str, float], float]:
    """Return each teacher's score, and the seconds of the median teacher.

    Variants that need a true student use the students that were trained for the accuracies. The score is the
    mean over these students, and the seconds include their training.
    """
    metric, classes = options.get("metric", "transport"), np.unique(task.y)
    wanted = metric.student if isinstance(metric, Transport) else "probe"  # replaced by trained ones below
    students: list[Any] = ["probe"]
    if wanted == "alone":
        students = [Trained(one, classes) for one in alone.logits]
    elif wanted == "taught":
        students = [
            lambda teacher, i=i: Trained(taught[teacher.name].logits[i], classes)
            for i in range(len(alone.logits))
        ]
    scores, spent = ({name: [] for name in teachers} for _ in range(2))
    for student in students:
        if isinstance(metric, Transport):
            metric = Transport(**{**metric.get_params(deep=False), "student": student})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {**options, "metric": metric}
            ranking = rank_teachers(teachers, task.X, task.y, confidence=None, **given)
        for row in ranking:
            scores[row.name].append(row.score)
            spent[row.name].append(row.seconds)
    trained = {
        "alone": dict.fromkeys(teachers, alone.seconds / len(teachers)),
        "taught": {name: one.seconds for name, one in taught.items()},
    }.get(wanted, dict.fromkeys(teachers, 0.0))
    seconds = [np.mean(spent[name]) + trained[name] for name in teachers]
    return {name: float(np.mean(values)) for name, values in scores.items()}, float(np.median(seconds))


def student_gap(task: Task, teacher: Teacher, students: Students) -> dict[str, float]:
    """Return KL(f_S || f_F) at each temperature, the mean over the task's rows and the students."""
    embeddings = features(observe(teacher, task.X, Run())).astype(np.float32)
    F = unit_scale(embeddings) * np.float32(np.sqrt(embeddings.shape[1]))
    fictitious = probe_logits(F, task.codes, int(task.codes.max()) + 1, PROBE_WEIGHT_DECAY, None).logits
    gaps = {}
    for temperature in KL_TEMPERATURES:
        log_S = log_softmax(students.logits.astype(np.float64) / temperature, axis=2)
        log_F = log_softmax(fictitious.astype(np.float64) / temperature, axis=1)
        gaps[f"{temperature:g}"] = float((np.exp(log_S) * (log_S - log_F)).sum(axis=2).mean())
    return gaps


def correlation(scores: Mapping[str, float], truth: Mapping[str, float]) -> float:
    """Return Pearson's correlation of scores and accuracies, or 0 if either is constant."""
    pairs = np.array([(scores[name], truth[name]) for name in scores])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if len(pairs) < 3 or not pairs.std(axis=0).all():
        return 0.0
    return float(np.corrcoef(pairs.T)[0, 1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.assess", description=__doc__)
    parser.add_argument("--data", choices=sorted(SETTINGS), default="digits")
    parser.add_argument("--data-dir", help="folder of the data; default: the variable CONSILIENCE_DATA")
    parser.add_argument("--trials", type=int, default=1, help="orders of the classes (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial (0)")
    parser.add_argument("--tasks", type=int, nargs="+", help="places of the students' windows; default: all")
    parser.add_argument("--only", nargs="+", choices=[*METRICS, *VARIANTS], help="leave out other metrics")
    results.add_options(parser)
    parser.add_argument("--resume", action="store_true", help="skip trials that are in the file")
    return parser


if __name__ == "__main__":
    main()

"""Select a teacher from a coarse-grained repository, after SCTD, Sec. 6.2.6 (Fig. 10), on features.

The paper uses five data sets of images. Here there are five domains, each made of four superclasses of
CIFAR-100, with a teacher and a task per domain. With ``--classes shared``, a task has the classes of its
domain's teacher, on rows that no teacher has seen. With ``--classes other``, the teacher knows one half of
the domain's classes and the task is the other half, so no teacher knows any class of the task.

Run from the root of the repository::

    python -m benchmarks.papers.coarse
    python -m benchmarks.papers.coarse --data cifar100 --trials 3
    python -m benchmarks.render

Every trial appends a line to ``coarse.jsonl`` in the folder of ``--results``. With ``--resume``, trials that
are there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.assess import VARIANTS
from benchmarks.papers.render_assess import COARSE_RESULTS, selected
from benchmarks.papers.sources import CIFAR100_SUPERCLASSES, Source, load
from benchmarks.papers.windows import (
    Repository,
    Window,
    make_task,
    split_rows,
    student_view,
    train_network,
    train_students,
)
from consilience import Teacher, as_teacher, rank_teachers

CLASSES = ("shared", "other")
# the superclasses of each domain, numbered in alphabetical order
CIFAR100_DOMAINS = {
    "land mammals": (8, 11, 12, 16),  # carnivores, large and medium-sized mammals, small ones
    "water animals, reptiles": (0, 1, 13, 15),  # aquatic mammals, fish, invertebrates, reptiles
    "garden": (2, 4, 7, 17),  # flowers, fruit and vegetables, insects, trees
    "indoors": (3, 5, 6, 14),  # food containers, electrical devices, furniture, people
    "outdoors": (9, 10, 18, 19),  # man-made things, natural scenes, both kinds of vehicles
}
# the groups of classes in each domain; each group is split in half
DOMAINS: dict[str, dict[str, list[list[int]]]] = {
    "cifar100": {
        name: [np.flatnonzero(np.equal(CIFAR100_SUPERCLASSES, one)).tolist() for one in superclasses]
        for name, superclasses in CIFAR100_DOMAINS.items()
    },
    "digits": {"with a loop": [[0, 4, 6, 8, 9]], "without": [[1, 2, 3, 5, 7]]},
}
SETTINGS = {
    "cifar100": Window(20, 20, 8, 30.0, 48, ((128,),), hidden=64, students=3),
    "digits": Window(5, 5, 8, 10.0, 0, ((64,),), students=2, steps=100, teacher_steps=150),
}
WAYS: dict[str, dict[str, Any]] = {
    "transport": {},
    "eq. (24), as printed": VARIANTS["eq. (24), as printed"],
    "leep": {"metric": "leep"},
    "logme": {"metric": "logme"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, COARSE_RESULTS)
    setting = SETTINGS[options.data]
    networks = [list(hidden) for hidden in setting.networks]  # as JSON has them
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    source = _one_view(load(options.data, options.data_dir))
    about = records.provenance("coarse")
    for seed in range(options.seed, options.seed + options.trials):
        for classes in options.classes:
            described = {"data": options.data, "classes": classes, **asdict(setting), "networks": networks}
            if (described, seed) in done:
                continue
            started = time.perf_counter()
            tasks = run_trial(make_domains(source, options.data, classes, setting, seed), setting, seed)
            seconds = round(time.perf_counter() - started, 1)
            record = {"experiment": "coarse", "setting": described, "seed": seed, "tasks": tasks}
            records.append(options.results, {**record, "seconds": seconds, **about})
            right = sum(selected(task) == task["task"] for task in tasks)
            print(f"{classes} classes, seed {seed}, {seconds:.0f} s: {right} of {len(tasks)} domains found")


def make_domains(source: Source, data: str, classes: str, setting: Window, seed: int) -> Repository:
    """Train a teacher for each domain. The tasks, in the same order, have rows that no teacher has seen."""
    rng = np.random.RandomState(seed)
    rows = split_rows(source, rng)
    view = student_view(rows.X.shape[1], setting.seen, rng)
    teachers: dict[str, Teacher] = {}
    tasks = []
    for place, (name, groups) in enumerate(DOMAINS[data].items()):
        known, asked = halves(groups, rng) if classes == "other" else (np.sort(np.concatenate(groups)),) * 2
        own = rows.ours[np.isin(rows.y[rows.ours], known)]
        codes = np.searchsorted(known, rows.y[own])
        network = train_network(
            rows.X[own], codes, setting.networks[0], setting.teacher_steps, 100 * seed + place
        )
        teachers[name] = as_teacher(network, known)
        tasks.append(make_task(rows, asked, setting.per_class, view))
    return Repository(teachers, tasks)


def halves(
    groups: Sequence[Sequence[int]], rng: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split each group in half at random. The larger half of an odd group goes to either side in turn."""
    parts: tuple[list[int], list[int]] = ([], [])
    for place, group in enumerate(groups):
        order = rng.permutation(group).tolist()
        cut = (len(order) + (place + 1) % 2) // 2
        parts[0].extend(order[:cut])
        parts[1].extend(order[cut:])
    return np.sort(parts[0]), np.sort(parts[1])


def run_trial(repository: Repository, setting: Window, seed: int) -> list[dict[str, Any]]:
    """Return each task's scores of all teachers, and accuracies of students without and with each teacher."""
    tasks = []
    for domain, task in zip(repository.teachers, repository.tasks, strict=True):
        scores = {}
        for name, options in WAYS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ranking = rank_teachers(repository.teachers, task.X, task.y, confidence=None, **options)
            scores[name] = {row.name: row.score for row in ranking}
        accuracy = {
            name: train_students(task, setting, seed, teacher).accuracy
            for name, teacher in repository.teachers.items()
        }
        alone = train_students(task, setting, seed).accuracy
        tasks.append({"task": domain, "alone": alone, "accuracy": accuracy, "scores": scores})
    return tasks


def _one_view(source: Source) -> Source:
    """Keep the features of the first network."""
    view = source.views[0]
    return replace(
        source, X=source.X[:, view], X_test=None if source.X_test is None else source.X_test[:, view]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.coarse", description=__doc__)
    parser.add_argument("--data", choices=sorted(SETTINGS), default="digits", help="default: %(default)s")
    parser.add_argument("--data-dir", help="folder of the data; default: the variable CONSILIENCE_DATA")
    parser.add_argument("--classes", nargs="+", choices=CLASSES, default=CLASSES, help="default: both")
    parser.add_argument("--trials", type=int, default=1, help="splits of the rows and classes (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial (0)")
    results.add_options(parser)
    parser.add_argument("--resume", action="store_true", help="skip trials that are in the file")
    return parser


if __name__ == "__main__":
    main()

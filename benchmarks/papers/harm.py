"""Measure what `CrossTaskDistiller` gains or loses with each teacher of a mixed repository.

A student has few labels and weak features: a random projection of the features to fewer columns. Teachers
see all features. They share from none to all of the student's classes. Some are weak, and some are bad: one
learnt shuffled labels, one always says the same, one is sure and wrong, one is wrong in half of the rows.
Each pair of a teacher and a task gives one figure: the accuracy of the student with this teacher, less that
of the same student with labels only, in points.

Seeds from 100 on chose the weights. Seeds 0 to 2 were looked at once before the last change of the rule (take
the largest weight within one standard error), so they are not wholly untouched; seeds 3 and 4 are.
``--code before`` marks trials that ran before teachers had to earn their weight.

Run from the root of the repository::

    python -m benchmarks.papers.harm
    python -m benchmarks.papers.harm --data cifar100 --resume
    python -m benchmarks.papers.harm --data cub --resume
    python -m benchmarks.papers.harm --data cifar100 --student default --labels 10 --trials 2 --seed 3
    python -m benchmarks.render

Every task appends a line to ``harm.jsonl`` in the folder of ``--results``. With ``--resume``, tasks that are
there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import Source, load
from benchmarks.papers.windows import student_view, train_network
from benchmarks.results import markdown, source
from consilience import CrossTaskDistiller, as_teacher

RESULTS = records.FOLDER / "harm.jsonl"
LABELS = (5, 10, 20)
UNLABELLED = (0, 200)
OVERLAPS = (0, 20, 40, 60, 80, 100)
WEAK_OVERLAPS, WEAK_ROWS = (0, 40, 100), 10

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Protocol:
    """Classes of a task (and of a teacher), and rows per class for teachers and for the test."""

    classes: int
    teacher_rows: int
    test_rows: int
    seen: int = 128  # columns of a student, a random projection


# 200 unlabelled rows are 20 per class of CIFAR-100, and 7 of CUB; CUB has no more than 60 rows per class
PROTOCOLS = {
    "generated": Protocol(8, 60, 80, seen=16),
    "cifar100": Protocol(10, 200, 300),
    "cub": Protocol(30, 15, 60),
}


class Answers(NamedTuple):
    """What a teacher says about all rows: logits (n, m) and embeddings (n, d) of its classes (m,)."""

    classes: NDArray[np.intp]
    logits: Floats
    embeddings: Floats


@dataclass(frozen=True)
class Trial:
    """A task's rows as the student sees them, with labels and unlabelled rows in order, and the teachers."""

    seen: Floats
    y: NDArray[np.intp]
    labelled: list[NDArray[np.intp]]  # of each class
    unlabelled: NDArray[np.intp]
    test: NDArray[np.intp]
    teachers: dict[str, Answers]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    done = [(r["setting"], r["seed"]) for r in records.read(options.results)] if options.resume else []
    source = load(options.data, options.data_dir)
    about = records.provenance("harm")
    for seed in range(options.seed, options.seed + options.trials):
        settings = [s for s in make_settings(options) if (s, seed) not in done]
        trial = make_trial(source, PROTOCOLS[options.data], seed) if settings else None
        for setting in settings:
            assert trial is not None
            started = time.perf_counter()
            result = run(trial, setting, seed)
            seconds = round(time.perf_counter() - started, 1)
            record = {"experiment": "harm", "setting": setting, "seed": seed, **result, "seconds": seconds}
            records.append(options.results, record | about)
            print(setting, seed, result, seconds, flush=True)


def make_settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what a task depends on besides its seed."""
    return [
        {
            "data": options.data,
            "student": options.student,
            "labels": labels,
            "unlabelled": unlabelled,
            "code": options.code,
        }
        for labels in options.labels
        for unlabelled in UNLABELLED
    ]


def run(trial: Trial, setting: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the accuracy of the student with labels only, and in points what each teacher adds."""
    few = np.concatenate([rows[: setting["labels"]] for rows in trial.labelled])
    rows = np.concatenate([few, trial.unlabelled[: setting["unlabelled"]]])
    y = np.where(np.isin(rows, few), trial.y[rows], -1)
    student = None if setting["student"] == "default" else setting["student"]

    def accuracy(teacher: Any, **options: Any) -> tuple[float, bool]:
        model = CrossTaskDistiller(teacher, student, random_state=seed, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # teachers may be dropped
            model.fit(trial.seen[rows], y)
        return model.score(trial.seen[trial.test], trial.y[trial.test]), bool(model.teacher_weights_.any())

    alone = accuracy(None, loss="none")[0]
    gains, used = {}, []
    for name, answers in trial.teachers.items():
        teacher = as_teacher(
            answers.logits[rows], answers.classes, name, output="logits", embed=answers.embeddings[rows]
        )
        score, kept = accuracy(teacher)
        gains[name] = round(100 * (score - alone), 2)
        used += [name] if kept else []
    return {"labels_only": round(100 * alone, 2), "gains": gains, "used": used}


def make_trial(source: Source, protocol: Protocol, seed: int) -> Trial:
    """Draw a task, train its teachers on rows that the student does not see, and ask them."""
    random = np.random.RandomState(seed)
    assert source.X_test is not None
    assert source.y_test is not None
    X = np.concatenate([source.X, source.X_test]) / source.X.std()
    y = np.concatenate([source.y, source.y_test])
    order = random.permutation(np.unique(y))
    wanted, others = order[: protocol.classes], order[protocol.classes :]
    # the rows of each class, in a random order: first the teachers', then the student's, then test rows
    by_class = {c: random.permutation(np.flatnonzero(y == c)) for c in order}
    theirs = {c: rows[: protocol.teacher_rows] for c, rows in by_class.items()}
    labelled, unlabelled, test = [], [], []
    more = -(-max(UNLABELLED) // protocol.classes)
    for c in wanted:
        rows = by_class[c][protocol.teacher_rows :]
        labelled.append(rows[: max(LABELS)])
        unlabelled.append(rows[max(LABELS) :][:more])
        test.append(rows[max(LABELS) + more :][: protocol.test_rows])
    own = np.concatenate([*labelled, *unlabelled, *test])
    place = np.full(len(y), -1)
    place[own] = np.arange(len(own))
    teachers = make_teachers(X, y, theirs, wanted, others, own, seed)
    return Trial(
        X[own] @ student_view(X.shape[1], protocol.seen, random),
        y[own],
        [place[rows] for rows in labelled],
        random.permutation(place[np.concatenate(unlabelled)]),
        place[np.concatenate(test)],
        teachers,
    )


def make_teachers(
    X: Floats,
    y: NDArray[np.intp],
    theirs: Mapping[Any, NDArray[np.intp]],
    wanted: NDArray[np.intp],
    others: NDArray[np.intp],
    own: NDArray[np.intp],
    seed: int,
) -> dict[str, Answers]:
    """Return what each teacher says about the rows `own`."""
    random = np.random.RandomState(seed + 1)

    def learn(classes: NDArray[np.intp], most: int | None = None, shuffled: bool = False) -> Answers:
        classes = np.sort(classes)
        rows = np.concatenate([theirs[c][:most] for c in classes])
        codes = np.searchsorted(classes, y[rows])
        codes = random.permutation(codes) if shuffled else codes
        network = train_network(X[rows], codes, (128,), 300, seed)
        with torch.no_grad():
            hidden = network[:-1](torch.as_tensor(X[own]))
            return Answers(classes, network[-1](hidden).numpy(), hidden.numpy())

    def shared(overlap: int) -> NDArray[np.intp]:
        count = round(len(wanted) * overlap / 100)
        return np.concatenate([wanted[:count], random.permutation(others)[: len(wanted) - count]])

    teachers = {f"{g}%": learn(shared(g)) for g in OVERLAPS}
    teachers |= {f"weak, {g}%": learn(shared(g), WEAK_ROWS) for g in WEAK_OVERLAPS}
    teachers["shuffled"] = learn(wanted, shuffled=True)
    good = teachers["100%"]
    K, n = len(wanted), len(own)
    constant, codes = np.zeros(n, dtype=int), good.logits.argmax(axis=1)
    wrong = (codes + random.randint(1, K, n)) % K
    half = np.where(random.uniform(size=n) < 0.5, wrong, codes)
    for name, answers in {"constant": constant, "wrong": wrong, "half wrong": half}.items():
        logits = (8.0 * np.eye(K)[answers]).astype(np.float32)
        teachers[name] = Answers(good.classes, logits, logits)
    return teachers


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return a row per data set, student and number of unlabelled rows, and one for all pairs."""
    pairs: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for trial in trials:
        setting = trial["setting"]
        for name, gain in trial["gains"].items():
            key = (*(setting[k] for k in ("data", "student", "unlabelled", "labels")), trial["seed"], name)
            pairs[key][setting["code"]] = gain
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = defaultdict(list)
    for key, gains in pairs.items():
        if "now" in gains and ("before" in gains or key[1] != "logistic"):
            groups[key[:3]].append(gains)
            groups["all", key[1], "any"].append(gains)
    keys = sorted(groups, key=lambda key: (key[0] == "all", *map(str, key)))
    head = ["data", "student", "unlabelled rows", "pairs", "mean", "lose over 1", "mean before"]
    head += ["lose over 1 before", "gains kept"]
    lines = [[*map(str, key), *_figures(groups[key])] for key in keys]
    seeds = sorted({trial["seed"] for trial in trials})
    about = f"Seeds {seeds[0]} to {seeds[-1]}; 5, 10, 20 labels per class; {source(trials)}"
    return f"{markdown(head, lines)}\n\n{about}"


def _figures(pairs: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the cells of a group: gains in points now and before, and what is kept of those before."""
    now, before = (np.array([p[code] for p in pairs if code in p]) for code in ("now", "before"))
    cells = [str(len(now))]
    for gains in (now, before):
        cells += [f"{gains.mean():+.2f}", f"{100 * (gains < -1).mean():.0f}%"] if len(gains) else ["", ""]
    if not len(before):  # a student that was not measured then
        return [*cells, ""]
    kept = now[before > 0].sum() / before[before > 0].sum()
    return [*cells, f"{100 * kept:.0f}%"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.harm", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", choices=PROTOCOLS, default="generated", help="default: %(default)s")
    parser.add_argument("--data-dir", help="folder of the data; default: $CONSILIENCE_DATA")
    parser.add_argument("--student", default="logistic", help="default: %(default)s")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS, help="labels per class")
    parser.add_argument("--code", default="now", help="a name for the code that runs")
    parser.add_argument("--trials", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--resume", action="store_true", help="skip tasks that the results hold")
    results.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

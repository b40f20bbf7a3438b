"""Rerun the distillation experiments of "Selective Cross-Task Distillation" (SCTD, Sec. 6.1), scaled down.

Sliding window (Sec. 6.1.1): the classes are in a random order. The teacher knows the first window of them.
The student's window moves away from it, so the share g of common classes falls from 100% to 0%. The paper
trains networks on images; here they are networks on features. The teacher sees all features and many rows.
The student sees the first columns and a few rows of each class.

- ``windows``: the methods at every g (Fig. 5, Tables 14 and 15);
- ``cost``: other cost matrices (Table 8);
- ``nmi``: whether centres in the teacher's embedding know superclasses (Table 9);
- ``hyper``: temperature, teacher_weight (lam) and epsilon, one at a time (Fig. 6);
- ``tune``: the teacher_weight of each method, on seeds that the others do not use.

Run from the root of the repository::

    python -m benchmarks.papers.distil windows cost nmi hyper
    python -m benchmarks.papers.distil windows cost nmi hyper --data cifar100 --resume
    python -m benchmarks.papers.distil windows --data cub --resume
    python -m benchmarks.render

Every trial appends a line to ``distil.jsonl`` in the folder of ``--results``. With ``--resume``, trials that
are there are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from torch import nn

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.sources import Source, load
from consilience import CrossTaskDistiller, as_teacher, class_centres, cost_matrix
from consilience.distil.losses import Sinkhorn
from consilience.students import Network
from consilience.transport import Embedding, Superclass

RESULTS = records.FOLDER / "distil.jsonl"
METHODS = ("none", "kd", "rkd", "fitnet", "refilled", "sinkhorn")
# The teacher_weight of each method: the best that `tune` found at g = 60% of CIFAR-100, on another seed. That
# of sinkhorn is the default.
WEIGHTS = {"none": 0.0, "kd": 10.0, "rkd": 10.0, "fitnet": 10.0, "refilled": 10.0, "sinkhorn": 10.0}
COSTS = ("constant", "random", "superclass", "shallow", "embedding")
HYPER: dict[str, tuple[float, ...]] = {
    "temperature": (0.1, 1.0, 2.0, 3.0),
    "lam": (1.0, 10.0, 100.0, 1000.0),
    "epsilon": (0.01, 0.1, 1.0),
}
TUNING_SEED = 100


@dataclass(frozen=True)
class Protocol:
    """Sizes of a data set's windows, and what a student sees and how long it learns."""

    window: int
    step: int
    per_class: int
    seen: int = 64
    epochs: int = 40

    def overlaps(self) -> list[int]:
        """Return g in per cent, for every position of the student's window."""
        return [round(100 * (1 - shift / self.window)) for shift in range(0, self.window + 1, self.step)]


PROTOCOLS = {
    "generated": Protocol(10, 2, 10, seen=16, epochs=200),
    "cifar100": Protocol(50, 10, 20),
    "cub": Protocol(100, 25, 10),
}


@dataclass(frozen=True)
class Trial:
    """A teacher, and the rows of a student."""

    teacher: nn.Module
    known: NDArray[np.intp]
    protocol: Protocol
    X: NDArray[np.float32]
    y: NDArray[np.intp]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.intp]


class Narrow(nn.Module):
    """The columns that a student sees."""

    def __init__(self, seen: int) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return the first `seen` columns."""
        return X[:, : self.seen]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    torch.set_num_threads(1)  # so that results and times do not depend on the machine
    warnings.simplefilter("ignore")  # teachers may be dropped, and networks may stop early
    done = [(r["experiment"], r["setting"], r["seed"]) for r in records.read(options.results)]
    source = load(options.data, options.data_dir)
    about = records.provenance("distil")
    for experiment in options.experiments:
        seeds = range(options.seed, options.seed + options.trials)
        for seed in [TUNING_SEED] if experiment == "tune" else seeds:
            for setting in make_settings(experiment, options.data):
                if options.resume and (experiment, setting, seed) in done:
                    continue
                started = time.perf_counter()
                result = run(experiment, source, setting, seed)
                record = {"experiment": experiment, "setting": setting, "seed": seed, **result}
                seconds = round(time.perf_counter() - started, 1)
                records.append(options.results, {**record, "seconds": seconds, **about})
                print(experiment, setting, seed, result, seconds, flush=True)


def make_settings(experiment: str, data: str) -> list[dict[str, Any]]:
    """Return what a trial depends on besides its seed."""
    overlaps = PROTOCOLS[data].overlaps()
    middle = overlaps[2]  # 60%, and 50% of CUB, as in the paper
    if experiment in ("windows", "nmi"):
        return [{"data": data, "overlap": g} for g in overlaps]
    if experiment == "hyper":
        return [{"data": data, "overlap": middle, k: v} for k, values in HYPER.items() for v in values]
    return [{"data": data, "overlap": middle}]


def run(experiment: str, source: Source, setting: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the figures of one trial."""
    trial = make_trial(source, PROTOCOLS[setting["data"]], setting["overlap"], seed)
    if experiment == "nmi":
        return {"nmi": superclass_nmi(trial, source.superclasses, seed)}
    if experiment == "windows":
        methods = [m for m in METHODS if m != "kd" or setting["overlap"] == 100]
        return {"accuracy": {m: accuracy(trial, seed, loss=m, teacher_weight=WEIGHTS[m]) for m in methods}}
    if experiment == "tune":
        tried = {f"{m} {weight:g}": (m, weight) for m in METHODS[2:] for weight in (3.0, 10.0, 30.0)}
        return {
            "accuracy": {
                name: accuracy(trial, seed, loss=m, teacher_weight=weight)
                for name, (m, weight) in tried.items()
            }
        }
    if experiment == "cost":
        return {
            "accuracy": {kind: accuracy(trial, seed, **_cost(kind, source, trial, seed)) for kind in COSTS}
        }
    # recorded trials call teacher_weight lam, as the paper does
    loss = Sinkhorn(**{k: v for k, v in setting.items() if k in ("temperature", "epsilon")})
    weight = setting.get("lam", "auto")
    return {"accuracy": {"sinkhorn": accuracy(trial, seed, loss=loss, teacher_weight=weight)}}


def make_trial(source: Source, protocol: Protocol, overlap: int, seed: int) -> Trial:
    """Draw the order of classes, train the teacher on half of the rows, and give the student some others."""
    random = np.random.RandomState(seed)
    assert source.X_test is not None
    assert source.y_test is not None
    scale = source.X.std()
    X, X_test = source.X / scale, source.X_test / scale
    order = random.permutation(np.unique(source.y))
    shift = round(protocol.window * (1 - overlap / 100))
    known, wanted = np.sort(order[: protocol.window]), np.sort(order[shift : shift + protocol.window])
    rows = random.permutation(len(source.y))
    half = len(rows) // 2
    theirs = rows[:half][np.isin(source.y[rows[:half]], known)]
    teacher = train_teacher(X[theirs], np.searchsorted(known, source.y[theirs]), (256, 128), seed)
    own = [rows[half:][source.y[rows[half:]] == c][: protocol.per_class] for c in wanted]
    mine, test = np.concatenate(own), np.isin(source.y_test, wanted)
    return Trial(teacher, known, protocol, X[mine], source.y[mine], X_test[test], source.y_test[test])


def train_teacher(
    X: NDArray[np.float32], codes: NDArray[np.intp], hidden: Sequence[int], seed: int
) -> nn.Sequential:
    """Train a network with Adam."""
    torch.manual_seed(seed)
    sizes, layers = [X.shape[1], *hidden], []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(sizes[-1], int(codes.max()) + 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
    inputs, targets = torch.as_tensor(X), torch.as_tensor(codes)
    for _ in range(1000):
        rows = torch.randint(len(inputs), (128,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs[rows]), targets[rows]).backward()
        optimiser.step()
    return network.eval()


def accuracy(trial: Trial, seed: int, **options: Any) -> float:
    """Train a student and return its accuracy on the test rows."""
    seen = trial.protocol.seen
    student = Network(
        lambda n_classes: nn.Sequential(
            Narrow(seen), nn.Linear(seen, 128), nn.ReLU(), nn.Linear(128, n_classes)
        ),
        max_iter=trial.protocol.epochs,
        batch_size=128,
        patience=None,
        validation_fraction=0.0,
        weight_decay=5e-4,  # the paper's
    )
    teacher = as_teacher(trial.teacher, trial.known)
    model = CrossTaskDistiller(teacher, student, random_state=seed, **options)
    return round(float(model.fit(trial.X, trial.y).score(trial.X_test, trial.y_test)), 5)


def _cost(kind: str, source: Source, trial: Trial, seed: int) -> dict[str, Any]:
    """Return the options for a row of Table 8, without the check, which would drop the worst costs."""
    if kind == "superclass":
        return {"cost": Superclass(dict(enumerate(source.superclasses))), "check": False}
    if kind != "shallow":
        return {"cost": kind, "check": False}
    rows = np.isin(source.y, trial.known)
    X, codes = source.X[rows] / source.X.std(), np.searchsorted(trial.known, source.y[rows])
    other = as_teacher(train_teacher(X, codes, (32,), seed), trial.known)
    teacher = as_teacher(trial.teacher, trial.known)
    return {"cost": cost_matrix(teacher, trial.X, trial.y, cost=Embedding(other=other)), "check": False}


def superclass_nmi(trial: Trial, superclasses: Sequence[int], seed: int) -> dict[str, float]:
    """Cluster the centres of the student's classes into as many groups as there are superclasses."""
    groups = np.asarray(superclasses)[np.unique(trial.y)]
    teacher = as_teacher(trial.teacher, trial.known)
    torch.manual_seed(seed)
    sizes = [part.in_features for part in trial.teacher if isinstance(part, nn.Linear)]
    raw = train_free((*sizes, len(trial.known)))
    found = {}
    for name, source in {"random": as_teacher(raw, trial.known), "teacher": teacher}.items():
        centres = class_centres(source, trial.X, trial.y)
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        labels = KMeans(len(np.unique(groups)), n_init=20, random_state=seed).fit_predict(centres)
        found[name] = round(float(normalized_mutual_info_score(groups, labels)), 4)
    return found


def train_free(sizes: Sequence[int]) -> nn.Sequential:
    """Return a network with random weights."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def render(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    """Return all experiments as Markdown, with the published values."""
    parts = []
    for data in PROTOCOLS:
        own = _chosen(trials, "windows", data)
        if own:
            figures = published["windows"].get(data, {"gains": {}, "note": ""})
            parts.append(f"### Sliding window, {data}\n\n{_windows(own, figures)}")
        for name, make in {"cost": _costs, "nmi": _nmi, "hyper": _hyper}.items():
            own = _chosen(trials, name, data)
            if own:
                parts.append(make(own, published if data == "cifar100" else {}))
    return "\n\n".join(parts)


def _chosen(trials: Sequence[Mapping[str, Any]], experiment: str, data: str) -> list[Mapping[str, Any]]:
    return [t for t in trials if t["experiment"] == experiment and t["setting"]["data"] == data]


def _windows(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    overlaps = sorted({t["setting"]["overlap"] for t in trials}, reverse=True)
    lines = [_row("method", *(f"g = {g}%" for g in overlaps)), "|---" * (len(overlaps) + 1) + "|"]
    for method in METHODS:
        cells = []
        for g in overlaps:
            own = _by_seed([t for t in trials if t["setting"]["overlap"] == g])
            gains = [
                100 * (t["accuracy"][method] - t["accuracy"]["none"]) for t in own if method in t["accuracy"]
            ]
            alone = 100 * np.mean([t["accuracy"]["none"] for t in own])
            cells.append(f"{alone:.1f}" if method == "none" else f"{np.mean(gains):+.1f}" if gains else "-")
        lines.append(_row("student alone" if method == "none" else method, *cells))
    for method, values in published["gains"].items():
        lines.append(_row(f"published: {method}", *(values.get(str(g), "-") for g in overlaps)))
    note = (
        f"Accuracy of the student alone, and points gained by each method, in per cent. {published['note']}"
    )
    return "\n".join([*lines, "", note, _about(trials)])


def _costs(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    means = {kind: np.mean([t["accuracy"][kind] for t in _by_seed(trials)]) for kind in COSTS}
    shown = published.get("cost", dict.fromkeys(COSTS, ""))
    lines = [_row("cost matrix", "here", "published"), "|---|---|---|"]
    lines += [_row(kind, f"{100 * mean:.1f}", shown[kind]) for kind, mean in means.items()]
    g, data = trials[0]["setting"]["overlap"], trials[0]["setting"]["data"]
    return "\n".join([f"### Cost matrices (Table 8, g = {g}%), {data}\n", *lines, "", _about(trials)])


def _nmi(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    overlaps = sorted({t["setting"]["overlap"] for t in trials}, reverse=True)
    lines = [_row("embedding", *(f"g = {g}%" for g in overlaps)), "|---" * (len(overlaps) + 1) + "|"]
    for name in ("random", "teacher"):
        cells = []
        for g in overlaps:
            own = _by_seed([t for t in trials if t["setting"]["overlap"] == g])
            cells.append(f"{np.mean([t['nmi'][name] for t in own]):.2f}")
        lines.append(_row(name, *cells))
        if "nmi" in published:
            lines.append(_row(f"published: {name}", *(published["nmi"][name][str(g)] for g in overlaps)))
    data = trials[0]["setting"]["data"]
    return "\n".join(
        [f"### NMI of centres with superclasses (Table 9), {data}\n", *lines, "", _about(trials)]
    )


def _hyper(trials: Sequence[Mapping[str, Any]], published: Mapping[str, Any]) -> str:
    lines = [_row("option", "value", "accuracy"), "|---|---|---|"]
    for name, values in HYPER.items():
        for value in values:
            own = _by_seed([t for t in trials if t["setting"].get(name) == value])
            mean = 100 * np.mean([t["accuracy"]["sinkhorn"] for t in own])
            lines.append(_row(name, f"{value:g}", f"{mean:.1f}"))
    g, data = trials[0]["setting"]["overlap"], trials[0]["setting"]["data"]
    title = f"### Hyper-parameters (Fig. 6, g = {g}%), {data}\n"
    return "\n".join([title, *lines, "", _about(trials)])


def _by_seed(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the trials by seed. If a seed was run twice, the last run counts."""
    return list({t["seed"]: t for t in trials}.values())


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _about(trials: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({trial["seed"] for trial in trials})
    which = f"Means over seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"Seed {seeds[0]} only"
    return f"{which}; {results.source(trials)}"


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("distil", __doc__, trials=2)
    parser.add_argument("experiments", nargs="+", choices=("windows", "cost", "nmi", "hyper", "tune"))
    parser.add_argument("--data", choices=PROTOCOLS, default="generated", help="default: %(default)s")
    parser.add_argument("--resume", action="store_true", help="skip trials that the results hold")
    return parser


if __name__ == "__main__":
    main()

"""Measure `suggest_aliases`: which classes of different teachers are one, if their names do not say so.

Teachers as in ``benchmarks.papers.default``: of mixed kinds, or all logistic regressions. They know random
classes: with chains of shared classes, or with none in common, where every match is wrong. Their training
rows, and how many unlabelled rows are of no known class, are drawn for each trial. ``--settings trained`` has
teachers of 40 to 100 rows a class, and only rows of known classes. Each trial is asked with 1,000 and with
300 unlabelled rows:

- *hidden*: every teacher has its own meaningless names. How many true pairs are found, how many of those
  found are true?
- *misspelt*: every teacher writes the true names in its own way (capitals, hyphens, a letter dropped).
- *two classes*: one class of a teacher gets the name of a class that it does not know, again and again. Is it
  told apart from the others of that name? And how many rightly shared names are taken for two?
- *warnings*: does `Unifier` warn when the names are right, when one teacher has names of its own, and when
  one teacher's list of classes is moved on by one?

Seeds 0 to 39 chose the rule, and those from 1000 were looked at; the default seeds chose nothing. Run from
the root of the repository::

    python -m benchmarks.papers.aliases --data digits clinc cifar100 --trials 20
    python -m benchmarks.papers.aliases --data digits clinc cifar100 --trials 20 --settings trained
    python -m benchmarks.render

Every trial appends a line to ``aliases.jsonl`` in the folder of ``--results``.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import results
from benchmarks.papers import records
from benchmarks.papers.default import CROWDS, Task, make_task, table
from benchmarks.papers.sources import DATA_VARIABLE
from benchmarks.results import markdown, source
from consilience import AliasWarning, suggest_aliases
from consilience.inspect import AliasSuggestions
from consilience.inspect.matching import warn_of_names
from consilience.kernels.compiled import one_thread
from consilience.labels import LabelSpace
from consilience.teachers import as_teacher

RESULTS = records.FOLDER / "aliases.jsonl"
DATA = {"digits": None, "clinc": "clinc150_minilm.npz", "cifar100": "cifar100_features.npz"}
SETTINGS, ROWS = ("connected", "disjoint"), (1000, 300)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WRONG_NAMES = 10  # for each trial
Names = list[list[str]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the trials given on the command line."""
    options = results.parse(_parser(), arguments, RESULTS)
    about = records.provenance("aliases")
    for data in options.data:
        X, y = table(data, options.data_dir)
        names = class_names(data, options.data_dir)
        cases = product(range(options.seed, options.seed + options.trials), options.settings, CROWDS)
        for seed, setting, crowd in cases:
            with one_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # teachers may stop early
                task = make_task(X, y, data, setting, crowd, seed)
                for rows in ROWS:
                    record = {"data": data, "setting": setting, "crowd": crowd, "rows": rows, "seed": seed}
                    record |= run_trial(task, names, rows, seed)
                    records.append(options.results, record | about)
                    print(*record.values(), flush=True)


def class_names(data: str, folder: str | None) -> NDArray[Any]:
    """Return the names of all classes of a data set."""
    file = DATA[data]
    if file is None:
        return np.array(DIGITS)
    with np.load(Path(folder or os.environ[DATA_VARIABLE]) / file, allow_pickle=False) as arrays:
        return np.asarray(arrays["classes"])


def run_trial(task: Task, names: NDArray[Any], rows: int, seed: int) -> dict[str, Any]:
    """Return what is found in one trial, with so many unlabelled rows."""
    random = np.random.RandomState(seed)
    blocks = [block[:rows] for block in task.blocks]
    true = [names[own].tolist() for own in task.classes]
    hidden = [[f"{i}.{k}" for k in random.permutation(len(own))] for i, own in enumerate(true)]
    misspelt = [[misspell(name, random) for name in own] for own in true]
    started = time.perf_counter()
    result: dict[str, Any] = {"hidden": count_pairs(blocks, hidden, true)}
    seconds = time.perf_counter() - started
    result["misspelt"] = count_pairs(blocks, misspelt, true)
    result["right_names"] = count_alarms(blocks, true)
    result["wrong_names"] = count_wrong_names(blocks, true, random)
    result["warned"] = count_warnings(blocks, true, int(random.randint(len(true))))
    return result | {"n_rows": len(blocks[0]), "seconds": round(seconds, 3)}


def misspell(name: str, random: np.random.RandomState) -> str:
    """Return a name as another team might write it."""
    words = name.replace("_", random.choice([" ", "-", "_"]))
    ways: list[Callable[[str], str]] = [str.upper, str.title, lambda text: f"{text}s", _drop_letter]
    return str(ways[random.randint(len(ways))](words))


def _drop_letter(text: str) -> str:
    middle = len(text) // 2
    return text[:middle] + text[middle + 1 :]


def ask(blocks: Sequence[NDArray[Any]], names: Names) -> AliasSuggestions:
    """Return the suggestions for teachers with these outputs and names."""
    teachers = {
        str(i): as_teacher(block, own, output="logits")
        for i, (block, own) in enumerate(zip(blocks, names, strict=True))
    }
    return suggest_aliases(teachers, blocks[0])


def count_pairs(blocks: Sequence[NDArray[Any]], names: Names, true: Names) -> dict[str, int]:
    """Count the pairs of columns of different teachers that are one class, in truth and as found."""
    aliases = ask(blocks, names).aliases
    found = [[aliases.get(name, name) for name in own] for own in names]
    pairs = [
        (
            names[i][k] != names[j][l] and true[i][k] == true[j][l],
            names[i][k] != names[j][l] and found[i][k] == found[j][l],
        )
        for i, j in combinations(range(len(true)), 2)
        for k, l in product(range(len(true[i])), range(len(true[j])))  # noqa: E741
    ]
    right = sum(is_true and is_found for is_true, is_found in pairs)
    return {"true": sum(p[0] for p in pairs), "found": sum(p[1] for p in pairs), "right": right}


def count_alarms(blocks: Sequence[NDArray[Any]], true: Names) -> dict[str, int]:
    """Count the pairs of teachers that share a name, and those of them that are taken for two classes."""
    shared = [
        (i, j, name)
        for i, j in combinations(range(len(true)), 2)
        for name in sorted(set(true[i]) & set(true[j]))
    ]
    told = _told_apart(ask(blocks, true))
    alarms = sum((name, str(i), str(j)) in told for i, j, name in shared)
    return {"shared": len(shared), "alarms": alarms}


def count_wrong_names(
    blocks: Sequence[NDArray[Any]], true: Names, random: np.random.RandomState
) -> dict[str, int]:
    """Give a class of one teacher the name of a class of another; count how often this is found."""
    tried = found = 0
    for _ in range(WRONG_NAMES):
        i, j = random.choice(len(true), 2, replace=False)
        free = sorted(set(true[j]) - set(true[i]))
        if not free:
            continue
        name = free[random.randint(len(free))]
        names = [list(own) for own in true]
        names[i][random.randint(len(names[i]))] = name
        told = _told_apart(ask(blocks, names))
        tried += 1
        found += (name, str(min(i, j)), str(max(i, j))) in told
    return {"tried": tried, "found": found}


def _told_apart(found: AliasSuggestions) -> set[tuple[str, str, str]]:
    """Return the name and both teachers (the first one first) of all pairs that are taken for two classes.

    A suggestion is about the largest group of teachers and another; two of the others are apart, too.
    """
    groups: dict[str, list[tuple[str, ...]]] = {}
    for pair in found.same_name:
        groups.setdefault(pair.name, [pair.teachers]).append(pair.other_teachers)
    return {
        (name, *sorted((one, other), key=int))  # type: ignore[misc]
        for name, parts in groups.items()
        for first, second in combinations(parts, 2)
        for one, other in product(first, second)
    }


def count_warnings(blocks: Sequence[NDArray[Any]], true: Names, which: int) -> dict[str, bool | None]:
    """Return whether `Unifier` would warn; None if the teacher concerned shares fewer than two classes."""
    shares = any(len(set(true[which]) & set(own)) > 1 for i, own in enumerate(true) if i != which)
    own = true[which]
    renamed = [[f"my {name}" for name in own] if i == which else names for i, names in enumerate(true)]
    moved = [[*own[1:], own[0]] if i == which else names for i, names in enumerate(true)]
    return {
        "right": _warns(blocks, true),
        "renamed": _warns(blocks, renamed) if shares else None,
        "moved": _warns(blocks, moved) if shares else None,
    }


def _warns(blocks: Sequence[NDArray[Any]], names: Names) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_names(np.hstack(blocks), LabelSpace(names, disconnected="ignore"))
    return any(issubclass(warning.category, AliasWarning) for warning in caught)


def render(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return recall and precision as Markdown."""
    latest = {
        tuple(trial[key] for key in ("data", "setting", "crowd", "rows", "seed")): trial for trial in trials
    }
    seeds = sorted({trial["seed"] for trial in latest.values()})
    head = [
        "rows", "data", "teachers", "trials", "true pairs", "found", "precision", "recall",
        "misspelt: precision", "recall", "one name, two classes: found", "false alarms",
    ]  # fmt: skip
    trained, hard = (
        [t for t in latest.values() if (t["setting"] == "trained") == own] for own in (True, False)
    )
    disjoint = [trial for trial in hard if trial["setting"] == "disjoint"]

    def table(trials: Sequence[Mapping[str, Any]]) -> str:
        lines = []
        for rows in ROWS:
            lines.append(_cells(trials, str(rows), "**all**", "", rows=rows))
            for data, crowd in product(DATA, CROWDS):
                lines.append(_cells(trials, str(rows), data, crowd, rows=rows, data=data, crowd=crowd))
            if trials is hard:
                lines.append(_cells(disjoint, str(rows), "all, no class shared", "", rows=rows))
        return markdown(head, lines)

    return (
        f"Seeds {seeds[0]} to {seeds[-1]}, {source(latest.values())}\n\n"
        "**Trained teachers.** They learnt 40 to 100 rows of each class. All rows are of known classes.\n\n"
        f"{table(trained)}\n\n"
        "**Hard trials.** Half of them have teachers that share no class. Teachers learnt 6 to 150 rows of "
        "each class, a third of them at most 12. Up to 70 % of the rows are of no known class.\n\n"
        f"{table(hard)}\n\n{_warnings(hard)}"
    )


def _cells(trials: Iterable[Mapping[str, Any]], *titles: str, **where: Any) -> list[str]:
    own = [trial for trial in trials if all(trial[key] == value for key, value in where.items())]

    def total(part: str, key: str) -> int:
        return sum(trial[part][key] for trial in own)

    cells = [*titles, str(len(own)), str(total("hidden", "true")), str(total("hidden", "found"))]
    for part in ("hidden", "misspelt"):
        right = total(part, "right")
        cells += [_share(right, total(part, "found")), _share(right, total(part, "true"))]
    wrong, names = total("wrong_names", "found"), total("right_names", "alarms")
    return [
        *cells,
        _share(wrong, total("wrong_names", "tried")),
        _share(names, total("right_names", "shared"), ".3f"),
    ]


def _share(part: int, whole: int, form: str = ".2f") -> str:
    return format(part / whole, form).lstrip("0") if whole else ""


def _warnings(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence how often `Unifier` warns."""

    def often(case: str) -> str:
        known = [trial["warned"][case] for trial in trials if trial["warned"][case] is not None]
        return f"in {sum(known)} of {len(known)} trials"

    return (
        f"`Unifier` warned {often('right')} if all names were right, {often('renamed')} if one teacher that "
        f"shares two classes with another had names of its own, and {often('moved')} if the list of classes "
        "of such a teacher was moved on by one."
    )


def _parser() -> argparse.ArgumentParser:
    parser = records.run_parser("aliases", __doc__, trials=20, seed=2000)
    parser.add_argument("--data", nargs="+", choices=DATA, default=["digits"], help="default: digits")
    parser.add_argument(
        "--settings", nargs="+", choices=(*SETTINGS, "trained"), default=SETTINGS, help="default: %(default)s"
    )
    return parser


if __name__ == "__main__":
    main()

"""Every option of a command reaches the argument that it stands for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tests.cli import running

from consilience import CollisionClustering, CrossTaskDistiller, Unifier
from consilience.cli.app import app
from consilience.options import Options
from consilience.rank import rank as ranks
from consilience.run import resolve_run, silent

TEACHER = "--teacher t.npz --data X.npy"
RUN = {
    "--rows-per-call 7": ("rows_per_call", 7),
    "--cache kept": ("cache", "kept"),
    "--cache kept --cache-limit 2GB": ("cache_limit", "2GB"),
    "--memory 3GB": ("memory", "3GB"),
    "--quiet": ("progress", silent),
}
RAY = {
    "--engine ray": ("engine", "ray"),
    "--engine ray --ray-address here:1": ("engine_options", {"address": "here:1"}),
    "--engine ray --train-workers 2": ("engine_options", {"train_workers": 2}),
}
# for each command: the options it cannot do without, and for some others the argument and its value
COMMANDS: dict[str, tuple[str, dict[str, tuple[str, Any]]]] = {
    "unify": (
        f"{TEACHER} --out u.onnx",
        {
            "--method ce": ("method", "ce"),
            "--balance false": ("balance", False),
            "--balance sqrt": ("balance", "sqrt"),
            "--disconnected error": ("disconnected", "error"),
            "--temperature 1.5": ("method.temperature", 1.5),
            "--method ce --off-set": ("method.off_set", True),
            "--method ce --tol 1e-4": ("method.tol", 1e-4),
            "--teacher-temperatures agreement": ("method.teacher_temperatures", "agreement"),
            "--n-neighbors 3": ("method.n_neighbors", 3),
            "--student forest": ("student", "forest"),
            "--student forest --min-label 0.2": ("student.min_label", 0.2),
            "--student logistic --self-label": ("student.self_label", True),
            "--student logistic --loss collision": ("student.loss", "collision"),
            "--seed 5": ("random_state", 5),
            "--smoothing 0": ("smoothing", [0.0]),
            "--aliases aliases.json": ("aliases", {"a": "b"}),
            **RUN,
            **RAY,
        },
    ),
    "distil": (
        f"{TEACHER} --labels y.npy --out s.onnx",
        {
            "--student forest": ("student", "forest"),
            "--loss kd": ("loss", "kd"),
            "--teacher-weight 3": ("teacher_weight", 3.0),
            "--temperature 2": ("loss.temperature", 2.0),
            "--epsilon 0.5": ("loss.epsilon", 0.5),
            "--cost constant": ("cost", "constant"),
            "--no-normalize": ("cost.normalize", False),
            "--student logistic --student-loss collision": ("student.loss", "collision"),
            "--check false": ("check", False),
            "--seed 5": ("random_state", 5),
            **RUN,
        },
    ),
    "rank": (
        f"{TEACHER} --labels y.npy",
        {
            "--metric transport --metric nce": ("metric", ["transport", "nce"]),
            "--score cost": ("metric.score", "cost"),
            "--temperature 3": ("metric.temperature", 3.0),
            "--bootstrap 7": ("metric.n_bootstrap", 7),
            "--confidence 0.5": ("confidence", 0.5),
            "--folds 1": ("folds", 1),
            "--seed 5": ("random_state", 5),
            **RUN,
            "--engine ray": RAY["--engine ray"],
        },
    ),
    "cluster": (
        "--data X.npy --out c.npy --clusters 3",
        {
            "--clusters 4": ("n_clusters", 4),
            "--loss mi": ("loss", "mi"),
            "--lam 1.5": ("loss.lam", 1.5),
            "--n-neighbors 3": ("n_neighbors", 3),
            "--init k-means++": ("init", "k-means++"),
            "--max-iter 9": ("model.max_iter", 9),
            "--jobs 2": ("n_jobs", 2),
            "--seed 5": ("random_state", 5),
            "--quiet": ("progress", silent),
        },
    ),
}
CASES = [(name, options) for name, (_, table) in COMMANDS.items() for options in table]


class StopError(Exception):
    """Raised where the work would begin."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A teacher, twelve rows and their labels, in the present folder."""
    np.savez(tmp_path / "t.npz", proba=np.tile([0.25, 0.75], (12, 1)), classes=["a", "b"])
    np.save(tmp_path / "X.npy", np.random.RandomState(0).normal(size=(12, 2)))
    np.save(tmp_path / "y.npy", np.arange(12) % 2)
    (tmp_path / "aliases.json").write_text('{"a": "b"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each call and of its run, where the work ends; ``method.tol`` is an object's."""
    made: list[dict[str, Any]] = []

    def note(arguments: dict[str, Any]) -> None:
        found = resolve_run(None).get_params() | arguments
        for name, value in arguments.items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Options) and name != "run":
                    found |= {f"{name}.{key}": inner for key, inner in one.get_params(deep=False).items()}
        made.append(found)
        raise StopError

    def fit(self: Any, *_: object, **__: object) -> None:
        note(
            self.get_params(deep=False)
            | {"smoothing": [one.smoothing for one in getattr(self, "teachers", None) or ()]}
        )

    for estimator in (Unifier, CrossTaskDistiller, CollisionClustering):
        monkeypatch.setattr(estimator, "fit", fit)
    monkeypatch.setattr(ranks, "rank_teachers", lambda *_, **given: note(given))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where progress is shown unless --quiet
    return made


def run(name: str, words: str) -> Any:
    return running.run(name, *words.split())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_an_option_reaches_its_argument_also_by_recipe(
    name: str, options: str, folder: Path, calls: list[dict[str, Any]]
) -> None:
    needed, table = COMMANDS[name]
    argument, value = table[options]
    run(name, f"{needed} {options} --write-config r.toml")
    for words in (needed, f"{needed} {options}", "--config r.toml"):
        result = run(name, words)
        assert isinstance(result.exception, StopError), result.output
    without, given, again = (call.get(argument) for call in calls)
    assert given == again == value
    assert without != value  # or the test could not fail


BAD_VALUES = {
    "unify": ["--cache-limit 2GB", "--cache kept --cache-limit much", "--memory much", "--student tree",
              "--balance maybe", "--method mfp", "--temperature 0", "--rows-per-call 0", "--seed -1",
              "--method ce --tol 0", "--method sd --off-set", "--soft-labels u.npz", "--test-data X.npy",
              "--test-labels y.npy", "--report r.pdf", "--report no/r.html", "--train-workers 2"],
    "distil": ["--loss sink", "--cost dear", "--seed -1", "--out s.pkl", "--compare", "--student tree"],
    "rank": ["--csv r.txt", "--seed -1", "--report r.htmx", "--metric leep --epsilon 1", "--folds 0"],
    "cluster": ["--out c.txt", "--seed -1", "--jobs 0", "--report r", "--loss mi --solver em"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"), [(name, bad) for name in BAD_VALUES for bad in BAD_VALUES[name]]
)
def test_a_bad_value_is_refused_before_a_file_is_read(
    name: str, options: str, folder: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR")
    said = running.refused(name, *f"{COMMANDS[name][0].replace('X.npy', 'nowhere.npy')} {options}".split())
    assert [word for word in options.split() if word.startswith("--")][-1] in said
    assert ("nowhere" in said, calls) == (False, [])


EVERY: dict[str, Callable[..., Any]] = dict(app.commands["repo"].commands)  # type: ignore[attr-defined]
COMMON = ["--config", "--write-config", "--log", "--quiet", "--json", "--help"]


@pytest.mark.parametrize(
    "words", [*([name] for name in app.commands if name != "repo"), *(["repo", name] for name in EVERY)]
)
def test_every_command_has_help_an_example_and_what_all_share(words: list[str]) -> None:
    shown = running.run(*words, "--help", prog_name="consilience").stdout
    assert f"      consilience {' '.join(words)}" in shown.partition("Example:")[2]
    listed = [word.strip(",") for line in shown.splitlines() for word in line.split()[:2] if word[:2] == "--"]
    assert listed[-len(COMMON) :] == COMMON
    assert "`" not in shown

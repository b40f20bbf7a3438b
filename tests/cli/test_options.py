"""Every option of a command reaches the argument that it stands for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

typer = pytest.importorskip("typer")
pytest.importorskip("onnx")

from typer.testing import CliRunner  # noqa: E402

from consilience import CollisionClustering, CrossTaskDistiller, Unifier  # noqa: E402
from consilience._progress import silent  # noqa: E402
from consilience.cli import demo  # noqa: E402
from consilience.cli.commands import app  # noqa: E402
from consilience.cluster.options import Collision, Linear  # noqa: E402
from consilience.cluster.options import Loss as ClusterLoss  # noqa: E402
from consilience.distil.losses import Loss, Sinkhorn  # noqa: E402
from consilience.methods import Auto, Method  # noqa: E402
from consilience.options import Options  # noqa: E402
from consilience.rank import rank as ranks  # noqa: E402
from consilience.rank.options import Metric, Transport  # noqa: E402
from consilience.run import Run  # noqa: E402
from consilience.students import Student  # noqa: E402

TEACHER = "--teacher t.npz --data X.npy"
# for each command: what it calls, the options it cannot do without, and for each other option the argument
# and its value
COMMANDS: dict[str, tuple[Callable[..., Any], str, dict[str, tuple[str, Any]]]] = {
    "unify": (
        Unifier,
        f"{TEACHER} --out u.onnx",
        {
            "--method ce": ("method", "ce"),
            "--balance no": ("balance", False),
            "--balance yes": ("balance", True),
            "--balance sqrt": ("balance", "sqrt"),
            "--temperature 1.5": ("temperature", 1.5),
            "--student forest --min-label 0.2": ("min_label", 0.2),
            "--batch-size 7": ("rows_per_call", 7),
            "--seed 5": ("random_state", 5),
            "--student forest": ("student", "forest"),
            "--student torch --train backprop": ("train", "backprop"),
            "--calibrate": ("teacher_temperatures", "agreement"),
            "--method ce --off-set": ("off_set", True),
            "--n-neighbors 3": ("n_neighbors", 3),
            "--method ce --tol 1e-4": ("tol", 1e-4),
            "--method ce --max-iter 9": ("max_iter", 9),
            "--aliases aliases.json": ("aliases", {"a": "b"}),
            "--cache kept": ("cache", "kept"),
            "--cache kept --cache-limit 2GB": ("cache_limit", "2GB"),
            "--memory 3GB": ("memory", "3GB"),
            "--engine ray": ("engine", "ray"),
            "--engine ray --ray-address here:1": ("engine_options", {"address": "here:1"}),
            "--engine ray --train-workers 2": ("engine_options", {"train_workers": 2}),
            "--quiet": ("progress", silent),
        },
    ),
    "distil": (
        CrossTaskDistiller,
        f"{TEACHER} --labels y.npy --out s.onnx",
        {
            "--student forest": ("student", "forest"),
            "--loss kd": ("loss", "kd"),
            "--teacher-weight 3": ("teacher_weight", 3.0),
            "--temperature 2": ("temperature", 2.0),
            "--epsilon 0.5": ("epsilon", 0.5),
            "--cost constant": ("cost", "constant"),
            "--no-check": ("check", False),
            "--batch-size 7": ("rows_per_call", 7),
            "--seed 5": ("random_state", 5),
            "--cache kept": ("cache", "kept"),
            "--cache kept --cache-limit 2GB": ("cache_limit", "2GB"),
            "--memory 3GB": ("memory", "3GB"),
            "--quiet": ("progress", silent),
        },
    ),
    "rank": (
        ranks.rank_teachers,
        f"{TEACHER} --labels y.npy",
        {
            "--metric transport --metric nce": ("metric", ["transport", "nce"]),
            "--score cost": ("score", "cost"),
            "--temperature 3": ("temperature", 3.0),
            "--bootstrap 7": ("n_bootstrap", 7),
            "--seed 5": ("random_state", 5),
            "--cache kept": ("cache", "kept"),
            "--cache kept --cache-limit 2GB": ("cache_limit", "2GB"),
            "--memory 3GB": ("memory", "3GB"),
            "--engine ray": ("engine", "ray"),
            "--engine ray --ray-address here:1": ("engine_options", {"address": "here:1"}),
            "--quiet": ("progress", silent),
        },
    ),
    "cluster": (
        CollisionClustering,
        "--data X.npy --out c.npy --clusters 3",
        {
            "--clusters 4": ("n_clusters", 4),
            "--loss mi": ("loss", "mi"),
            "--lam 1.5": ("lam", 1.5),
            "--n-neighbors 3": ("n_neighbors", 3),
            "--n-init 2": ("n_init", 2),
            "--max-iter 9": ("max_iter", 9),
            "--jobs 2": ("n_jobs", 2),
            "--seed 5": ("random_state", 5),
            "--quiet": ("progress", silent),
        },
    ),
    "demo": (
        demo.run_demo,
        "",
        {
            "--seed 5": ("seed", 5),
            "--all": ("variants", tuple(demo.ALL)),
            "--quiet": ("progress", silent),
        },
    ),
}
CASES = [(name, options) for name, (_, _, table) in COMMANDS.items() for options in table]
# what these options do is seen in what a command reads, writes or shows: the other files test them
SEEN_ELSEWHERE = {
    *("--teacher", "--data", "--labels", "--truth", "--test-data", "--test-labels", "--classes", "--embed"),
    *("--drop",),
    *("--out", "--soft-labels", "--csv", "--plot", "--save", "--json", "--compare", "--report"),
    *("--config", "--write-config", "--log"),
}
# the command shows progress, seeds itself, and writes out what None means for the last two
LEFT_OPEN = ("n_clusters", "progress", "random_state", "n_jobs", "max_iter")


def flat(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments, and beside them the options of the objects among them."""
    found = dict(arguments)
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Options):
                found |= one.get_params(deep=False)
            if isinstance(one, Loss | Method):
                found[name] = one.name
            if isinstance(one, Student):
                found[name] = type(one).__name__.lower()
        if isinstance(value, ClusterLoss):
            found[name] = type(value).__name__.lower()
        if isinstance(value, list) and value and isinstance(value[0], Metric):
            found[name] = [one.name for one in value] if len(value) > 1 else value[0].name
    return found


class StopError(Exception):
    """Raised where the work would begin."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A teacher, twelve rows and their labels, in the present folder."""
    random = np.random.RandomState(0)
    np.savez(tmp_path / "t.npz", proba=np.tile([0.25, 0.75], (12, 1)), classes=["a", "b"])
    np.save(tmp_path / "X.npy", random.normal(size=(12, 2)))
    np.save(tmp_path / "y.npy", np.arange(12) % 2)
    (tmp_path / "aliases.json").write_text('{"a": "b"}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each call, which ends there."""
    made: list[dict[str, Any]] = []

    def fit(self: Any, *_: object, **__: object) -> None:
        made.append(flat(self.get_params(deep=False)))
        raise StopError

    def watched(function: Callable[..., Any]) -> Callable[..., None]:
        def call(*given: Any, **named: Any) -> None:
            made.append(flat(inspect.signature(function).bind(*given, **named).arguments))
            raise StopError

        return call

    for estimator in (Unifier, CrossTaskDistiller, CollisionClustering):
        monkeypatch.setattr(estimator, "fit", fit)
    monkeypatch.setattr(ranks, "rank_teachers", watched(ranks.rank_teachers))
    monkeypatch.setattr(demo, "run_demo", watched(demo.run_demo))
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where progress is shown unless --quiet
    return made


@pytest.mark.parametrize(("name", "options"), CASES)
def test_an_option_reaches_its_argument(
    name: str, options: str, folder: Path, calls: list[dict[str, Any]]
) -> None:
    _, needed, table = COMMANDS[name]
    argument, value = table[options]
    for words in (needed, f"{needed} {options}"):
        result = CliRunner().invoke(app, [name, *words.split()])
        assert isinstance(result.exception, StopError), result.output
    without, given = (call.get(argument) for call in calls)
    assert given == value
    assert without != value  # or the test could not fail


@pytest.mark.parametrize("name", COMMANDS)
def test_a_recipe_reaches_the_same_arguments(name: str, folder: Path, calls: list[dict[str, Any]]) -> None:
    _, needed, table = COMMANDS[name]
    together = " ".join(one for one in table if "--min-label" not in one)  # not with backprop
    words = [name, *needed.split(), *together.split()]
    for arguments in (words, [*words, "--write-config", "r.toml"], [name, "--config", "r.toml"]):
        CliRunner().invoke(app, arguments)
    by_options, by_recipe = (
        {argument: call.get(argument) for argument, _ in table.values()} for call in calls
    )
    assert by_recipe == by_options


@pytest.mark.parametrize("name", COMMANDS)
def test_without_options_a_command_does_what_the_library_does(
    name: str, folder: Path, calls: list[dict[str, Any]]
) -> None:
    called, needed, table = COMMANDS[name]
    CliRunner().invoke(app, [name, *needed.split()])
    defaults = {name: one.default for name, one in inspect.signature(called).parameters.items()}
    for options in (
        Run,
        {"unify": Auto, "distil": Sinkhorn}.get(name, Transport),
        Collision,
        Linear,
    ):  # among the arguments
        defaults |= {name: one.default for name, one in options.declared().items() if name not in defaults}
    for argument, _ in table.values():
        default = defaults.get(argument)
        if argument not in LEFT_OPEN:
            assert calls[0].get(argument, default) == default, argument


BAD_VALUES = {
    "unify": ["--cache-limit 2GB", "--cache kept --cache-limit much", "--memory much",
              "--student tree", "--balance maybe", "--method mfp", "--train never", "--temperature 0",
              "--batch-size 0", "--seed -1", "--method ce --tol 0", "--method ce --max-iter 0",
              "--soft-labels u.npz", "--test-data X.npy", "--test-labels y.npy", "--report r.pdf",
              "--report no/r.html", "--train-workers 2"],
    "distil": ["--cache-limit 2GB", "--cache kept --cache-limit much", "--memory much",
              "--student tree", "--loss sink", "--cost dear", "--seed -1", "--out s.pkl", "--compare",
               "--test-data X.npy", "--test-labels y.npy"],
    "rank": ["--cache-limit 2GB", "--cache kept --cache-limit much", "--memory much",
              "--csv r.txt", "--seed -1", "--report r.htm"],
    "cluster": ["--out c.txt", "--seed -1", "--jobs 0", "--report r"],
    "demo": ["--seed -1", "--plot p.gif", "--save m.pkl"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"), [(name, bad) for name in BAD_VALUES for bad in BAD_VALUES[name]]
)
def test_a_bad_value_is_refused_before_a_file_is_read(
    name: str, options: str, folder: Path, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR")
    needed = COMMANDS[name][1].replace("X.npy", "nowhere.npy")
    result = CliRunner().invoke(app, [name, *needed.split(), *options.split()])
    assert result.exit_code == 2, result.output
    assert [word for word in options.split() if word.startswith("--")][-1] in result.stderr
    assert "nowhere" not in result.stderr
    assert result.stdout == ""
    assert calls == []


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_forgotten_here(name: str) -> None:
    tested = {word for options in COMMANDS[name][2] for word in options.split()}
    for option in typer.main.get_group(app).commands[name].params:
        words = {*option.opts, *option.secondary_opts}
        assert words & (tested | SEEN_ELSEWHERE), option.opts

"""The calls of the campaign, made of signatures and of declarations of options: what is new is tried, too.

A call has valid arguments, of which one to three are then made odd.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression
from tests.fuzz.odd import NUMBERS, Random, odd

import consilience
from consilience import cluster, collision, distil, rank, soft_labels, transport
from consilience.cli.app import app
from consilience.cli.declared import flag_of
from consilience.options import Option
from consilience.rank.options import METRICS

_random = np.random.default_rng(0)
X, Y, PROBA = _random.normal(size=(24, 3)), np.arange(24) % 3, _random.dirichlet(np.ones(3), 24)
MODEL = LogisticRegression().fit(X, Y)
PAIR = LogisticRegression().fit(X[Y > 0], Y[Y > 0])
SPACE = consilience.LabelSpace([[0, 1], [1, 2]])
FITTED = {
    "a unifier": consilience.Unifier([MODEL, PAIR], "logistic", random_state=0).fit(X),
    "a student": consilience.SoftLabelClassifier("forest", random_state=0).fit(X, PROBA),
    "a distiller": consilience.CrossTaskDistiller([MODEL], "logistic", check=False, random_state=0).fit(X, Y),
    "a classifier": consilience.CollisionClassifier(random_state=0).fit(X, Y),
    "a clustering": consilience.CollisionClustering(3, n_init=1, random_state=0).fit(X),
    "a label space": SPACE,
}
VALID: dict[str, Any] = {  # arguments by their names
    "X": X, "x": X[0], "y": Y, "proba": PROBA, "Q": PROBA, "source": PROBA, "target": PROBA, "embeddings": X,
    "logits": _random.normal(size=(24, 4)), "reference": None, "source_embeddings": X, "source_y": Y,
    "labels_true": Y, "labels_pred": Y, "labels": Y[:3], "sample_weight": np.ones(24), "cost": 1 - np.eye(3),
    "space": SPACE, "teachers": [MODEL, PAIR], "teacher": MODEL, "obj": MODEL, "model": MODEL, "max_rows": 20,
    "class_lists": [["a", "b"], ["b", "c"]], "classes": [0, 1, 2], "temperatures": np.ones(2), "epsilon": 0.5,
    "name": "unified", "path": "unified.onnx", "folder": "shelf", "example": X, "metrics": {"accuracy": 0.5},
    "n_clusters": 3, "n_neighbors": 2, "n_init": 1, "student": "logistic", "random_state": 0, "n_folds": 2,
    "methods": ["sd"], "teacher_temperatures": [None], "self_label": [False], "transition": np.eye(3),
    "lam": 1.0, "prior": [0.2, 0.3, 0.5],
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {  # where a name means something else than in most calls
    "Unifier": {"y": None, "logits": None}, "SoftLabelClassifier": {"y": PROBA, "classes": None},
    "CrossTaskDistiller": {"cost": "embedding"}, "CollisionClassifier": {"classes": None, "model": "linear"},
    "CollisionClustering": {"y": None, "prior": None, "model": "linear"}, "Card": {"classes": ("a", "b")},
    "as_teacher": {"name": "t"}, "using": {"run": None}, "cost_matrix": {"cost": "embedding"},
    "cover": {"cost": "size"}, "cover_names": {"cost": "size"}, "add": {"name": "new", "source": ""},
    "block": {"teacher": 0}, "read": {"rows": 3}, "report": {"path": "report.html", "logits": None},
    "disagreements": {"logits": None}, "estimate": {"logits": None}, "compare": {"y": None, "logits": None},
    "evaluate": {"logits": None, "teachers": True}, "consilience distil": {"teacher": "unified.onnx"},
    "consilience inspect": {"out": None}, "consilience score": {"out": "out.npy"},
    "consilience cluster": {"out": "out.csv"}, "consilience predict": {"out": "out.csv"},
    "consilience cache": {"folder": "scores"}, "consilience repo add": {"name": "new"},
    "consilience demo": {"config": "no.toml"},
}  # fmt: skip
THEN: dict[str, Callable[[Any], Any]] = {  # what is done with the result
    "as_teacher": lambda teacher: teacher.predict_logits(X) if teacher is not None else None,
    "load": lambda model: model.predict_proba(X),
    "using": lambda context: context.__enter__().rows_per_call,
    "Repository": len,
    "Run": lambda run: run.check_options(),
}


def make_files() -> None:
    """Make the files that calls read, in this folder."""
    FITTED["a unifier"].save("unified.onnx")
    for name, array in {"X": X, "y": Y}.items():
        np.save(f"{name}.npy", array)
        np.savetxt(f"{name}.csv", array, delimiter=",")
    consilience.Repository("shelf").add("unified.onnx", name="unified", reference=X)
    Path("empty").touch()
    Path("loop").symlink_to("loop")


NOT_CALLED = {
    "fit",
    "fit_predict",
    "resolved",
    "check_options",
    "load",
    "make_estimate",
    "origin",
    "probabilities",
}
FILES = (
    "X.npy",
    "X.csv",
    "y.npy",
    "unified.onnx",
    "shelf",
    "empty",
    "pipe",
    "loop",
    "no.npz",
    "a/b.npy",
    "x" * 300,
)
LINE: dict[str, Any] = {  # the same of commands
    "teacher": ["unified.onnx"], "files": ["unified.onnx"], "model": "unified.onnx", "data": "X.npy",
    "labels": "y.npy", "folder": "shelf", "name": "unified", "classes": ["0"], "out": "out.onnx",
}  # fmt: skip


class Call(NamedTuple):
    """A function, its valid arguments, and the declarations of those that are options."""

    function: Callable[..., Any]
    valid: Mapping[str, Any]
    options: Mapping[str, Option]


def _call(function: Callable[..., Any], known: Mapping[str, Any], *parts: Any) -> Call:
    """Return the call of a function that takes the arguments of `parts`, which are valid by their names."""
    valid = {}
    for part in parts:
        for key, one in inspect.signature(part).parameters.items():
            if key not in ("self", "progress", "observed") and one.kind is not one.VAR_KEYWORD:
                valid[key] = known[key] if one.default is one.empty else known.get(key, one.default)
    holder = getattr(parts[0], "options", parts[0])
    return Call(function, valid, holder.declared() if hasattr(holder, "declared") else {})


def _fitted(estimator: Any) -> Callable[..., Any]:
    """Return a function that makes, fits and asks an estimator."""

    def run(**given: Any) -> Any:
        model = estimator(**{name: given.pop(name) for name in estimator.declared()})
        return model.fit(**given).predict_proba(X)

    return run


def _on_shelf(name: str) -> Callable[..., Any]:
    """Return a method of the repository that lies in the folder of this call."""
    return lambda **given: getattr(consilience.Repository("shelf"), name)(**given)


def _command(words: str, options: Mapping[str, Option]) -> Callable[..., Any]:
    """Return a function that runs a command, and raises what it says in the end."""

    def run(**given: Any) -> None:
        line = words.split()
        for key, value in given.items():
            flags = [flag_of(key, options[key])]
            for one in (
                value if isinstance(value, list) else [] if value is None or value is False else [value]
            ):
                line += flags if one is True else [*(flag for flag in flags if flag[0] == "-"), str(one)]
        result = CliRunner().invoke(app, line)
        if not isinstance(result.exception, SystemExit | None):
            raise result.exception
        if result.exit_code == 2:
            raise consilience.ConsilienceError(result.stderr.strip("\n").rpartition("\n")[2])
        assert result.exit_code in (0, 1), result.output

    return run


def _commands(group: Any, words: str) -> Iterator[tuple[str, Call]]:
    """Yield the commands of a group; `demo` takes long, so it gets a recipe that is not there."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{words}{name} ")
            continue
        full = f"consilience {words}{name}"
        needed = [key for key, one in command.options.items() if one.required or key == "out"]
        valid = dict.fromkeys(command.options) | {key: LINE.get(key) for key in needed} | OWN.get(full, {})
        yield full, Call(_command(words + name, command.options), valid, command.options)


def _methods(thing: Any) -> list[str]:
    """Return the names of what may be asked of an object; scikit-learn's own methods are not tried."""
    names = {name for name, _ in inspect.getmembers(thing, inspect.isfunction)} - NOT_CALLED
    return sorted(
        name for name in names if not name.startswith(("_", "get_", "set_params", "set_fit", "set_score"))
    )


def _every() -> Iterator[tuple[str, Call]]:
    """Yield every call by name: public names, methods of what they return, metrics and commands."""
    for module in (consilience, collision, soft_labels, transport, cluster, distil, rank):
        for name in module.__all__:
            thing, known = getattr(module, name), VALID | OWN.get(name, {})
            if name in THEN or (not isinstance(thing, type) and callable(thing)):
                then = THEN.get(name, lambda result: result)
                yield name, _call(lambda thing=thing, then=then, **given: then(thing(**given)), known, thing)
            elif hasattr(thing, "fit"):
                yield name, _call(_fitted(thing), known, thing, partial(thing.fit, None))
            elif name in ("LabelSpace", "Card"):
                yield name, _call(thing, known, thing)
    shelf = consilience.Repository
    for name in _methods(shelf):
        known = VALID | OWN.get(name, {})
        yield f"a shelf.{name}", _call(_on_shelf(name), known, partial(getattr(shelf, name), None))
    for thing, model in FITTED.items():
        for name in _methods(type(model)):
            method = getattr(model, name)
            yield f"{thing}.{name}", _call(method, VALID | OWN.get(name, {}), method)
    for name, metric in METRICS.items():
        score = getattr(metric(), "score", None)
        if callable(score):
            yield f"metric {name}", _call(score, VALID, score)
    yield from _commands(app, "")


CALLS = dict(_every())


def drawn(call: Call, random: Random) -> dict[str, Any]:
    """Return the arguments of a call, some of them odd."""
    given = dict(call.valid)
    for key in (
        random.choice(list(given), min(len(given), int(random.geometric(0.6))), replace=False)
        if given
        else ()
    ):
        given[key] = (
            _chosen(call.options[key], given[key], random) if key in call.options else odd(given[key], random)
        )
    return given


def _chosen(option: Option, valid: Any, random: Random) -> Any:
    """Return what an option may be by its declaration, with options of its own; or something odd."""
    check, chance = option.check, random.random()
    values = [
        value for value in check.values if value != "ray"
    ]  # a cluster takes longer than a thousand calls
    if check.says in ("FILE", "FOLDER", "DIR") and chance < 0.5:
        return FILES[random.integers(len(FILES))]
    if chance > 0.6 or not values:
        return NUMBERS[random.integers(len(NUMBERS))] if chance < 0.8 else odd(valid, random)
    value = values[random.integers(len(values))]
    if check.make is None or check.read is None or chance > 0.4:
        return value
    made = check.make(value)
    for key, inner in made.declared().items():
        if random.random() < 0.3:
            setattr(made, key, _chosen(inner, getattr(made, key), random))
    return made

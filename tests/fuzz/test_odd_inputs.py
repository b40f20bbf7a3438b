"""Every public name with one odd argument: an answer without NaN, or an error of ours; never a traceback.

A valid call is made odd in one argument. Each test run draws the same few hundred cases; for more, set
``CONSILIENCE_FUZZ`` to the number of cases for each name, and ``CONSILIENCE_FUZZ_SEED`` to draw others::

    CONSILIENCE_FUZZ=2000 CONSILIENCE_FUZZ_SEED=1 pytest tests/fuzz
"""

from __future__ import annotations

import atexit
import datetime
import decimal
import fractions
import functools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

import consilience
from consilience import (
    Card,
    CollisionClassifier,
    CollisionClustering,
    ConsilienceError,
    ConsilienceWarning,
    CrossTaskDistiller,
    LabelSpace,
    Repository,
    Run,
    SoftLabelClassifier,
    Unifier,
    as_teacher,
    balance_weights,
    class_centres,
    clustering_accuracy,
    collision_cross_entropy,
    collision_entropy,
    collision_pseudo_labels,
    cost_matrix,
    estimate_soft_labels,
    load,
    methods,
    rank_teachers,
    sinkhorn,
    suggest_aliases,
    using,
)
from consilience.distil import Sinkhorn
from consilience.rank import LEEP, OTCE, LogME
from consilience.soft_labels import agreement_temperatures
from consilience.students import Logistic

CASES = int(os.environ.get("CONSILIENCE_FUZZ", "20"))
SEED = int(os.environ.get("CONSILIENCE_FUZZ_SEED", "0"))

rng = np.random.default_rng(0)
X = rng.normal(size=(24, 3))
Y = np.arange(24) % 3
PROBA = rng.dirichlet(np.ones(3), 24)
MODEL = LogisticRegression().fit(X, Y)
PAIR = LogisticRegression().fit(X[Y > 0], Y[Y > 0])
SPACE = LabelSpace([[0, 1], [1, 2]])
LOGITS = rng.normal(size=(24, 4))
UNIFIED = Unifier([MODEL, PAIR], "logistic", random_state=0).fit(X)
FOLDER = Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
SAVED = UNIFIED.save(FOLDER / "unified.onnx")
MODELS = Repository(FOLDER / "models")
MODELS.set_reference(X)
MODELS.add(SAVED, name="unified")


class Length:
    """An object with a length and nothing else."""

    def __len__(self) -> int:
        return 3


@functools.cache
def odd_values() -> dict[str, Any]:
    """Return what people, files and other libraries put in the place of an argument."""
    masked = np.ma.masked_array(PROBA, mask=PROBA > 0.9)
    values: dict[str, Any] = {
        "None": None,
        "True": True,
        "False": False,
        "empty text": "",
        "a text": "x",
        "bytes": b"x",
        "a long text": "cat" * 100_000,
        "an escape": "\x1b[2J",
        "a NUL": "a\0",
        "half a surrogate pair": "\ud800",
        "zero": 0,
        "minus one": -1,
        "one": 1,
        "two": 2,
        "a half": 0.5,
        "NaN": float("nan"),
        "inf": float("inf"),
        "-inf": -float("inf"),
        "tiny": 1e-308,
        "huge": 1e308,
        "10**400": 10**400,
        "-10**400": -(10**400),
        "2**63": 2**63,
        "2**32": 2**32,
        "complex": 1j,
        "a fraction": fractions.Fraction(1, 3),
        "a decimal": decimal.Decimal("0.1"),
        "a date": datetime.datetime(2026, 1, 1),
        "numpy scalar": np.float32(0.5),
        "numpy integer": np.uint8(3),
        "0-d array": np.array(2.0),
        "empty list": [],
        "empty dict": {},
        "a dict": {"a": 1},
        "a set": {1, 2, 3},
        "a range": range(3),
        "ragged": [[1.0], [1.0, 2.0]],
        "mixed": [1, "a", None],
        "texts": ["a", "b", "c"] * 8,
        "Nones": [None] * 24,
        "generator": (i for i in range(3)),
        "lambda": lambda *_: 1,
        "a type": int,
        "object": object(),
        "length": Length(),
        "no rows": np.empty((0, 3)),
        "no columns": np.empty((24, 0)),
        "empty": np.empty(0),
        "NaNs": np.full((24, 3), np.nan),
        "one NaN": np.where(np.eye(24, 3) > 0, np.nan, PROBA),
        "infs": np.full((24, 3), np.inf),
        "zeros": np.zeros((24, 3)),
        "ones": np.ones((24, 3)),
        "huge array": np.full((24, 3), 1e308),
        "huge logits": np.full((24, 4), 1e308),
        "tiny array": 1e-308 * PROBA,
        "negative": -PROBA,
        "float16": PROBA.astype(np.float16),
        "float32": PROBA.astype(np.float32),
        "complex array": PROBA * 1j,
        "objects": np.array([[object()] * 3] * 24),
        "strings": PROBA.astype(str),
        "bytes array": np.array([b"a", b"b", b"c"] * 8),
        "booleans": PROBA > 0.5,
        "three dimensions": np.ones((24, 3, 2)),
        "one row": PROBA[:1],
        "transposed": PROBA.T,
        "fortran": np.asfortranarray(PROBA),
        "reversed": PROBA[::-1],
        "read-only": PROBA.view(),
        "masked": masked,
        "sparse": csr_array(PROBA),
        "matrix of datetimes": np.zeros((24, 3), "datetime64[s]"),
        "labels": Y,
        "float labels": Y.astype(float),
        "one label": np.zeros(24, int),
        "labels with inf": np.where(Y == 0, np.inf, Y),
        "huge labels": np.where(Y == 0, 1e300, Y),
        "minus ones": -np.ones(24, int),
        "big integers": np.array([2**53, 2**53 + 1, 3] * 8),
        "names": np.array(["a", "b", "a\0"] * 8),
        "a path": Path("no.npz"),
        "a model": MODEL,
        "models": [MODEL, MODEL],
        "a space": SPACE,
        "a function of rows": lambda rows: np.zeros((len(rows), 2)),
    }
    values["read-only"].setflags(write=False)
    for module in ("pandas", "polars", "torch"):
        values |= _of(module)
    return values


def _of(module: str) -> dict[str, Any]:
    """Return values of a library, where it is installed."""
    try:
        library = __import__(module)
    except ImportError:
        return {}
    if module == "torch":
        tensor = library.tensor(PROBA)
        return {
            "tensor": tensor,
            "bfloat16": tensor.to(library.bfloat16),
            "gradient": tensor.clone().requires_grad_(True),
        }
    return {
        f"{module} frame": library.DataFrame(dict(zip("abc", PROBA.T, strict=True))),
        f"{module} series": library.Series([*map(str, Y)]),
        f"{module} missing": library.Series([None, *Y[1:].tolist()]),
    }


Call = tuple[Callable[..., Any], dict[str, Any]]


def _fit(estimator: type, fit: dict[str, Any], **params: Any) -> Call:
    """Return a function that makes, fits and asks an estimator, and its arguments."""

    def run(**arguments: Any) -> Any:
        model = estimator(**{name: arguments[name] for name in params})
        model.fit(**{name: arguments[name] for name in fit})
        return model.predict_proba(arguments["X"] if hasattr(arguments["X"], "columns") else X)

    return run, {**params, **fit}


def add_to_repository(**arguments: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return len(Repository(folder).add(**arguments).classes)


def set_reference(**arguments: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        Repository(folder).set_reference(**arguments)


def remove_from_repository(name: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = Repository(folder)
        models.add(SAVED, name="gone")
        models.remove(name)


def enter(**options: Any) -> Any:
    with using(**options) as run:
        return run.rows_per_call


CALLS: dict[str, Call] = {
    "LabelSpace": (
        LabelSpace,
        {"class_lists": [["a", "b"], ["b", "c"]], "aliases": {"a": "d"}, "names": ["x", "y"]},
    ),
    "LabelSpace.encode": (SPACE.encode, {"labels": [0, 1, None]}),
    "as_teacher": (
        lambda **a: as_teacher(**a).predict_logits(X),
        {
            "obj": PROBA,
            "classes": ["a", "b", "c"],
            "name": "t",
            "output": "auto",
        },
    ),
    "as_teacher of a model": (
        lambda **a: as_teacher(MODEL, **a).observe(X).logits,
        {"classes": None, "name": None},
    ),
    "as_teacher.predict_logits": (as_teacher(MODEL).predict_logits, {"X": X}),
    "load": (lambda path: load(path).predict_proba(X), {"path": SAVED}),
    "load.predict_proba": (load(SAVED).predict_proba, {"X": X}),
    "load.score": (load(SAVED).score, {"X": X, "y": Y, "sample_weight": np.ones(24)}),
    "load after save": (
        lambda measured: load(UNIFIED.save(FOLDER / "m.onnx", measured=measured)).predict_proba(X),
        {"measured": None},
    ),
    "Repository": (lambda folder: len(Repository(folder)), {"folder": FOLDER / "models"}),
    "Repository.add": (
        add_to_repository,
        {
            "model": MODEL,
            "classes": None,
            "name": "model",
            "task": "",
            "licence": "",
            "source": "",
            "description": "",
            "metrics": {"accuracy": 0.5},
            "preprocess": None,
            "example": X,
            "reference": None,
        },
    ),
    "Repository.set_reference": (set_reference, {"X": X}),
    "Repository.show": (lambda name: MODELS.show(name).n_bytes, {"name": "unified"}),
    "Repository.remove": (remove_from_repository, {"name": "gone"}),
    "Repository.path": (lambda name: MODELS.path(name).name, {"name": "unified"}),
    "Repository as a mapping": (lambda name: name in MODELS and MODELS[name].name, {"name": "unified"}),
    "Repository.select": (
        lambda **a: len(MODELS.select(**a)),
        {"classes": [0], "task": None, "licence": None, "like": None},
    ),
    "Repository.list": (
        lambda **a: len(MODELS.list(**a)),
        {"classes": [0], "task": None, "licence": None, "like": X},
    ),
    "Repository.cover": (
        lambda **a: len(MODELS.cover(**a)),
        {"classes": [0, 2], "cost": "size", "connected": True, "like": X},
    ),
    "Repository.search": (
        lambda **a: MODELS.search(**a).n_run,
        {
            "X": X,
            "y": Y,
            "top": 1,
            "method": "auto",
            "metric": "transport",
            "cache": None,
            "memory": None,
            "random_state": 0,
        },
    ),
    "estimate_soft_labels": (
        estimate_soft_labels,
        {"logits": LOGITS, "space": SPACE, "method": "ce"},
    ),
    "estimate_soft_labels by ranks": (
        estimate_soft_labels,
        {"logits": LOGITS, "space": SPACE, "method": "ranks", "reference": LOGITS[:9]},
    ),
    "methods": (
        lambda **a: estimate_soft_labels(LOGITS, SPACE, methods.CE(**a)),
        {"temperature": 1.0, "tol": 1e-6, "max_iter": 50, "off_set": False, "n_neighbors": 0},
    ),
    "Run": (
        lambda **a: Run(**a).check_options(),
        {"memory": "2GB", "cache": None, "rows_per_call": 8, "engine": "local", "n_jobs": 1},
    ),
    "using": (enter, {"memory": "2GB"}),
    "agreement_temperatures": (
        agreement_temperatures,
        {"logits": LOGITS, "space": SPACE, "rounds": 1, "max_rows": 20},
    ),
    "suggest_aliases": (
        suggest_aliases,
        {"teachers": [MODEL, PAIR], "X": X, "aliases": None, "max_rows": 20, "run": None},
    ),
    "balance_weights": (balance_weights, {"Q": PROBA}),
    "collision_pseudo_labels": (
        collision_pseudo_labels,
        {"proba": PROBA, "lam": 1.0, "prior": [0.2, 0.3, 0.5], "solver": "auto", "fixed": None, "tol": 1e-6},
    ),
    "collision_cross_entropy": (
        collision_cross_entropy,
        {"proba": PROBA, "target": PROBA, "q": 0.0},
    ),
    "collision_entropy": (collision_entropy, {"proba": PROBA}),
    "clustering_accuracy": (clustering_accuracy, {"labels_true": Y, "labels_pred": Y}),
    "class_centres": (class_centres, {"teacher": MODEL, "X": X, "y": Y}),
    "cost_matrix": (cost_matrix, {"teacher": MODEL, "X": X, "y": Y, "cost": "embedding"}),
    "sinkhorn": (
        lambda **a: sinkhorn(**a).value,
        {"source": PROBA, "target": PROBA, "cost": np.eye(3), "epsilon": 0.5, "tol": 1e-6, "max_iter": 100},
    ),
    "rank_teachers": (
        rank_teachers,
        {
            "teachers": {"m": MODEL},
            "X": X,
            "y": Y,
            "metric": "leep",
            "folds": 2,
            "confidence": 0.9,
            "random_state": 0,
            "run": None,
        },
    ),
    "leep": (LEEP().score, {"proba": PROBA, "y": Y}),
    "logme": (LogME().score, {"embeddings": X, "y": Y}),
    "otce": (
        OTCE(epsilon=0.5).score,
        {"source_embeddings": X, "source_y": Y, "embeddings": X, "y": Y},
    ),
    "Card": (
        Card,
        {"name": "m", "classes": ("a", "b"), "output": "logits", "sha256": "0" * 64, "description": "d"},
    ),
    "Unifier": _fit(
        Unifier,
        {"X": X, "y": None},
        teachers=[MODEL, PAIR],
        student="logistic",
        method="mf-lf",
        balance="auto",
        aliases=None,
        disconnected="warn",
        random_state=0,
        run=None,
    ),
    "students": (
        lambda **a: Unifier([MODEL], Logistic(**a), random_state=0).fit(X).predict_proba(X),
        {"min_label": 0.01, "loss": "cross-entropy", "self_label": False, "random_state": 0},
    ),
    "Unifier.evaluate": (
        lambda **a: UNIFIED.evaluate(**a).scores,
        {"X": X, "y": Y, "logits": None, "labels_only": True, "n_folds": 2, "confidence": 0.9, "n_bins": 5},
    ),
    "Unifier.compare": (
        lambda **a: UNIFIED.compare(**a).rows[0].support,
        {
            "X": X,
            "y": None,
            "methods": ["sd"],
            "balance": [True],
            "teacher_temperatures": [None],
            "self_label": [False],
            "student": "logistic",
            "max_rows": 20,
            "logits": None,
        },
    ),
    "Unifier.explain": (lambda **a: list(UNIFIED.explain(**a).proba.values()), {"x": X[0]}),
    "Unifier.disagreements": (
        lambda **a: UNIFIED.disagreements(**a).n_left,
        {"X": X, "max_rows": 5, "logits": None},
    ),
    "SoftLabelClassifier": _fit(
        SoftLabelClassifier,
        {"X": X, "y": PROBA},
        student="logistic",
        classes=None,
        balance=False,
        temperature=1.0,
        random_state=0,
        run=None,
    ),
    "CrossTaskDistiller": _fit(
        CrossTaskDistiller,
        {"X": X, "y": Y},
        teachers=[MODEL],
        student="logistic",
        loss="sinkhorn",
        teacher_weight=1.0,
        check=False,
        cost="embedding",
        random_state=0,
        run=None,
    ),
    "Sinkhorn": (
        lambda **options: Sinkhorn(**options).check_options(),
        {"temperature": 3.0, "epsilon": "auto", "match_shares": True, "sharpness": 1.0},
    ),
    "CollisionClassifier": _fit(
        CollisionClassifier,
        {"X": X, "y": Y},
        loss="collision",
        model="linear",
        noise=0.1,
        classes=None,
        random_state=0,
    ),
    "CollisionClustering": _fit(
        CollisionClustering,
        {"X": X, "y": None},
        n_clusters=3,
        loss="collision",
        model="linear",
        n_neighbors=2,
        n_init=1,
        prior=None,
        init="graph",
        protocol="full-batch",
        random_state=0,
    ),
}


def drawn(name: str) -> list[tuple[str, str]]:
    """Return pairs of an argument and an odd value: the same in every run."""
    pairs = [(argument, odd) for argument in CALLS[name][1] for odd in odd_values()]
    order = np.random.default_rng([SEED, *name.encode()]).permutation(len(pairs))
    return [pairs[i] for i in order[:CASES]]


def has_nan(result: Any) -> bool:
    values = getattr(result, "__dict__", None) or result
    parts = values.values() if isinstance(values, dict) else [values]
    numbers = [np.asarray(part) for part in parts if isinstance(part, np.ndarray | float)]
    return any(part.dtype.kind == "f" and bool(np.isnan(part).any()) for part in numbers)


@pytest.mark.parametrize("name", CALLS)
def test_valid_calls_have_an_answer(name: str) -> None:
    call, arguments = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        assert not has_nan(call(**arguments))


@pytest.mark.parametrize(("name", "argument", "odd"), [(n, *pair) for n in CALLS for pair in drawn(n)])
def test_an_odd_argument_has_an_answer_or_an_error_of_ours(
    name: str, argument: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # an odd text may be the name of a folder to make
    call, arguments = CALLS[name]
    value = odd_values()[odd]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConsilienceWarning)
        if argument == "X":  # rows of 1e308 overflow inside scikit-learn's own students
            warnings.simplefilter("ignore", RuntimeWarning)
        try:
            result = call(**{**arguments, argument: value})
        except ConsilienceError as error:
            text = str(error)
            assert text, "an error without a word"
            assert not any(c < " " and c != "\n" for c in text), f"control characters in {text!r}"
            return
    if "teacher" not in argument and argument not in ("obj", "X") and odd not in ("NaNs", "one NaN"):
        assert name.startswith("rank_teachers") or not has_nan(result), result


def test_every_public_name_is_tried() -> None:
    """A new public name comes with a line in CALLS, unless it is an error, a warning or a protocol."""
    tried = {name.partition(".")[0].partition(" ")[0] for name in CALLS}
    exempt = {"Teacher", *(n for n in consilience.__all__ if n.endswith(("Error", "Warning")))}
    assert set(consilience.__all__) - exempt <= tried

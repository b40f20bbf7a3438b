"""Fitted scikit-learn models in .skops files: what may be in one, and what is refused."""

import io
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

from consilience.exceptions import ConsilienceError, TeacherError, UnsafeFileError
from consilience.teachers import as_teacher
from consilience.teachers.sklearn import ESTIMATORS

skops = pytest.importorskip("skops.io")
RNG = np.random.default_rng(0)
Y = np.array(["ant", "bee", "cow"])[np.arange(60) % 3]
X = np.abs(RNG.normal(size=(60, 4)) + 1.5 * np.eye(4)[np.arange(60) % 3])
TEXTS = [f"{word} {RNG.integers(5)} says {word[::-1]}" for word in Y]
TABLE = pd.DataFrame({"size": X[:, 0], "kind": np.where(X[:, 1] > 1, "big", "small"), "hair": X[:, 2]})


def linear() -> LogisticRegression:
    return LogisticRegression()


MODELS: dict[str, Callable[[], Any]] = {
    "logistic": linear,
    "ridge": RidgeClassifier,
    "sgd": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "sgd_hinge": lambda: SGDClassifier(loss="squared_hinge", random_state=0),
    "sgd_huber": lambda: SGDClassifier(loss="modified_huber", random_state=0),
    "perceptron": Perceptron,
    "svc": LinearSVC,
    "gaussian": GaussianNB,
    "multinomial": MultinomialNB,
    "bernoulli": BernoulliNB,
    "complement": ComplementNB,
    "lda": LinearDiscriminantAnalysis,
    "qda": QuadraticDiscriminantAnalysis,
    "mlp": lambda: MLPClassifier((5,), max_iter=5, random_state=0),
    "mlp_sgd": lambda: MLPClassifier((5,), solver="sgd", max_iter=5, random_state=0),
    "calibrated": lambda: CalibratedClassifierCV(LinearSVC(), cv=2),
    "voting": lambda: VotingClassifier([("a", linear()), ("b", GaussianNB())], voting="soft"),
    "one_vs_rest": lambda: OneVsRestClassifier(linear()),
    "scaled": lambda: make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(), linear()),
    "scalers": lambda: make_pipeline(MinMaxScaler(), RobustScaler(), MaxAbsScaler(), Normalizer(), linear()),
    "transformed": lambda: make_pipeline(PowerTransformer(), QuantileTransformer(n_quantiles=5), linear()),
    "reduced": lambda: make_pipeline(VarianceThreshold(), PCA(3), linear()),
    "union": lambda: make_pipeline(make_union(TruncatedSVD(2), Binarizer()), linear()),
}
TEXT_MODELS: dict[str, Callable[[], Any]] = {
    "counts": lambda: make_pipeline(CountVectorizer(), TfidfTransformer(), linear()),
    "tfidf": lambda: make_pipeline(TfidfVectorizer(ngram_range=(1, 2), analyzer="char_wb"), linear()),
}
TABLE_MODELS: dict[str, Callable[[], Any]] = {
    "columns": lambda: make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            (StandardScaler(), ["size"]),
            remainder="passthrough",
        ),
        linear(),
    ),
    "ordinal": lambda: make_pipeline(
        make_column_transformer((OrdinalEncoder(), ["kind"]), ("drop", [0]), remainder=StandardScaler()),
        linear(),
    ),
}


def saved(model: Any, folder: Path, rows: Any = X, change: Any = lambda model: None) -> Path:
    """Fit a model and save it, after a change to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few epochs are enough here
        model.fit(rows, Y)
    change(model)
    skops.dump(model, folder / "model.skops")
    return folder / "model.skops"


CASES = [
    *((make, X) for make in MODELS.values()),
    *((make, TEXTS) for make in TEXT_MODELS.values()),
    *((make, TABLE) for make in TABLE_MODELS.values()),
]


@pytest.mark.parametrize(("make", "rows"), CASES, ids=[*MODELS, *TEXT_MODELS, *TABLE_MODELS])
def test_a_model_says_what_it_said_before_it_was_saved(make: Any, rows: Any, tmp_path: Path) -> None:
    model = make()
    teacher, direct = as_teacher(saved(model, tmp_path, rows)), as_teacher(model, name="model")
    assert (teacher.name, teacher.classes.tolist()) == ("model", ["ant", "bee", "cow"])
    np.testing.assert_allclose(teacher.predict_logits(rows), direct.predict_logits(rows), rtol=1e-12)


def test_every_type_of_the_table_is_used_by_a_model_above(tmp_path: Path) -> None:
    found = {
        f"{entry['__module__']}.{entry['__class__']}"
        for make, rows in CASES
        for entry in entries(schema_of(saved(make(), tmp_path, rows)))
    }
    # a class with one label in some fold only
    assert ESTIMATORS - found == {"sklearn.multiclass._ConstantPredictor"}


def test_the_page_about_safety_lists_every_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
    for name in ESTIMATORS:
        kind = name.rpartition(".")[2]
        assert f"`{kind}`" in page or kind.startswith("_") or kind.endswith("Optimizer"), kind


def shout(rows: Any) -> Any:
    return rows


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: make_pipeline(FunctionTransformer(shout), linear()), "shout"),
        (lambda: make_pipeline(FunctionTransformer(np.log1p), linear()), "log1p"),
        (lambda: make_pipeline(SelectKBest(k=2), linear()), "SelectKBest|f_classif"),
        (lambda: RandomForestClassifier(2, random_state=0), "RandomForestClassifier|DecisionTree|Tree"),
        (HistGradientBoostingClassifier, "HistGradientBoostingClassifier|TreePredictor|_BinMapper|Loss"),
        (KNeighborsClassifier, "KNeighborsClassifier|KDTree"),
        (SVC, "SVC"),
    ],
    ids=["own function", "ufunc", "score function", "forest", "boosting", "neighbours", "kernel"],
)
def test_other_types_are_refused_and_named(make: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(
        UnsafeFileError, match=rf"model.skops is not loaded: it holds '[\w.]*({named})\w*', "
    ) as error:
        as_teacher(saved(make(), tmp_path))
    assert "Export the model to ONNX" in str(error.value)


def schema_of(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("schema.json"))


def entries(schema: Any) -> list[dict[str, Any]]:
    """Return all entries of a description."""
    if isinstance(schema, list):
        return [entry for one in schema for entry in entries(one)]
    if not isinstance(schema, dict):
        return []
    inner = [entry for one in schema.values() for entry in entries(one)]
    return [schema, *inner] if "__loader__" in schema else inner


def rewritten(path: Path, change: Callable[[Any], Any], members: dict[str, bytes] | None = None) -> Path:
    """Write a file again, with another description or other members."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(content["schema.json"])
    content["schema.json"] = json.dumps(change(schema) or schema).encode()
    content |= members or {}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def node(kind: str, module: str, name: str, **more: Any) -> dict[str, Any]:
    return {"__loader__": kind, "__module__": module, "__class__": name, "__id__": 1, **more}


def text(value: Any) -> dict[str, Any]:
    return node("JsonNode", "builtins", "str", content=json.dumps(value), is_json=True)


def call(kind: str) -> dict[str, Any]:
    """Return an entry that would run a command where it were believed."""
    os_system = node("FunctionNode", "os", "system")
    arguments = node("TupleNode", "builtins", "tuple", content=[text("touch hacked")])
    empty = node(
        "DictNode", "builtins", "dict", content={}, key_types=node("ListNode", "builtins", "list", content=[])
    )
    content = {"func": os_system, "args": arguments, "kwds": empty, "namespace": text(None)}
    return {
        "function": os_system,
        "type": node("TypeNode", "os", "system"),
        "list": node("ListNode", "os", "system", content=[text("touch hacked")]),
        "dict": node("DictNode", "antigravity", "x", content={}, key_types=empty),
        "object": node("ObjectNode", "subprocess", "Popen", content=empty),
        "partial": node("PartialNode", "functools", "partial", content=content),
        "method": node("MethodNode", "os", "system", content={"func": "system", "obj": text("x")}),
        "operator": node("OperatorFuncNode", "operator", "methodcaller", attrs=arguments),
        "reduce": node("ConstructorFromReduceNode", "os", "system", content=arguments),
        "array": node("NdArrayNode", "os", "system", type="json", content=[], shape=arguments),
        "random": node("RandomStateNode", "os", "system", content=empty),
        "disguised": node("JsonNode", "os", "system", content='"touch hacked"', is_json=True),
        "dotted": node("ObjectNode", "sklearn", "pipeline.Pipeline", content=empty),
        "half": {"__class__": "system", "__module__": "os"},
        "unnamed": {"__loader__": "ObjectNode"},
        "cached": {"__loader__": "CachedNode", "__module__": None, "__class__": None, "__id__": 7},
    }[kind]


KINDS = (
    "function type list dict object partial method operator reduce array random disguised dotted half "
    "unnamed cached"
)


@pytest.mark.parametrize("where", ["attribute", "whole", "key", "deep"])
@pytest.mark.parametrize("kind", KINDS.split())
def test_a_file_that_names_code_is_refused(
    kind: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[str] = []
    monkeypatch.setattr(os, "system", lambda command: calls.append(command) or 0)
    monkeypatch.setitem(sys.modules, "antigravity", None)

    def change(schema: Any) -> Any:
        attributes = schema["content"]["content"]
        if where == "attribute":
            attributes["C"] = call(kind)
        elif where == "key":
            schema["content"]["key_types"]["content"][0] = call(kind)
        elif where == "deep":
            attributes["C"] = node("ListNode", "builtins", "list", content=[[{"x": call(kind)}]])
        return {**call(kind), "protocol": schema["protocol"]} if where == "whole" else None

    with pytest.raises(UnsafeFileError, match=r"model.skops is not loaded: it holds '"):
        as_teacher(rewritten(saved(linear(), tmp_path), change))
    assert calls == []
    assert not (tmp_path / "hacked").exists()


def npy(values: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, values, allow_pickle=True)
    return data.getvalue()


def first_array(schema: Any) -> dict[str, Any]:
    return next(entry for entry in entries(schema) if entry["__loader__"] == "NdArrayNode")


@pytest.mark.parametrize("name", ["../outside.npy", "/etc/passwd", "C:\\x.npy", "schema.json", "other.npz"])
def test_arrays_lie_in_the_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside.npy").write_bytes(npy(np.zeros(3)))
    path = saved(linear(), tmp_path)
    with pytest.raises(TeacherError, match="cannot be loaded from model"):
        as_teacher(rewritten(path, lambda schema: first_array(schema).update(file=name)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(np.zeros(3)).replace(b"(3,), }" + b" " * 10, b"(900000000000,), }"[:17]), "promises|header"),
        (
            npy(np.array([{"a": 1}], dtype=object)),
            "it holds Python objects, which would have to be unpickled",
        ),
    ],
)
def test_arrays_that_are_none_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = saved(linear(), tmp_path)
    name = first_array(schema_of(path))["file"]
    with pytest.raises(TeacherError, match=rf"is no .skops file that can be read: .*({message})"):
        as_teacher(rewritten(path, lambda schema: None, {name: data}))


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = saved(linear(), tmp_path)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("schema.json", json.dumps(call("function")))
    with pytest.raises(TeacherError, match="it has two members of one name"):
        as_teacher(path)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        *(
            (None, data, r"is no .skops file that can be read")
            for data in (b"", b"PK\x03\x04", b"\x80\x04pickle")
        ),
        ("other.json", b"{}", "has no schema.json"),
        ("schema.json", b"{", "schema.json is not JSON"),
        ("schema.json", b"\xff", "schema.json is not JSON"),
        ("schema.json", b"[" * 100_000, "schema.json is not JSON"),
        ("schema.json", b'{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ("schema.json", b"{}", "cannot be loaded from m.skops"),
        ("schema.json", json.dumps(text("a")).encode(), "is no classifier|cannot be loaded"),
        ("schema.json", b" " * (65 * 2**20) + b"{}", "would inflate to|has more than"),
    ],
)
def test_files_that_hold_no_model(name: str | None, data: bytes, message: str, tmp_path: Path) -> None:
    if name is None:
        (tmp_path / "m.skops").write_bytes(data)
    else:
        with zipfile.ZipFile(tmp_path / "m.skops", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
    with pytest.raises(TeacherError, match=message):
        as_teacher(tmp_path / "m.skops")


def test_control_characters_of_a_name_are_not_printed(tmp_path: Path) -> None:
    path = rewritten(saved(linear(), tmp_path), lambda schema: schema.update(__class__="\x1b[2Jgone"))
    with pytest.raises(UnsafeFileError) as error:
        as_teacher(path)
    assert "\x1b" not in str(error.value)


def to(**attributes: Any) -> Callable[[Any], None]:
    """Set attributes of the first step of a pipeline, or delete those that are ..."""

    def change(model: Any) -> None:
        for name, value in attributes.items():
            delattr(model[0], name) if value is ... else setattr(model[0], name, value)

    return change


CATEGORIES = [np.array([0, 1]), np.arange(5)]
PAIRS = np.array([[i % 2, i % 5] for i in range(60)])


@pytest.mark.parametrize(
    ("first", "rows", "change", "message"),
    [
        (FunctionTransformer, X, to(func=float), "FunctionTransformer has a function"),
        (CountVectorizer, TEXTS, to(vocabulary_={"ant": 10**9}), "CountVectorizer .* with wrong places"),
        (CountVectorizer, TEXTS, to(vocabulary_={"ant": -1, "bee": 0}), "a vocabulary with wrong places"),
        (CountVectorizer, TEXTS, to(vocabulary_={"ant": 0, "bee": 0}), "a vocabulary with wrong places"),
        (CountVectorizer, TEXTS, to(vocabulary_=["ant"]), "CountVectorizer cannot be checked"),
        (CountVectorizer, TEXTS, to(input="filename"), "CountVectorizer reads files that the rows name"),
        (OneHotEncoder, PAIRS, to(_n_features_outs=[1, 1]), "OneHotEncoder .* other columns than categories"),
        (OneHotEncoder, PAIRS, to(categories_=[CATEGORIES[0][::-1].copy(), CATEGORIES[1]]), "not in order"),
        (OneHotEncoder, PAIRS, to(categories_=CATEGORIES[:1]), "other columns than categories"),
        (OneHotEncoder, PAIRS, to(n_features_in_=3), "other columns than categories"),
        (OneHotEncoder, PAIRS, to(_drop_idx_after_grouping=np.array([0, 0])), "drops or groups categories"),
        (OneHotEncoder, PAIRS, to(_n_features_outs=...), "OneHotEncoder cannot be checked"),
    ],
)
def test_what_would_be_called_or_leave_the_memory(
    first: Any, rows: Any, change: Any, message: str, tmp_path: Path
) -> None:
    model = make_pipeline(first(), linear())
    assert as_teacher(saved(model, tmp_path, rows)).predict_logits(rows).shape == (60, 3)
    with pytest.raises(UnsafeFileError, match=message):
        as_teacher(saved(model, tmp_path, rows, change))


def test_random_numbers_that_would_leave_the_memory(tmp_path: Path) -> None:
    def change(schema: Any) -> None:
        state = next(entry for entry in entries(schema) if entry["__loader__"] == "RandomStateNode")
        state["content"]["content"]["state"]["content"]["pos"] = text(10**6)

    path = saved(MLPClassifier((5,), max_iter=5, random_state=0), tmp_path)
    with pytest.raises(ConsilienceError, match=r"RandomState has a place outside|cannot be loaded"):
        as_teacher(rewritten(path, change))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.teachers.sklearn.MAX_BYTES", 100)
    with pytest.raises(TeacherError, match=r"model.skops has .* bytes; at most 100 are read"):
        as_teacher(saved(linear(), tmp_path))


def test_a_transformer_is_no_classifier(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match=r"is no classifier: model.skops holds a StandardScaler"):
        as_teacher(saved(StandardScaler(), tmp_path))

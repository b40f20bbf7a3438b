"""Fitted scikit-learn-style classifiers as teachers, and those in .skops files.

A .skops file is read once into memory. Before skops sees it, every entry is compared with the tables here,
and every array with its size. What is not in the tables is refused; there is no option to widen them.
"""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from consilience._optional import require
from consilience.exceptions import InvalidInputError, TeacherError, UnsafeFileError
from consilience.exceptions import shown as visible
from consilience.files.arrays import open_npz
from consilience.files.disk import read_bytes
from consilience.files.strict_json import parse_json
from consilience.options import takes
from consilience.teachers.base import (
    Adapter,
    TeacherOptions,
    check_embed_function,
    open_source,
    own_or_given,
    teacher_name,
)
from consilience.teachers.fingerprints import fingerprint_of
from consilience.teachers.outputs import (
    PROBA_TOLERANCE,
    as_numbers,
    check_known,
    ensure,
    foreign,
    in_the_name_of,
)

# Embeddings are dense. A bag of words with a hundred thousand columns would take too much memory.
MAX_SPARSE_COLUMNS = 4096
_DEEPEST = 16  # searches of pipelines of searches
_ACTIVATIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "identity": lambda Z: Z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda Z: np.maximum(Z, 0),
}


class Sklearn(Adapter):
    """A fitted scikit-learn-style classifier with `predict_proba`, or else `decision_function`.

    Margins count as logits: a binary margin d as [0, d] (so that softmax is sigmoid(d)), those of several
    classes as they are. ``output="logits"`` prefers `decision_function`. The embedding is the input of the
    last layer, if there is one: of a linear model or an MLPClassifier; or the output of the pipeline's step
    that `embed` names.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> Sklearn(LogisticRegression().fit([[0.0], [1.0]], ["a", "b"])).classes.tolist()
    ['a', 'b']
    """

    _takes_arrays = True

    @takes(TeacherOptions)
    def __init__(
        self, model: Any, classes: ArrayLike | None = None, name: str | None = None, options: Any = None
    ) -> None:
        kind = type(model).__name__
        shown = teacher_name(name, kind)
        _check_fitted(model, shown)
        self._model, (self._before, self._last) = model, _open(model)
        self._method = _method(model, options.output, shown)
        proba = self._method == "predict_proba"
        if proba:
            self._tolerance = PROBA_TOLERANCE
        own: Any = getattr(model, "classes_", None)
        several = isinstance(own, list) and own and isinstance(own[0], np.ndarray)
        ensure(not several, shown, "predicts several outputs at once. Give one function per output.")
        found = own_or_given(own, classes, shown, what=f"a {kind} without classes_")
        # with three classes there are three pairs, too: the shape alone would not tell
        by_pairs = getattr(self._last, "decision_function_shape", None) == "ovo" and len(found) > 2
        ensure(
            proba or not by_pairs,
            shown,
            f"gives a margin per pair of its {len(found)} classes (one-vs-one), not one per class. "
            "Set decision_function_shape='ovr' on it, or wrap it in CalibratedClassifierCV.",
        )
        super().__init__(shown, found, options, output="probabilities" if proba else "logits")
        self._named = isinstance(options.embed, str)
        if self._named:
            self._before, self._last = _open_until(model, options.embed, shown)
        else:
            check_embed_function(options.embed, shown, "the name of a pipeline's step")

    def _run(self, X: Any, rows: int, features: bool) -> tuple[Any, Any]:
        model, given, inside = self._model, X, X
        if features:
            for step in self._before:
                inside = step.transform(inside)
            if not self._named:  # a pipeline is passed once for both
                model, given = self._last, inside
                inside = last_layer_input(model, given)
        raw = getattr(model, self._method)(given)
        if self._method == "predict_proba":
            return raw, inside
        margins = as_numbers(raw, self.name)
        return binary_logits(margins) if len(self.classes) == 2 and margins.size == rows else margins, inside

    def _embeddable(self) -> bool:
        return self._embed is not None or self.class_weights is not None

    @property
    def class_weights(self) -> NDArray[Any] | None:
        """The weights (k, d) of a linear model, or of the last layer of an MLPClassifier."""
        # steps that resample do not transform; a named step may feed a network's first layer
        closed = not all(hasattr(step, "transform") for step in self._before)
        if callable(self._embed) or closed or (self._named and hasattr(self._last, "coefs_")):
            return None
        return last_layer_weights(self._last, len(self.classes))

    def _model_fingerprint(self) -> str | None:
        return fingerprint_of(self._model)


def is_estimator(obj: Any) -> bool:
    """Tell whether an object has a scoring method of scikit-learn classifiers."""
    methods = ("predict_proba", "decision_function", "predict")
    return not isinstance(obj, type) and any(hasattr(obj, member) for member in methods)


def _method(model: Any, output: str, name: str) -> str:
    """Return the method that scores: `predict_proba`, unless there is none or logits are asked for."""
    proba, margin = hasattr(model, "predict_proba"), hasattr(model, "decision_function")
    ensure(
        proba or margin,
        name,
        "has neither predict_proba nor decision_function. Give a function that returns its scores (n, k), or "
        "its predictions as an array of hard labels.",
    )
    ensure(
        proba or output != "probabilities",
        name,
        "has no predict_proba. Drop {argument} to use its margins as logits.",
        argument="output",
        value=output,
    )
    ensure(
        margin or output != "logits",
        name,
        "has no decision_function and so no logits. Drop {argument}.",
        argument="output",
        value=output,
    )
    return "decision_function" if not proba or output == "logits" else "predict_proba"


def binary_logits(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [0, d] for each margin d, so that softmax gives sigmoid(d) for the second class.

    Examples
    --------
    >>> binary_logits(np.array([1.5, -2.0])).tolist()
    [[0.0, 1.5], [0.0, -2.0]]
    """
    return np.column_stack([np.zeros(margins.size), margins.ravel()])


def _check_fitted(model: Any, name: str) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    # classes are learnt, so they prove a fit; what has no fit cannot be checked
    if hasattr(model, "fit") and getattr(model, "classes_", None) is None:
        try:
            check_is_fitted(model)
        except NotFittedError as error:
            raise TeacherError(name, "is not fitted. Call fit before making a teacher of it.") from error


def _open(model: Any) -> tuple[list[Any], Any]:
    """Open pipelines and hyperparameter searches: return the steps before the classifier, and that."""
    before: list[Any] = []
    for _ in range(_DEEPEST):
        model = getattr(model, "best_estimator_", model)
        if isinstance(getattr(model, "steps", None), list) and model.steps:
            before += [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
            model = model.steps[-1][1]
    return before, model


def _open_until(model: Any, step: str, name: str) -> tuple[list[Any], Any]:
    """Return a pipeline up to and including the named step, and the classifier if it comes right after."""
    for _ in range(_DEEPEST):
        model = getattr(model, "best_estimator_", model)
    names = [key for key, _ in getattr(model, "steps", ())][:-1]
    check_known(name, step, names, "step", "Give {remedy} the name of a pipeline's step, or a function of X.")
    place = names.index(step) + 1
    return [model[:place]], model.steps[-1][1] if place == len(names) else None


def last_layer_weights(last: Any, n_classes: int) -> NDArray[np.float64] | None:
    """Return the weights (k, d) of a linear model, or of the last layer of an MLPClassifier, or None.

    The single row w of a binary model becomes [-w / 2, w / 2]: the same probabilities, with a row per class.
    """
    # dual_coef_ marks a support vector machine, whose coef_ has one row per pair of classes
    found = None if hasattr(last, "dual_coef_") else getattr(last, "coef_", None)
    found = last.coefs_[-1].T if _is_mlp(last) else found
    if found is None:
        return None
    weights = np.atleast_2d(as_numbers(found, "last layer"))
    if n_classes == 2 and len(weights) == 1:
        weights = np.vstack([-weights, weights]) / 2
    return weights if weights.ndim == 2 and len(weights) == n_classes else None


def last_layer_input(last: Any, X: Any) -> Any:
    """Return the input of the last layer: X for a linear model, the last hidden layer for an MLPClassifier.

    None for sparse rows with very many columns.
    """
    sparse = hasattr(X, "toarray")
    if not _is_mlp(last):
        large = sparse and X.shape[1] > MAX_SPARSE_COLUMNS
        return None if large else X.toarray() if sparse else np.asarray(X)
    hidden = X if sparse else np.asarray(X, dtype=np.float64)
    for weights, bias in zip(last.coefs_[:-1], last.intercepts_[:-1], strict=True):
        hidden = _ACTIVATIONS[last.activation](np.asarray(hidden @ weights) + bias)
    return hidden


def _is_mlp(last: Any) -> bool:
    return hasattr(last, "coefs_") and hasattr(last, "intercepts_") and last.activation in _ACTIVATIONS


MAX_BYTES = 2 * 2**30
"""The largest file that is read."""
MAX_SCHEMA = 64 * 2**20
"""The largest description in a file."""
_SCHEMA = "schema.json"
_MARKS = {"__class__", "__module__", "__loader__"}
_REMEDY = (
    "Export the model to ONNX and give that; or, if you trust whoever made the file, load it with skops "
    "yourself and give the fitted model."
)

ESTIMATORS = frozenset(
    f"sklearn.{module}.{name}"
    for module, names in {
        "calibration": ("CalibratedClassifierCV", "_CalibratedClassifier", "_SigmoidCalibration"),
        "compose._column_transformer": ("ColumnTransformer",),
        "decomposition._pca": ("PCA",),
        "decomposition._truncated_svd": ("TruncatedSVD",),
        "discriminant_analysis": ("LinearDiscriminantAnalysis", "QuadraticDiscriminantAnalysis"),
        "ensemble._voting": ("VotingClassifier",),
        "feature_extraction.text": ("CountVectorizer", "TfidfTransformer", "TfidfVectorizer"),
        "feature_selection._variance_threshold": ("VarianceThreshold",),
        "impute._base": ("MissingIndicator", "SimpleImputer"),
        "linear_model._logistic": ("LogisticRegression",),
        "linear_model._perceptron": ("Perceptron",),
        "linear_model._ridge": ("RidgeClassifier",),
        "linear_model._stochastic_gradient": ("SGDClassifier",),
        "multiclass": ("OneVsRestClassifier", "_ConstantPredictor"),
        "naive_bayes": ("BernoulliNB", "ComplementNB", "GaussianNB", "MultinomialNB"),
        "neural_network._multilayer_perceptron": ("MLPClassifier",),
        "neural_network._stochastic_optimizers": ("AdamOptimizer", "SGDOptimizer"),
        "pipeline": ("FeatureUnion", "Pipeline"),
        "preprocessing._data": (
            "Binarizer",
            "MaxAbsScaler",
            "MinMaxScaler",
            "Normalizer",
            "PowerTransformer",
            "QuantileTransformer",
            "RobustScaler",
            "StandardScaler",
        ),
        "preprocessing._encoders": ("OneHotEncoder", "OrdinalEncoder"),
        "preprocessing._function_transformer": ("FunctionTransformer",),
        "preprocessing._label": ("LabelBinarizer", "LabelEncoder"),
        "svm._classes": ("LinearSVC",),
    }.items()
    for name in names
)
"""Classes of scikit-learn whose objects a file may hold, by the module that defines them.

They compute with numpy alone, or hold indices that are checked below. Trees, nearest neighbours and kernel
machines are left out: compiled code follows the indices in them without a look at their range, so a made-up
file could make it read and write outside of its memory.
"""

_SCALARS = frozenset(
    f"numpy.{name}"
    for name in (
        "bool", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "intp", "str_",
        "uint8", "uint16", "uint32", "uint64",
    )
)  # fmt: skip

_ALLOWED: dict[str, frozenset[str]] = {
    "ObjectNode": ESTIMATORS,
    "DictNode": frozenset({"builtins.dict", "sklearn.utils._bunch.Bunch"}),
    "ListNode": frozenset({"builtins.list"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    "SetNode": frozenset({"builtins.set"}),
    "SliceNode": frozenset({"builtins.slice"}),
    "JsonNode": frozenset({"builtins.str"}),
    "TypeNode": _SCALARS | {"builtins.bool", "builtins.float", "builtins.int", "builtins.str"},
    "NdArrayNode": _SCALARS | {"numpy.ndarray"},
    "DTypeNode": frozenset({"numpy.dtype"}),
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState"}),
    "LossNode": frozenset(  # of the two linear models that are fitted by stochastic gradients
        {
            "sklearn._loss._loss.CyHalfBinomialLoss",
            "sklearn.linear_model._sgd_fast.Hinge",
            "sklearn.linear_model._sgd_fast.ModifiedHuber",
            "sklearn.linear_model._sgd_fast.SquaredHinge",
        }
    ),
}
"""The kinds of entries that a file may have, and the types of each. Functions are of no kind here."""

_REASONS = {
    "FunctionNode": "a function, which would be imported",
    "PartialNode": "a function with arguments, which would be called",
    "MethodNode": "a method, which would be called",
    "OperatorFuncNode": "a function, which would be called",
    "ConstructorFromReduceNode": "a type that would be called with arguments of the file",
    "TreeNode": "a tree, whose indices compiled code follows without a check",
}
"""Why an entry of some kind is refused, for messages."""


class Skops(Sklearn):
    """A ``.skops`` file with a fitted scikit-learn classifier, of types on our own list (docs/files.md).

    Examples
    --------
    >>> Skops("birds.skops").classes.tolist()  # doctest: +SKIP
    ['duck', 'gull']
    """

    @takes(TeacherOptions)
    def __init__(
        self,
        path: str | os.PathLike[str],
        classes: ArrayLike | None = None,
        name: str | None = None,
        options: Any = None,
    ) -> None:
        source, title, card = open_source(path, name, options)
        model = _load(source, title)
        names = card.classes if classes is None and card is not None else classes
        super().__init__(model, names, title, **options.get_params(deep=False))
        self._take_card(source, card)


def _load(source: Path, name: str) -> Any:
    """Return the model in a file, or say why it is not loaded."""
    library = require("skops.io", extra="skops", purpose="A .skops file")
    with in_the_name_of(name, "is no .skops file that can be read: "):
        # once: what is checked is what is loaded
        data = read_bytes(source, source.name, most=MAX_BYTES, links=True)
        types = _check_content(data, source)
    with foreign(name, f"cannot be loaded from {source.name}"):  # whatever a damaged description leads to
        model = library.loads(data, trusted=sorted(types))
    for part in _parts(model):
        right, problem = _CHECKS.get(type(part).__name__, (lambda part: True, ""))
        try:
            fine = right(part)
        except Exception:  # an attribute that is missing, or anything in its place
            fine, problem = False, "cannot be checked"
        _trust(fine, source, f"{type(part).__name__} {problem}")
    ensure(
        is_estimator(model),
        name,
        f"is no classifier: {source.name} holds a {type(model).__name__}. Save a fitted one.",
    )
    return model


def _trust(right: object, source: Path, why: str) -> None:
    if not right:
        raise UnsafeFileError(f"{source.name} is not loaded: {why}. {_REMEDY}")


def _check_content(data: bytes, source: Path) -> set[str]:
    """Return the types in a file; raise where one is not allowed, or where an array is not what it says."""
    found = set[str]()
    with open_npz(source, file=io.BytesIO(data)) as archive:
        if _SCHEMA not in archive.names:
            raise InvalidInputError(f"{source.name} has no {_SCHEMA}.")
        waiting = [parse_json(archive.read_bytes(_SCHEMA, MAX_SCHEMA), _SCHEMA, foreign=True)]
        while waiting:
            entry = waiting.pop()
            waiting += entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ()
            if isinstance(entry, dict) and _MARKS.intersection(entry):
                found.add(_allowed_type(entry, source))
        for name in archive.names:
            if name != _SCHEMA:
                archive.read(name)
    return found


def _allowed_type(entry: dict[str, Any], source: Path) -> str:
    kind, module, name = (str(entry.get(mark)) for mark in ("__loader__", "__module__", "__class__"))
    full = f"{module}.{name}"
    what = _REASONS.get(kind, "which is not on the list of types that a file may hold")
    allowed = full in _ALLOWED.get(kind, ()) and "." not in name
    _trust(allowed, source, f"it holds {visible(full)}, {what}")
    return full


def _parts(model: Any) -> Iterator[Any]:
    """Yield a model and all objects in it, each once."""
    waiting, seen = [model], dict[int, Any]()
    while waiting:
        part = waiting.pop()
        if id(part) not in seen and not isinstance(part, type):
            seen[id(part)] = part  # kept, so that no other gets its id
            waiting += gc.get_referents(part)
            if isinstance(part, np.ndarray) and part.dtype.hasobject:
                waiting += part.ravel().tolist()
            yield part


def _one_hot(encoder: Any) -> bool:
    if not hasattr(encoder, "categories_"):  # the original that a ColumnTransformer copied
        return True
    widths = [len(values) for values in encoder.categories_]
    plain = encoder._drop_idx_after_grouping is None and not encoder._infrequent_enabled
    fits = list(encoder._n_features_outs) == widths and encoder.n_features_in_ == len(widths)
    return plain and fits and all(map(_in_order, encoder.categories_))


def _in_order(values: NDArray[Any]) -> bool:
    # values of an object array are looked up in a table; others by bisection, which needs their order
    known = values[:-1] if values.dtype.kind == "f" and np.isnan(values[-1:]).any() else values
    return values.ndim == 1 and bool(values.dtype.kind == "O" or np.all(known[:-1] < known[1:]))


def _vectoriser(vectoriser: Any) -> bool:
    # scikit-learn checks a given vocabulary itself
    words = vectoriser.vocabulary_ if hasattr(vectoriser, "vocabulary_") else {}
    places = list(words.values())
    whole = type(words) is dict and all(type(place) is int for place in places)
    return whole and vectoriser.input == "content" and sorted(places) == list(range(len(places)))


def _random_state(state: Any) -> bool:
    found = state.get_state(legacy=False)["state"]
    return bool(0 <= found["pos"] <= len(found["key"]))


_TEXTS = (_vectoriser, "reads files that the rows name, or has a vocabulary with wrong places")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "OneHotEncoder": (
        _one_hot,
        "drops or groups categories, or has some that are not in order, or other columns than categories. "
        "Fit it with drop=None and all categories",
    ),
    "CountVectorizer": _TEXTS,
    "TfidfVectorizer": _TEXTS,
    # only what stands for "passthrough" in a ColumnTransformer
    "FunctionTransformer": (lambda one: one.func is one.inverse_func is None, "has a function"),
    "RandomState": (_random_state, "has a place outside of its numbers"),
}
"""Numbers that compiled code takes as indices, and whatever would be called: what is right, what is wrong."""

"""Fitted scikit-learn models in .skops files, as teachers.

A file is read once into memory. Before skops sees it, every entry is compared with the tables here, and every
array with its size. What is not in the tables is refused; there is no option to widen them.
"""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from consilience._optional import require
from consilience.exceptions import InvalidInputError, UnsafeFileError, shown
from consilience.files.arrays import open_npz
from consilience.files.disk import read_bytes
from consilience.files.strict_json import parse_json
from consilience.options import takes
from consilience.teachers.base import TeacherOptions, open_source
from consilience.teachers.outputs import ensure, foreign, in_the_name_of
from consilience.teachers.sklearn import Sklearn, is_estimator

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
    {
        "sklearn.calibration.CalibratedClassifierCV",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.decomposition._pca.PCA",
        "sklearn.decomposition._truncated_svd.TruncatedSVD",
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis",
        "sklearn.ensemble._voting.VotingClassifier",
        "sklearn.feature_extraction.text.CountVectorizer",
        "sklearn.feature_extraction.text.TfidfTransformer",
        "sklearn.feature_extraction.text.TfidfVectorizer",
        "sklearn.feature_selection._variance_threshold.VarianceThreshold",
        "sklearn.impute._base.MissingIndicator",
        "sklearn.impute._base.SimpleImputer",
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.linear_model._perceptron.Perceptron",
        "sklearn.linear_model._ridge.RidgeClassifier",
        "sklearn.linear_model._stochastic_gradient.SGDClassifier",
        "sklearn.multiclass.OneVsRestClassifier",
        "sklearn.multiclass._ConstantPredictor",
        "sklearn.naive_bayes.BernoulliNB",
        "sklearn.naive_bayes.ComplementNB",
        "sklearn.naive_bayes.GaussianNB",
        "sklearn.naive_bayes.MultinomialNB",
        "sklearn.neural_network._multilayer_perceptron.MLPClassifier",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.pipeline.FeatureUnion",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._data.Binarizer",
        "sklearn.preprocessing._data.MaxAbsScaler",
        "sklearn.preprocessing._data.MinMaxScaler",
        "sklearn.preprocessing._data.Normalizer",
        "sklearn.preprocessing._data.PowerTransformer",
        "sklearn.preprocessing._data.QuantileTransformer",
        "sklearn.preprocessing._data.RobustScaler",
        "sklearn.preprocessing._data.StandardScaler",
        "sklearn.preprocessing._encoders.OneHotEncoder",
        "sklearn.preprocessing._encoders.OrdinalEncoder",
        "sklearn.preprocessing._function_transformer.FunctionTransformer",  # without a function
        "sklearn.preprocessing._label.LabelBinarizer",
        "sklearn.preprocessing._label.LabelEncoder",
        "sklearn.svm._classes.LinearSVC",
    }
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
        except Exception as error:  # an attribute that is missing, or anything in its place
            fine, problem = False, f"cannot be checked ({type(error).__name__})"
        _trust(fine, source, f"{type(part).__name__} {problem}")
    problem = f"is no classifier: {source.name} holds a {type(model).__name__}. Save a fitted one."
    ensure(is_estimator(model), name, problem)
    return model


def _trust(right: object, source: Path, why: str) -> None:
    if not right:
        raise UnsafeFileError(f"{source.name} is not loaded: {why}. {_REMEDY}")


def _check_content(data: bytes, source: Path) -> set[str]:
    """Return the types in a file; raise where one is not allowed, or where an array is not what it says."""
    with open_npz(source, file=io.BytesIO(data)) as archive:
        if _SCHEMA not in archive.names:
            raise InvalidInputError(f"{source.name} has no {_SCHEMA}.")
        schema = archive.read_bytes(_SCHEMA, MAX_SCHEMA)
        found, waiting = set[str](), [parse_json(schema, _SCHEMA, foreign=True)]
        while waiting:
            entry = waiting.pop()
            waiting += entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ()
            if not isinstance(entry, dict) or not _MARKS.intersection(entry):
                continue
            kind, module, name = (str(entry.get(mark)) for mark in ("__loader__", "__module__", "__class__"))
            full, array = f"{module}.{name}", str(entry.get("file")).removesuffix(".npy")
            what = _REASONS.get(kind, "which is not on the list of types that a file may hold")
            allowed = full in _ALLOWED.get(kind, ()) and "." not in name
            _trust(allowed, source, f"it holds {shown(full)}, {what}")
            found.add(full)
            if kind == "NdArrayNode" and "file" in entry:
                right = entry["file"] == f"{array}.npy" and array in archive.names
                what = f"it takes an array from {shown(entry['file'])}, which is none of its arrays"
                _trust(right, source, what)
                archive.read(array)
    return found


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
    for values in encoder.categories_:
        # values of an object array are looked up in a table; others by bisection, which needs their order
        known = values[:-1] if values.dtype.kind == "f" and np.isnan(values[-1:]).any() else values
        if values.ndim != 1 or not (values.dtype.kind == "O" or np.all(known[:-1] < known[1:])):
            return False
    widths = [len(values) for values in encoder.categories_]
    plain = encoder._drop_idx_after_grouping is None and not encoder._infrequent_enabled
    return plain and list(encoder._n_features_outs) == widths and encoder.n_features_in_ == len(widths)


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

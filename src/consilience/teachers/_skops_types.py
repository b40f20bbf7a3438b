"""What a .skops file may hold. Everything else is refused; there is no option to widen the tables.

The estimators below compute with numpy alone, or hold indices that `check_indices` can check. Trees, nearest
neighbours and kernel machines are left out: compiled code follows the indices in them without a look at their
range, so a made-up file could make it read and write outside of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

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
"""Classes of scikit-learn whose objects a file may hold, by the module that defines them."""

_SCALARS = frozenset(
    f"numpy.{name}"
    for name in (
        "bool", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "intp", "str_",
        "uint8", "uint16", "uint32", "uint64",
    )
)  # fmt: skip

ALLOWED: dict[str, frozenset[str]] = {
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

REASONS = {
    "FunctionNode": "a function, which would be imported",
    "PartialNode": "a function with arguments, which would be called",
    "MethodNode": "a method, which would be called",
    "OperatorFuncNode": "a function, which would be called",
    "ConstructorFromReduceNode": "a type that would be called with arguments of the file",
    "TreeNode": "a tree, whose indices compiled code follows without a check",
}
"""Why an entry of some kind is refused, for messages."""


def check_indices(model: Any) -> str:
    """Say what is wrong with numbers in a model that compiled code takes as indices; empty if nothing is.

    Parameters
    ----------
    model : estimator
        With parts of the types above alone.
    """
    for part in _parts(model):
        check = _CHECKS.get(type(part).__name__)
        try:
            problem = "" if check is None else check(part)
        except Exception as error:  # an attribute that is missing, or anything in its place
            problem = f"cannot be checked ({type(error).__name__})"
        if problem:
            return f"{type(part).__name__} {problem}"
    return ""


def _one_hot(encoder: Any) -> str:
    if not hasattr(
        encoder, "categories_"
    ):  # not fitted, such as the original that a ColumnTransformer copied
        return ""
    if encoder._drop_idx_after_grouping is not None or encoder._infrequent_enabled:
        return "drops or groups categories, which cannot be checked. Fit it with drop=None and all categories"
    for values in encoder.categories_:
        # values of an object array are looked up in a table; others by bisection, which needs their order
        ordered = values.dtype.kind == "O" or bool(np.all(values[:-1] < values[1:]))
        missing = values.dtype.kind == "f" and len(values) and np.isnan(values[-1])
        if values.ndim != 1 or not (ordered or (missing and np.all(values[:-2] < values[1:-1]))):
            return "has categories that are not in order"
    widths = [len(values) for values in encoder.categories_]
    fit = list(encoder._n_features_outs) == widths and encoder.n_features_in_ == len(widths)
    return "" if fit else "has other columns than categories"


def _vectoriser(vectoriser: Any) -> str:
    if vectoriser.input != "content":
        return "reads files that the rows name"
    if not hasattr(vectoriser, "vocabulary_"):  # not fitted: scikit-learn checks a given vocabulary itself
        return ""
    places = list(vectoriser.vocabulary_.values())
    plain = type(vectoriser.vocabulary_) is dict and all(type(place) is int for place in places)
    right = plain and sorted(places) == list(range(len(places)))
    return "" if right else "has a vocabulary with wrong places"


def _function(transformer: Any) -> str:
    """Let only that pass which stands for "passthrough" in a ColumnTransformer."""
    return "" if transformer.func is transformer.inverse_func is None else "has a function"


def _random_state(state: Any) -> str:
    found = state.get_state(legacy=False)["state"]
    return "" if 0 <= found["pos"] <= len(found["key"]) else "has a place outside of its numbers"


_CHECKS: dict[str, Callable[[Any], str]] = {
    "OneHotEncoder": _one_hot,
    "CountVectorizer": _vectoriser,
    "TfidfVectorizer": _vectoriser,
    "FunctionTransformer": _function,
    "RandomState": _random_state,
}


def _parts(model: Any) -> Iterator[Any]:
    """Yield a model and all objects in it, each once."""
    waiting, seen = [model], dict[int, Any]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part  # kept, so that no other gets its id
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set):
            waiting += part
        elif isinstance(part, np.ndarray):
            waiting += part.ravel().tolist() if part.dtype.hasobject else []
        elif isinstance(part, np.random.RandomState):
            yield part
        elif hasattr(part, "__dict__") and not isinstance(part, type):
            yield part
            waiting += vars(part).values()

"""Tables of mixed columns as numbers that any student learns from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from consilience._validation import check_fitted
from consilience._words import counted
from consilience.exceptions import InvalidInputError, visible
from consilience.files.graph import GraphColumn, prepend_columns, time_parts
from consilience.rows.tables import (
    Kind,
    column_names,
    columns_of,
    in_order,
    is_table,
    kind_of,
    plain_values,
    read_numbers,
    read_texts,
    read_times,
)

MAX_VALUES = 40
"""The most values of a text column that get a column of their own; the others share one."""
LEAST_SHARE = 0.1
"""A text column whose values recur in fewer of the rows is dropped: names, keys, free text."""

_DATE = re.compile(r"(\d{1,2}([./-])\d{1,2}\2\d{4}|\d{4}([./-])\d{1,2}\3\d{1,2})([ T].*)?")
_NUMBER = re.compile(r"[-+]?\d+(,\d+)?")
MOST = 0.9
"""If this share of the values looks like something else, the note on the column says so."""


@dataclass(frozen=True)
class Column:
    """What was decided for one column.

    Attributes
    ----------
    name : str or int
    kind : str
        What it holds.
    dtype : numpy.dtype
        The type of its values in a saved model.
    note : str
        What was done with it, in words.
    values : OneHotEncoder or None
        For texts.
    used : bool
    """

    name: Any
    kind: Kind
    dtype: np.dtype[Any]
    note: str
    values: Any = None
    used: bool = True

    @property
    def width(self) -> int:
        """How many numbers there are before missing ones are filled."""
        return 0 if not self.used or self.kind == "text" else N_PARTS if self.kind == "time" else 1


N_PARTS = 5


class TableEncoder(BaseEstimator):
    """Turn a table of mixed columns into numbers (n, d).

    Numbers and booleans stay, and missing ones become the median; a further column says where they were
    missing. Dates become days since 1970, the season (sine and cosine), the weekday and the hour. Texts and
    categories are one-hot encoded: up to 40 frequent values get a column each, and the others share one.
    Columns whose values hardly recur (names, keys, free text) are dropped.

    Attributes
    ----------
    columns_ : list of Column
    encoding_ : dict
        What was done with each column, in words.
    feature_names_in_ : (d,) array, if the columns have names

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [30, None, 50], "city": ["Ulm", "Bonn", "Ulm"]})
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.transform(frame).tolist()
    [[30.0, 0.0, 0.0, 1.0], [40.0, 1.0, 1.0, 0.0], [50.0, 0.0, 0.0, 1.0]]
    """

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Decide what to do with each column."""
        names, found = column_names(X), columns_of(X)
        columns = [_examine(column, label) for column, label in zip(found, X.columns, strict=True)]
        if not any(column.used for column in columns):
            listed = "; ".join(f"{visible(repr(column.name))} is {column.note}" for column in columns[:5])
            raise InvalidInputError(
                f"No column of X can be learnt from: {listed}. For texts, give one column as a list: "
                "X['text'].tolist()."
            )
        self._imputer = SimpleImputer(strategy="median", add_indicator=True)
        self._imputer.fit(_numbers(columns, found))
        self.columns_ = columns
        self.encoding_ = {column.name: self._note(column) for column in columns}
        self.n_features_in_ = len(columns)
        if names is not None:
            self.feature_names_in_ = names
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the numbers (n, d)."""
        check_fitted(self, "columns_")
        found = columns_of(self._as_table(X))
        parts = [self._imputer.transform(_numbers(self.columns_, found))[:, 1:]]
        for column, cells in zip(self.columns_, found, strict=True):
            if column.values is not None:
                texts = read_texts(cells, column.name)
                parts.append(column.values.transform(texts[:, None]))
        return np.hstack(parts)

    def prepend_to(self, model: Any) -> Any:
        """Return an ONNX model of the encoded numbers as one that takes an input per column.

        If all columns are numbers, it takes one matrix ``X``.
        """
        check_fitted(self, "columns_")
        fill, marked = self._imputer.statistics_[1:], self._imputer.indicator_.features_ - 1
        if self.only_numbers:
            dtype = np.result_type(*(column.dtype for column in self.columns_))
            matrix = GraphColumn("X", "number", dtype, width=len(self.columns_))
            return prepend_columns(model, [matrix], fill, marked)
        named, columns = hasattr(self, "feature_names_in_"), []
        for i, column in enumerate(self.columns_):
            if not column.used:
                continue
            name = str(column.name) if named and column.name else f"column_{i}"
            keys, rows = (), None
            if column.values is not None:
                keys = tuple(column.values.categories_[0].tolist())
                unknown = "".join(keys) + "?"  # longer than every value, so it is none of them
                rows = column.values.transform(np.array([*keys, unknown], dtype=object)[:, None])
            columns.append(GraphColumn(name, column.kind, column.dtype, keys, rows))
        return prepend_columns(model, columns, fill, marked)

    @property
    def only_numbers(self) -> bool:
        """Whether every column holds numbers, some of which are missing."""
        return all(column.used and column.kind == "number" for column in self.columns_)

    @property
    def kinds(self) -> list[str]:
        """What each column holds; ``"unused"`` for those that are dropped."""
        return [column.kind if column.used else "unused" for column in self.columns_]

    def _as_table(self, X: Any) -> Any:
        """Return X as a table with the columns of `fit`; an array is taken by position."""
        X = in_order(X, getattr(self, "feature_names_in_", None))
        if not is_table(X):
            import pandas

            values = np.asarray(X)
            if values.ndim == 2:
                X = pandas.DataFrame(values).infer_objects()
        width = X.shape[1] if is_table(X) else None
        if width != self.n_features_in_:
            got = f"X has shape {np.shape(X)}" if width is None else f"X has {counted(width, 'column')}"
            raise InvalidInputError(
                f"{got}; the model was fitted on a table of {counted(self.n_features_in_, 'column')}."
            )
        return X

    def _note(self, column: Column) -> str:
        """Return what was done with a column, with the number that stands for missing ones."""
        if column.width == 0:
            return column.note
        place = sum(c.width for c in self.columns_[: self.columns_.index(column)])
        if place + 1 not in self._imputer.indicator_.features_:
            return column.note
        fill = "" if column.kind == "time" else f" {self._imputer.statistics_[place + 1]:g}"
        return f"{column.note}; missing values became the median{fill} and are marked"


def _numbers(columns: list[Column], found: list[Any]) -> NDArray[np.float64]:
    """Return a column of zeros, then numbers, booleans and times (n, d), with NaN where they are missing.

    With the zeros, a table of texts has something to fill, too.
    """
    parts = [np.zeros((len(found[0]), 1))]
    for column, cells in zip(columns, found, strict=True):
        if column.width and column.kind == "time":
            parts.append(time_parts(read_times(cells, column.name)))
        elif column.width:
            parts.append(read_numbers(cells, column.name)[:, None])
    return np.hstack(parts)


_NOTES: dict[str, str] = {
    "number": "number",
    "truth": "true or false, as 1 or 0",
    "duration": "time span, in seconds",
    "time": "date: days since 1970, season, weekday, hour",
}
"""What is done with columns of each kind but texts."""


def _examine(column: Any, name: Any) -> Column:
    """Decide what to do with a column."""
    kind, missing = kind_of(column), column.is_null()
    dtype: np.dtype[Any] = np.dtype(np.float64)
    if kind == "other":
        raise InvalidInputError(_no_column(column, name))
    if kind == "empty" or missing.all():
        return Column(name, "empty", dtype, "dropped: it has no values", used=False)
    if kind not in _NOTES:
        return _examine_texts(read_texts(column, name), name)
    if kind == "truth" and not missing.any():
        dtype = np.dtype(bool)
    elif kind == "number" and (plain := plain_values(column)) is not None:
        dtype = plain.dtype
    return Column(name, kind, dtype, _NOTES[kind])


def _examine_texts(texts: NDArray[Any], name: Any) -> Column:
    dtype = np.dtype(object)
    values, counts = np.unique(texts.astype(str), return_counts=True)
    if len(values) == 1:
        return Column(name, "text", dtype, "dropped: it has one value", used=False)
    frequent = np.sort(counts)[::-1][:MAX_VALUES]
    if len(values) > MAX_VALUES and frequent[frequent > 1].sum() < LEAST_SHARE * len(texts):
        note = f"dropped: {len(values)} different texts, which hardly recur"
        return Column(name, "text", dtype, note + _meant(values), used=False)
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MAX_VALUES + 1, sparse_output=False
    ).fit(texts[:, None])
    rest = len(values) - MAX_VALUES
    note = (
        f"one-hot of {len(values)} values"
        if rest <= 1
        else (f"one-hot of its {MAX_VALUES} most frequent values; {rest} others share a column")
    )
    if "" in values:
        note += ", missing ones among them"
    return Column(name, "text", dtype, note + _meant(values), encoder)


def _meant(values: NDArray[Any]) -> str:
    """Return a remark if most of the different texts of a column look like dates or numbers; else nothing."""
    known = [value for value in values.tolist() if value]
    if sum(_DATE.fullmatch(value) is not None for value in known) >= MOST * len(known):
        return (
            "; they look like dates: write 2025-01-31 in a .csv file and leave other cells empty, or use "
            "pandas.to_datetime"
        )
    numbers = [value for value in known if _NUMBER.fullmatch(value)]
    # three digits after every comma: thousands, perhaps
    decimals = any("," in value and len(value.partition(",")[2]) != 3 for value in numbers)
    if decimals and len(numbers) >= MOST * len(known):
        return "; they look like numbers with a decimal comma: write 37.5"
    return ""


def _no_column(column: Any, name: Any) -> str:
    cells = column.filter(~column.is_null()).to_list()
    held = type(cells[0]).__name__ if cells else str(column.dtype)
    advice = "Give numbers, texts, categories, booleans or dates."
    if cells and np.ndim(cells[0]) > 0:
        advice = "For images and vectors, give an array (n, ...) in place of a table: np.stack(X[column])."
    return f"Column {name!r} of X holds {held} objects ({column.dtype}), which cannot be encoded. {advice}"

"""Tables: their column names, and their columns as numbers, texts and times.

A table is a data frame of pandas or polars, or an Arrow table. Other rows (arrays, lists) pass through.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience._dataset_rows import DatasetRows, is_dataset
from consilience._images import is_pil_image, joined_images
from consilience._optional import installed, require
from consilience._words import counted, shorten
from consilience.exceptions import InvalidInputError

Kind = Literal["number", "truth", "time", "duration", "text", "empty", "other"]

PURPOSE = "A table with columns of several types"
# what pandas calls the content of a column of Python objects
_CONTENTS: dict[str, Kind] = {
    "string": "text",
    "boolean": "truth",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "datetime": "time",
    "datetime64": "time",
    "date": "time",
    "timedelta": "duration",
    "timedelta64": "duration",
    "empty": "empty",
}
_PLAIN = str | numbers.Number | bool


def is_table(X: Any) -> bool:
    """Tell whether X is a data frame of pandas or polars."""
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "columns") and hasattr(X, "dtypes")


def as_values(X: Any) -> Any:
    """Return rows in a form that we know: those of an Arrow table as a frame of pandas, of a torch dataset as
    `DatasetRows`, of a list of PIL images as pixels, and all else as it is.
    """
    if is_dataset(X):
        return DatasetRows(X)
    if hasattr(X, "column_names") and hasattr(X, "schema") and not is_table(X):
        pyarrow = require("pyarrow", extra="tables", purpose="An Arrow table")
        require("pandas", extra="tables", purpose="An Arrow table")
        return pyarrow.table(X).to_pandas()
    if isinstance(X, list | tuple) and X and all(map(is_pil_image, X)):
        return joined_images(X)
    return X


def from_arrow(table: Any, maybe: Iterable[str] = ()) -> Any:
    """Return a table of Arrow as a frame of pandas, or of polars where only that is installed.

    Columns in `maybe` are booleans that miss a value somewhere: as in pandas, they are objects everywhere.
    """
    if not installed("pandas"):
        return require("polars", extra="tables", purpose=PURPOSE).from_arrow(table)
    frame = table.to_pandas(ignore_metadata=True)
    return frame.astype(dict.fromkeys(set(maybe).intersection(frame.columns), object))


def to_arrow(X: Any) -> Any:
    """Return a frame as a table of Arrow, without an index."""
    arrow = require("pyarrow", extra="tables", purpose=PURPOSE)
    table = arrow.Table.from_pandas(X, preserve_index=False) if hasattr(X, "iloc") else arrow.table(X)
    return table.replace_schema_metadata()


def as_frame(X: Any) -> Any:
    """Return a table as a data frame of pandas; another library's comes by Arrow's C interface."""
    require("pandas", extra="tables", purpose=PURPOSE)
    if hasattr(X, "iloc"):
        return X
    return require("pyarrow", extra="tables", purpose=PURPOSE).table(X).to_pandas()


def column_names(X: Any, where: str = "X") -> NDArray[Any] | None:
    """Return the names (d,) of the columns of a table, or None where there are none.

    Columns that are numbered have no names, as in scikit-learn.

    Examples
    --------
    >>> column_names(np.eye(2)) is None
    True
    """
    if not is_table(X):
        return None
    names = list(X.columns)
    texts = [isinstance(name, str) for name in names]
    if not any(texts):
        return None
    if not all(texts):
        other = names[texts.index(False)]
        raise InvalidInputError(
            f"{where} has columns with names and without: {shorten(names, 5)}. {other!r} is no text. Give "
            "every column a text as its name: X.columns = X.columns.astype(str)."
        )
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InvalidInputError(
            f"{where} has {counted(len(twice), 'column name')} more than once: {quoted(twice)}. "
            "Rename them, or drop one of each."
        )
    return np.array(names, dtype=object)


def in_order(X: Any, names: Sequence[str] | NDArray[Any] | None, where: str = "X") -> Any:
    """Return X with its columns in the order of `names`; rows without names are taken by position.

    Raises
    ------
    InvalidInputError
        Columns are missing, or there are others.
    """
    if names is None:
        return X
    found = column_names(X, where)
    if found is None:
        return _named(X, names)
    wanted = list(names)
    if found.tolist() == wanted:
        return X
    problem = name_problem(found.tolist(), wanted)
    if problem:
        raise InvalidInputError(f"{where} {problem}")
    return X[wanted]


def name_problem(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Say which columns are missing or too many, and what to do; an empty text where all is well."""
    known, given = set(wanted), set(found)
    missing = [name for name in wanted if name not in given]
    extra = [name for name in found if name not in known]
    if not missing and not extra:
        return ""
    parts = []
    if missing:
        parts.append(f"lacks the {'column' if len(missing) == 1 else 'columns'} {quoted(missing)}")
    if extra:
        parts.append(f"has the unknown {'column' if len(extra) == 1 else 'columns'} {quoted(extra)}")
    remedy = "Drop what is unknown" if not missing else "Add or rename columns"
    return (
        f"{' and '.join(parts)}. The model was fitted on {counted(len(wanted), 'column')}: {quoted(wanted)}. "
        f"{remedy}; their order does not matter{separator_advice(found)}."
    )


def separator_advice(names: Sequence[str]) -> str:
    """Say that commas separate columns, where a single name has other separators in it.

    Examples
    --------
    >>> separator_advice(["age;ward"]), separator_advice(["age", "ward"])
    ("; separate columns by ',', not by ';'", '')
    """
    found = [mark for mark in (";", "\t") if len(names) == 1 and mark in names[0]]
    return f"; separate columns by ',', not by {found[0]!r}" if found else ""


def quoted(names: Sequence[Any], most: int = 8) -> str:
    """Return names in quotes, the first few where there are many."""
    listed = ", ".join(repr(name) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _named(X: Any, names: Sequence[str] | NDArray[Any]) -> Any:
    """Return rows without names as a frame with these, so that no model warns that they are missing."""
    values = X.to_numpy() if is_table(X) else X
    if not isinstance(values, np.ndarray):
        try:
            values = np.asarray(X) if isinstance(X, list | tuple) else None
        except ValueError:  # rows that differ in length: the model complains
            values = None
    fits = values is not None and values.ndim == 2 and values.shape[1] == len(names)
    if not fits or not installed("pandas"):
        return X
    if is_table(X):
        return X.set_axis(list(names), axis=1) if hasattr(X, "set_axis") else X
    pandas = require("pandas", extra="tables", purpose=PURPOSE)
    frame = pandas.DataFrame(values, columns=list(names), copy=False)
    return frame.infer_objects() if values.dtype.kind == "O" else frame


def is_numeric(X: Any) -> bool:
    """Tell whether all columns of a table are plain numbers, or all are booleans, missing ones aside."""
    types = list(X.dtypes)
    if hasattr(X, "iloc"):
        kinds = {kind.kind if isinstance(kind, np.dtype) else "?" for kind in types}
    else:
        kinds = {"f" if kind.is_numeric() else "?" for kind in types}
    return kinds <= set("iuf") or kinds == {"b"}


def has_missing(X: Any) -> bool:
    """Tell whether a table of plain numbers has a missing value."""
    if not hasattr(X, "iloc"):
        return any(X[name].null_count() for name in X.columns) or bool(np.isnan(X.to_numpy()).any())
    if len({str(kind) for kind in X.dtypes}) == 1:
        parts = [X.to_numpy()]  # one block: no copy
    else:
        parts = [X.iloc[:, i].to_numpy() for i in range(X.shape[1])]
    # the minimum of numbers of which one is NaN is NaN: no array of flags
    return any(part.dtype.kind == "f" and part.size > 0 and bool(np.isnan(part.min())) for part in parts)


def kind_of(column: Any) -> Kind:
    """Return what a column of a pandas frame holds."""
    from pandas.api import types

    dtype = column.dtype
    if str(dtype) == "category" or (not isinstance(dtype, np.dtype) and types.is_string_dtype(dtype)):
        return "text"
    if types.is_bool_dtype(dtype):
        return "truth"
    if types.is_numeric_dtype(dtype):
        return "other" if types.is_complex_dtype(dtype) else "number"
    if types.is_datetime64_any_dtype(dtype):
        return "time"
    if types.is_timedelta64_dtype(dtype):
        return "duration"
    content = types.infer_dtype(column, skipna=True)
    if content in _CONTENTS:
        return _CONTENTS[content]
    if content.startswith("mixed") and all(isinstance(cell, _PLAIN) for cell in column.dropna()):
        return "text"
    return "other"


def number_advice(X: Any) -> str:
    """Say which columns of a table hold no numbers, and what to do; an empty text for other rows."""
    if not is_table(X) or is_numeric(X) or not installed("pandas"):
        return ""
    frame = as_frame(X)
    kinds = [kind_of(frame.iloc[:, i]) for i in range(frame.shape[1])]
    names = [name for name, kind in zip(frame.columns, kinds, strict=True) if kind not in ("number", "truth")]
    if not names:
        return ""
    return (
        f" These columns hold no numbers: {quoted(names)}. Encode them first, or use SoftLabelClassifier, "
        "whose students encode them."
    )


def read_numbers(column: Any, name: Any) -> NDArray[np.float64]:
    """Return a column of numbers, booleans or durations (in seconds) as floats; NaN where one is missing."""
    kind = kind_of(column)
    if kind == "duration":
        column = column.astype("timedelta64[ns]") / np.timedelta64(1, "s")
    try:
        with np.errstate(invalid="ignore"):
            values = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except (ValueError, TypeError) as error:
        raise InvalidInputError(_other_kind(column, name, "numbers")) from error
    return _finite(values, name)


def _finite(values: NDArray[Any], name: Any) -> NDArray[Any]:
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise InvalidInputError(
            f"Column {name!r} has {values[row]} in row {{row}}; expected finite numbers, or a missing value.",
            row=row,
        )
    return values


def read_times(column: Any, name: Any) -> NDArray[np.float64]:
    """Return dates and times as seconds since 1970 (UTC); NaN where one is missing."""
    import pandas

    if column.isna().all():  # of no type that tells: what is missing may be a date
        return np.full(len(column), np.nan)
    try:
        if kind_of(column) in ("number", "truth"):
            raise ValueError("numbers")
        moments = pandas.to_datetime(column, utc=True, **_time_format(column))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(_other_kind(column, name, "dates")) from error
    values = moments.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    seconds = values.astype(np.int64) / 1e6
    return np.where(np.isnat(values), np.nan, seconds)


def _time_format(column: Any) -> dict[str, str]:
    return {"format": "ISO8601"} if kind_of(column) == "text" else {}


def read_texts(column: Any, name: Any) -> NDArray[Any]:
    """Return a column as texts; an empty one where it is missing."""
    import pandas

    codes, values = pandas.factorize(column)
    cells = [_text(value, name) for value in values]
    return np.asarray(np.array([*cells, ""], dtype=object)[codes])  # a missing value has the code -1


def input_names(X: Any) -> list[str]:
    """Return a name for each column of a table, whether it has names or not."""
    return [name if isinstance(name, str) and name else f"column_{i}" for i, name in enumerate(X.columns)]


def column_values(X: Any, kinds: Sequence[str]) -> list[NDArray[Any]]:
    """Return the columns (n, 1) that a model with one input per column takes; it has none for ``"unused"``.

    Texts are objects, and a missing one is empty. Times are seconds since 1970. All else is in its own type,
    or in doubles where it has another or a value is missing.
    """
    frame = as_frame(X)
    found = []
    for i, kind in enumerate(kinds):
        if kind != "unused":
            found.append(_values(frame.iloc[:, i], kind, frame.columns[i])[:, None])
    return found


def _values(column: Any, kind: str, name: Any) -> NDArray[Any]:
    if kind == "text":
        return read_texts(column, name)
    if kind == "time":
        return read_times(column, name)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf" and column.dtype != np.float16:
        return _finite(np.asarray(column.to_numpy()), name)
    return read_numbers(column, name)


def _text(value: Any, name: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))  # 1 and 1.0 are one category
    if isinstance(value, numbers.Number | bool | np.bool_ | datetime.date):
        return str(value)
    raise InvalidInputError(f"Column {name!r} holds {type(value).__name__} objects; expected texts.")


def _other_kind(column: Any, name: Any, expected: str) -> str:
    cells = column.dropna()
    example = next((cell for cell in cells if isinstance(cell, str)), cells.tolist()[0])
    return (
        f"Column {name!r} holds {column.dtype} such as {example!r}; the model was fitted on {expected} "
        "there. Convert the column, or leave such cells empty."
    )

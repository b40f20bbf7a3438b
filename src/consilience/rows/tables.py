"""Tables: their column names, their columns as numbers, texts and times, and a checksum of what they hold.

A table is a data frame of pandas or polars; Arrow tables become one. Columns are read by narwhals, so none of
these libraries needs another. Other rows (arrays, lists, images) pass through.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import numbers
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from consilience._optional import installed, require
from consilience._words import counted, shorten
from consilience.exceptions import ConsilienceError, InvalidInputError, shown

Kind = Literal["number", "truth", "time", "duration", "text", "empty", "other"]

_HASHED = 2**17  # numbers that are converted at a time
PURPOSE = "A table with columns of several types"
_KINDS: tuple[tuple[Any, Kind], ...] = (
    ((nw.String, nw.Categorical, nw.Enum), "text"),
    (nw.Boolean, "truth"),
    ((nw.Datetime, nw.Date), "time"),
    (nw.Duration, "duration"),
)
_CELLS: tuple[tuple[Any, Kind], ...] = (
    (str, "text"),
    (bool | np.bool_, "truth"),
    (numbers.Real | decimal.Decimal, "number"),
    (datetime.date | np.datetime64, "time"),
    (datetime.timedelta | np.timedelta64, "duration"),
)
"""What is in a column of Python objects."""


def is_instance_of(obj: object, module: str, name: str) -> bool:
    """Tell whether `obj` is a `module.name`, without importing `module`.

    An object of a class can only exist when the module of the class is loaded already.
    """
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(obj, kind)


def is_pil_image(value: object) -> bool:
    """Tell whether a value is an image of Pillow, without importing that."""
    return is_instance_of(value, "PIL.Image", "Image")


def holds_images(X: Any) -> bool:
    """Tell whether X is a list of images: arrays of pixels (uint8), PIL images or both.

    Examples
    --------
    >>> holds_images([np.zeros((4, 5, 3), np.uint8), np.zeros((2, 2), np.uint8)]), holds_images(["a.png"])
    (True, False)
    """
    return (
        isinstance(X, list | tuple) and len(X) > 0 and all(_is_pixels(row) or is_pil_image(row) for row in X)
    )


def differ_in_size(X: Any) -> bool:
    """Tell whether X is a list of images that do not make one array."""
    return holds_images(X) and (len({np.shape(row) for row in X}) > 1 or any(map(is_pil_image, X)))


def _is_pixels(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3)


def is_table(X: Any) -> bool:
    """Tell whether X is a data frame of pandas or polars."""
    return len(getattr(X, "shape", ())) == 2 and hasattr(X, "columns") and hasattr(X, "dtypes")


def as_values(X: Any) -> Any:
    """Return rows in a form that we know: those of an Arrow table as a data frame, of a torch dataset as they
    are read, of a list of PIL images as pixels, what only becomes an array as one, and all else as it is.
    """
    if is_instance_of(X, "torch.utils.data", "Dataset"):
        from consilience.rows.datasets import open_rows

        return open_rows(X).all(None)
    if hasattr(X, "column_names") and hasattr(X, "schema") and not is_table(X):
        arrow = require("pyarrow", extra="tables", purpose="An Arrow table")
        return arrow.table(X).to_pandas() if installed("pandas") else from_arrow(arrow.table(X))
    if isinstance(X, list | tuple) and X and all(map(is_pil_image, X)):
        from consilience.rows.images import joined_images

        return joined_images(X)
    if is_instance_of(X, "polars", "Series"):
        return X.to_list()
    if isinstance(X, np.ma.MaskedArray):  # what is masked is missing
        return np.ma.filled(X if X.dtype.kind == "f" else X.astype(float), np.nan)
    if getattr(getattr(X, "dtype", None), "names", None):
        raise InvalidInputError("X is an array of records. Give their fields as the columns of a data frame.")
    known = hasattr(X, "shape") or hasattr(X, "__len__") or not hasattr(X, "__array__")
    return X if known and not isinstance(X, np.matrix) else np.asarray(X)


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


def columns_of(X: Any) -> list[nw.Series[Any]]:
    """Return the columns of a table, in order."""
    if hasattr(X, "iloc"):  # names of pandas may be numbers, and the same
        return [nw.from_native(X.iloc[:, i], series_only=True) for i in range(X.shape[1])]
    return list(nw.from_native(X, eager_only=True).iter_columns())


def column_names(X: Any, where: str = "X") -> NDArray[Any] | None:
    """Return the names (d,) of the columns of a table, or None where there are none.

    Columns that are numbered have no names, as in scikit-learn.

    Examples
    --------
    >>> column_names(np.eye(2)) is None
    True
    """
    names = list(X.columns) if is_table(X) else []
    texts = [isinstance(name, str) for name in names]
    if not any(texts):
        return None
    if not all(texts):
        raise InvalidInputError(
            f"{where} has columns with names and without: {shorten(names, 5)}. "
            f"{names[texts.index(False)]!r} is no text. Give "
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
    found, wanted = column_names(X, where), list(names)
    if found is None:
        return _named(X, wanted)
    if found.tolist() == wanted:
        return X
    problem = name_problem(found.tolist(), wanted)
    if problem:
        raise InvalidInputError(f"{where} {problem}")
    return X[wanted]


def name_problem(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Say which columns are missing or too many, and what to do; an empty text where all is well."""
    missing = [name for name in wanted if name not in set(found)]
    told = [("lacks the", missing), ("has the unknown", [name for name in found if name not in set(wanted)])]
    parts = [f"{verb} column{'s' if len(names) > 1 else ''} {quoted(names)}" for verb, names in told if names]
    if not parts:
        return ""
    remedy = "Add or rename columns" if missing else "Drop what is unknown"
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
    listed = ", ".join(map(shown, names[:most]))
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _named(X: Any, names: list[str]) -> Any:
    """Return rows without names as a frame with these, so that no model warns that they are missing."""
    values = X.to_numpy() if is_table(X) else X
    if isinstance(X, list | tuple):
        try:
            values = np.asarray(X)
        except ValueError:  # rows that differ in length: the model complains
            return X
    library: Any = next(filter(installed, ("pandas", "polars")), None)
    if not isinstance(values, np.ndarray) or values.shape[1:] != (len(names),) or library is None:
        return X
    if values.dtype.kind != "O":
        return nw.from_numpy(values, names, backend=library).to_native()
    columns = {name: values[:, i].tolist() for i, name in enumerate(names)}
    return nw.from_dict(columns, backend=library).to_native()


def is_numeric(X: Any) -> bool:
    """Tell whether all columns of a table are plain numbers, or all are booleans, missing ones aside."""
    if hasattr(X, "iloc"):
        kinds = {kind.kind if isinstance(kind, np.dtype) else "?" for kind in X.dtypes}
    else:
        kinds = {"f" if kind.is_numeric() else "?" for kind in X.dtypes}
    return kinds <= set("iuf") or kinds == {"b"}


def has_missing(X: Any) -> bool:
    """Tell whether a table of plain numbers has a missing value."""
    return any(c.is_null().any() or (c.dtype.is_float() and c.is_nan().any()) for c in columns_of(X))


def kind_of(column: Any) -> Kind:
    """Return what a column of a table holds."""
    series = nw.from_native(column, series_only=True)
    dtype = series.dtype
    if dtype.is_numeric():
        return "number"
    if dtype in (nw.Object, nw.Unknown, nw.String) and series.is_null().all():
        return "empty"
    if dtype not in (nw.Object, nw.Unknown):  # narwhals does not know every time zone of pandas
        return next((kind for types, kind in _KINDS if isinstance(dtype, types)), "other")
    cells = series.filter(~series.is_null()).to_list()
    found: set[Kind] = {
        next((kind for types, kind in _CELLS if isinstance(cell, types)), "other") for cell in cells
    }
    if len(found) > 1:
        return "text" if found <= {"text", "truth", "number"} else "other"
    return found.pop()


def number_advice(X: Any) -> str:
    """Say which columns of a table hold no numbers, and what to do; an empty text for other rows."""
    if not is_table(X) or is_numeric(X):
        return ""
    columns = zip(X.columns, columns_of(X), strict=True)
    names = [name for name, column in columns if kind_of(column) not in ("number", "truth")]
    advice = "Encode them first, or use SoftLabelClassifier, whose students encode them."
    return f" These columns hold no numbers: {quoted(names)}. {advice}" if names else ""


def plain_values(column: Any) -> NDArray[Any] | None:
    """Return a column of plain numbers or booleans in its own type; None where it holds something else."""
    series = nw.from_native(column, series_only=True)
    native = series.to_native()
    if hasattr(native, "iloc") and not isinstance(native.dtype, np.dtype):  # values of pandas that may miss
        return None
    values = series.to_numpy()
    plain = values.dtype.kind in "biuf" and values.dtype.itemsize <= 8 and values.dtype != np.float16
    return np.asarray(values) if plain else None


def read_numbers(column: Any, name: Any) -> NDArray[np.float64]:
    """Return a column of numbers, booleans or durations (in seconds) as floats; NaN where one is missing."""
    series = nw.from_native(column, series_only=True)
    if isinstance(series.dtype, nw.Duration):
        return np.asarray(series.dt.total_nanoseconds().cast(nw.Float64).to_numpy() / 1e9)
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return _finite(np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64), name)
    return _finite(_each(series, name, "numbers", _number), name)


def _finite(values: NDArray[Any], name: Any) -> NDArray[Any]:
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise InvalidInputError(
            f"Column {shown(name)} has {values[row]} in row {{row}}; expected finite numbers, or a missing "
            "value.",
            row=row,
        )
    return values


def read_times(column: Any, name: Any) -> NDArray[np.float64]:
    """Return dates and times as seconds since 1970 (UTC); NaN where one is missing."""
    series = nw.from_native(column, series_only=True)
    if isinstance(series.dtype, nw.Date):
        series = series.cast(nw.Datetime("us"))
    if isinstance(series.dtype, nw.Datetime):
        return np.asarray(series.dt.timestamp("us").cast(nw.Float64).to_numpy() / 1e6)
    return _each(series, name, "dates", _seconds)


def _each(series: nw.Series[Any], name: Any, expected: str, read: Any) -> NDArray[np.float64]:
    """Return what each cell means as a number, and NaN where it is missing."""
    cells = np.flatnonzero(~series.is_null().to_numpy())
    values, found = series.to_list(), np.full(len(series), np.nan)
    try:
        found[cells] = [read(values[i]) for i in cells]
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        example = next((values[i] for i in cells if isinstance(values[i], str)), values[cells[0]])
        raise InvalidInputError(
            f"Column {shown(name)} holds {series.dtype} such as {shown(example)}; the model was fitted on "
            f"{expected} there. Convert the column, or leave such cells empty."
        ) from error
    return found


def _number(cell: Any) -> float:
    if isinstance(cell, datetime.timedelta | np.timedelta64):
        return float(np.timedelta64(cell) / np.timedelta64(1, "s"))
    return float(cell)


def _seconds(cell: Any) -> float:
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if not isinstance(cell, datetime.datetime):
        cell = datetime.datetime.fromisoformat(cell if isinstance(cell, str) else cell.isoformat())
    return float((cell if cell.tzinfo else cell.replace(tzinfo=datetime.UTC)).timestamp())


def read_texts(column: Any, name: Any) -> NDArray[Any]:
    """Return a column as texts; an empty one where it is missing."""
    series = nw.from_native(column, series_only=True)
    cells = zip(series.to_list(), series.is_null().to_list(), strict=True)
    return np.array(["" if missing else _text(cell, name) for cell, missing in cells], dtype=object)


def _text(cell: Any, name: Any) -> str:
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        cell = int(cell)  # 1 and 1.0 are one category
    if not isinstance(cell, str | numbers.Number | np.bool_ | datetime.date):
        raise InvalidInputError(f"Column {shown(name)} holds {type(cell).__name__} objects; expected texts.")
    return str(cell)


def input_names(X: Any) -> list[str]:
    """Return a name for each column of a table, whether it has names or not."""
    return [name if isinstance(name, str) and name else f"column_{i}" for i, name in enumerate(X.columns)]


def column_values(X: Any, kinds: Sequence[str]) -> list[NDArray[Any]]:
    """Return the columns (n, 1) that a model with one input per column takes; it has none for ``"unused"``.

    Texts are objects, and a missing one is empty. Times are seconds since 1970. All else is in its own type,
    or in doubles where it has another or a value is missing.
    """
    used = zip(columns_of(X), kinds, X.columns, strict=True)
    return [_values(column, kind, name)[:, None] for column, kind, name in used if kind != "unused"]


def _values(column: Any, kind: str, name: Any) -> NDArray[Any]:
    if kind in ("text", "time"):
        return read_texts(column, name) if kind == "text" else read_times(column, name)
    plain = plain_values(column)
    return read_numbers(column, name) if plain is None else _finite(plain, name)


def rows_sha256(X: Any) -> str | None:
    """Return the sha256 of rows, or None where rows have no plain content.

    It depends on values, not on how they are stored: whole numbers and floats of equal value have one
    checksum, and so have a .csv and a .parquet file of the same table. Named columns may come in any order.
    Rows with names differ from rows without. A torch dataset has no checksum: it may not fit in memory, and
    to read it once more may take hours.

    Parameters
    ----------
    X : array, tensor, sparse matrix, data frame or list
        n rows.

    Examples
    --------
    >>> rows_sha256(np.array([[1, 2]])) == rows_sha256(np.array([[1.0, 2.0]], dtype=np.float32))
    True
    >>> rows_sha256(np.array([[1, 2]])) == rows_sha256(np.array([[2, 1]]))
    False
    """
    if is_instance_of(X, "torch.utils.data", "Dataset"):
        return None
    content = hashlib.sha256()
    try:
        for head, values in _parts(as_values(X)):
            content.update(head.encode("utf-8", "surrogatepass"))
            _add(content, values)
    except (ConsilienceError, TypeError, ValueError, RuntimeError, OverflowError):
        return None  # a checksum is a service: rows without one can be learnt from all the same
    return content.hexdigest()


def _parts(X: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays that rows consist of, each with what it is."""
    if hasattr(X, "tocsr"):
        rows = X.tocsr(copy=True)
        rows.sum_duplicates()  # and sorts the columns of each row
        for part in (rows.indptr, rows.indices, rows.data):
            yield f"sparse {rows.shape}", part
    elif not is_table(X):
        yield "", _plain(X)
    elif (names := column_names(X)) is None and is_numeric(X):
        yield "", X.to_numpy()
    else:
        columns = columns_of(X)
        named = enumerate([""] * len(columns) if names is None else names.tolist())
        for i, name in sorted(named, key=lambda one: one[1]):
            yield f"column {X.shape} {len(name)} {name}", _column(columns[i], name)


def _plain(X: Any) -> NDArray[Any]:
    """Return rows as an array of numbers or of texts."""
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if isinstance(X, list | tuple) and X and all(isinstance(row, str) for row in X):
        return np.array([*X, None], dtype=object)[:-1]  # texts of any length, as they are
    return np.asarray(X)


def _column(column: Any, name: str) -> NDArray[Any]:
    """Return a column of a table as numbers or texts."""
    if kind_of(column) == "text":  # of a file that does not tell texts from numbers, they may be numbers
        from consilience.rows.csv import read_column  # which loads pyarrow

        column = read_column(read_texts(column, name).tolist())
    kind = kind_of(column)
    if kind == "other":
        raise TypeError("no plain content")
    if kind == "text":
        return read_texts(column, name)
    return read_times(column, name) if kind == "time" else read_numbers(column, name)


def _add(content: Any, values: NDArray[Any]) -> None:
    """Add an array: numbers block by block, so that there is no copy of all of them."""
    if not values.ndim or values.dtype.kind not in "biufOU":
        raise TypeError("no plain content")
    numbers = values.dtype.kind in "biuf"
    content.update(f"{'numbers' if numbers else 'texts'} {values.shape}".encode())
    for cell in () if numbers else values.ravel().tolist():
        data = str.encode(cell, "utf-8", "surrogatepass")
        content.update(len(data).to_bytes(8, "little") + data)
    rows = max(1, _HASHED // max(1, math.prod(values.shape[1:])))
    for start in range(0, len(values) if numbers and values.size else 0, rows):
        block = values[start : start + rows].astype(np.float64) + 0.0  # -0.0 becomes 0.0
        block[np.isnan(block)] = np.nan  # one NaN of many
        content.update(np.ascontiguousarray(block).data)

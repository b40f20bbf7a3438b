"""The Open Inference Protocol, version 2: metadata and tensors, as JSON or as bytes after the JSON.

Client and server share it. Whatever does not follow the protocol raises a `ProtocolError` whose text is a
clause, such as "gave 5 numbers for shape [2, 3]", or an `InvalidInputError` of the reader of JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.exceptions import visible
from consilience.files.strict_json import (
    Reader,
    listing,
    mapping,
    maybe,
    parse_json,
    reader,
    record,
    text,
    whole,
)

DATATYPES: dict[str, str] = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "text",
}
CODES = {name: code for code, name in DATATYPES.items()}
HEADER = "Inference-Header-Content-Length"
FLOATS = ("FP16", "FP32", "FP64")
_MOST_DIMENSIONS = 32  # numpy has no more
# by the kind of a type of numpy: the types of its cells in JSON, and how these are read
_IN_JSON: dict[str, tuple[set[type], type]] = {
    "f": ({int, float}, np.float64),
    "i": ({int}, np.int64),
    "u": ({int}, np.int64),
    "b": ({bool}, np.bool_),
    "O": ({str}, np.object_),
}


class ProtocolError(Exception):
    """A message that does not follow the protocol."""


def expect(right: object, problem: str) -> None:
    """Raise a `ProtocolError` unless something is right."""
    if not right:
        raise ProtocolError(problem)


@dataclass(frozen=True)
class Tensor:
    """An input or output that metadata name.

    Attributes
    ----------
    name : str
    datatype : str
        Such as ``"FP32"``.
    shape : tuple of int
        -1 where any length will do.
    parameters : mapping
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def takes(self, values: NDArray[Any]) -> bool:
        """Tell whether rows of these values have its shape."""
        lengths = zip(self.shape[1:], values.shape[1:], strict=False)
        return values.ndim == len(self.shape) and all(a in (-1, b) for a, b in lengths)


@dataclass(frozen=True)
class Metadata:
    """What a server says about a model."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def _anything(value: Any) -> Any:
    return value


_FIELDS: dict[str, Reader] = {
    "name": text(),
    "datatype": text(10, like="|".join(DATATYPES), says="a datatype of the protocol"),
    "shape": listing(
        reader("a length, or -1 for any", lambda value: type(value) is int and value >= -1), _MOST_DIMENSIONS
    ),
    "parameters": maybe(mapping(_anything)),
}
_DESCRIPTION = record(_FIELDS, needs=("name", "datatype", "shape"), others=True)
_VALUES = record(
    {**_FIELDS, "shape": listing(whole(), _MOST_DIMENSIONS), "data": _anything},
    needs=("name", "datatype", "shape"),
    others=True,
)
_OUTPUT = record({key: _FIELDS[key] for key in ("name", "parameters")}, needs=["name"], others=True)
_WANTED = record({"outputs": maybe(listing(_OUTPUT, 100))}, others=True)


def _tensor(value: Any) -> Tensor:
    found = _DESCRIPTION(value)
    return Tensor(found["name"], found["datatype"], found["shape"], found.get("parameters") or {})


_METADATA = record(
    {
        "name": text(),
        "versions": maybe(listing(str, 1000)),
        "platform": maybe(text()),
        "inputs": maybe(listing(_tensor, 10_000)),
        "outputs": maybe(listing(_tensor, 10_000)),
    },
    needs=["name"],
    others=True,
)
_OBJECT = mapping(_anything, 10**6)


def parse_object(data: bytes) -> Any:
    """Return the JSON object in some bytes."""
    return _OBJECT(parse_json(data, "The message"))


def read_metadata(body: bytes) -> Metadata:
    """Return a model's metadata."""
    found = _METADATA(parse_object(body))
    tensors = (found.get("inputs") or (), found.get("outputs") or ())
    return Metadata(found["name"], found.get("versions") or (), found.get("platform") or "", *tensors)


def wanted_outputs(content: Mapping[str, Any]) -> dict[str, bool]:
    """Return the names of the outputs that a request asks for, and whether it wants each as bytes."""
    asked = _WANTED(content).get("outputs") or ()
    return {one["name"]: (one.get("parameters") or {}).get("binary_data") is True for one in asked}


def datatype_of(values: NDArray[Any]) -> str:
    """Return the datatype of an array; texts are BYTES.

    Examples
    --------
    >>> datatype_of(np.zeros(2, np.float32)), datatype_of(np.array(["a"]))
    ('FP32', 'BYTES')
    """
    return "BYTES" if values.dtype.kind in "OUST" else CODES.get(values.dtype.name, "FP64")


def encode(
    message: Mapping[str, Any], side: str, tensors: Sequence[tuple[str, str, NDArray[Any]]], *, binary: bool
) -> tuple[bytes, dict[str, str]]:
    """Return a body and its headers.

    Parameters
    ----------
    message : mapping
        Everything but the tensors.
    side : {"inputs", "outputs"}
    tensors : sequence of (name, datatype, array)
    binary : bool
        Whether tensors follow the JSON as bytes.

    Examples
    --------
    >>> encode({}, "inputs", [("X", "FP32", np.array([[0.5]]))], binary=False)[0]
    b'{"inputs":[{"name":"X","datatype":"FP32","shape":[1,1],"data":[0.5]}]}'
    """
    entries, tail = [], b""
    for name, datatype, values in tensors:
        data = _bytes_of(values, datatype) if binary else b""
        how = {"parameters": {"binary_data_size": len(data)}} if binary else {"data": values.ravel().tolist()}
        entries.append({"name": name, "datatype": datatype, "shape": list(values.shape), **how})
        tail += data
    try:
        written = json.dumps({**message, side: entries}, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ProtocolError(
            "takes JSON, which has no NaN and no infinity, and X has one. Fill missing values"
        ) from None
    head = written.encode("utf-8", "backslashreplace")
    if not binary:
        return head, {"Content-Type": "application/json"}
    return head + tail, {"Content-Type": "application/octet-stream", HEADER: str(len(head))}


def _bytes_of(values: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        return np.ascontiguousarray(values, np.dtype(DATATYPES[datatype]).newbyteorder("<")).tobytes()
    cells = [str(cell).encode("utf-8", "surrogatepass") for cell in values.ravel().tolist()]
    return b"".join(len(cell).to_bytes(4, "little") + cell for cell in cells)


def decode(body: bytes, header: str | None, side: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the content of a body, and its tensors by name.

    Parameters
    ----------
    body : bytes
    header : str or None
        The value of Inference-Header-Content-Length.
    side : {"inputs", "outputs"}
    """
    told = str(len(body)) if header is None else header
    expect(told.isdecimal() and len(told) <= 18 and int(told) <= len(body), f"gave a wrong {HEADER}")
    content, rest = parse_object(body[: int(told)]), memoryview(body)[int(told) :]
    error = visible(str(content.get("error"))[:300])
    expect(content.get("error") is None, f"answered with an error: {error}")
    found: dict[str, NDArray[Any]] = {}
    read = record({side: listing(_VALUES, 10_000, least=1)}, needs=[side], others=True)
    for entry in read(content)[side]:
        name, shape = entry["name"], entry["shape"]
        size = (entry.get("parameters") or {}).get("binary_data_size")
        if "data" in entry or size is None:
            values = _from_json(entry.get("data"), entry["datatype"], name)
        else:
            fits = type(size) is int and 0 <= size <= len(rest)
            expect(fits, "gave a binary tensor that is shorter than it says")
            values, rest = _from_bytes(rest[:size], entry["datatype"]), rest[size:]
        expect(
            values.size == math.prod(shape), f"gave {values.size} values of {name!r} for shape {list(shape)}"
        )
        # a dimension of 0 hides how large the others are, and no array of numpy has these
        expect(math.prod(filter(None, shape)) < 2**31, f"gave {name!r} the impossible shape {list(shape)}")
        found[name] = values.reshape(shape)
    return content, found


def _from_json(data: Any, datatype: str, name: str) -> NDArray[Any]:
    expect(isinstance(data, list), f"gave {name!r} without data")
    try:  # as objects: an array of texts is everywhere as wide as the longest of them
        values = np.array(data, dtype=object).ravel()
    except ValueError:
        raise ProtocolError(f"gave {name!r} as lists of different lengths") from None
    kinds, kind = set(map(type, values)), np.dtype(DATATYPES[datatype].replace("text", "O"))
    expect(list not in kinds, f"gave {name!r} as lists of different lengths")
    fits, plain = _IN_JSON[kind.kind]
    expect(kinds <= fits, f"gave {name!r} as {datatype} with cells that are something else")
    values = values.astype(plain)
    with np.errstate(over="ignore", invalid="ignore"):
        found = values.astype(kind)
    outside = values[found != values] if kind.kind in "iu" else []
    if len(outside):
        raise ProtocolError(f"gave {name!r} as {datatype} with {outside[0]}, which it cannot hold")
    return found


def _from_bytes(part: memoryview, datatype: str) -> NDArray[Any]:
    cells, short = list[str](), "gave a binary tensor that ends in the middle of a "
    if datatype != "BYTES":
        kind = np.dtype(DATATYPES[datatype])
        expect(len(part) % kind.itemsize == 0, f"{short}number")
        return np.frombuffer(part, dtype=kind.newbyteorder("<")).astype(kind)
    while len(part):
        end = 4 + int.from_bytes(part[:4], "little")
        expect(end <= len(part), f"{short}text")
        cells.append(bytes(part[4:end]).decode("utf-8", "replace"))
        part = part[end:]
    return np.array(cells, dtype=object)

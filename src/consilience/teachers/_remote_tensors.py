"""The Open Inference Protocol, version 2: metadata and tensors, as JSON or as bytes after the JSON.

Client and server share it. Whatever does not follow the protocol raises a `ProtocolError` whose text is a
clause, such as "gave 5 numbers for shape [2, 3]".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience._words import visible
from consilience.files.strict_json import parse_json

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
HEADER = "Inference-Header-Content-Length"
FLOATS = ("FP16", "FP32", "FP64")
_MOST_DIMENSIONS = 32  # numpy has no more
_CODES = {name: code for code, name in DATATYPES.items()}


class ProtocolError(Exception):
    """A message that does not follow the protocol."""


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


@dataclass(frozen=True)
class Metadata:
    """What a server says about a model."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def datatype_of(values: NDArray[Any]) -> str:
    """Return the datatype of an array; texts are BYTES.

    Examples
    --------
    >>> datatype_of(np.zeros(2, np.float32)), datatype_of(np.array(["a"]))
    ('FP32', 'BYTES')
    """
    if values.dtype.kind in "OUST":
        return "BYTES"
    return _CODES.get(values.dtype.name) or "FP64"


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in some bytes."""
    try:
        content = parse_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"gave no valid JSON ({str(error)[:80] or type(error).__name__})") from None
    if not isinstance(content, dict):
        raise ProtocolError(f"gave a JSON {type(content).__name__} instead of an object")
    return content


def read_metadata(content: Mapping[str, Any]) -> Metadata:
    """Return a model's metadata."""
    versions = content.get("versions") or []
    if not isinstance(versions, list) or not isinstance(content.get("name"), str):
        raise ProtocolError("gave metadata without a name, or whose versions are no list")
    return Metadata(
        content["name"],
        tuple(str(version) for version in versions),
        str(content.get("platform") or ""),
        _read_tensors(content.get("inputs") or [], "inputs"),
        _read_tensors(content.get("outputs") or [], "outputs"),
    )


def _read_tensors(entries: Any, what: str) -> tuple[Tensor, ...]:
    found = []
    for entry in entries if isinstance(entries, list) else [None]:
        fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
        name, datatype = fields.get("name"), fields.get("datatype")
        shape: Any = fields.get("shape")
        if not isinstance(name, str) or not _is_shape(shape) or datatype not in DATATYPES:
            raise ProtocolError(f"gave metadata whose {what} lack a name, a known datatype or a shape")
        parameters = fields.get("parameters")
        found.append(Tensor(name, datatype, tuple(shape), parameters if isinstance(parameters, dict) else {}))
    return tuple(found)


def _is_shape(shape: Any) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= _MOST_DIMENSIONS
        and all(type(length) is int and length < 2**63 for length in shape)
    )


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
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(values.shape)}
        if binary:
            data = _bytes_of(values, datatype)
            entry["parameters"] = {"binary_data_size": len(data)}
            tail += data
        else:
            entry["data"] = values.reshape(-1).tolist()
        entries.append(entry)
    try:
        text = json.dumps({**message, side: entries}, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ProtocolError(
            "takes JSON, which has no NaN and no infinity, and X has one. Fill missing values"
        ) from None
    head = text.encode("utf-8", "backslashreplace")
    kind = "application/octet-stream" if binary else "application/json"
    return head + tail, {"Content-Type": kind} | ({HEADER: str(len(head))} if binary else {})


def _bytes_of(values: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        kind = np.dtype(DATATYPES[datatype]).newbyteorder("<")
        return np.ascontiguousarray(values, dtype=kind).tobytes()
    cells = [str(cell).encode("utf-8", "surrogatepass") for cell in values.reshape(-1).tolist()]
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
    if header is not None and (not header.isdecimal() or len(header) > 18 or int(header) > len(body)):
        raise ProtocolError(f"gave a wrong {HEADER}")
    split = len(body) if header is None else int(header)
    content, rest = parse_object(body[:split]), memoryview(body)[split:]
    if content.get("error") is not None:
        raise ProtocolError(f"answered with an error: {visible(str(content['error'])[:300])}")
    entries = content.get(side)
    if not isinstance(entries, list) or not entries:
        raise ProtocolError(f"gave no {side}")
    found: dict[str, NDArray[Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ProtocolError(f"gave {side} without a name")
        parameters = entry.get("parameters")
        asked = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        size = asked if "data" not in entry else None
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(rest):
                raise ProtocolError("gave a binary tensor that is shorter than it says")
            part, rest = rest[:size], rest[size:]
        found[entry["name"]] = _read_values(entry, part if size is not None else None)
    return content, found


def _read_values(entry: Mapping[str, Any], part: memoryview | None) -> NDArray[Any]:
    name, datatype = entry["name"], entry.get("datatype")
    shape: Any = entry.get("shape")
    if datatype not in DATATYPES or not _is_shape(shape) or min(shape, default=0) < 0:
        raise ProtocolError(f"gave {name!r} without a known datatype and a shape")
    count = math.prod(shape)
    values = _from_json(entry.get("data"), datatype, name) if part is None else _from_bytes(part, datatype)
    if values.size != count:
        raise ProtocolError(f"gave {values.size} values of {name!r} for shape {shape}")
    return values.reshape(shape)


def _from_json(data: Any, datatype: str, name: str) -> NDArray[Any]:
    if not isinstance(data, list):
        raise ProtocolError(f"gave {name!r} without data")
    if datatype == "BYTES":
        values = np.array(data, dtype=object).reshape(-1)
        if not all(isinstance(cell, str) for cell in values):
            raise ProtocolError(f"gave {name!r} as BYTES with cells that are no texts")
        return values
    try:
        values = np.asarray(data).reshape(-1)
    except ValueError:  # lists that differ in length
        raise ProtocolError(f"gave {name!r} as lists of different lengths") from None
    kind = np.dtype(DATATYPES[datatype])
    allowed = {"f": "iuf", "b": "b"}.get(kind.kind, "iu")
    if values.size and values.dtype.kind not in allowed:
        raise ProtocolError(f"gave {name!r} as {datatype} with cells that are something else")
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(kind)


def _from_bytes(part: memoryview, datatype: str) -> NDArray[Any]:
    if datatype != "BYTES":
        kind = np.dtype(DATATYPES[datatype])
        if len(part) % kind.itemsize:
            raise ProtocolError("gave a binary tensor that ends in the middle of a number")
        return np.frombuffer(part, dtype=kind.newbyteorder("<")).astype(kind)
    cells = []
    while len(part):
        end = 4 + int.from_bytes(part[:4], "little")
        if end > len(part):
            raise ProtocolError("gave a binary tensor that ends in the middle of a text")
        cells.append(bytes(part[4:end]).decode("utf-8", "replace"))
        part = part[end:]
    return np.array(cells, dtype=object)

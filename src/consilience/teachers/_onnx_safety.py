"""An ONNX file may read no other files than those next to it.

An ONNX tensor can name a file, an offset and a length instead of holding its values. A file from a stranger
could thus read anything that its user can read. Every such tensor is checked before onnxruntime opens the
model.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from consilience._optional import require
from consilience.exceptions import UnsafeFileError

_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL


def check_external_data(model: Any, source: Path) -> list[Path]:
    """Raise unless all external data lie in regular files next to the model; return these files.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, loaded without external data.
    source : Path
        The model's file.
    """
    files: dict[str, int] = {}
    for tensor in tensors(model):
        if tensor.data_location != _EXTERNAL and not tensor.external_data:
            continue
        entries = [(entry.key, entry.value) for entry in tensor.external_data]
        # if a key occurs twice, this check and onnxruntime might use different entries
        if len({key for key, _ in entries}) != len(entries):
            raise UnsafeFileError(f"{_where(tensor, source)} gives a key of its external data twice.")
        facts = dict(entries)
        location = facts.get("location", "")
        if location not in files:
            files[location] = _size(location, tensor, source)
        _check_range(facts, files[location], tensor, source)
    return [source.parent / location for location in files]


def tensors(model: Any) -> Iterator[Any]:
    """Yield every tensor of a model, wherever it is.

    Walks all messages rather than a list of known places (initializers, sparse ones, attributes, subgraphs,
    functions, training graphs), so that places added to the format later are covered, too.
    """
    kind = require("onnx", extra="onnx", purpose="An ONNX teacher").TensorProto
    waiting = [model]
    while waiting:
        message = waiting.pop()
        if isinstance(message, kind):
            yield message
            continue
        for descriptor, value in message.ListFields():
            if descriptor.message_type is None:
                continue
            waiting.extend([value] if hasattr(value, "ListFields") else value)


def _size(location: str, tensor: Any, source: Path) -> int:
    """Return the size of an external file, after checking that it is one and lies next to the model."""
    # Windows' rules on every system: they know both separators, and drives
    plain = PureWindowsPath(location).name == location and location not in ("", "..") and "\0" not in location
    if not plain:
        raise UnsafeFileError(
            f"{_where(tensor, source)} keeps its data in {location!r}. External data must be a file "
            "in the model's own folder, named without any path."
        )
    try:
        status = (source.parent / location).lstat()
    except OSError as error:
        raise UnsafeFileError(
            f"{_where(tensor, source)} keeps its data in {location!r}, which cannot be read: "
            f"{error.strerror}. Put the file next to the model."
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(
            f"{_where(tensor, source)} keeps its data in {location!r}, which is a link, a folder or a "
            "device. Put the file itself next to the model."
        )
    return status.st_size


def _check_range(facts: dict[str, str], size: int, tensor: Any, source: Path) -> None:
    offset = _whole(facts.get("offset", "0"), "offset", tensor, source)
    if "length" in facts:
        length = _whole(facts["length"], "length", tensor, source)
    else:
        length = math.prod(tensor.dims) * _item_bits(tensor, source) // 8
    if length < 0 or offset + length > size:
        raise UnsafeFileError(
            f"{_where(tensor, source)} wants the bytes {offset} to {offset + length} of "
            f"{facts['location']!r}, which has {size}."
        )


def _whole(text: str, key: str, tensor: Any, source: Path) -> int:
    # isdigit alone takes other scripts' digits; a length limit keeps int() quick
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise UnsafeFileError(f"{_where(tensor, source)} has {key} {text[:40]!r}, which is no whole number.")
    return int(text)


def _item_bits(tensor: Any, source: Path) -> int:
    onnx = require("onnx", extra="onnx", purpose="An ONNX teacher")
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize) * 8
    except (KeyError, ValueError, TypeError):
        raise UnsafeFileError(f"{_where(tensor, source)} has data of an unknown type.") from None


def _where(tensor: Any, source: Path) -> str:
    return f"{source.name}: the tensor {tensor.name[:80]!r}"

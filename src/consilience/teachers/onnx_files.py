"""Loading an ONNX file: it may read no other files than those next to it.

An ONNX tensor can name a file, an offset and a length instead of holding its values. A file from a stranger
could thus read anything that its user can read. Every such tensor is checked before onnxruntime opens the
model.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from consilience._optional import require
from consilience.exceptions import TeacherError, UnsafeFileError
from consilience.teachers.base import foreign

PURPOSE = "An ONNX teacher"
_MOST_DIGITS = 19
_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL

Signature = tuple[tuple[int, ...], ...]


def load_safely(source: Path, name: str) -> tuple[Any, list[Path], Signature]:
    """Parse a model without its external data, check what it may read, and remember the files checked."""
    onnx = require("onnx", extra="onnx", purpose=PURPOSE)
    with foreign(name, f"is no ONNX model: {source.name} cannot be parsed"):
        model = onnx.load(str(source), format="protobuf", load_external_data=False)
    # an empty file is a valid message, and other files may happen to parse
    if not model.ir_version or not model.graph.output or not model.graph.node:
        raise TeacherError(name, f"is no ONNX model: {source.name} holds no graph.")
    external = check_external_data(model, source)
    return model, external, signature_of(source, external)


def signature_of(source: Path, external: list[Path]) -> Signature:
    """Return what tells whether a file is still the one that was checked."""
    try:
        stats = [path.lstat() for path in [source, *external]]
    except OSError:  # gone: the check that follows raises the error
        return ()
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def check_external_data(model: Any, source: Path) -> list[Path]:
    """Raise unless all external data lie in regular files next to the model; return these files.

    Parameters
    ----------
    model : onnx.ModelProto
        The model, loaded without external data.
    source : Path
        The model's file.
    """
    files = set[Path]()
    for tensor in tensors(model):
        if tensor.data_location != _EXTERNAL and not tensor.external_data:
            continue
        facts = {entry.key: entry.value for entry in tensor.external_data}
        # if a key occurs twice, this check and onnxruntime might use different entries
        twice = len(facts) < len(tensor.external_data)
        problem = "gives a key of its external data twice" if twice else _problem(facts, source)
        if problem:
            raise UnsafeFileError(f"{source.name}: the tensor {tensor.name[:80]!r} {problem}.")
        files.add(source.parent / facts["location"])
    return sorted(files)


def tensors(model: Any) -> Iterator[Any]:
    """Yield every tensor of a model, wherever it is.

    Walks all messages rather than a list of known places (initializers, sparse ones, attributes, subgraphs,
    functions, training graphs), so that places added to the format later are covered, too.
    """
    kind = require("onnx", extra="onnx", purpose=PURPOSE).TensorProto
    waiting = [model]
    while waiting:
        message = waiting.pop()
        if isinstance(message, kind):
            yield message
            continue
        for descriptor, value in message.ListFields():
            if descriptor.message_type is not None:
                waiting.extend([value] if hasattr(value, "ListFields") else value)


def _problem(facts: dict[str, str], source: Path) -> str:
    """Say why data are not in a regular file next to the model; an empty text where they are."""
    location = facts.get("location", "")
    # Windows' rules on every system: they know both separators, and drives
    if PureWindowsPath(location).name != location or location in ("", "..") or "\0" in location:
        return (
            f"keeps its data in {location!r}. External data must be a file in the model's own folder, named "
            "without any path"
        )
    try:
        status = (source.parent / location).lstat()
    except OSError as error:
        reason = f"cannot be read: {error.strerror}. Put the file next to the model"
        return f"keeps its data in {location!r}, which {reason}"
    if not stat.S_ISREG(status.st_mode):
        reason = "is a link, a folder or a device. Put the file itself next to the model"
        return f"keeps its data in {location!r}, which {reason}"
    for key in ("offset", "length"):  # isdigit alone takes other scripts' digits; a limit keeps int() quick
        text = facts.setdefault(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            return f"has {key} {text[:40]!r}, which is no whole number"
    end = int(facts["offset"]) + int(facts["length"])  # without a length, onnxruntime looks at the shape
    if end > status.st_size:
        return f"wants the bytes {facts['offset']} to {end} of {location!r}, which has {status.st_size}"
    return ""

"""What torch teachers and torch students share: where a module runs, and the logits in its output.

Only functions use torch: whoever has a module has loaded it already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consilience._optional import require
from consilience.exceptions import InvalidInputError

LOGITS = "logits"


def logits_of(output: Any) -> Any:
    """Return the logits in what a module returned, or `output` itself if it does not name any.

    An output names its logits by an entry ``"logits"`` (a dictionary) or an attribute ``logits`` (a
    dataclass, a named tuple, or an output of the transformers library).
    """
    if isinstance(output, Mapping):
        return output.get(LOGITS, output)
    return getattr(output, LOGITS, output)


def check_device(device: Any) -> None:
    """Raise unless torch knows this device and the machine has it."""
    torch = require("torch", extra="torch", purpose="A torch device")
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInputError(
            f"{{argument}} is no device of torch. This machine has {_listed(torch)}.",
            argument="device",
            value=device,
        ) from error
    if wanted.type in ("cpu", "meta"):
        return
    count = _count(torch, wanted.type)
    if (wanted.index or 0) >= count:
        raise InvalidInputError(
            f"{{argument}} is not there: torch finds {_listed(torch)} on this machine. Give one of these, or "
            "install a build of torch and a driver for that device.",
            argument="device",
            value=str(device),
        )


def _count(torch: Any, kind: str) -> int:
    """Return how many devices of a kind there are, such as ``"cuda"``."""
    if kind == "mps":  # it is found elsewhere, and there is at most one
        return int(torch.backends.mps.is_available())
    part: Any = getattr(torch, kind, None)
    return int(part.device_count()) if hasattr(part, "is_available") and part.is_available() else 0


def _listed(torch: Any) -> str:
    names = ["cpu"]
    for kind in ("cuda", "xpu", "mps"):
        count = _count(torch, kind)
        names += [kind] if count == 1 else [f"{kind}:{i}" for i in range(count)]
    return " and ".join(", ".join(map(repr, part)) for part in (names[:-1], names[-1:]) if part)

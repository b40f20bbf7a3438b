"""Half precision in training: which type a device computes in."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16", "float16"]
PRECISIONS: dict[str, torch.dtype | None] = {
    "auto": None,  # by device
    "float32": None,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def half_type(precision: str, device: str) -> torch.dtype | None:
    """Return the type that autocast computes in, or None for single precision throughout.

    Parameters
    ----------
    precision : {"auto", "float32", "bfloat16", "float16"}
        "auto" is half precision on a CUDA device, as bfloat16 if its hardware has it, and single precision
        elsewhere: other devices gain little or lose.
    device : str
    """
    if precision != "auto" or torch.device(device).type != "cuda":
        return PRECISIONS[precision]
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16

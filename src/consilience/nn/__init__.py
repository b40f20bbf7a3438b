"""Torch losses on packed teacher logits, and a student that trains a torch module."""

from consilience._optional import require

require("torch", extra="torch", purpose="consilience.nn")  # before the files below import it at their top

from consilience.nn.losses import (  # noqa: E402
    BACKPROP_LOSSES,
    CEBPLoss,
    MFLFBPLoss,
    MFLVBPLoss,
    MFPBPLoss,
    SoftCrossEntropy,
)
from consilience.nn.modules import default_module  # noqa: E402
from consilience.nn.student import TorchStudent  # noqa: E402

__all__ = [
    "BACKPROP_LOSSES",
    "CEBPLoss",
    "MFLFBPLoss",
    "MFLVBPLoss",
    "MFPBPLoss",
    "SoftCrossEntropy",
    "TorchStudent",
    "default_module",
]

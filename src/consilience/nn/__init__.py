"""Torch losses on packed teacher logits and on soft labels, for your own training loop, and augmentation."""

from consilience._optional import require

require("torch", extra="torch", purpose="consilience.nn")  # before the files below import it at their top

from consilience.nn.augment import augment_images, augment_rows  # noqa: E402
from consilience.nn.collision import (  # noqa: E402
    CollisionCrossEntropy,
    GeneralisedCrossEntropy,
    RenyiCrossEntropy,
    SoftCrossEntropy,
)
from consilience.nn.distillation import FitNetLoss, KDLoss, RelationLoss, RKDLoss  # noqa: E402
from consilience.nn.losses import (  # noqa: E402
    BACKPROP_LOSSES,
    CEBPLoss,
    MFLFBPLoss,
    MFLVBPLoss,
    MFPBPLoss,
)
from consilience.nn.sinkhorn import SinkhornLoss  # noqa: E402

__all__ = [
    "BACKPROP_LOSSES",
    "CEBPLoss",
    "CollisionCrossEntropy",
    "FitNetLoss",
    "GeneralisedCrossEntropy",
    "KDLoss",
    "MFLFBPLoss",
    "MFLVBPLoss",
    "MFPBPLoss",
    "RKDLoss",
    "RelationLoss",
    "RenyiCrossEntropy",
    "SinkhornLoss",
    "SoftCrossEntropy",
    "augment_images",
    "augment_rows",
]

"""A torch module as ONNX, by torch's own exporter."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from consilience._optional import require
from consilience.exceptions import InvalidInputError
from consilience.files.graph import OPSET, PURPOSE, strip_notes
from consilience.students.modules import LogitsOnly


def module_to_onnx(module: nn.Module, X_example: Tensor) -> Any:
    """Export `module` with one input ``X`` of any number of rows and one output ``logits``.

    Parameters
    ----------
    module : torch.nn.Module
        Copied to the CPU and set to eval mode first.
    X_example : (n, ...) tensor
        At least one row.
    """
    require("onnx", extra="onnx", purpose=PURPOSE)
    require("onnxscript", extra="onnx", purpose=PURPOSE)
    if len(X_example) == 0:
        raise InvalidInputError("X_example has no rows; an export needs one.")
    copied = copy.deepcopy(module).cpu().eval()
    # The exporter would take a batch of one row as a constant.
    example = X_example[:1].repeat(2, *[1] * (X_example.ndim - 1))
    try:
        with torch.no_grad():
            named = not isinstance(copied(example), Tensor)
        with _quiet():
            program = torch.onnx.export(
                LogitsOnly(copied).eval() if named else copied,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                external_data=False,
                input_names=["X"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
            )
    except Exception as error:  # the exporter's errors have no common base
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        raise InvalidInputError(
            f"The module {type(module).__name__} cannot be exported to ONNX ({reason}). "
            "torch.export must be able to trace it for any number of rows."
        ) from error
    model: Any = program.model_proto if program is not None else None
    strip_notes(model)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's notes about itself: a missing torchvision, its own deprecated calls."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*LeafSpec.*deprecated", category=FutureWarning)
            warnings.filterwarnings("ignore", module=r"(torch|onnxscript|onnx_ir)\.")
            yield
    finally:
        logger.setLevel(level)

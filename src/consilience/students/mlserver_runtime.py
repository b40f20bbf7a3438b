"""Runs a saved model inside MLServer, whose settings name ``OnnxRuntime`` of this module.

MLServer is no dependency of ours: the class is made when MLServer asks for it.
"""

from __future__ import annotations

import json
from typing import Any

from consilience._optional import require
from consilience.students.server import ServedModel


def __getattr__(name: str) -> Any:
    if name != "OnnxRuntime":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, _make_runtime())


def _make_runtime() -> type:
    mlserver = require("mlserver", extra="onnx", purpose="This module, which runs inside MLServer,")
    types = require("mlserver.types", extra="onnx", purpose="This module, which runs inside MLServer,")
    utils = require("mlserver.utils", extra="onnx", purpose="This module, which runs inside MLServer,")

    class OnnxRuntime(mlserver.MLModel):  # type: ignore[name-defined]
        """A model of consilience."""

        async def load(self) -> bool:
            """Open the file that the settings name."""
            self._served = ServedModel(await utils.get_model_uri(self._settings), self.name)
            return True

        async def predict(self, payload: Any) -> Any:
            """Answer a request."""
            body = payload.model_dump_json(exclude_none=True).encode()
            answer, _ = self._served.infer(body)
            return types.InferenceResponse(**json.loads(answer))

    return OnnxRuntime

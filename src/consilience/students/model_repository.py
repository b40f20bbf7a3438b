"""What servers of others need to serve a saved model: a folder that Triton and MLServer read.

``NAME/1/model.onnx``, ``NAME/config.pbtxt`` and ``NAME/labels.txt`` are for Triton (and for KServe, which
runs Triton), ``NAME/model-settings.json`` is for MLServer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from consilience.exceptions import InvalidInputError
from consilience.files.disk import replacing
from consilience.students.server import ServedModel, described
from consilience.teachers.inference_protocol import Tensor
from consilience.teachers.onnx import Onnx

RUNTIME = "consilience.students.mlserver_runtime.OnnxRuntime"
_MOST_ROWS = 1024  # that Triton puts into one batch
_TYPES = {"BYTES": "TYPE_STRING"}


def write_repository(
    path: str | os.PathLike[str], folder: str | os.PathLike[str], name: str | None = None
) -> Path:
    """Write a model repository with one model, and return the folder of the model.

    Parameters
    ----------
    path : path
        An ``.onnx`` file that `save` wrote.
    folder : path
        The repository. It must exist; a model of the same name in it is replaced, file by file.
    name : str, optional
        By default the file's name without its ending.
    """
    served = ServedModel(path, name)
    if not isinstance(served.model.teacher_, Onnx):
        raise InvalidInputError(
            f"{Path(path).name} is a model of texts, which only this library runs. Serve it without a folder."
        )
    if not Path(folder).is_dir():
        raise InvalidInputError(f"The folder {str(folder)!r} does not exist. Make it first.")
    root = Path(folder) / served.name
    (root / "1").mkdir(parents=True, exist_ok=True)
    classes = served.model.classes_.tolist()
    lines = [" ".join(str(one).split()) for one in classes]
    files = {
        "1/model.onnx": Path(path).read_bytes(),
        "labels.txt": "".join(f"{line}\n" for line in lines).encode(),
        "config.pbtxt": triton_config(served).encode(),
        "model-settings.json": (json.dumps(mlserver_settings(served), indent=1) + "\n").encode(),
    }
    for place, content in files.items():
        with replacing(root / place) as file:
            file.write(content)
    return root


def mlserver_settings(served: ServedModel) -> dict[str, Any]:
    """Return the settings of the model for MLServer."""
    return {
        "name": served.name,
        "implementation": RUNTIME,
        "platform": "consilience",
        "versions": [served.version],
        "parameters": {"uri": "./1/model.onnx", "version": served.version},
        "inputs": [described(item) for item in served.inputs],
        "outputs": [described(item) for item in served.outputs],
    }


def triton_config(served: ServedModel) -> str:
    """Return the configuration for Triton.

    Triton adds the rows as first dimension. Its classification extension reads names from labels.txt.
    """
    classes = json.dumps(served.model.classes_.tolist())
    parts = [
        f"name: {json.dumps(served.name)}",
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {_MOST_ROWS}",
        *(_triton_tensor("input", item) for item in served.inputs),
        _triton_tensor("output", served.outputs[0], 'label_filename: "labels.txt"'),
        f'parameters {{ key: "classes" value: {{ string_value: {json.dumps(classes)} }} }}',
        f'parameters {{ key: "version" value: {{ string_value: "{served.version}" }} }}',
    ]
    return "\n".join(parts) + "\n"


def _triton_tensor(side: str, item: Tensor, more: str = "") -> str:
    kind = _TYPES.get(item.datatype, f"TYPE_{item.datatype}")
    dims = ", ".join(str(length) for length in item.shape[1:])
    fields = f"name: {json.dumps(item.name)} data_type: {kind} dims: [ {dims} ] {more}".rstrip()
    return f"{side} [ {{ {fields} }} ]"

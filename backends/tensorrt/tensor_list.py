"""The list of an engine's weights: an engine has them in it, where nothing can read them back.

TensorRT gives weights only of engines that are built to be refitted, which are slower. So the build
writes down what it was given: the name, type, shape and sha256 of every tensor.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import onnx_ir as ir

from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import Fields, pretty_json, read_json
from optc.backend import StoredTensor
from optc.errors import UnavailableError

#: The list's file beside the engine.
TENSORS_FILE = "tensors.json"
_KEY = "tensors"
_SHA256 = re.compile("[0-9a-f]{64}")


def write_tensors(model: Path, folder: Path) -> None:
    """Write the list of the weights of an ONNX file, which are read one at a time."""
    listed = []
    for name, value in ir.load(model).graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            continue
        data = tensor.tobytes()
        listed.append(
            {
                "name": name,
                "dtype": tensor.dtype.name.lower(),
                "shape": list(tensor.shape.numpy()),
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    (folder / TENSORS_FILE).write_bytes(pretty_json({_KEY: listed}))


def read_tensors(listed: bool, files: EngineFiles) -> list[StoredTensor]:
    """The weights of an engine by its list.

    Args:
        listed: Whether the manifest lists the file.
        files: The engine's.

    Raises:
        ArtifactError: The list is damaged.
        UnavailableError: The engine was built before there were lists.
    """
    if not listed:
        raise UnavailableError(
            "the engine has its weights in it and no list of them",
            where="tensorrt",
            hint="compile the model again to have one",
        )
    path = files.path(TENSORS_FILE)
    return [_tensor(one, path) for one in Fields(read_json(path), str(path)).children(_KEY)]


def _tensor(fields: Fields, path: Path) -> StoredTensor:
    sha256 = fields.get("sha256", str)
    if not _SHA256.fullmatch(sha256):
        raise fields.error("the key 'sha256' is no digest")
    return StoredTensor(
        fields.get("name", str),
        fields.get("dtype", str),
        tuple(fields.each("shape", int)),
        path,
        0,
        fields.count("bytes"),
        sha256,
    )

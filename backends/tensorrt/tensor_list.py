"""The list of an engine's weights: an engine has them in it, where nothing can read them back.

TensorRT gives weights only of engines that are built to be refitted, which are slower. So the build
writes down what it was given: the name, type, shape and sha256 of every tensor.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx_ir as ir
from msgspec import Struct, to_builtins

from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import pretty_json, read_json
from optc.backend import StoredTensor
from optc.errors import UnavailableError
from optc.system.foreign.typed_json import Count, Sha256, typed

#: The list's file beside the engine.
TENSORS_FILE = "tensors.json"


class _Tensor(Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: Count
    sha256: Sha256


class _TensorList(Struct, frozen=True):
    """The contents of the file."""

    tensors: list[_Tensor]


def write_tensors(model: Path, folder: Path) -> None:
    """Write the list of the weights of an ONNX file, which are read one at a time."""
    listed = []
    for name, value in ir.load(model).graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            continue
        data, shape = tensor.tobytes(), tuple(tensor.shape.numpy())
        digest = hashlib.sha256(data).hexdigest()
        listed.append(_Tensor(name, tensor.dtype.name.lower(), shape, len(data), digest))
    (folder / TENSORS_FILE).write_bytes(pretty_json(to_builtins(_TensorList(listed))))


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
    found = typed(read_json(path), _TensorList, str(path))
    return [
        StoredTensor(one.name, one.dtype, one.shape, path, 0, one.bytes, one.sha256)
        for one in found.tensors
    ]

"""Exported graphs, kept in the user's cache: an export takes most of an import, and the models of a
pipeline have one config again and again, whatever their weights are.
"""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensor
from transformers import PretrainedConfig

from optc.system.cache_folder import (
    cache_folder,
    code_digest,
    forget_oldest,
    keep_whole,
    read_whole,
)

#: The newest that are kept; 0.1 to 10 MB each.
KEPT = 64
_FOLDER = "exports"
#: Where the bytes of weights lie that a kept graph has not.
_NOWHERE = "none"
#: What a config says of the folder that it was read from.
_NAME = "_name_or_path"


class KeptGraph:
    """The kept graph of the decoder of a config.

    Its name is made of all that it is exported from: the config and its class, and the versions
    of Python, of the packages that export, and of optc's code. What code of a model's folder
    exports is not kept.

    Args:
        config: Of the decoder.
        folder: Where graphs are kept; None is this user's cache.
    """

    def __init__(self, config: PretrainedConfig, folder: Path | None = None) -> None:
        self._folder = cache_folder() / _FOLDER if folder is None else folder
        named = self._folder / f"{_digest(config)}.onnx"
        self._path = named if _of_transformers(config) else None

    def read(self) -> bytes | None:
        """The kept graph, written by this process or another; None if there is none."""
        return None if self._path is None else read_whole(self._path)

    def write(self, content: bytes) -> None:
        """Keep a graph, if it can be kept; else it only costs time."""
        if self._path is not None:
            keep_whole(self._path, content)
            forget_oldest(self._folder, KEPT)


def pack(model: ir.Model) -> bytes:
    """The exported ``model``; weights, which have no values, become names of such a type and
    shape."""
    for name, value in model.graph.initializers.items():
        given = value.const_value
        if given is None or isinstance(getattr(given, "raw", None), FakeTensor):
            if value.dtype is None or not isinstance(value.shape, ir.Shape):
                raise RuntimeError(f"a weight without a shape: {name}")
            value.const_value = ir.ExternalTensor(
                _NOWHERE, None, None, value.dtype, shape=value.shape, name=name
            )
    content: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return content


def unpack(content: bytes) -> ir.Model:
    """The model of `pack`; its weights have no values."""
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(content))
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = None
    return model


def _of_transformers(config: PretrainedConfig) -> bool:
    """True if all code of the decoder is transformers': ``auto_map`` names that of a folder."""
    of_transformers = type(config).__module__.startswith("transformers.models.")
    return of_transformers and not getattr(config, "auto_map", None)


def _digest(config: PretrainedConfig) -> str:
    """Of all that the graph is exported from."""
    packages = (onnx, ir, torch, transformers)
    # onnxscript takes seconds to import, which a kept graph saves
    versions = [platform.python_version(), version("onnxscript")]
    versions += [package.__version__ for package in packages]
    made_of = [type(config).__qualname__, _nameless(config.to_dict()), versions, code_digest()]
    text = json.dumps(made_of, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _nameless(value: Any) -> Any:
    """A config, and those inside of it, without the folder that it was read from."""
    if isinstance(value, dict):
        return {str(key): _nameless(one) for key, one in value.items() if key != _NAME}
    return value

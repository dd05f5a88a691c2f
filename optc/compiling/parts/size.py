"""The size of an engine beside that of its source."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

#: Weights beyond which a graph is nothing beside them.
_LARGE = 64 << 20


def model_bytes(model: ir.Model) -> int:
    """Bytes of a model as a file: its weights, and its graph where that counts."""
    tensors = [value.const_value for value in model.graph.initializers.values()]
    weights = sum(one.nbytes for one in tensors if one is not None)
    return weights if weights > _LARGE else max(weights, ir.to_proto(model).ByteSize())


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def larger_than_source(engine: int, source: int) -> str:
    """One sentence where an engine has more bytes than the model that was rounded; else empty."""
    if engine <= source:
        return ""
    return (
        f"the engine has {engine:,} bytes and the source {source:,}: what this recipe adds to the "
        "graph is more than it saves in weights, which pays by speed alone"
    )

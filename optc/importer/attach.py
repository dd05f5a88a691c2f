"""Attaching a checkpoint's tensors to an exported graph, lazily, each checked against it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.importer.export import Exported
from optc.importer.safetensors import StoredTensor
from optc.ir.weights import LazyWeight

#: Tensors that old checkpoints carry although the model computes them.
_COMPUTED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")


def attach_weights(exported: Exported, checkpoint: Mapping[str, StoredTensor]) -> list[str]:
    """Give every initializer of the graph its value; returns warnings.

    Raises:
        InputError: A tensor is missing from the checkpoint or has another shape than the config
            says.
        UnsupportedError: An initializer that is neither parameter, buffer nor constant.
    """
    used: set[str] = set()
    for value in exported.model.graph.initializers.values():
        name = value.name or ""
        if name in exported.shapes:
            value.const_value = _weight(exported, checkpoint, name, used)
        elif name in exported.buffers:
            value.const_value = ir.tensor(exported.buffers[name], name=name)
        elif not isinstance(value.const_value, ir.TensorProtocol):
            raise UnsupportedError("a constant of the graph without a value", where=name)
    return _unused(checkpoint, used)


def _weight(
    exported: Exported, checkpoint: Mapping[str, StoredTensor], name: str, used: set[str]
) -> LazyWeight:
    stored = checkpoint.get(name)
    source = name
    if stored is None and name in exported.tied:
        source = exported.tied[name]
        stored = checkpoint.get(source)
    if stored is None:
        raise InputError(
            "the checkpoint lacks this tensor, which the config calls for",
            where=name,
            hint="is config.json the one of these weights?",
        )
    expected = exported.shapes[name]
    if stored.shape != expected:
        raise InputError(
            f"the tensor has shape {list(stored.shape)}, the config says {list(expected)}",
            where=f"{stored.file}: {source}",
            hint="is config.json the one of these weights?",
        )
    used.add(source)
    return LazyWeight(stored.read_rows, stored.shape, ir.DataType.FLOAT, source)


def _unused(checkpoint: Mapping[str, StoredTensor], used: set[str]) -> list[str]:
    left = sorted(n for n in set(checkpoint) - used if not n.endswith(_COMPUTED))
    if not left:
        return []
    return [f"{len(left)} tensors of the checkpoint are not used, the first is {left[0]}"]

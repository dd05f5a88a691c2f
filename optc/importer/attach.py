"""Attaching a checkpoint's tensors to an exported graph, lazily, each checked against it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.importer.export import Exported
from optc.importer.safetensors import StoredTensor, same_content
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
    initializers = exported.model.graph.initializers
    for value in list(initializers.values()):
        name = value.name or ""
        if name in exported.shapes:
            source = _source(exported, checkpoint, name)
            value.const_value = _weight(checkpoint[source], exported.shapes[name], source)
            used.add(source)
            if source not in initializers:
                value.name = source
        elif name in exported.buffers:
            value.const_value = ir.tensor(exported.buffers[name], name=name)
        elif not isinstance(value.const_value, ir.TensorProtocol):
            raise UnsupportedError("a constant of the graph without a value", where=name)
    return _unused(checkpoint, used, set(exported.tied))


def _source(exported: Exported, checkpoint: Mapping[str, StoredTensor], name: str) -> str:
    """The tensor of the checkpoint for parameter ``name``, which may share another's memory."""
    sharing = [s for s in (exported.tied.get(name, name), name) if s in checkpoint]
    sharing += [n for n, source in exported.tied.items() if source == name and n in checkpoint]
    if not sharing:
        raise InputError(
            "the checkpoint lacks this tensor, which the config calls for",
            where=exported.tied.get(name, name),
            hint="is config.json the one of these weights?",
        )
    first, *others = dict.fromkeys(sharing)
    for other in others:
        if not same_content(checkpoint[first], checkpoint[other]):
            raise InputError(
                f"the config ties this tensor to {first}, but the checkpoint has another",
                where=other,
                hint="set tie_word_embeddings to false in config.json to use both",
            )
    return first


def _weight(stored: StoredTensor, expected: tuple[int, ...], source: str) -> LazyWeight:
    if stored.shape != expected:
        raise InputError(
            f"the tensor has shape {list(stored.shape)}, the config says {list(expected)}",
            where=f"{stored.file}: {source}",
            hint="is config.json the one of these weights?",
        )
    return LazyWeight(stored.read_rows, stored.shape, ir.DataType.FLOAT, source)


def _unused(checkpoint: Mapping[str, StoredTensor], used: set[str], tied: set[str]) -> list[str]:
    left = sorted(n for n in set(checkpoint) - used - tied if not n.endswith(_COMPUTED))
    if not left:
        return []
    return [f"{len(left)} tensors of the checkpoint are not used, the first is {left[0]}"]

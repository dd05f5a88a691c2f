"""Matching a checkpoint with a decoder, and attaching its tensors to the graph, lazily."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.importer.safetensors import StoredTensor, same_content
from optc.importer.skeleton import Skeleton
from optc.ir.weights import LazyWeight

#: Tensors that old checkpoints carry although the model computes them.
_COMPUTED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")
_MISMATCH = "is config.json the one of these weights?"


def match_checkpoint(
    skeleton: Skeleton, checkpoint: Mapping[str, StoredTensor]
) -> dict[str, StoredTensor]:
    """The stored tensor of every parameter; parameters that share memory get the same one.

    Raises:
        InputError: A tensor is missing, has another shape than the config says, or two tensors
            that the config ties differ.
    """
    matched: dict[str, StoredTensor] = {}
    for name, expected in skeleton.shapes.items():
        stored = _stored(skeleton, checkpoint, name)
        if stored.shape != expected:
            raise InputError(
                f"the tensor has shape {list(stored.shape)}, the config says {list(expected)}",
                where=f"{stored.file}: {stored.name}",
                hint=_MISMATCH,
            )
        matched[name] = stored
    return matched


def _stored(skeleton: Skeleton, checkpoint: Mapping[str, StoredTensor], name: str) -> StoredTensor:
    source = skeleton.tied.get(name, name)
    sharing = [source, *(n for n, other in skeleton.tied.items() if other == source)]
    found = [checkpoint[n] for n in sharing if n in checkpoint]
    if not found:
        raise InputError(
            "the checkpoint lacks this tensor, which the config calls for",
            where=source,
            hint=_MISMATCH,
        )
    for other in found[1:]:
        if not same_content(found[0], other):
            raise InputError(
                f"the config ties this tensor to {found[0].name}, but the checkpoint has another",
                where=f"{other.file}: {other.name}",
                hint="set tie_word_embeddings to false in config.json to use both",
            )
    return found[0]


def attach_weights(
    model: ir.Model, skeleton: Skeleton, matched: Mapping[str, StoredTensor]
) -> None:
    """Give every initializer of the graph its value and its name in the checkpoint.

    Raises:
        UnsupportedError: An initializer that is neither parameter, buffer nor constant.
    """
    initializers = model.graph.initializers
    for value in list(initializers.values()):
        name = value.name or ""
        if name in matched:
            stored = matched[name]
            value.const_value = LazyWeight(
                stored.read_rows, stored.shape, ir.DataType.FLOAT, stored.name
            )
            if stored.name not in initializers:
                value.name = stored.name
        elif name in skeleton.buffers:
            value.const_value = ir.tensor(skeleton.buffers[name], name=name)
        elif not isinstance(value.const_value, ir.TensorProtocol):
            raise UnsupportedError("a constant of the graph without a value", where=name)


def unused_tensors(skeleton: Skeleton, checkpoint: Mapping[str, StoredTensor]) -> list[str]:
    """Names of tensors that the decoder has no parameter for, sorted."""
    return sorted(n for n in set(checkpoint) - set(skeleton.shapes) if not n.endswith(_COMPUTED))

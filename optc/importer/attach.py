"""Matching a checkpoint with a decoder, and attaching its tensors to the graph, lazily."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.importer.conversion.tensor import Tensor, same_content
from optc.importer.skeleton import Skeleton
from optc.ir.stacked_weights import StackedWeight
from optc.ir.weights import LazyWeight

#: Tensors that old checkpoints carry although the model computes them.
_COMPUTED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")
_MISMATCH = "is config.json the one of these weights?"


class TiedError(InputError):
    """Two tensors of the checkpoint differ that the config ties."""


def match_checkpoint(skeleton: Skeleton, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The stored tensor of every parameter; parameters that share memory get the same one.

    Raises:
        InputError: A tensor is missing or has another shape than the config says.
        TiedError: Two tensors that the config ties differ.
    """
    matched: dict[str, Tensor] = {}
    for name, expected in skeleton.shapes.items():
        stored = _stored(skeleton, checkpoint, name)
        if stored.shape != expected:
            raise InputError(
                f"the tensor has shape {list(stored.shape)}, the config says {list(expected)}",
                where=stored.where,
                hint=_MISMATCH,
            )
        matched[name] = stored
    return matched


def _stored(skeleton: Skeleton, checkpoint: Mapping[str, Tensor], name: str) -> Tensor:
    source = skeleton.tied.get(name, name)
    sharing = [source, *(n for n, other in skeleton.tied.items() if other == source)]
    found = [checkpoint[n] for n in sharing if n in checkpoint]
    if not found:
        raise InputError(
            "the checkpoint lacks this tensor, which the config calls for",
            where=source,
            hint=_name_hint(checkpoint, source),
        )
    for other in found[1:]:
        if not same_content(found[0], other):
            raise TiedError(
                f"the config ties this tensor to {found[0].name}, but the checkpoint has another",
                where=other.where,
                hint="set tie_word_embeddings to false in config.json to use both",
            )
    return found[0]


def _name_hint(checkpoint: Mapping[str, Tensor], name: str) -> str:
    """The hint where the tensor is there under a longer or a shorter name."""
    longer = next((one for one in checkpoint if one.endswith(f".{name}")), None)
    if longer is not None:
        wrapper = longer.removesuffix(name)
        return f"it is there as {longer}: save the model without what wraps it, {wrapper!r}"
    if name.partition(".")[2] in checkpoint:
        return f"it is there as {name.partition('.')[2]}: save the whole model, not its base"
    return _MISMATCH


def attach_weights(model: ir.Model, skeleton: Skeleton, matched: Mapping[str, Tensor]) -> None:
    """Give every initializer of the graph its value and its name in the checkpoint.

    Raises:
        UnsupportedError: An initializer that is neither parameter, buffer nor constant.
    """
    initializers = model.graph.initializers
    for value in list(initializers.values()):
        name = value.name or ""
        if name in matched:
            stored = matched[name]
            value.const_value = _lazy(stored)
            if stored.name not in initializers:
                value.name = stored.name
        elif name in skeleton.buffers:
            value.const_value = ir.tensor(skeleton.buffers[name], name=name)
        elif not isinstance(value.const_value, ir.TensorProtocol):
            raise UnsupportedError("a constant of the graph without a value", where=name)


def _lazy(stored: Tensor) -> LazyWeight:
    if len(stored.shape) == 3:
        experts, n, k = stored.shape
        shape = (experts, n, k)
        return StackedWeight(stored.read_box, shape, ir.DataType.FLOAT, stored.name, stored.given)
    return LazyWeight(
        stored.read_rows, stored.shape, ir.DataType.FLOAT, stored.name, given=stored.given
    )


def unused_tensors(skeleton: Skeleton, checkpoint: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors that the decoder has no parameter for, sorted."""
    return sorted(n for n in set(checkpoint) - set(skeleton.shapes) if not n.endswith(_COMPUTED))

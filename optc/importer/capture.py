"""Attention as one node: optc registers itself with transformers as an attention implementation.

transformers calls the function registered under `ATTENTION` in every decoder layer of every
family. It calls one custom operator that carries scale, window, chunk and softcap as attributes,
and the exporter translates that to one ``optc::Attention`` node with 4-D operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import onnx
import torch
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from optc.errors import UnsupportedError

#: The name that models are built with (``attn_implementation``).
ATTENTION = "optc"
_ATTRIBUTES = ("scale", "softcap", "window", "chunk")
_INPUTS = ("q", "k", "v")
#: What a mask that shows a row its own chunk only is made of.
_CHUNKED = masking_utils.chunked_overlay(1, torch.zeros(1)).__code__


@dataclass(frozen=True)
class Visible:
    """Stands for the mask that transformers would build: causal, ``window`` tokens (0 = all), of
    the row's own chunk of ``chunk`` tokens (0 = no chunks)."""

    window: int
    chunk: int = 0

    def __getitem__(self, index: object) -> Visible:
        """The mask itself, where the model cuts nothing off it, such as rows whose logits are not
        wanted.

        Raises:
            UnsupportedError: It takes a part.
        """
        parts = index if isinstance(index, tuple) else (index,)
        if all(part in (slice(None), slice(0, None), Ellipsis) for part in parts):
            return self
        raise UnsupportedError("attention to a part of the mask is not supported")


def visible_tokens(
    *_args: object,
    local_size: int | None = None,
    mask_function: object = None,
    **_kwargs: object,
) -> Visible:
    """Mask function: record what is visible instead of building a [B, 1, S, S] tensor."""
    size = local_size or 0
    chunked = any(code is _CHUNKED for code in _made_of(mask_function))
    return Visible(0, size) if chunked else Visible(size)


def _made_of(part: object) -> Iterator[CodeType]:
    """The code of a mask function, and of those that it was made of."""
    if isinstance(part, tuple):
        for one in part:
            yield from _made_of(one)
    elif isinstance(part, FunctionType):
        yield part.__code__
        for cell in part.__closure__ or ():
            yield from _made_of(cell.cell_contents)


@torch.library.custom_op("optc::attention", mutates_args=())
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    scale: float,
    window: int,
    chunk: int,
    softcap: float,
) -> torch.Tensor:
    """Operator for tracing only: q [B, H, S, Dk], k, v [B, Hkv, S, D], sinks [H] or none ->
    [B, S, H, Dv]."""
    raise NotImplementedError("optc::attention is only traced, never run")


@_attention.register_fake
def _attention_shape(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    scale: float,
    window: int,
    chunk: int,
    softcap: float,
) -> torch.Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Visible | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function that transformers calls.

    Shapes: query [B, H, S, Dk], key [B, Hkv, S, Dk], value [B, Hkv, S, Dv] -> [B, S, H, Dv].
    ``s_aux`` are sinks [H].

    Raises:
        UnsupportedError: Attention that is not causal, has a mask or a bias of its own, or whose
            mask is not the one its window says.
    """
    where = type(module).__name__
    if kwargs.get("position_bias") is not None:
        raise UnsupportedError("attention with position_bias is not supported", where=where)
    if not isinstance(attention_mask, Visible | None):
        raise UnsupportedError("attention with a mask of its own is not supported", where=where)
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise UnsupportedError("attention that is not causal is not supported", where=where)
    seen = attention_mask or Visible(sliding_window or 0)
    # where the layer says nothing of a window, its mask does
    if sliding_window and seen.window != sliding_window:
        raise UnsupportedError(
            f"the layer's window is {sliding_window} but its mask shows {seen.window} tokens",
            where=where,
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    options = (float(scale), seen.window, seen.chunk, float(softcap or 0.0))
    return _attention(query, key, value, kwargs.get("s_aux"), *options), None


def _schema() -> onnx.defs.OpSchema:
    """``optc::Attention`` as captured; the exporter emits no node without a schema."""
    parameter, attribute = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.Attribute
    kinds = onnx.defs.OpSchema.AttrType
    return onnx.defs.OpSchema(
        "Attention",
        "optc",
        1,
        inputs=[
            *(parameter(name, "T") for name in _INPUTS),
            parameter("sinks", "T", param_option=onnx.defs.OpSchema.FormalParameterOption.Optional),
        ],
        outputs=[parameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[
            attribute(
                name, kinds.INT if name in ("window", "chunk") else kinds.FLOAT, "", required=False
            )
            for name in _ATTRIBUTES
        ],
    )


def register() -> None:
    """Make transformers know the operator."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, visible_tokens)


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The exporter's table from torch operators to nodes; makes the exporter know the nodes."""
    import onnxscript  # takes a second, and cannot be imported once the schema is registered

    if not onnx.defs.has("Attention", "optc"):
        onnx.defs.register_schema(_schema())
    domain, standard = onnxscript.values.Opset("optc", 1), onnxscript.opset23

    def translate(
        q: Any, k: Any, v: Any, sinks: Any, scale: float, window: int, chunk: int, softcap: float
    ) -> Any:
        options = {"scale": scale, "window": window, "chunk": chunk, "softcap": softcap}
        return domain.Attention(q, k, v, sinks, **options)

    def translate_sdpa(
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        dropout: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Any:
        """The exporter's own takes no fewer heads of keys than of queries."""
        scale = options.get("scale")
        given = {} if scale is None else {"scale": float(scale)}
        result, *_ = standard.Attention(q, k, v, mask, is_causal=int(is_causal), **given)
        return result

    return {
        torch.ops.optc.attention.default: translate,
        torch.ops.aten.scaled_dot_product_attention.default: translate_sdpa,
    }

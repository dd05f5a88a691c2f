"""Attention as one node: optc registers itself with transformers as an attention implementation.

transformers calls the function registered under `ATTENTION` in every decoder layer of every
family. It calls one custom operator that carries scale, window and softcap as attributes, and
the exporter translates that to one ``optc::Attention`` node with 4-D operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx
import onnxscript
import torch
from transformers import AttentionInterface, AttentionMaskInterface

from optc.errors import UnsupportedError

#: The name that models are built with (``attn_implementation``).
ATTENTION = "optc"
_ATTRIBUTES = ("scale", "softcap", "window")
_INPUTS = ("q", "k", "v")


@dataclass(frozen=True)
class Visible:
    """Stands for the mask that transformers would build: causal, ``window`` tokens (0 = all)."""

    window: int


def visible_tokens(*_args: object, local_size: int | None = None, **_kwargs: object) -> Visible:
    """Mask function: record the window instead of building a [B, 1, S, S] tensor."""
    return Visible(local_size or 0)


@torch.library.custom_op("optc::attention", mutates_args=())
def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int, softcap: float
) -> torch.Tensor:
    """Operator for tracing only: q [B, H, S, Dk], k, v [B, Hkv, S, D] -> [B, S, H, Dv]."""
    raise NotImplementedError("optc::attention is only traced, never run")


@_attention.register_fake
def _attention_shape(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int, softcap: float
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

    Raises:
        UnsupportedError: Attention that is not causal, has sinks or a bias of its own, or whose
            mask is not the one its window says.
    """
    where = type(module).__name__
    for extra in ("s_aux", "position_bias"):
        if kwargs.get(extra) is not None:
            raise UnsupportedError(f"attention with {extra} is not supported", where=where)
    causal = kwargs.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise UnsupportedError("attention that is not causal is not supported", where=where)
    window = sliding_window or 0
    if isinstance(attention_mask, Visible) and attention_mask.window != window:
        raise UnsupportedError(
            f"the layer's window is {window} but its mask shows {attention_mask.window} tokens",
            where=where,
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _attention(query, key, value, float(scale), window, float(softcap or 0.0)), None


def _schema() -> onnx.defs.OpSchema:
    """``optc::Attention`` as captured; the exporter emits no node without a schema."""
    parameter, attribute = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.Attribute
    kinds = onnx.defs.OpSchema.AttrType
    return onnx.defs.OpSchema(
        "Attention",
        "optc",
        1,
        inputs=[parameter(name, "T") for name in _INPUTS],
        outputs=[parameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[
            attribute(name, kinds.INT if name == "window" else kinds.FLOAT, "", required=False)
            for name in _ATTRIBUTES
        ],
    )


def register() -> None:
    """Make transformers and the exporter know the operator."""
    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, visible_tokens)
    if not onnx.defs.has("Attention", "optc"):
        onnx.defs.register_schema(_schema())


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The exporter's table from torch operators to nodes."""
    domain = onnxscript.values.Opset("optc", 1)

    def translate(q: Any, k: Any, v: Any, scale: float, window: int, softcap: float) -> Any:
        return domain.Attention(q, k, v, scale=scale, window=window, softcap=softcap)

    return {torch.ops.optc.attention.default: translate}

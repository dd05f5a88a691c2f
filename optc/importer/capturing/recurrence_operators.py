"""The operators that stand for recurrences while a decoder is exported, and their nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch


@torch.library.custom_op("optc::linear_attention", mutates_args=())
def linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    scale: float,
    delta: int,
) -> torch.Tensor:
    """Operator for tracing only: q, k [B, S, Hk, Dk], v [B, S, H, Dv], decay [B, S, H] or
    [B, S, H, Dk], beta [B, S, H] -> [B, S, H, Dv]."""
    raise NotImplementedError("optc::linear_attention is only traced, never run")


@linear_attention.register_fake
def _linear_attention_shape(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    scale: float,
    delta: int,
) -> torch.Tensor:
    return v.new_empty(v.shape)


@torch.library.custom_op("optc::selective_scan", mutates_args=())
def selective_scan(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, rates: torch.Tensor
) -> torch.Tensor:
    """Operator for tracing only: q, k [B, S, N], v, decay [B, S, C], rates [N, C] -> [B, S, C]."""
    raise NotImplementedError("optc::selective_scan is only traced, never run")


@selective_scan.register_fake
def _selective_scan_shape(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, rates: torch.Tensor
) -> torch.Tensor:
    return v.new_empty(v.shape)


#: By the node's name, its inputs and attributes.
_NODES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "LinearAttention": (("q", "k", "v", "decay", "beta"), {"scale": "FLOAT", "delta": "INT"}),
    "SelectiveScan": (("q", "k", "v", "decay", "rates"), {}),
}


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The exporter's table from torch operators to nodes; makes the exporter know the nodes."""
    import onnxscript  # takes a second, and cannot be imported once a schema is registered

    for name, (inputs, attributes) in _NODES.items():
        _register(name, inputs, attributes)
    domain = onnxscript.values.Opset("optc", 1)

    def attend(
        q: Any, k: Any, v: Any, decay: Any, beta: Any, scale: float = 1.0, delta: int = 0
    ) -> Any:
        return domain.LinearAttention(q, k, v, decay, beta, scale=scale, delta=delta)

    def scan(q: Any, k: Any, v: Any, decay: Any, rates: Any) -> Any:
        return domain.SelectiveScan(q, k, v, decay, rates)

    operators = torch.ops.optc
    return {operators.linear_attention.default: attend, operators.selective_scan.default: scan}


def _register(name: str, inputs: tuple[str, ...], attributes: dict[str, str]) -> None:
    """Make ONNX know a node of floats, if it does not."""
    if onnx.defs.has(name, "optc"):
        return
    parameter, kinds = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.AttrType
    schema = onnx.defs.OpSchema(
        name,
        "optc",
        1,
        inputs=[parameter(each, "T") for each in inputs],
        outputs=[parameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[
            onnx.defs.OpSchema.Attribute(each, getattr(kinds, kind), "", required=False)
            for each, kind in attributes.items()
        ],
    )
    onnx.defs.register_schema(schema)

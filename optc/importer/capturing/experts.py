"""Experts as nodes: optc registers itself with transformers as an experts implementation.

transformers calls the function registered under `EXPERTS` where a layer runs its routed experts.
It calls two custom operators, a matmul by experts and the weighted sum of their results, which the
exporter translates to one node each; what lies between, a gate or an activation, is traced as the
element-wise operators that it is, on rows [T, k, N]. The operators are still those of transformers'
layout; the pass ``find-experts`` brings them to the normal form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

#: The name that models are built with (``experts_implementation``).
EXPERTS = "optc"
_NEVER_RUN = "is only traced, never run"


@torch.library.custom_op("optc::expert_matmul", mutates_args=())
def expert_matmul(
    x: torch.Tensor,
    experts: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    transposed: int,
    spread: int,
) -> torch.Tensor:
    """Operator for tracing only: x [T, K] (``spread``) or [T, k, K], experts i64 [T, k], weight
    [E, N, K], or [E, K, N] if ``transposed``, bias [E, N] -> [T, k, N]."""
    raise NotImplementedError(f"optc::expert_matmul {_NEVER_RUN}")


@expert_matmul.register_fake
def _expert_matmul_shape(
    x: torch.Tensor,
    experts: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    transposed: int,
    spread: int,
) -> torch.Tensor:
    return x.new_empty(*experts.shape, weight.shape[2 if transposed else 1])


@torch.library.custom_op("optc::combine_experts", mutates_args=())
def combine_experts(y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Operator for tracing only: y [T, k, N], weights [T, k] -> [T, N]."""
    raise NotImplementedError(f"optc::combine_experts {_NEVER_RUN}")


@combine_experts.register_fake
def _combine_experts_shape(y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return y.new_empty(y.shape[0], y.shape[2])


def experts(
    module: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """The experts function that transformers calls.

    Shapes: hidden_states [T, D], top_k_index i64 and top_k_weights [T, k] -> [T, D].

    Args:
        module: Of a class under ``@use_experts_implementation``: its attributes say whether it has
            gates and biases, and how its weights lie.
        hidden_states: A row for each token.
        top_k_index: The experts of each token.
        top_k_weights: What their results count.
    """
    first = "gate_up_proj" if module.has_gate else "up_proj"
    result = _matmul(module, first, hidden_states, top_k_index, spread=1)
    result = module._apply_gate(result) if module.has_gate else module.act_fn(result)
    result = _matmul(module, "down_proj", result, top_k_index, spread=0)
    if module.has_post_expert_norm:
        result = module.post_expert_norm(result)
    return combine_experts(result, top_k_weights)


def _matmul(
    module: Any, name: str, x: torch.Tensor, index: torch.Tensor, *, spread: int
) -> torch.Tensor:
    bias = getattr(module, f"{name}_bias") if module.has_bias else None
    transposed = int(module.is_transposed)
    return expert_matmul(x, index, getattr(module, name), bias, transposed, spread)


def register() -> None:
    """Make transformers know the operators."""
    ALL_EXPERTS_FUNCTIONS.register(EXPERTS, experts)


def _schemas() -> tuple[onnx.defs.OpSchema, ...]:
    """The operators as captured; the exporter emits no node without a schema."""
    parameter, attribute = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.Attribute
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    integer = onnx.defs.OpSchema.AttrType.INT
    types = [("T", ["tensor(float)"], ""), ("I", ["tensor(int64)"], "")]
    matmul = onnx.defs.OpSchema(
        "ExpertMatMul",
        "optc",
        1,
        inputs=[
            *(parameter("x", "T"), parameter("experts", "I"), parameter("weight", "T")),
            parameter("bias", "T", param_option=optional),
        ],
        outputs=[parameter("y", "T")],
        type_constraints=types,
        attributes=[
            attribute(name, integer, "", required=False) for name in ("transposed", "spread")
        ],
    )
    combine = onnx.defs.OpSchema(
        "CombineExperts",
        "optc",
        1,
        inputs=[parameter("y", "T"), parameter("weights", "T")],
        outputs=[parameter("combined", "T")],
        type_constraints=types[:1],
    )
    return matmul, combine


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The exporter's table from torch operators to nodes; makes the exporter know the nodes."""
    import onnxscript  # takes a second, and cannot be imported once a schema is registered

    for schema in _schemas():
        if not onnx.defs.has(schema.name, schema.domain):
            onnx.defs.register_schema(schema)
    domain = onnxscript.values.Opset("optc", 1)

    def matmul(
        x: Any, experts: Any, weight: Any, bias: Any = None, transposed: int = 0, spread: int = 0
    ) -> Any:
        return domain.ExpertMatMul(x, experts, weight, bias, transposed=transposed, spread=spread)

    def combine(y: Any, weights: Any) -> Any:
        return domain.CombineExperts(y, weights)

    return {
        torch.ops.optc.expert_matmul.default: matmul,
        torch.ops.optc.combine_experts.default: combine,
    }

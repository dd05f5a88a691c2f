"""Mixtures of experts: router, plan of the rows by expert, matmuls, combination."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, KernelBuilder, kernel
from optc.backends.tvm.kernels.experts.combine_experts import CombineExperts
from optc.backends.tvm.kernels.experts.expert_plan import SPAN_ROWS, ExpertPlan
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.top_k_router import TopKRouter
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH
from optc.backends.tvm_cuda.kernels.launch import float_bits, launch, template
from optc.backends.tvm_cuda.kernels.matmul import float_weights, int_kind, int_weights

#: Threads of a block, as in the device code.
_WARP, _PLAN_THREADS, _FEW_THREADS, _COMBINE_THREADS = 32, 1024, 256, 128
_SCORINGS = {"softmax": "SOFTMAX", "sigmoid": "SIGMOID", "softmax_after": "SOFTMAX_AFTER"}
_GROUP_SCORES = {"max": "MAX", "top2_sum": "TOP2_SUM"}


def top_k_router(config: TopKRouter) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.experts.top_k_router.top_k_router`."""
    count, chosen = config.experts, config.chosen
    with kernel("top_k_router") as builder:
        rows = builder.size()
        logits = builder.argument("logits", (rows, count))
        bias = builder.argument("bias", (count,)) if config.bias else logits
        weights = builder.argument("weights", (rows, chosen))
        experts = builder.argument("experts", (rows, chosen), "int32")
        router = template(
            "Router",
            count,
            chosen,
            f"optc::{_SCORINGS[config.scoring]}",
            config.normalize,
            float_bits(config.norm_epsilon),
            float_bits(config.scale),
            config.groups,
            config.top_groups,
            f"optc::{_GROUP_SCORES[config.group_score or 'max']}",
            config.bias,
        )
        function = template("top_k_router", router, count, chosen, config.groups > 1)
        launch(function, (rows,), _WARP, (logits, bias, weights, experts))
    return builder.finish()


def expert_plan(config: ExpertPlan) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.experts.expert_plan.expert_plan`."""
    with kernel("expert_plan") as builder:
        tokens, rows = builder.size(), builder.size()
        experts = builder.argument("experts", (tokens, config.chosen), "int32")
        plan = _plan(builder, rows)
        function = template("expert_plan", config.experts)
        launch(function, (1,), _PLAN_THREADS, (experts, *plan), rows)
    return builder.finish()


def int_experts(config: IntExperts) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.experts.int_experts.int_experts`.

    Raises:
        UnsupportedError: Zero points are float numbers.
    """
    k = config.k_padded
    with kernel(config.name) as builder:
        rows = builder.size()
        given = builder.size() if config.spread else rows
        x = builder.argument("x", (given, k), "int8")
        xs = builder.argument("xs", (given,))
        xsum = builder.argument("xsum", (given, k // SUM_WIDTH), "int32")
        plan = _plan(builder, rows)
        weights = int_weights(builder, config, xs)
        out = builder.argument("out", (rows, config.n))
        operands = (x, xs, xsum, *plan, *weights, out)
        _launch("int_experts", config, int_kind(config), operands, rows)
    return builder.finish()


def float_experts(config: FloatExperts) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.experts.float_experts.float_experts`; bfloat16 weights on the
    tensor cores."""
    bfloat16 = config.weight_dtype == "bfloat16"
    with kernel(config.name) as builder:
        rows = builder.size()
        x = builder.argument("x", (builder.size() if config.spread else rows, config.k))
        plan = _plan(builder, rows)
        weights = float_weights(builder, config, x)
        out = builder.argument("out", (rows, config.n))
        name = "Bf16Matmul" if bfloat16 else "Float32Matmul"
        kind = template(name, config.n, config.k, config.bias)
        operands = (x, *plan, *weights, out)
        _launch("bf16_experts" if bfloat16 else "float32_experts", config, kind, operands, rows)
    return builder.finish()


def combine_experts(config: CombineExperts) -> tvm.tirx.PrimFunc:
    """As `optc.backends.tvm.kernels.experts.combine_experts.combine_experts`."""
    width, chosen = config.width, config.chosen
    with kernel("combine_experts") as builder:
        tokens, rows = builder.size(), builder.size()
        y = builder.argument("y", (rows, width))
        weights = builder.argument("weights", (tokens, chosen))
        out = builder.argument("out", (tokens, width))
        grid = (tokens, -(-width // _COMBINE_THREADS))
        function = template("combine_experts", width, chosen)
        launch(function, grid, _COMBINE_THREADS, (y, weights, out))
    return builder.finish()


def _plan(builder: KernelBuilder, rows: Expr) -> tuple[Expr, Expr, Expr]:
    """Order, spans and their count."""
    return (
        builder.argument("order", (rows,), "int32"),
        builder.argument("spans", (rows, 3), "int32"),
        builder.argument("count", (1,), "int32"),
    )


def _launch(
    name: str, config: IntExperts | FloatExperts, kind: str, operands: Sequence[Expr], rows: Expr
) -> None:
    """Blocks for as many spans as a step may have; those beyond the plan's end at once."""
    blocks = -(-config.n // 64)
    spans = tir.min(rows, config.experts + rows // SPAN_ROWS)
    function = template(name, kind, config.chosen if config.spread else 1)
    launch(function, (2 * blocks, spans), _FEW_THREADS, operands)

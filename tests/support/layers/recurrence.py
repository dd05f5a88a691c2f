"""Gated delta rules of tiny decoders, behind a short convolution (Qwen3-Next's), and the same sums
without the rule and the convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from optc.ir.weights import as_lazy

if TYPE_CHECKING:
    from tests.support.models import DenseBuilder

#: Heads, heads of keys, and sizes of both.
HEADS, KEY_HEADS, KEY, VALUE = 4, 2, 16, 16


def recurrence(b: DenseBuilder, x: ir.Value, index: int, *, delta: int) -> ir.Value:
    """The layer's result [B, S, hidden]."""
    hidden, keys, values = b.shape.hidden, KEY_HEADS * KEY, HEADS * VALUE
    rows = b.linear(x, f"{index}.qkv", hidden, 2 * keys + values)
    if delta:
        filters = b.random.standard_normal((2 * keys + values, 4)).astype(np.float32)
        name = f"{index}.conv.weight"
        weight = b.constant(as_lazy(ir.tensor(filters, name=name)), name)
        size = {"channels": 2 * keys + values, "kernel": 4}
        rows = b.ours("CausalConv", [rows, weight], 2 * keys + values, **size)
        rows = b.op("Mul", [rows, b.op("Sigmoid", [rows], 2 * keys + values)], 2 * keys + values)
    sizes = b.constant(ir.tensor([keys, keys, values], ir.DataType.INT64), b.name("parts"))
    q, k, v = b.op("Split", [rows, sizes], outputs=3, axis=-1)
    for value, width in zip((q, k, v), (keys, keys, values), strict=True):
        value.shape = ir.Shape(["B", "S", width])
    length = b.constant(ir.tensor(np.full(KEY, KEY**-0.5, np.float32)), b.name("length"))
    unit = {"num_heads": KEY_HEADS, "epsilon": 1e-6}
    q, k = (b.ours("HeadRMSNorm", [part, length], keys, **unit) for part in (q, k))
    beta = b.op("Sigmoid", [b.linear(x, f"{index}.beta", hidden, HEADS)], HEADS)
    step = b.op("Softplus", [b.linear(x, f"{index}.decay", hidden, HEADS)], HEADS)
    decay = b.op("Mul", [step, b.vector(f"{index}.rate", HEADS, -0.3)], HEADS)
    out = b.ours(
        "LinearAttention",
        [q, k, v, decay, beta],
        values,
        num_heads=HEADS,
        key_heads=KEY_HEADS,
        key_dim=KEY,
        value_dim=VALUE,
        delta=delta,
        scale=KEY**-0.5,
    )
    scale = b.vector(f"{index}.norm.weight", VALUE)
    out = b.ours("HeadRMSNorm", [out, scale], values, num_heads=HEADS, epsilon=1e-5)
    gate = b.linear(x, f"{index}.z", hidden, values)
    gate = b.op("Mul", [gate, b.op("Sigmoid", [gate], values)], values)
    result: ir.Value = b.linear(
        b.op("Mul", [out, gate], values), f"{index}.mixer_out", values, hidden
    )
    return result

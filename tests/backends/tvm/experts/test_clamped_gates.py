"""Experts with biases and clamped gates as engines run them: two matmuls and the gate between.

Each kernel is compared with float64 for the very operands that it gets. Shapes are drawn, and all
of them are ragged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.two_level_experts import TwoLevelExperts
from optc.backends.tvm.kernels.token_wise.activation import GatedActivation
from tests.backends.tvm.experts.cases import Config, case_of, drawn
from tests.backends.tvm.kernel_cases import Array, blank, blank_quantized, run, sqnr
from tests.backends.tvm.matmul_cases import isa_that_runs

V3, V4 = "x86-64-v3", "x86-64-v4-vnni"
#: The instruction set by what the weights are.
KINDS = {"float": V4, "int8": V3, "int4": V4, "int4 two-level": V3}
ALPHA, SHIFT = 1.702, 1.0


class Shape(NamedTuple):
    """Sizes of a layer of experts, and its tokens."""

    hidden: int
    inner: int
    experts: int
    chosen: int
    tokens: int


def shape_of(seed: int) -> Shape:
    """No width is a multiple of 8."""
    rng = np.random.default_rng(seed)
    hidden, inner = (8 * rng.integers(4, 13, 2) + rng.integers(1, 8, 2)).tolist()
    experts = int(rng.integers(3, 8))
    return Shape(hidden, inner, experts, int(rng.integers(1, experts)), int(rng.integers(9, 40)))


def matmul_of(kind: str, shape: Shape, *, first: bool) -> Config:
    """Of gates and ups, or down."""
    n, k = (2 * shape.inner, shape.hidden) if first else (shape.hidden, shape.inner)
    experts, chosen = shape.experts, shape.chosen
    if kind == "float":
        return FloatExperts(n, k, bias=True, experts=experts, chosen=chosen, spread=first)
    if kind == "int4 two-level":
        return TwoLevelExperts(n, k, bias=True, experts=experts, chosen=chosen, spread=first)
    bits, group = (8, 0) if kind == "int8" else (4, 32)
    return IntExperts(
        n,
        k,
        bits=bits,
        group_size=group,
        asymmetric=bits == 4,
        bias=True,
        experts=experts,
        chosen=chosen,
        spread=first,
    )


def clamped(both: Array, limit: float) -> Array:
    """The gate of two halves, in float64."""
    gate, up = np.split(both.astype(np.float64), 2, axis=1)
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    result: Array = gate / (1 + np.exp(-ALPHA * gate)) * (up + SHIFT)
    return result


def check_close(found: Array, exact: Array, decibels: float, share: float) -> None:
    """Noise on the whole, and the largest error as a share of the largest value."""
    assert sqnr(found, exact) > decibels
    assert np.abs(found - exact).max() < share * np.abs(exact).max()


def gated(isa: Isa, both: Array, limit: float, *, quantized: bool) -> list[Array]:
    """What the kernel gives, which is what float64 gives."""
    rows, width = len(both), both.shape[1] // 2
    config = GatedActivation(width, "silu", quantized, alpha=ALPHA, limit=limit, up_shift=SHIFT)
    exact = clamped(both, limit)
    if not quantized:
        out = run(config, isa, both, blank(rows, width))[1:]
        check_close(out[0], exact, 130, 1e-6)
        return out
    q, scale, sums = run(config, isa, both, *blank_quantized(rows, width))[1:]
    np.testing.assert_allclose(scale, np.abs(exact).max(axis=1) / 127, rtol=1e-5)
    given = q[:, :width].astype(np.float64) * scale[:, None]
    assert (np.abs(given - exact) <= 0.501 * scale[:, None]).all()
    assert sqnr(given, exact) > 35
    assert not q[:, width:].any()
    np.testing.assert_array_equal(sums, q.reshape(rows, -1, 32).sum(2, dtype=np.int32))
    return [q, scale, sums]


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_of_experts_against_float64(kind: str) -> None:
    isa, shape = isa_that_runs(KINDS[kind]), shape_of(list(KINDS).index(kind))
    first = case_of(matmul_of(kind, shape, first=True), shape.tokens)
    experts, tokens = drawn(first.config, shape.tokens, 3), np.arange(shape.tokens)
    both, exact = first.run(isa, experts, tokens), first.oracle(experts, tokens)
    check_close(both, exact, 110, 1e-5)
    limit = float(np.float32(np.quantile(np.abs(exact), 0.7)))
    assert (exact[:, : shape.inner] > limit).any()
    assert (exact[:, shape.inner :] < -limit).any()
    x = gated(isa, both, limit, quantized=kind != "float")
    second = case_of(matmul_of(kind, shape, first=False), experts.size, x)
    rows = np.arange(experts.size)
    check_close(second.run(isa, experts, rows), second.oracle(experts, rows), 110, 1e-5)

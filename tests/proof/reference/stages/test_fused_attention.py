"""Attention by PyTorch against float64, and which nodes it is taken for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.functions import DOMAIN
from optc.proof.reference.stages.fused_attention import FusedAttention, fused_attention

_SHAPE = {"num_heads": 6, "kv_num_heads": 2, "scale": 0.3}


def by_heads(values: np.ndarray, heads: int) -> np.ndarray:
    windows, size, width = values.shape
    return values.reshape(windows, size, heads, width // heads).transpose(0, 2, 1, 3)


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, attention: FusedAttention) -> np.ndarray:
    group = attention.heads // attention.kv_heads
    query = by_heads(q.astype(np.float64), attention.heads)
    key, value = (
        by_heads(one.astype(np.float64), attention.kv_heads).repeat(group, 1) for one in (k, v)
    )
    scores = query @ key.transpose(0, 1, 3, 2) * attention.scale
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ value).transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[1], -1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (4, 1)])
@pytest.mark.parametrize("size", [1, 70])
def test_it_is_causal_attention(heads: int, kv_heads: int, size: int) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((2, size, 8 * count)).astype(np.float32)
        for count in (heads, kv_heads, kv_heads)
    )
    attention = FusedAttention(heads, kv_heads, 0.3)
    q.flags.writeable = False
    found = attention([q, k, v])
    assert found.shape == q.shape
    np.testing.assert_allclose(found, exact(q, k, v, attention), rtol=1e-5, atol=1e-6)


def node(inputs: int = 3, **changed: float) -> ir.Node:
    values = [ir.Value(name=f"v{index}") for index in range(inputs)]
    return ir.node("Attention", values, {**_SHAPE, **changed}, domain=DOMAIN)


def test_plain_attention_is_taken() -> None:
    assert fused_attention(node(softcap=0.0, window=0)) == FusedAttention(6, 2, pytest.approx(0.3))


@pytest.mark.parametrize(
    "other",
    [
        node(softcap=30.0),
        node(window=16),
        node(chunk=16),
        node(inputs=4),
        ir.node("Attention", [ir.Value(name=f"v{i}") for i in range(3)], _SHAPE),
    ],
)
def test_attention_with_more_to_it_is_left_alone(other: ir.Node) -> None:
    assert fused_attention(other) is None

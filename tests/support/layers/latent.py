"""Multi-head latent attention of tiny decoders (DeepSeek-V2, arXiv 2405.04434): keys and values
come from one narrow latent, and a rotary part of the keys is shared by all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from tests.support.models import DenseBuilder


def latent_heads(b: DenseBuilder, x: ir.Value, index: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """q [B, S, H * D], k the same, and v [B, S, H * (D - r)], r columns of each to be rotated."""
    s = b.shape
    own, value = s.heads * (s.head_dim - s.rotary_dim), s.heads * s.value_dim
    query = b.norm(b.linear(x, f"{index}.q_a", s.hidden, s.latent), f"{index}.q_a_norm", s.latent)
    q = b.linear(query, f"{index}.q_b", s.latent, s.heads * s.head_dim)
    both = b.linear(x, f"{index}.kv_a", s.hidden, s.latent + s.rotary_dim)
    sizes = [s.latent, s.rotary_dim]
    split = b.constant(ir.tensor(sizes, ir.DataType.INT64), b.name("latent_sizes"))
    low, shared = b.op("Split", [both, split], outputs=2, axis=-1)
    for part, size in zip((low, shared), sizes, strict=True):
        part.shape = ir.Shape(["B", "S", size])
    low = b.norm(low, f"{index}.kv_a_norm", s.latent)
    rest = b.linear(low, f"{index}.k_b", s.latent, own)
    k = b.ours("HeadConcat", [shared, rest], s.heads * s.head_dim, num_heads=s.heads, shared=1)
    return q, k, b.linear(low, f"{index}.v_b", s.latent, value)

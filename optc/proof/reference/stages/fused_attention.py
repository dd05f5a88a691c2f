"""Attention by PyTorch, whose kernel keeps scores in the cache: ONNX Runtime writes all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN
from optc.proof.reference.submodel import Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FusedAttention:
    """Causal attention of a window's tokens to all before them.

    Attributes:
        heads: Of the queries.
        kv_heads: Of keys and values; each serves as many heads of the queries that follow another.
        scale: Of the scores.
    """

    heads: int
    kv_heads: int
    scale: float

    def __call__(self, operands: Sequence[Array]) -> Array:
        """Results [W, S, N] of queries, keys and values [W, S, ...], float32."""
        import torch

        counts = (self.heads, self.kv_heads, self.kv_heads)
        query, key, value = map(_by_heads, operands, counts)
        with torch.inference_mode():
            result = torch.nn.functional.scaled_dot_product_attention(
                *(query, key, value),
                is_causal=True,
                scale=self.scale,
                enable_gqa=self.heads != self.kv_heads,
            )
            joined: Array = result.transpose(1, 2).flatten(2).numpy()
        return joined


def fused_attention(node: ir.Node) -> FusedAttention | None:
    """Fused attention for ``node``; None if it is no attention or has more to it than scores."""
    if (node.domain, node.op_type) != (DOMAIN, "Attention") or len(node.inputs) != 3:
        return None
    known = node.attributes
    if known.get_float("softcap", 0.0) or known.get_int("window", 0) or known.get_int("chunk", 0):
        return None
    heads, scale = known.get_int("num_heads", 0), known.get_float("scale", 0.0)
    if not heads or not scale:
        return None
    return FusedAttention(heads, known.get_int("kv_num_heads", heads), scale)


def _by_heads(values: Array, heads: int) -> torch.Tensor:
    """Values [W, S, heads * D] as [W, heads, S, D]."""
    import torch

    fixed = torch.from_numpy(np.require(values, np.float32, ["C", "W"]))
    return fixed.unflatten(2, (heads, -1)).transpose(1, 2)

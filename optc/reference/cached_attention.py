"""Standard opset-23 Attention with a KV cache in place of the dense form's attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.graph import width
from optc.reference.partition import is_attention
from optc.reference.submodel import Array, copy_node


@dataclass(frozen=True)
class Cache:
    """Where the cache of one attention is fed and returned.

    Attributes:
        past: Names of past key and value inputs, each [1, Hkv, P, Dk or Dv].
        present: Names of the present key and value outputs.
        heads: Hkv.
        dims: Dk and Dv.
        mask: Name of the mask input of a windowed layer, bool [S, P + S]; empty if causal only.
        window: Tokens that a row sees, itself included; 0 is all.
    """

    past: tuple[str, str]
    present: tuple[str, str]
    heads: int
    dims: tuple[int, int]
    mask: str
    window: int

    def empty(self) -> dict[str, Array]:
        """Past inputs of a new sequence."""
        shapes = ((1, self.heads, 0, dim) for dim in self.dims)
        return {n: np.zeros(s, np.float32) for n, s in zip(self.past, shapes, strict=True)}

    def masks(self, rows: int, past: int) -> dict[str, Array]:
        """The mask input, if there is one, for ``rows`` new rows after ``past`` tokens."""
        if not self.mask:
            return {}
        keys = np.arange(past + rows)
        own = past + np.arange(rows)[:, None]
        return {self.mask: (keys <= own) & (keys > own - self.window)}


class AttentionCopier:
    """Copies nodes; attentions of the dense form become standard ones with a cache.

    Attributes:
        caches: The attentions that were replaced.
        inputs: Graph inputs to add: pasts and masks.
        outputs: Graph outputs to add: presents.
    """

    def __init__(self) -> None:
        self.caches: list[Cache] = []
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []

    def __call__(self, node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
        """The copy of ``node``."""
        return self._with_cache(node, operands) if is_attention(node) else copy_node(node, operands)

    def _with_cache(self, node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
        cache = _cache(node, len(self.caches))
        past = [
            _value(name, ["B", cache.heads, "P", dim])
            for name, dim in zip(cache.past, cache.dims, strict=True)
        ]
        mask = _value(cache.mask, ["S", "P_S"], ir.DataType.BOOL) if cache.mask else None
        present = [_value(name) for name in cache.present]
        self.caches.append(cache)
        self.inputs += [*past, *([mask] if mask is not None else [])]
        self.outputs += present
        attributes = {
            "q_num_heads": node.attributes["num_heads"].as_int(),
            "kv_num_heads": cache.heads,
            "scale": node.attributes["scale"].as_float(),
            "softcap": node.attributes["softcap"].as_float(),
            "is_causal": 1,
        }
        return ir.Node(
            "",
            "Attention",
            [*operands, mask, *past],
            ir.convenience.convert_attributes(attributes),
            outputs=[_value(node.outputs[0].name or ""), *present],
            name=node.name,
        )


def _cache(node: ir.Node, index: int) -> Cache:
    heads = node.attributes["kv_num_heads"].as_int()
    window = node.attributes["window"].as_int()
    return Cache(
        (f"past.{index}.key", f"past.{index}.value"),
        (f"present.{index}.key", f"present.{index}.value"),
        heads,
        (_head_dim(node, 1, heads), _head_dim(node, 2, heads)),
        f"mask.{index}" if window else "",
        window,
    )


def _head_dim(node: ir.Node, index: int, heads: int) -> int:
    value = node.inputs[index]
    total = width(value) if value is not None else None
    if total is None:
        raise UnsupportedError(
            f"the width of input {index} is not known", where=node.name or node.op_type
        )
    return total // heads


def _value(
    name: str, shape: list[str | int] | None = None, dtype: ir.DataType = ir.DataType.FLOAT
) -> ir.Value:
    known = ir.Shape(shape) if shape is not None else None
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=known)

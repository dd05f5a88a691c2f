"""The sizes of a model, as it is and without some of its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import width
from optc.ir.linear import Linear, find_linears, head_of
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.weights import LazyWeight
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.prune.structured.target import Amounts
from optc.passes.quantize.layer_schemes import PER_CHANNEL, stored_bits
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.roofline.estimate import CONTEXT
from optc.runtime.executable.executable import LayerKV

#: [N, K] of weights that are cut, by their initializers.
Shapes = Mapping[ir.Value, tuple[int, int]]


class Sizes:
    """Of one model in dense form.

    Args:
        model: It is not changed.
        later: Passes that say how weights, keys and values will be stored.
        candidates: Weights that may be cut.
    """

    def __init__(
        self, model: ir.Model, later: Sequence[Pass], candidates: Iterable[ir.Value]
    ) -> None:
        self._quantize = next((one for one in later if isinstance(one, QuantizeWeights)), None)
        narrow = any(one.name == "cast-weights" for one in later)
        self._float_bits = 16 if narrow else 32
        self._dtype = next((one.dtype for one in later if isinstance(one, KVCache)), "float32")
        self._model, self._candidates = model, set(candidates)
        self._head = head_of(model)
        self._linears = {one.initializer: one for one in find_linears(model)}
        self._others = [v for v in _once(model, self._head) if v not in self._linears]

    def of(self, shapes: Shapes, kv_removed: Mapping[ir.Node, int] | None = None) -> Amounts:
        """The amounts of the model with weights of other shapes.

        Args:
            shapes: Those that differ; a weight [N, 0] or [0, K] is gone.
            kv_removed: KV heads that attentions lose.
        """
        candidates = parameters = bits = 0
        for value, linear in self._linears.items():
            rows, columns = shapes.get(value, linear.weight.rows_shape)
            candidates += rows * columns if value in self._candidates else 0
            parameters += rows * columns
            bits += self._bits(linear, rows, columns) if rows * columns else 0
        read = bits
        for value in self._others:
            size = value.const_value.size if value.const_value is not None else 0
            stored = self._other_bits(value, size)
            parameters += size
            bits += stored
            read += 0 if _is_table(value) else stored
        return Amounts(candidates, parameters, bits, read, CONTEXT * self._kv(kv_removed or {}))

    def _bits(self, linear: Linear, rows: int, columns: int) -> int:
        if self._quantize is None:
            return self._float_bits * rows * columns
        head = self._head is not None and linear.initializer is self._head.initializer
        if head and not self._quantize.head:
            return self._float_bits * rows * columns
        scheme = self._quantize.scheme_of(linear, PassReport(), head=head)
        return stored_bits(scheme, rows, columns)

    def _other_bits(self, value: ir.Value, size: int) -> int:
        table = self._quantize is not None and self._quantize.embedding and _is_table(value)
        if not table or value.const_value is None:
            return self._float_bits * size
        rows = value.const_value.shape.numpy()[0]
        return stored_bits(PER_CHANNEL, rows, size // rows)

    def _kv(self, removed: Mapping[ir.Node, int]) -> int:
        """Bytes of a token, in all layers."""
        total = 0
        for node in (n for n in self._model.graph if is_op(n, "Attention", domain=DOMAIN)):
            heads = node.attributes.get_int("kv_num_heads", 1)
            key, value = (width(v) or 0 if v is not None else 0 for v in node.inputs[1:3])
            left = heads - removed.get(node, 0)
            if left:
                layer = LayerKV(0, left, key // heads, value // heads, self._dtype)
                total += layer.bytes_per_token
        return total


def _once(model: ir.Model, head: Linear | None) -> list[ir.Value]:
    """Initializers; a table that is the head's weight only as that."""
    return [
        value
        for value in model.graph.initializers.values()
        if head is None
        or value is head.initializer
        or not isinstance(value.const_value, LazyWeight)
        or value.const_value.read_rows != head.weight.read_rows
    ]


def _is_table(value: ir.Value) -> bool:
    return any(is_op(use.node, "Gather") for use in value.uses())

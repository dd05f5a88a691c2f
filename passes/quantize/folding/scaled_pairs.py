"""Queries and keys that are scaled by channel where they are made, so that scores stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import constant, constant_ints, width
from optc.ir.linear import Linear, linear_of
from optc.passes.quantize.folding.fold import vector_of
from optc.passes.quantize.folding.weights import scaled_rows

Float64 = npt.NDArray[np.float64]
#: No pair is scaled by more, nor by less than its inverse.
_MOST = 16.0
#: Smallest mean square of a channel, as a share of a head's largest.
_LEAST = 1e-6
#: Metadata key of an attention whose pairs are even.
_EVEN = "optc.even_pairs"


@dataclass(frozen=True)
class Giver:
    """The weights that set the size of each channel of queries or keys.

    Attributes:
        source: A linear layer, or the scale of a norm: of all channels, or of one head's where the
            heads share it.
        start: The layer's first row that gives them, where a Split cuts its result.
        shared: First channels of each head that come from elsewhere, and that all heads share.
    """

    source: Linear | ir.Value
    start: int = 0
    shared: int = 0

    @property
    def norm(self) -> ir.Value | None:
        """The scale of a norm, if it is one that gives all channels."""
        return self.source if isinstance(self.source, ir.Value) and not self.shared else None

    def multiply(self, factors: Float64) -> None:
        """Multiply channels by ``factors`` [n, D]: rows and bias of a layer, or a norm's scale,
        which has the first of them where heads share it."""
        exact = factors[:, self.shared :].astype(np.float32).ravel()
        if isinstance(self.source, ir.Value):
            scale = vector_of(self.source)
            self.source.const_value = ir.tensor(scale * exact[: scale.size], name=self.source.name)
            return
        linear = linear_of(self.source.output)  # as it is now: queries may have been scaled in it
        if linear is None:
            raise ValueError(f"{self.source.name}: the layer is gone")
        rows = np.ones(linear.weight.rows_shape[0], np.float32)
        rows[self.start : self.start + exact.size] = exact
        linear.initializer.const_value = scaled_rows(linear.weight, rows)
        if linear.bias is not None:
            bias = vector_of(linear.bias) * rows
            linear.bias.const_value = ir.tensor(bias, name=linear.bias.name)


@dataclass(frozen=True)
class Operands:
    """Queries and keys of an attention whose channels can be scaled where they are made.

    Attributes:
        attention: The node.
        q: What gives the queries.
        k: What gives the keys.
    """

    attention: ir.Node
    q: Giver
    k: Giver

    @property
    def heads(self) -> tuple[int, int]:
        """Heads of queries and of keys."""
        attributes = self.attention.attributes
        return attributes["num_heads"].as_int(), attributes["kv_num_heads"].as_int()

    @property
    def even(self) -> bool:
        """True if a pass has scaled them before."""
        return _EVEN in self.attention.metadata_props

    def norms(self) -> tuple[Float64, Float64] | None:
        """Mean squares [Hkv, D] of queries and keys where scales of norms say them: a norm's
        result has a mean square of 1 before its scale."""
        if self.q.norm is None or self.k.norm is None:
            return None
        heads, kv_heads = self.heads
        size = (width(_operand(self.attention, 1)) or 0) // kv_heads
        squares = [
            np.square(np.resize(vector_of(vector).astype(np.float64), (count, size)))
            for vector, count in ((self.q.norm, heads), (self.k.norm, kv_heads))
        ]
        return squares[0].reshape(kv_heads, -1, size).mean(1), squares[1]

    def make_even(self, q_square: Float64, k_square: Float64) -> Float64:
        """Divide each rotary pair of the keys by (E[k²] / E[q²]) ** 1/4 and multiply that of the
        queries by it; by the nearest power of two where a weight has a checkpoint's grid, on which
        it stays then.

        Args:
            q_square: Mean squares [Hkv, D] of the queries by channel, over the heads of a group.
            k_square: Mean squares [Hkv, D] of the keys.

        Returns:
            What the keys' channels [Hkv, D] were divided by.
        """
        heads, kv_heads = self.heads
        size = k_square.shape[1]
        norms = [giver.norm for giver in (self.q, self.k)]
        if any(norm is not None and vector_of(norm).size == size for norm in norms):
            q_square, k_square = (
                a.mean(0, keepdims=True).repeat(kv_heads, 0) for a in (q_square, k_square)
            )
        scales = _scales(k_square, q_square, _operand(self.attention, 1).producer())
        scales[:, : self.k.shared] = 1
        if any(_has_grid(giver.source) for giver in (self.q, self.k)):
            scales = np.exp2(np.round(np.log2(scales)))
        self.q.multiply(np.repeat(scales, heads // kv_heads, axis=0))
        self.k.multiply(1 / scales)
        self.attention.metadata_props[_EVEN] = "true"
        return scales


def scalable(attention: ir.Node) -> Operands | str:
    """The operands of an attention, or why their channels cannot be scaled."""
    found = []
    for place in range(2):
        value = _operand(attention, place)
        node = value.producer()
        if node is not None and is_op(node, "RotaryEmbedding"):
            if len(value.uses()) != 1:
                return "queries or keys have other readers"
            value = node.inputs[0] or value
        giver = _giver(value)
        if isinstance(giver, str):
            return giver
        found.append(giver)
    return Operands(attention, *found)


def _giver(value: ir.Value) -> Giver | str:
    """The rows or the scale that set the size of each channel of ``value``, or why none can."""
    node = value.producer()
    if node is not None and is_op(node, "HeadConcat", domain=DOMAIN):
        return _behind_shared(value, node)
    cut, start = _before_split(value)
    linear = linear_of(cut)
    if linear is not None:
        readers = (linear.initializer, linear.output, value)
        if any(len(one.uses()) != 1 for one in readers):
            return "a projection of queries or keys has other readers"
        return Giver(linear, start)
    if node is None or not (
        is_op(node, "HeadRMSNorm", domain=DOMAIN) or is_op(node, "RMSNormalization")
    ):
        return "more than a norm and a rotary embedding lies between a projection and its scores"
    vector = node.inputs[1]
    if vector is None or not vector.is_initializer() or constant(vector) is None:
        return "the norm of queries or keys has no constant scale"
    if len(vector.uses()) != 1 or len(value.uses()) != 1:
        return "a norm of queries or keys has other readers"
    return Giver(vector)


def _behind_shared(value: ir.Value, node: ir.Node) -> Giver | str:
    """Of heads that share their first channels: what gives the others."""
    first, rest = node.inputs
    if first is None or rest is None or not node.attributes["shared"].as_int():
        return "heads are joined of two projections"
    giver, shared = _giver(rest), width(first)
    if isinstance(giver, str):
        return giver
    if isinstance(giver.source, ir.Value) or shared is None or len(value.uses()) != 1:
        return "heads that share channels are made of norms, or have other readers"
    return Giver(giver.source, giver.start, shared)


def _before_split(value: ir.Value) -> tuple[ir.Value, int]:
    """The value that a Split of the last axis cuts ``value`` from, and where it begins; itself if
    none does."""
    node = value.producer()
    sizes = constant_ints(node.inputs[1]) if node is not None and is_op(node, "Split") else None
    whole = node.inputs[0] if node is not None and sizes else None
    if node is None or sizes is None or whole is None:
        return value, 0
    return whole, sum(sizes[: list(node.outputs).index(value)])


def _operand(attention: ir.Node, place: int) -> ir.Value:
    value = attention.inputs[place]
    if value is None:
        raise ValueError(f"{attention.name}: an attention of nothing")
    return value


def _scales(k_square: Float64, q_square: Float64, rotary: ir.Node | None) -> Float64:
    """The divisors of keys [Hkv, D]: the same in both channels of a rotary pair."""
    keys, queries = k_square.copy(), q_square.copy()
    if rotary is not None and is_op(rotary, "RotaryEmbedding"):
        size = rotary.attributes.get_int("rotary_embedding_dim", 0) or keys.shape[1]
        apart = bool(rotary.attributes.get_int("interleaved", 0))
        first = slice(0, size, 2) if apart else slice(0, size // 2)
        second = slice(1, size, 2) if apart else slice(size // 2, size)
        for squares in (keys, queries):
            squares[:, first] = squares[:, second] = squares[:, first] + squares[:, second]
    keys, queries = (
        np.maximum(a, np.maximum(_LEAST * a.max(1, keepdims=True), 1e-30)) for a in (keys, queries)
    )
    raw = (keys / queries) ** 0.25
    even: Float64 = raw / np.exp(np.log(raw).mean(1, keepdims=True))
    return np.clip(even, 1 / _MOST, _MOST)


def _has_grid(source: Linear | ir.Value) -> bool:
    given = source.weight.given if isinstance(source, Linear) else None
    return given is not None and given.rows is not None

"""Standard opset-23 Attention with a KV cache in place of the dense form's attention;
convolutions that are given the rows before, and linear attention that is given its state.

A sink is a token before all others, with a key and a value of zeros, to which the mask gives the
sink as its score: the past of a new sequence then holds that token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import DOMAIN, OPERATORS, attributes_of, ensure_function, is_op, operand
from optc.ir.graph import constant, width
from optc.proof.reference.submodel import Array, copy_node

#: Score of a token that a row does not see; finite, so that no sum becomes NaN.
MASKED = -3.0e38


@dataclass(frozen=True)
class Cache:
    """The inputs and outputs for the cache of one attention.

    Attributes:
        past: Names of past key and value inputs, each [1, Hkv, P, Dk or Dv].
        present: Names of the present key and value outputs.
        heads: Hkv.
        dims: Dk and Dv.
        mask: Name of the mask input, bool [S, P + S], or float32 [1, H, S, P + S] where there are
            sinks or slopes; empty if causal only.
        window: Tokens that a row sees, itself included; 0 is all.
        chunk: Tokens of a chunk, of which rows see their own only; 0 is none.
        sinks: Of each head [H]; empty if there are none.
        slopes: Of each head [H]; empty if there are none.
    """

    past: tuple[str, str]
    present: tuple[str, str]
    heads: int
    dims: tuple[int, int]
    mask: str
    window: int
    chunk: int = 0
    sinks: tuple[float, ...] = ()
    slopes: tuple[float, ...] = ()

    def empty(self) -> dict[str, Array]:
        """Past inputs of a new sequence."""
        shapes = ((1, self.heads, self._before, dim) for dim in self.dims)
        return {n: np.zeros(s, np.float32) for n, s in zip(self.past, shapes, strict=True)}

    def masks(self, rows: int, past: int) -> dict[str, Array]:
        """The mask input, if there is one, for ``rows`` new rows after a past ``past`` long."""
        if not self.mask:
            return {}
        keys = np.arange(past - self._before + rows)
        own = past - self._before + np.arange(rows)[:, None]
        seen = keys <= own
        if self.window:
            seen &= keys > own - self.window
        if self.chunk:
            seen &= keys // self.chunk == own // self.chunk
        if not self.sinks and not self.slopes:
            return {self.mask: seen}
        slopes = np.array(self.slopes or (0.0,), np.float32)[:, None, None]
        bias = np.where(seen, slopes * (keys - own), np.float32(MASKED))[None]
        if self.sinks:
            heads = np.array(self.sinks, np.float32)[None, :, None, None]
            columns = np.broadcast_to(heads, (1, len(self.sinks), rows, 1))
            bias = np.broadcast_to(bias, (1, len(self.sinks), *bias.shape[2:]))
            bias = np.concatenate([columns, bias], axis=-1)
        return {self.mask: np.ascontiguousarray(bias, np.float32)}

    @property
    def _before(self) -> int:
        """Tokens of the past that are none of the sequence's."""
        return 1 if self.sinks else 0


@dataclass(frozen=True)
class StateBefore:
    """The input and output for what a convolution or linear attention keeps of the rows before.

    Attributes:
        past: Name of the input.
        present: Name of the output, the next call's past.
        shape: Of both, without the batch: [kernel - 1, channels], or [H, Dk, Dv].
    """

    past: tuple[str]
    present: tuple[str]
    shape: tuple[int, ...]

    def empty(self) -> dict[str, Array]:
        """Past inputs of a new sequence."""
        return {self.past[0]: np.zeros((1, *self.shape), np.float32)}

    def masks(self, rows: int, past: int) -> Mapping[str, Array]:
        """None: zeros stand for rows that there are not."""
        return {}


#: What mixers but attention keep: names of their attributes, and what is added to their first.
_KEPT = {
    "CausalConv": (("kernel", "channels"), -1),
    "LinearAttention": (("num_heads", "key_dim", "value_dim"), 0),
}


class MixerCopier:
    """Copies nodes; attentions of the dense form become standard ones with a cache, other mixers of
    tokens are given what they keep.

    Attributes:
        caches: The nodes that were replaced.
        inputs: Graph inputs to add: pasts and masks.
        outputs: Graph outputs to add: presents.
    """

    def __init__(self) -> None:
        self.caches: list[Cache | StateBefore] = []
        self.inputs: list[ir.Value] = []
        self.outputs: list[ir.Value] = []
        self._others: list[ir.Node] = []

    def __call__(self, node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
        """The copy of ``node``."""
        if is_op(node, "Attention", domain=DOMAIN):
            return self._with_cache(node, operands)
        if is_op(node, *_KEPT, domain=DOMAIN):
            return self._behind_state(node, operands)
        return copy_node(node, operands)

    def finish(self, model: ir.Model) -> None:
        """Give the copies' model its further inputs, outputs and functions."""
        model.graph.inputs.extend(self.inputs)
        model.graph.outputs.extend(self.outputs)
        for node in self._others:
            given = [value is not None for value in node.inputs]
            node.overload = ensure_function(model, node.op_type, attributes_of(node), given)

    def _behind_state(self, node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
        index, (names, more) = len(self.caches), _KEPT[node.op_type]
        first, *rest = (node.attributes[name].as_int() for name in names)
        state = StateBefore(
            (f"past.{index}.state",), (f"present.{index}.state",), (first + more, *rest)
        )
        past, present = _value(state.past[0], ["B", *state.shape]), _value(state.present[0])
        self.caches.append(state)
        self.inputs.append(past)
        self.outputs.append(present)
        place = OPERATORS[node.op_type].input_names.index("past")
        copy = ir.Node(
            DOMAIN,
            node.op_type,
            [*operands[:place], *[None] * (place - len(operands)), past],
            list(node.attributes.values()),
            outputs=[_value(node.outputs[0].name or ""), present],
            name=node.name,
        )
        self._others.append(copy)
        return copy

    def _with_cache(self, node: ir.Node, operands: list[ir.Value | None]) -> ir.Node:
        cache = _cache(node, len(self.caches))
        past = [
            _value(name, ["B", cache.heads, "P", dim])
            for name, dim in zip(cache.past, cache.dims, strict=True)
        ]
        mask = _mask(cache)
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
            [*operands[:3], mask, *past],
            ir.convenience.convert_attributes(attributes),
            outputs=[_value(node.outputs[0].name or ""), *present],
            name=node.name,
        )


def _cache(node: ir.Node, index: int) -> Cache:
    heads = node.attributes["kv_num_heads"].as_int()
    window, chunk = (node.attributes.get_int(name, 0) for name in ("window", "chunk"))
    if operand(node, "distance_bias") is not None:
        raise UnsupportedError(
            "biases by distance are not known beside a cache", where=node.name or "Attention"
        )
    sinks, slopes = (_by_head(node, name) for name in ("sinks", "alibi_slopes"))
    return Cache(
        (f"past.{index}.key", f"past.{index}.value"),
        (f"present.{index}.key", f"present.{index}.value"),
        heads,
        (_head_dim(node, 1, heads), _head_dim(node, 2, heads)),
        f"mask.{index}" if window or chunk or sinks or slopes else "",
        window,
        chunk,
        sinks,
        slopes,
    )


def _by_head(node: ir.Node, name: str) -> tuple[float, ...]:
    """The numbers of an operand [H]; empty if it is left out."""
    value = operand(node, name)
    if value is None:
        return ()
    tensor = constant(value)
    if tensor is None:
        raise UnsupportedError(
            f"the operand {name} is not constant", where=node.name or "Attention"
        )
    return tuple(float(number) for number in tensor.numpy())


def _mask(cache: Cache) -> ir.Value | None:
    if not cache.mask:
        return None
    if cache.sinks or cache.slopes:
        return _value(cache.mask, [1, len(cache.sinks or cache.slopes), "S", "P_S"])
    return _value(cache.mask, ["S", "P_S"], ir.DataType.BOOL)


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

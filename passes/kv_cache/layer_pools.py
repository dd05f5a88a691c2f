"""The pools of an attention, and the pools as inputs of the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.functions import attributes_of
from optc.ir.functions.mixing.recent_tokens import RECENT_TYPE
from optc.ir.graph import width
from optc.runtime.executable.executable import INT4_GROUP, LayerKV


@dataclass(frozen=True)
class Kept:
    """The keys and values that one attention keeps.

    Attributes:
        window: Tokens that its rows reach back, themselves included; 0 is all.
        dtype: What the pools hold.
        recent: How many of a row's latest tokens it reads from int8 pools of their own; 0 is none.
    """

    window: int
    dtype: str
    recent: int = 0


def kept_of(
    node: ir.Node, dtype: str, recent: int = 0, int8_window: int = 0, *, int8: bool = False
) -> Kept:
    """The pools of an ``optc::Attention``.

    Args:
        node: The attention.
        dtype: What pools hold.
        recent: Tokens that int8 pools of their own hold beside int4 pools; 0: none.
        int8_window: A layer whose rows see no more tokens has int8 pools alone instead of int4
            pools; so has one whose rows see no more than ``recent``.
        int8: It has int8 pools alone in any case.
    """
    sizes = (node.attributes.get_int(name, 0) for name in ("window", "chunk"))
    window = min(filter(None, sizes), default=0)
    if int8 or 0 < window <= max(recent, int8_window):
        return Kept(window, RECENT_TYPE)
    return Kept(window, dtype, recent)


def windows_of(kept: list[Kept]) -> tuple[int, ...]:
    """The windows of all pools, ascending; 0 comes first."""
    recent = {one.recent for one in kept if one.recent}
    return tuple(sorted({one.window for one in kept} | recent))


def layer_of(node: ir.Node, group: int, dtype: str) -> LayerKV:
    """Shape and type of the pools of an ``optc::Attention``.

    Raises:
        UnsupportedError: The width of its keys or values is unknown, or none that pools of the
            type take.
    """
    heads = int(attributes_of(node)["kv_num_heads"])
    layer = LayerKV(group, heads, _head_width(node, 1, heads), _head_width(node, 2, heads), dtype)
    if dtype == "int4":
        _check_groups(node, {"k": layer.key_dim, "v": layer.value_dim})
    return layer


def recent_layer(layer: LayerKV, group: int) -> LayerKV:
    """The pools of a layer's latest tokens."""
    return replace(layer, group=group, dtype=RECENT_TYPE)


def add_pools(graph: ir.Graph, index: int, layer: LayerKV) -> list[ir.Value]:
    """The K and V pool of entry ``index`` of the form's layers, as inputs; float32 whatever the
    type, for they hold what it represents."""
    pools = []
    for kind, dim in (("k", layer.key_dim), ("v", layer.value_dim)):
        shape = ir.Shape([f"blocks_{layer.group}", layer.kv_heads, "block_size", dim])
        float32 = ir.TensorType(ir.DataType.FLOAT)
        pools.append(ir.Value(name=f"{kind}_pool.{index}", type=float32, shape=shape))
    graph.inputs.extend(pools)
    return pools


def _check_groups(node: ir.Node, dims: dict[str, int]) -> None:
    """Keys and values divide into pairs of groups, as int4 pools hold them."""
    for kind, dim in dims.items():
        if dim % (2 * INT4_GROUP):
            raise UnsupportedError(
                f"int4 KV takes head dimensions that are multiples of {2 * INT4_GROUP}, not {dim}"
                f" ({kind})",
                where=f"pass kv-cache, node {node.name or node.op_type}",
                hint="kv-cache.dtype=int8 takes any",
            )


def _head_width(node: ir.Node, index: int, kv_heads: int) -> int:
    value = node.inputs[index]
    total = width(value) if value is not None else None
    if total is None or total % kv_heads:
        raise UnsupportedError(
            f"the width of input {index} is {total}, not a multiple of {kv_heads} KV heads",
            where=f"pass kv-cache, node {node.name or node.op_type}",
            hint="the importer must state the shapes of keys and values",
        )
    return total // kv_heads

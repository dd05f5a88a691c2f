"""Attentions whose keys and values are projections of one latent, found by dataflow."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.graph import width
from optc.ir.linear import Linear, linear_of

_ROTARY = ("rotary_embedding_dim", "interleaved")


@dataclass(frozen=True)
class Latent:
    """The operands of an attention, traced back.

    Attributes:
        heads: Of queries, keys and values.
        value: The latent c, [B, S, R].
        keys: Of c; each head's own columns.
        values: Of c.
        shared: Columns of keys that all heads share, before they turn, [B, S, r]; None without.
        queries: Before they turn, [B, S, H * (r + d)]; in each head those for the shared columns
            are first.
        rotary: The rotary embedding of keys, and alike of queries; None without.
    """

    heads: int
    value: ir.Value
    keys: Linear
    values: Linear
    shared: ir.Value | None
    queries: ir.Value
    rotary: ir.Node | None

    @property
    def width(self) -> int:
        """R."""
        return self.values.weight.rows_shape[1]

    @property
    def shared_width(self) -> int:
        """r; 0 without."""
        return 0 if self.shared is None else width(self.shared) or 0

    @property
    def own_width(self) -> int:
        """d, a head's own columns of keys."""
        return self.keys.weight.rows_shape[0] // self.heads

    @property
    def times_smaller(self) -> float:
        """A token's keys and values over its latent, which is kept as key and as value, and its
        shared columns."""
        own = self.keys.weight.rows_shape[0] + self.values.weight.rows_shape[0]
        whole = own + self.heads * self.shared_width
        return whole / (self.shared_width + 2 * self.width)


def find_latent(attention: ir.Node, multiple: int, least: float) -> Latent | str:
    """The latent of an attention's keys and values, or why there is none; empty where nothing is
    like one: keys and values are no projections of one narrow value.

    Args:
        attention: The node.
        multiple: Pools take keys and values whose columns are multiples of it.
        least: It must be more than so many times smaller.
    """
    values = linear_of(attention.inputs[2])
    rotated, keys = _turned(attention.inputs[1])
    shared, own = _joined(keys)
    projection = linear_of(own)
    if values is None or projection is None or projection.x is not values.x:
        return ""
    heads = attention.attributes.get_int("num_heads", 0)
    turned, queries = _turned(attention.inputs[0])
    if queries is None:
        return ""
    found = Latent(heads, values.x, projection, values, shared, queries, rotated)
    times = found.times_smaller
    if times <= 1 and shared is None:
        return ""  # what most attentions are: of all channels, which are more than keys and values
    if times <= least:
        return f"its latent is {times:.1f} times smaller than keys and values, not over {least:g}"
    return _objection(attention, found, turned, multiple) or found


def _objection(attention: ir.Node, found: Latent, turned: ir.Node | None, multiple: int) -> str:
    """Why the latent cannot take the place of keys and values; ``turned`` turns the queries."""
    if attention.attributes.get_int("kv_num_heads", 0) != found.heads:
        return "several heads of queries share one of keys"
    if found.keys.bias is not None or found.values.bias is not None:
        return "its projections of the latent have biases"
    if found.keys.pruned or found.values.pruned:
        return "weights that were pruned would lie along another axis"
    if any(size % multiple for size in (found.width, found.width + found.shared_width)):
        return f"its latent and shared columns are no multiples of {multiple}"
    if (turned is None) != (found.rotary is None):
        return "a rotary embedding is on only one of queries and keys"
    if turned is None or found.rotary is None or _turns_shared(found, turned, found.rotary):
        return ""
    return "its rotary embedding turns columns of single heads"


def _turns_shared(found: Latent, of_queries: ir.Node, of_keys: ir.Node) -> bool:
    """True if both turn the shared columns alone, and alike."""
    same = list(of_queries.inputs[1:]) == list(of_keys.inputs[1:]) and all(
        of_queries.attributes.get_int(name, 0) == of_keys.attributes.get_int(name, 0)
        for name in _ROTARY
    )
    return same and 0 < turned_columns(of_keys) <= found.shared_width


def turned_columns(rotary: ir.Node) -> int:
    """Columns of a head that a rotary embedding turns, the first ones."""
    stated = rotary.attributes.get_int("rotary_embedding_dim", 0)
    cos = rotary.inputs[1]
    return stated or (0 if cos is None else 2 * (width(cos) or 0))


def _turned(value: ir.Value | None) -> tuple[ir.Node | None, ir.Value | None]:
    """The rotary embedding that gives ``value``, None without one, and what it turns."""
    node = None if value is None else value.producer()
    if node is None or not is_op(node, "RotaryEmbedding"):
        return None, value
    return node, node.inputs[0]


def _joined(keys: ir.Value | None) -> tuple[ir.Value | None, ir.Value | None]:
    """The columns that all heads share, and each head's own; the first is None without any."""
    node = None if keys is None else keys.producer()
    if node is None or not is_op(node, "HeadConcat", domain=DOMAIN):
        return None, keys
    if not node.attributes.get_int("shared", 0):
        return None, None
    return node.inputs[0], node.inputs[1]

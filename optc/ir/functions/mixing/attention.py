"""The attention operators: dense causal (`dense_attention`), ragged over paged KV pools
(`paged_attention`), and batched over slots (`slot_attention`)."""

from __future__ import annotations

from optc.ir.functions.hadamard import rotated
from optc.ir.functions.mixing.dense_attention import dense
from optc.ir.functions.mixing.paged_attention import paged
from optc.ir.functions.mixing.slot_attention import slots
from optc.ir.functions.operator import Attributes, AttributeValue, Operator, integers
from optc.ir.functions.token_wise import head_norm, rotary

_SHAPE = {"num_heads": int, "kv_num_heads": int, "scale": float, "softcap": float, "window": int}
_PLACE = {"group": int, "layer": int, "kv_dtype": str, "query_bits": int}
_STEP = ("slot_mapping", "query_starts", "kv_lengths", "block_tables", "tree_parent?")
#: By query head [H]: a logit that joins the softmax's largest and sum and has no value; what a
#: token's score loses with its distance.
_BY_HEAD = ("sinks?", "alibi_slopes?")
#: By query head and distance [H, N]: what is added to the score of a token that lies so far behind
#: the row; tokens farther away have the last entry.
_BY_DISTANCE = "distance_bias?"
#: Pools of the latest ``recent`` tokens, in ``recent_group``, the entry ``recent_layer`` of the
#: form's layers: the last inputs of all.
_RECENT = ("recent_k_pool?", "recent_v_pool?")
_DEFAULTS: dict[str, AttributeValue] = {"chunk": 0}
_PAGED_DEFAULTS = {**_DEFAULTS, "recent": 0, "recent_group": 0, "recent_layer": -1}
_INERT = frozenset({"layer", "recent_layer"})
_RESULTS = (
    *("out: float", "k_pool_out: float", "v_pool_out: float"),
    *(f"{pool[:-1]}_out: float if {pool[:-1]}" for pool in _RECENT),
)


def _paged_attention(attributes: Attributes, present: frozenset[str]) -> str:
    return paged("q", "k", "v", attributes, present)


def _rotary_paged_attention(attributes: Attributes, present: frozenset[str]) -> str:
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    key_dim, value_dim = int(attributes["key_dim"]), int(attributes["value_dim"])
    lines = [
        integers("qkv_sizes", (heads * key_dim, kv_heads * key_dim, kv_heads * value_dim)),
        "q0, k0, v0 = Split <axis: int = -1> (qkv, qkv_sizes)",
    ]
    names = {}
    for kind, count in (("q", heads), ("k", kv_heads)):
        name = f"{kind}0"
        if f"{kind}_scale" in present:
            epsilon = attributes["epsilon"]
            lines.append(head_norm(name, f"{kind}_scale", f"{kind}1", count, epsilon))
            name = f"{kind}1"
        if attributes["rotary_embedding_dim"]:
            lines.append(rotary(name, "cos", "sin", f"{kind}2", count, attributes))
            name = f"{kind}2"
        if block := int(attributes["hadamard"]):
            lines.append(rotated(name, f"{kind}3", block, count * key_dim))
            name = f"{kind}3"
        names[kind] = name
    lines.append(paged(names["q"], names["k"], "v0", attributes, present))
    return "\n".join(lines)


OPERATORS = (
    Operator(
        "Attention",
        ("q", "k", "v", *_BY_HEAD, _BY_DISTANCE),
        ("out: float",),
        _SHAPE,
        dense,
        defaults=_DEFAULTS,
    ),
    Operator(
        "PagedAttention",
        ("q", "k", "v", "k_pool", "v_pool", *_STEP, *_BY_HEAD, _BY_DISTANCE, *_RECENT),
        _RESULTS,
        {**_SHAPE, **_PLACE},
        _paged_attention,
        inert=_INERT,
        defaults=_PAGED_DEFAULTS,
    ),
    Operator(
        "SlotAttention",
        ("q", "k", "v", "past_k", "past_v", "write_indices", *_BY_HEAD),
        ("out: float", "present_k: float", "present_v: float"),
        _SHAPE,
        slots,
        opset=24,
        defaults=_DEFAULTS,
    ),
    Operator(
        "RotaryPagedAttention",
        (
            *("qkv", "cos?", "sin?", "q_scale?", "k_scale?", "k_pool", "v_pool"),
            *(*_STEP, *_BY_HEAD, _BY_DISTANCE, *_RECENT),
        ),
        _RESULTS,
        {
            **_SHAPE,
            **_PLACE,
            "rotary_embedding_dim": int,
            "interleaved": int,
            "epsilon": float,
            "key_dim": int,
            "value_dim": int,
        },
        _rotary_paged_attention,
        inert=_INERT,
        defaults={**_PAGED_DEFAULTS, "hadamard": 0},
    ),
)

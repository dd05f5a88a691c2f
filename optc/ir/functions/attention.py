"""The attention operators: dense causal, ragged over paged KV pools (`paged_attention`), and
batched over slots (`slot_attention`)."""

from __future__ import annotations

from optc.ir.functions.operator import (
    Attributes,
    Operator,
    integer,
    integers,
    literal,
)
from optc.ir.functions.paged_attention import paged
from optc.ir.functions.slot_attention import slots
from optc.ir.functions.token_wise import head_norm, rotary

_SHAPE = {"num_heads": int, "kv_num_heads": int, "scale": float, "softcap": float, "window": int}
_PLACE = {"group": int, "layer": int, "kv_dtype": str, "query_bits": int}
_STEP = ("slot_mapping", "query_starts", "kv_lengths", "block_tables", "tree_parent?")
_RESULTS = ("out: float", "k_pool_out: float", "v_pool_out: float")


def _attention(attributes: Attributes, present: frozenset[str]) -> str:
    options = (
        f"q_num_heads: int = {attributes['num_heads']},"
        f" kv_num_heads: int = {attributes['kv_num_heads']},"
        f" scale: float = {literal(float(attributes['scale']))},"
        f" softcap: float = {literal(float(attributes['softcap']))}"
    )
    if not attributes["window"]:
        return f"out = Attention <{options}, is_causal: int = 1> (q, k, v)"
    return "\n".join(
        [
            integer("zero", 0),
            integer("one", 1),
            integer("window", int(attributes["window"])),
            integer("sequence_axis", 1),
            integers("column_axis", (1,)),
            "shape = Shape (q)",
            "length = Gather (shape, sequence_axis)",
            "index = Range (zero, length, one)",
            "rows = Unsqueeze (index, column_axis)",
            "distance = Sub (rows, index)",
            "causal = GreaterOrEqual (distance, zero)",
            "near = Less (distance, window)",
            "mask = And (causal, near)",
            f"out = Attention <{options}> (q, k, v, mask)",
        ]
    )


def _paged_attention(attributes: Attributes, present: frozenset[str]) -> str:
    return paged("q", "k", "v", attributes, tree="tree_parent" in present)


def _slot_attention(attributes: Attributes, present: frozenset[str]) -> str:
    return slots(attributes)


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
        names[kind] = name
    tree = "tree_parent" in present
    lines.append(paged(names["q"], names["k"], "v0", attributes, tree=tree))
    return "\n".join(lines)


OPERATORS = (
    Operator("Attention", ("q", "k", "v"), ("out: float",), _SHAPE, _attention),
    Operator(
        "PagedAttention",
        ("q", "k", "v", "k_pool", "v_pool", *_STEP),
        _RESULTS,
        {**_SHAPE, **_PLACE},
        _paged_attention,
        inert=frozenset({"layer"}),
    ),
    Operator(
        "SlotAttention",
        ("q", "k", "v", "past_k", "past_v", "write_indices"),
        ("out: float", "present_k: float", "present_v: float"),
        _SHAPE,
        _slot_attention,
        opset=24,
    ),
    Operator(
        "RotaryPagedAttention",
        ("qkv", "cos?", "sin?", "q_scale?", "k_scale?", "k_pool", "v_pool", *_STEP),
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
        inert=frozenset({"layer"}),
    ),
)

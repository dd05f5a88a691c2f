"""The body of attention over paged KV pools.

It is an oracle: it scores every row against every token that the step's block tables name and masks
what a row must not see. Pools are replaced functionally. Whatever the KV type, pools of the ONNX
form are float32 and hold the values that the type represents.
"""

from __future__ import annotations

from optc.ir.functions.int4_groups import grouped
from optc.ir.functions.mixing import recent_tokens
from optc.ir.functions.mixing.visible_tokens import visible
from optc.ir.functions.operator import Attributes, integer, integers, real

#: A score that no softmax lets through, yet finite, so that a row that sees nothing stays finite.
_MASKED = -3.0e38
#: The largest finite float16.
_LARGEST_HALF = 65504.0


def _represented(kind: str, dtype: str) -> list[str]:
    """``{kind}_rows`` [..., D] as the type represents them: ``{kind}_kept_rows``."""
    rows, kept = f"{kind}_rows", f"{kind}_kept_rows"
    if dtype == "float32":
        return [f"{kept} = Identity ({rows})"]
    if dtype == "float16":  # which has no room for all of float32
        return [
            real(f"{kind}_largest", _LARGEST_HALF),
            f"{kind}_smallest = Neg ({kind}_largest)",
            f"{kind}_finite = Clip ({rows}, {kind}_smallest, {kind}_largest)",
            f"{kind}_narrow = Cast <to: int = 10> ({kind}_finite)",
            f"{kept} = {_widen(kind)}",
        ]
    if dtype == "bfloat16":
        return [
            f"{kind}_narrow = Cast <to: int = 16> ({rows})",
            f"{kept} = {_widen(kind)}",
        ]
    if dtype == "int4":
        return grouped(kind)
    return [
        integers(f"{kind}_last", (-1,)),
        real(f"{kind}_steps", 127.0),
        real(f"{kind}_nothing", 0.0),
        real(f"{kind}_unit", 1.0),
        f"{kind}_magnitude = Abs ({rows})",
        f"{kind}_peak = ReduceMax <keepdims: int = 1> ({kind}_magnitude, {kind}_last)",
        f"{kind}_step = Div ({kind}_peak, {kind}_steps)",
        f"{kind}_empty = Equal ({kind}_step, {kind}_nothing)",
        f"{kind}_of_code = Where ({kind}_empty, {kind}_unit, {kind}_step)",
        f"{kind}_ratio = Div ({rows}, {kind}_of_code)",
        f"{kind}_codes = Round ({kind}_ratio)",
        f"{kept} = Mul ({kind}_codes, {kind}_of_code)",
    ]


def _widen(kind: str) -> str:
    return f"Cast <to: int = 1> ({kind}_narrow)"


def _write(kind: str, rows: str, heads: object, dtype: str, which: str = "") -> list[str]:
    """Rows [T, Hkv*D] stored at their slots in a pool [blocks, Hkv, block_size, D]; ``which`` are
    the slots (`_slots`)."""
    pool = f"{kind}_pool"
    return [
        f"{kind}_by_token = Transpose <perm: ints = [0, 2, 1, 3]> ({pool})",
        f"{kind}_shape = Shape ({kind}_by_token)",
        f"{kind}_dim = Shape <start: int = 3> ({pool})",
        integers(f"{kind}_lead", (-1, int(str(heads)))),
        f"{kind}_flat_shape = Concat <axis: int = 0> ({kind}_lead, {kind}_dim)",
        f"{kind}_flat = Reshape ({kind}_by_token, {kind}_flat_shape)",
        integers(f"{kind}_row_lead", (-1,)),
        f"{kind}_by_head = Concat <axis: int = 0> ({kind}_row_lead, {kind}_dim)",
        f"{kind}_rows = Reshape ({rows}, {kind}_by_head)",
        *_represented(kind, dtype),
        f"{kind}_kept_tokens = Reshape ({kind}_kept_rows, {kind}_flat_shape)",
        f"{kind}_kept = Compress <axis: int = 0> ({kind}_kept_tokens, {which}written)",
        f"{kind}_slots = ScatterND ({kind}_flat, {which}write_index, {kind}_kept)",
        f"{kind}_pages = Reshape ({kind}_slots, {kind}_shape)",
        f"{kind}_pool_out = Transpose <perm: ints = [0, 2, 1, 3]> ({kind}_pages)",
        # what the rows read back: [Hkv, M, D], M = B * P * block_size
        f"{kind}_read = Gather <axis: int = 0> ({kind}_slots, {which}read_index)",
        f"{kind}_seen = Transpose <perm: ints = [1, 0, 2]> ({kind}_read)",
    ]


def step_constants(attributes: Attributes) -> list[str]:
    """Constants, and where the sequences of the step begin and end."""
    return [
        integer("zero", 0),
        integer("one", 1),
        integers("first", (0,)),
        integers("second", (1,)),
        integers("third", (2,)),
        integers("flat", (-1,)),
        integer("group", int(attributes["group"])),
        "lengths_32 = Gather <axis: int = 0> (kv_lengths, group)",
        "lengths = Cast <to: int = 7> (lengths_32)",
        "starts = Cast <to: int = 7> (query_starts)",
        "block_size_1 = Shape <start: int = 2, end: int = 3> (k_pool)",
        "block_size = Squeeze (block_size_1, first)",
        "offsets = Range (zero, block_size, one)",
    ]


def _slots(which: str = "") -> list[str]:
    """Slots to write [T], where not -1, and to read [M], M = B * P * block_size, of the group
    ``{which}group``; the names of all begin with ``which``."""
    return [*write_slots(which), *read_slots(which)]


def write_slots(which: str = "") -> list[str]:
    """Slots to write [T] of the group ``{which}group``, where not -1: its ``{which}write_index``,
    and the rows that have one, ``{which}written``."""
    return [
        f"{which}slots_32 = Gather <axis: int = 0> (slot_mapping, {which}group)",
        f"{which}slots = Cast <to: int = 7> ({which}slots_32)",
        f"{which}written = GreaterOrEqual ({which}slots, zero)",
        f"{which}write_slots = Compress <axis: int = 0> ({which}slots, {which}written)",
        f"{which}write_index = Unsqueeze ({which}write_slots, second)",
    ]


def read_slots(which: str = "") -> list[str]:
    """Slots to read [M], M = B * P * block_size, of the group ``{which}group``: its
    ``{which}read_index``."""
    return [
        f"{which}table_32 = Gather <axis: int = 0> (block_tables, {which}group)",
        f"{which}table = Cast <to: int = 7> ({which}table_32)",
        # read slots: block * block_size + offset; released blocks (-1) read block 0, masked
        f"{which}blocks = Max ({which}table, zero)",
        f"{which}block_base = Mul ({which}blocks, block_size)",
        f"{which}block_columns = Unsqueeze ({which}block_base, third)",
        f"{which}read_slots = Add ({which}block_columns, offsets)",
        f"{which}read_index = Reshape ({which}read_slots, flat)",
    ]


def _leaning(result: str) -> list[str]:
    """``result`` [Hkv, G, T, M]: scores less what ``alibi_slopes`` [H] take for the ``distance``
    [T, M]."""
    return [
        "slope_rows = Reshape (alibi_slopes, score_lead)",
        integers("slope_axes", (2, 3)),
        "slopes = Unsqueeze (slope_rows, slope_axes)",
        "behind = Cast <to: int = 1> (distance)",
        "lost = Mul (slopes, behind)",
        f"{result} = Sub (score_level, lost)",
    ]


def _shifted(level: str) -> list[str]:
    """``score`` [Hkv, G, T, M]: ``level`` and what ``distance_bias`` [H, N] adds at the
    ``distance`` [T, M]."""
    return [
        "bias_columns = Shape <start: int = 1, end: int = 2> (distance_bias)",
        "bias_count = Squeeze (bias_columns, first)",
        "bias_last = Sub (bias_count, one)",
        "bias_behind = Max (distance, zero)",
        "bias_place = Min (bias_behind, bias_last)",
        "bias_rows = Gather <axis: int = 1> (distance_bias, bias_place)",
        "bias = Reshape (bias_rows, score_shape)",
        f"score = Add ({level}, bias)",
    ]


def _sink_column() -> list[str]:
    """``sinks`` [H] as ``sink`` [Hkv, G, 1, 1]."""
    return [
        integers("sink_axes", (2, 3)),
        "sink_rows = Reshape (sinks, score_lead)",
        "sink = Unsqueeze (sink_rows, sink_axes)",
    ]


def _softmax(dtype: str, *, sinks: bool) -> list[str]:
    """``score`` over the ``visible`` columns as ``weights``; with a ``sink`` less than one.

    With bfloat16 pools the weights, powers of two relative to an integer, are rounded to bfloat16
    before they are divided by their sum. A sink's power is not rounded.
    """
    if dtype != "bfloat16":
        if sinks:
            return ["kept = Where (visible, score, masked)", *_softmax_with_sink()]
        return [
            "kept = Where (visible, score, masked)",
            "weights = Softmax <axis: int = -1> (kept)",
        ]
    return [
        real("log2_e", 1.4426950408889634),
        real("two", 2.0),
        integers("last_axis", (-1,)),
        "powers = Mul (score, log2_e)",
        "kept = Where (visible, powers, masked)",
        f"{'largest_seen' if sinks else 'largest'} ="
        " ReduceMax <keepdims: int = 1> (kept, last_axis)",
        *(
            ["sink_power = Mul (sink, log2_e)", "largest = Max (largest_seen, sink_power)"]
            if sinks
            else []
        ),
        "whole = Ceil (largest)",
        "falling = Sub (kept, whole)",
        "shares = Pow (two, falling)",
        "shares_narrow = Cast <to: int = 16> (shares)",
        f"shares_kept = {_widen('shares')}",
        f"{'norm_seen' if sinks else 'norm'} ="
        " ReduceSum <keepdims: int = 1> (shares_kept, last_axis)",
        *(
            [
                "sink_falling = Sub (sink_power, whole)",
                "sink_share = Pow (two, sink_falling)",
                "norm = Add (norm_seen, sink_share)",
            ]
            if sinks
            else []
        ),
        "weights = Div (shares_kept, norm)",
    ]


def _softmax_with_sink() -> list[str]:
    """The sink is a column in front of ``kept``, and goes away again."""
    return [
        integers("last_axis", (-1,)),
        integers("second_on", (1,)),
        integers("to_end", (1 << 31,)),
        "sink_lead = Shape <start: int = 0, end: int = 3> (kept)",
        integers("one_column", (1,)),
        "sink_shape = Concat <axis: int = 0> (sink_lead, one_column)",
        "sink_wide = Expand (sink, sink_shape)",
        "kept_sunk = Concat <axis: int = -1> (sink_wide, kept)",
        "weights_sunk = Softmax <axis: int = -1> (kept_sunk)",
        "weights = Slice (weights_sunk, second_on, to_end, last_axis)",
    ]


def _query_type(attributes: Attributes) -> str:
    """The type that queries are rounded to: over pools of integers, what ``query_bits`` says;
    over bfloat16 that, whose products have instructions."""
    dtype = str(attributes["kv_dtype"])
    if dtype in ("int8", "int4"):
        return "int8" if attributes["query_bits"] else "float32"
    return dtype if dtype == "bfloat16" else "float32"


def scores(q: str, attributes: Attributes, present: frozenset[str]) -> list[str]:
    """Softmax of q [T, H*Dk] over the visible columns, and the weighted values."""
    kv_heads, dtype = int(attributes["kv_num_heads"]), str(attributes["kv_dtype"])
    group = int(attributes["num_heads"]) // kv_heads
    softcap = float(attributes["softcap"])
    leaning, sinks = "alibi_slopes" in present, "sinks" in present
    recent, distant = "recent_k_pool" in present, "distance_bias" in present
    capped = [
        real("softcap", softcap),
        "raw_ratio = Div (scaled, softcap)",
        "raw_tanh = Tanh (raw_ratio)",
        "capped = Mul (raw_tanh, softcap)",
    ]
    return [
        integers("q_split", (0, kv_heads, group, -1)),
        integers("q_merge", (kv_heads, -1)),
        "q_dim = Shape <start: int = 3> (k_pool)",
        "q_merge_shape = Concat <axis: int = 0> (q_merge, q_dim)",
        f"q_heads = Reshape ({q}, q_split)",
        "q_by_head = Transpose <perm: ints = [1, 2, 0, 3]> (q_heads)",
        "q_rows = Reshape (q_by_head, q_merge_shape)",
        *_represented("q", _query_type(attributes)),
        "keys = Transpose <perm: ints = [0, 2, 1]> (k_seen)",
        integers("score_lead", (kv_heads, group)),
        "score_tail = Shape (visible)",
        "score_shape = Concat <axis: int = 0> (score_lead, score_tail)",
        *(recent_tokens.products() if recent else ["products = MatMul (q_kept_rows, keys)"]),
        real("scale", float(attributes["scale"])),
        "scaled = Mul (products, scale)",
        *(capped if softcap else []),
        f"{'score_level' if leaning or distant else 'score'} ="
        f" Reshape ({'capped' if softcap else 'scaled'}, score_shape)",
        *(_leaning("score_leaning" if distant else "score") if leaning else []),
        *(_shifted("score_leaning" if leaning else "score_level") if distant else []),
        real("masked", _MASKED),
        *(_sink_column() if sinks else []),
        *_softmax(dtype, sinks=sinks),
        "product_shape = Shape (products)",
        *(recent_tokens.values() if recent else _values()),
        "v_tail = Shape <start: int = 3> (v_pool)",
        "out_shape = Concat <axis: int = 0> (score_lead, tokens_1, v_tail)",
        "by_head = Reshape (values, out_shape)",
        "by_token = Transpose <perm: ints = [2, 0, 1, 3]> (by_head)",
        integers("out_tail", (-1,)),
        "out_rows = Concat <axis: int = 0> (tokens_1, out_tail)",
        "out = Reshape (by_token, out_rows)",
    ]


def _values() -> list[str]:
    return [
        "weight_rows = Reshape (weights, product_shape)",
        "values = MatMul (weight_rows, v_seen)",
    ]


def _recent(k: str, v: str, attributes: Attributes) -> list[str]:
    """The pools of the latest tokens, with k and v written, and which columns are read there."""
    heads, dtype = attributes["kv_num_heads"], recent_tokens.RECENT_TYPE
    return [
        integer("recent_group", int(attributes["recent_group"])),
        *_slots("recent_"),
        *_write("recent_k", k, heads, dtype, "recent_"),
        *_write("recent_v", v, heads, dtype, "recent_"),
        *recent_tokens.is_recent(attributes),
    ]


def paged(q: str, k: str, v: str, attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: rows q [T, H*Dk] over the pools with k, v [T, Hkv*D] written, to ``out``; the
    rows of a sequence follow each other, or form a tree where ``tree_parent`` is present."""
    heads, dtype = attributes["kv_num_heads"], str(attributes["kv_dtype"])
    return "\n".join(
        [
            *step_constants(attributes),
            *_slots(),
            *visible(attributes, tree="tree_parent" in present),
            *_write("k", k, heads, dtype),
            *_write("v", v, heads, dtype),
            *(_recent(k, v, attributes) if "recent_k_pool" in present else []),
            *scores(q, attributes, present),
        ]
    )

"""Bodies of the attention operators: dense causal, and ragged over paged KV pools.

The paged bodies are an oracle: they score every row against every token that the step's block
tables name and mask what a row must not see. Pools are replaced functionally.
"""

from __future__ import annotations

from optc.ir.functions.operator import (
    Attributes,
    Operator,
    integer,
    integers,
    literal,
    real,
)
from optc.ir.functions.token_wise import head_norm, rotary

#: A score that no softmax lets through, yet finite, so that a row that sees nothing stays finite.
_MASKED = -3.0e38
#: Log2 of the deepest tree of rows that the body follows.
_GENERATIONS = 12

_SHAPE = {"num_heads": int, "kv_num_heads": int, "scale": float, "softcap": float, "window": int}
_PLACE = {"group": int, "layer": int}
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


def _write(kind: str, rows: str, heads: object) -> list[str]:
    """Rows [T, Hkv*D] stored at their slots in a pool [blocks, Hkv, block_size, D]."""
    pool = f"{kind}_pool"
    return [
        f"{kind}_by_token = Transpose <perm: ints = [0, 2, 1, 3]> ({pool})",
        f"{kind}_shape = Shape ({kind}_by_token)",
        f"{kind}_dim = Shape <start: int = 3> ({pool})",
        integers(f"{kind}_lead", (-1, int(str(heads)))),
        f"{kind}_flat_shape = Concat <axis: int = 0> ({kind}_lead, {kind}_dim)",
        f"{kind}_flat = Reshape ({kind}_by_token, {kind}_flat_shape)",
        f"{kind}_rows = Reshape ({rows}, {kind}_flat_shape)",
        f"{kind}_kept = Compress <axis: int = 0> ({kind}_rows, written)",
        f"{kind}_slots = ScatterND ({kind}_flat, write_index, {kind}_kept)",
        f"{kind}_pages = Reshape ({kind}_slots, {kind}_shape)",
        f"{kind}_pool_out = Transpose <perm: ints = [0, 2, 1, 3]> ({kind}_pages)",
        # what the rows read back: [Hkv, M, D], M = B * P * block_size
        f"{kind}_read = Gather <axis: int = 0> ({kind}_slots, read_index)",
        f"{kind}_seen = Transpose <perm: ints = [1, 0, 2]> ({kind}_read)",
    ]


def _slots(attributes: Attributes) -> list[str]:
    """Slots to write [T], where not -1, and to read [M], M = B * P * block_size."""
    return [
        integer("zero", 0),
        integer("one", 1),
        integer("group", int(attributes["group"])),
        integers("first", (0,)),
        integers("second", (1,)),
        integers("flat", (-1,)),
        "slots_32 = Gather <axis: int = 0> (slot_mapping, group)",
        "lengths_32 = Gather <axis: int = 0> (kv_lengths, group)",
        "table_32 = Gather <axis: int = 0> (block_tables, group)",
        "slots = Cast <to: int = 7> (slots_32)",
        "lengths = Cast <to: int = 7> (lengths_32)",
        "table = Cast <to: int = 7> (table_32)",
        "starts = Cast <to: int = 7> (query_starts)",
        "written = GreaterOrEqual (slots, zero)",
        "write_slots = Compress <axis: int = 0> (slots, written)",
        "write_index = Unsqueeze (write_slots, second)",
        # read slots: block * block_size + offset; released blocks (-1) read block 0, masked
        "block_size_1 = Shape <start: int = 2, end: int = 3> (k_pool)",
        "block_size = Squeeze (block_size_1, first)",
        "blocks = Max (table, zero)",
        "offsets = Range (zero, block_size, one)",
        "block_base = Mul (blocks, block_size)",
        integers("third", (2,)),
        "block_columns = Unsqueeze (block_base, third)",
        "read_slots = Add (block_columns, offsets)",
        "read_index = Reshape (read_slots, flat)",
    ]


def _visible(attributes: Attributes, *, tree: bool) -> list[str]:
    """Which of the M columns each of the T rows sees: [T, M]."""
    window = int(attributes["window"])
    near = [
        integer("window", window),
        "near = Less (distance, window)",
        "visible = And (past_own, near)",
    ]
    return [
        *_places(),
        *(_past_in_tree() if tree else _past_in_order()),
        "row_sequence_column = Unsqueeze (sequence, second)",
        "own = Equal (row_sequence_column, column_sequence)",
        f"{'past_own' if window else 'visible'} = And (past, own)",
        *(near if window else []),
    ]


def _places() -> list[str]:
    """Sequence and KV index of each of the T rows and M columns."""
    return [
        integers("ends_stop", (1 << 31,)),
        integers("minus_one", (-1,)),
        # rows: sequence of each row, and its index in that sequence's KV
        "tokens_1 = Shape (slots)",
        "tokens = Squeeze (tokens_1, first)",
        "row = Range (zero, tokens, one)",
        "row_column = Unsqueeze (row, second)",
        "ends = Slice (starts, second, ends_stop, first)",
        "passed = GreaterOrEqual (row_column, ends)",
        "passed_count = Cast <to: int = 7> (passed)",
        "sequence_raw = ReduceSum <keepdims: int = 0> (passed_count, second)",
        "batch_1 = Shape (lengths)",
        "batch = Squeeze (batch_1, first)",
        "last = Sub (batch, one)",
        "sequence = Min (sequence_raw, last)",
        "shift = Sub (lengths, ends)",
        "row_shift = Gather <axis: int = 0> (shift, sequence)",
        "row_index = Add (row, row_shift)",
        # columns: sequence and KV index of each of the M = B * P * block_size columns
        "columns_1 = Shape (read_index)",
        "columns = Squeeze (columns_1, first)",
        "column = Range (zero, columns, one)",
        "span = Div (columns, batch)",
        "column_sequence = Div (column, span)",
        "column_index = Mod (column, span)",
    ]


def _past_in_order() -> list[str]:
    """How far each column lies behind each row, and that it does not lie ahead: [T, M]."""
    return [
        "row_index_column = Unsqueeze (row_index, second)",
        "distance = Sub (row_index_column, column_index)",
        "past = GreaterOrEqual (distance, zero)",
    ]


def _past_in_tree() -> list[str]:
    """The same where rows descend from ``tree_parent``: of the step's rows only ancestors are past,
    and distances count along the path."""
    return [
        # reach [T, T]: itself, its parent, then as many more generations each time
        "parents = Cast <to: int = 7> (tree_parent)",
        "parent_column = Unsqueeze (parents, second)",
        "is_parent = Equal (parent_column, row)",
        "is_self = Equal (row_column, row)",
        "is_near = Or (is_parent, is_self)",
        "reach_0 = Cast <to: int = 1> (is_near)",
        *_doubled("reach", _GENERATIONS),
        f"generations = ReduceSum <keepdims: int = 0> (reach_{_GENERATIONS}, second)",
        "depth_1 = Cast <to: int = 7> (generations)",
        "depth = Sub (depth_1, one)",
        # tokens before the step, by sequence; where the path of a row stands
        "first_rows = Slice (starts, first, minus_one, first)",
        "new_rows = Sub (ends, first_rows)",
        "before = Sub (lengths, new_rows)",
        "row_before = Gather (before, sequence)",
        "row_place = Add (row_before, depth)",
        "row_place_column = Unsqueeze (row_place, second)",
        # the row of the step that a column holds, if it holds one
        "column_before = Gather (before, column_sequence)",
        "column_first = Gather (first_rows, column_sequence)",
        "column_length = Gather (lengths, column_sequence)",
        "column_offset = Sub (column_index, column_before)",
        "column_row_any = Add (column_offset, column_first)",
        "last_row = Sub (tokens, one)",
        "column_row = Clip (column_row_any, zero, last_row)",
        "is_new = GreaterOrEqual (column_offset, zero)",
        "column_depth = Gather (depth, column_row)",
        "column_path = Add (column_before, column_depth)",
        "column_place = Where (is_new, column_path, column_index)",
        f"column_reach = Gather <axis: int = 1> (reach_{_GENERATIONS}, column_row)",
        "is_ancestor = Cast <to: int = 9> (column_reach)",
        "is_known = Not (is_new)",
        "followed = Or (is_ancestor, is_known)",
        "is_written = Less (column_index, column_length)",
        "past = And (followed, is_written)",
        "distance = Sub (row_place_column, column_place)",
    ]


def _doubled(name: str, times: int) -> list[str]:
    """Statements that square a relation ``times`` times."""
    lines = []
    for i in range(times):
        lines.append(f"{name}_sum_{i} = MatMul ({name}_{i}, {name}_{i})")
        lines.append(f"{name}_{i + 1} = Sign ({name}_sum_{i})")
    return lines


def _scores(q: str, attributes: Attributes) -> list[str]:
    """Softmax of q [T, H*Dk] over the visible columns, and the weighted values."""
    kv_heads = int(attributes["kv_num_heads"])
    group = int(attributes["num_heads"]) // kv_heads
    softcap = float(attributes["softcap"])
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
        "keys = Transpose <perm: ints = [0, 2, 1]> (k_seen)",
        "products = MatMul (q_rows, keys)",
        real("scale", float(attributes["scale"])),
        "scaled = Mul (products, scale)",
        *(capped if softcap else []),
        integers("score_lead", (kv_heads, group)),
        "score_tail = Shape (visible)",
        "score_shape = Concat <axis: int = 0> (score_lead, score_tail)",
        f"score = Reshape ({'capped' if softcap else 'scaled'}, score_shape)",
        real("masked", _MASKED),
        "kept = Where (visible, score, masked)",
        "weights = Softmax <axis: int = -1> (kept)",
        "product_shape = Shape (products)",
        "weight_rows = Reshape (weights, product_shape)",
        "values = MatMul (weight_rows, v_seen)",
        "v_tail = Shape <start: int = 3> (v_pool)",
        "out_shape = Concat <axis: int = 0> (score_lead, tokens_1, v_tail)",
        "by_head = Reshape (values, out_shape)",
        "by_token = Transpose <perm: ints = [2, 0, 1, 3]> (by_head)",
        integers("out_tail", (-1,)),
        "out_rows = Concat <axis: int = 0> (tokens_1, out_tail)",
        "out = Reshape (by_token, out_rows)",
    ]


def _paged(q: str, k: str, v: str, attributes: Attributes, *, tree: bool) -> str:
    heads = attributes["kv_num_heads"]
    return "\n".join(
        [
            *_slots(attributes),
            *_visible(attributes, tree=tree),
            *_write("k", k, heads),
            *_write("v", v, heads),
            *_scores(q, attributes),
        ]
    )


def _paged_attention(attributes: Attributes, present: frozenset[str]) -> str:
    return _paged("q", "k", "v", attributes, tree="tree_parent" in present)


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
    lines.append(_paged(names["q"], names["k"], "v0", attributes, tree=tree))
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

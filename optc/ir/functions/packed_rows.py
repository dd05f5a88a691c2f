"""Bodies of the operators over packed rows: the rows of all sequences one after the other, of which
each sees those of its own sequence, before and behind it."""

from __future__ import annotations

from optc.ir.functions.hadamard import rotated
from optc.ir.functions.operator import Attributes, AttributeValue, Operator, integer, integers, real
from optc.ir.functions.token_wise import head_norm, rotary

#: A score that no softmax lets through, yet finite.
_MASKED = -3.0e38
_LOG2_E = 1.4426950408889634
_SHAPE = {"num_heads": int, "kv_num_heads": int, "scale": float, "window": int, "kv_dtype": str}
MODES = ("mean", "max", "first", "last")


def _sequences() -> list[str]:
    """``sequence`` [T]: the number of each row's sequence; ``row`` [T]."""
    return [
        integer("zero", 0),
        integer("one", 1),
        integers("first", (0,)),
        integers("second", (1,)),
        integers("ends_stop", (1 << 31,)),
        "starts = Cast <to: int = 7> (query_starts)",
        "row = Range (zero, tokens, one)",
        "row_column = Unsqueeze (row, second)",
        "ends = Slice (starts, second, ends_stop, first)",
        "passed = GreaterOrEqual (row_column, ends)",
        "passed_count = Cast <to: int = 7> (passed)",
        "sequence = ReduceSum <keepdims: int = 0> (passed_count, second)",
        "sequence_column = Unsqueeze (sequence, second)",
    ]


def _rounded(name: str, kept: str, dtype: str) -> str:
    """Statements: ``name`` as elements of the type have it."""
    if dtype != "bfloat16":
        return f"{kept} = Identity ({name})"
    return (
        f"{name}_narrow = Cast <to: int = 16> ({name})\n{kept} = Cast <to: int = 1> ({name}_narrow)"
    )


def _seen(window: int) -> list[str]:
    """``visible`` [T, T]."""
    own = "own = Equal (sequence_column, sequence)"
    if not window:
        return [own, "visible = Identity (own)"]
    return [
        own,
        integer("window", window),
        "apart = Sub (row_column, row)",
        "distance = Abs (apart)",
        "near = Less (distance, window)",
        "visible = And (own, near)",
    ]


def _attend(q: str, k: str, v: str, attributes: Attributes) -> str:
    """Statements: ``out`` of rows of queries, keys and values."""
    heads, shared = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    dtype = str(attributes["kv_dtype"])
    return "\n".join(
        [
            f"token_count = Shape <start: int = 0, end: int = 1> ({q})",
            integers("only", (0,)),
            "tokens = Squeeze (token_count, only)",
            *_sequences(),
            *_seen(int(attributes["window"])),
            integers("q_split", (0, shared, heads // shared, -1)),
            integers("kv_split", (0, shared, 1, -1)),
            *(
                line
                for name, source, split in (
                    ("q", q, "q_split"),
                    ("k", k, "kv_split"),
                    ("v", v, "kv_split"),
                )
                for line in (
                    f"{name}_heads = Reshape ({source}, {split})",
                    _rounded(f"{name}_heads", f"{name}_kept", dtype),
                )
            ),
            "q_seen = Transpose <perm: ints = [1, 2, 0, 3]> (q_kept)",
            "k_seen = Transpose <perm: ints = [1, 2, 3, 0]> (k_kept)",
            "v_seen = Transpose <perm: ints = [1, 2, 0, 3]> (v_kept)",
            "products = MatMul (q_seen, k_seen)",
            real("unit", float(attributes["scale"]) * _LOG2_E),
            real("masked", _MASKED),
            "powers = Mul (products, unit)",
            "scores = Where (visible, powers, masked)",
            integers("last_axis", (-1,)),
            "largest = ReduceMax <keepdims: int = 1> (scores, last_axis)",
            "relative_to = Ceil (largest)",
            "exponents = Sub (scores, relative_to)",
            real("two", 2.0),
            "weights = Pow (two, exponents)",
            _rounded("weights", "weights_kept", dtype),
            "norm = ReduceSum <keepdims: int = 1> (weights_kept, last_axis)",
            "total = MatMul (weights_kept, v_seen)",
            "mixed = Div (total, norm)",
            "mixed_rows = Transpose <perm: ints = [2, 0, 1, 3]> (mixed)",
            integers("joined", (0, -1)),
            "out = Reshape (mixed_rows, joined)",
        ]
    )


def _packed_attention(attributes: Attributes, present: frozenset[str]) -> str:
    return _attend("q", "k", "v", attributes)


def _rotary_packed_attention(attributes: Attributes, present: frozenset[str]) -> str:
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    key_dim, value_dim = int(attributes["key_dim"]), int(attributes["value_dim"])
    sizes = (heads * key_dim, kv_heads * key_dim, kv_heads * value_dim)
    lines = [integers("qkv_sizes", sizes), "q0, k0, v0 = Split <axis: int = -1> (qkv, qkv_sizes)"]
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
    return "\n".join([*lines, _attend(names["q"], names["k"], "v0", attributes)])


def _pool_rows(attributes: Attributes, present: frozenset[str]) -> str:
    mode, skip = attributes["mode"], int(attributes["skip"])
    if mode not in MODES:
        raise ValueError(f"pooling {mode!r} is not one of {MODES}")
    if mode in ("first", "last"):
        bounds = ("0", "-1") if mode == "first" else ("1", str(1 << 31))
        offset = skip if mode == "first" else -1
        return "\n".join(
            [
                "starts = Cast <to: int = 7> (query_starts)",
                *(integers(n, (int(v),)) for n, v in zip(("begin", "end"), bounds, strict=True)),
                integers("lead", (0,)),
                "edges = Slice (starts, begin, end, lead)",
                integer("offset", offset),
                "chosen = Add (edges, offset)",
                "y = Gather <axis: int = 0> (x, chosen)",
            ]
        )
    lines = [
        "token_count = Shape <start: int = 0, end: int = 1> (x)",
        integers("only", (0,)),
        "tokens = Squeeze (token_count, only)",
        *_sequences(),
        "bounds = Shape (starts)",
        "bound = Squeeze (bounds, only)",
        "count = Sub (bound, one)",
        "numbers = Range (zero, count, one)",
        "in_sequence = Equal (sequence_column, numbers)",
        "all_firsts = Gather <axis: int = 0> (starts, sequence)",
        integer("skip", skip),
        "kept_from = Add (all_firsts, skip)",
        "kept = GreaterOrEqual (row, kept_from)",
        "kept_column = Unsqueeze (kept, second)",
        "of_sequence = And (in_sequence, kept_column)",
        "member = Transpose <perm: ints = [1, 0]> (of_sequence)",
    ]
    if mode == "mean":
        lines += [
            "shares = Cast <to: int = 1> (member)",
            "sizes = ReduceSum <keepdims: int = 1> (shares, second)",
            "sums = MatMul (shares, x)",
            "y = Div (sums, sizes)",
        ]
    else:
        lines += [
            integers("third", (2,)),
            real("masked", _MASKED),
            "member_3 = Unsqueeze (member, third)",
            "each = Where (member_3, x, masked)",
            "y = ReduceMax <keepdims: int = 0> (each, second)",
        ]
    return "\n".join(lines)


def _window_rows(attributes: Attributes, present: frozenset[str]) -> str:
    kernel, stride, before, length, windows = (
        int(attributes[name]) for name in ("kernel", "stride", "before", "length", "windows")
    )
    after = max(0, (windows - 1) * stride + kernel - before - length)
    lines = [
        integers("by_sequence", (-1, length, int(attributes["width"]))),
        "sequences = Reshape (x, by_sequence)",
        integers("pads", (0, before, 0, 0, after, 0)),
        "padded = Pad (sequences, pads)",
        integers("axis", (1,)),
        integers("step", (stride,)),
    ]
    for j in range(kernel):
        lines += [
            integers(f"begin_{j}", (j,)),
            integers(f"end_{j}", (j + (windows - 1) * stride + 1,)),
            f"part_{j} = Slice (padded, begin_{j}, end_{j}, axis, step)",
        ]
    parts = ", ".join(f"part_{j}" for j in range(kernel))
    return "\n".join(
        [
            *lines,
            f"joined = Concat <axis: int = -1> ({parts})",
            integers("in_rows", (-1, kernel * int(attributes["width"]))),
            "y = Reshape (joined, in_rows)",
        ]
    )


_DEFAULTS: dict[str, AttributeValue] = {"hadamard": 0}

OPERATORS = (
    Operator(
        "PackedAttention",
        ("q", "k", "v", "query_starts"),
        ("out: float",),
        _SHAPE,
        _packed_attention,
    ),
    Operator(
        "RotaryPackedAttention",
        ("qkv", "cos?", "sin?", "q_scale?", "k_scale?", "query_starts"),
        ("out: float",),
        {
            **_SHAPE,
            "rotary_embedding_dim": int,
            "interleaved": int,
            "epsilon": float,
            "key_dim": int,
            "value_dim": int,
        },
        _rotary_packed_attention,
        defaults=_DEFAULTS,
    ),
    Operator(
        "PoolRows",
        ("x", "query_starts"),
        ("y: float",),
        {"mode": str},
        _pool_rows,
        defaults={"skip": 0},
    ),
    Operator(
        "WindowRows",
        ("x",),
        ("y: float",),
        dict.fromkeys(("kernel", "stride", "before", "length", "windows", "width"), int),
        _window_rows,
    ),
)

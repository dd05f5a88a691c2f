"""The body of dense causal attention: standard Attention with a mask where it needs one."""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, integer, integers, literal, real

#: What is added to the score of a token that is not seen; finite, so that no row becomes NaN.
_MASKED = -3.0e38


def dense(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: q [B, S, H*Dk] over k, v [B, S, Hkv*D] to ``out`` [B, S, H*Dv]."""
    options = (
        f"q_num_heads: int = {attributes['num_heads']},"
        f" kv_num_heads: int = {attributes['kv_num_heads']},"
        f" scale: float = {literal(float(attributes['scale']))},"
        f" softcap: float = {literal(float(attributes['softcap']))}"
    )
    biased = present & {"sinks", "alibi_slopes", "distance_bias"}
    if not (attributes["window"] or attributes["chunk"] or biased):
        return f"out = Attention <{options}, is_causal: int = 1> (q, k, v)"
    lines = _seen(int(attributes["window"]), int(attributes["chunk"]))
    operands = "q, k, v, mask"
    if biased:
        lines += _biased(present)
        operands = "q, k, v, bias"
    if "sinks" in present:
        lines += _with_sinks()
        operands = "q, k_sunk, v_sunk, bias_sunk"
    return "\n".join([*lines, f"out = Attention <{options}> ({operands})"])


def _seen(window: int, chunk: int) -> list[str]:
    """``mask`` [S, S]: whether a row sees a column; and ``distance`` between them."""
    seen, lines = "causal", []
    if window:
        lines += [
            integer("window", window),
            "near = Less (distance, window)",
            f"within_window = And ({seen}, near)",
        ]
        seen = "within_window"
    if chunk:
        lines += [
            integer("chunk", chunk),
            "chunks = Div (index, chunk)",
            "row_chunks = Unsqueeze (chunks, column_axis)",
            "same = Equal (row_chunks, chunks)",
            f"within_chunk = And ({seen}, same)",
        ]
        seen = "within_chunk"
    return [
        integer("zero", 0),
        integer("one", 1),
        integer("sequence_axis", 1),
        integers("column_axis", (1,)),
        "shape = Shape (q)",
        "length = Gather (shape, sequence_axis)",
        "index = Range (zero, length, one)",
        "rows = Unsqueeze (index, column_axis)",
        "distance = Sub (rows, index)",
        "causal = GreaterOrEqual (distance, zero)",
        *lines,
        f"mask = Identity ({seen})",
    ]


def _biased(present: frozenset[str]) -> list[str]:
    """``bias`` [1, H or 1, S, S]: what is added to scores."""
    lines = [real("nothing", 0.0), real("masked", _MASKED), integers("lead_axes", (0, 1))]
    slopes, distant = "alibi_slopes" in present, "distance_bias" in present
    if distant:
        return [*lines, *_by_distance(slopes=slopes), "bias = Where (mask, added, masked)"]
    if not slopes:
        return [
            *lines,
            "bias_2d = Where (mask, nothing, masked)",
            "bias = Unsqueeze (bias_2d, lead_axes)",
        ]
    return [*lines, *_lean(), "bias = Where (mask, lean, masked)"]


def _lean() -> list[str]:
    """``lean`` [1, H, S, S]: what slopes take."""
    return [
        integers("slope_axes", (0, 2, 3)),
        "slopes = Unsqueeze (alibi_slopes, slope_axes)",
        "behind = Cast <to: int = 1> (distance)",
        "ahead = Neg (behind)",
        "lean = Mul (slopes, ahead)",
    ]


def _by_distance(*, slopes: bool) -> list[str]:
    """``added`` [1, H, S, S]: the entries of ``distance_bias`` [H, N], and what slopes take."""
    return [
        "bias_columns = Shape <start: int = 1, end: int = 2> (distance_bias)",
        "bias_last = Sub (bias_columns, one)",
        "bias_behind = Max (distance, zero)",
        "bias_place = Min (bias_behind, bias_last)",
        "bias_rows = Gather <axis: int = 1> (distance_bias, bias_place)",
        integers("bias_axes", (0,)),
        f"{'level' if slopes else 'added'} = Unsqueeze (bias_rows, bias_axes)",
        *([*_lean(), "added = Add (level, lean)"] if slopes else []),
    ]


def _with_sinks() -> list[str]:
    """A token before the others, with a key and a value of zeros, whose bias is the sink."""
    return [
        integers("head_axes", (0, 2, 3)),
        integers("ones", (1,)),
        "sink_heads = Unsqueeze (sinks, head_axes)",
        "head_count = Shape (sinks)",
        "length_1 = Shape <start: int = 1, end: int = 2> (q)",
        "column_shape = Concat <axis: int = 0> (ones, head_count, length_1, ones)",
        "bias_shape = Concat <axis: int = 0> (ones, head_count, length_1, length_1)",
        "sink_column = Expand (sink_heads, column_shape)",
        "bias_by_head = Expand (bias, bias_shape)",
        "bias_sunk = Concat <axis: int = -1> (sink_column, bias_by_head)",
        *(line for kind in "kv" for line in _preceded(kind)),
    ]


def _preceded(kind: str) -> list[str]:
    return [
        f"{kind}_batch = Shape <start: int = 0, end: int = 1> ({kind})",
        f"{kind}_width = Shape <start: int = 2, end: int = 3> ({kind})",
        f"{kind}_none_shape = Concat <axis: int = 0> ({kind}_batch, ones, {kind}_width)",
        f"{kind}_none = Expand (nothing, {kind}_none_shape)",
        f"{kind}_sunk = Concat <axis: int = 1> ({kind}_none, {kind})",
    ]

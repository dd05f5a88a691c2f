"""Bodies of linear attention with a decay: dense, and over paged pools that hold states.

A head's state S [Dk, Dv] is, row after row, multiplied by exp(decay), and then k u' is added: u is
beta times v, or, by the delta rule, beta times v less what S already gives for k. The row's result
is scale times q S (gated delta rule: Yang et al., arXiv:2412.06464; state space dual: Dao and Gu,
arXiv:2405.21060). A head has one decay, or one of each key (Kimi Team, arXiv:2510.26692), or decays
of each value times rates of each key and value (selective scan: Gu and Dao, arXiv:2312.00752).

In pools, the first slots of a block (`optc.runtime.executable.recurrent_state`) have its state: the
first half of the state's rows in the pool of keys, the others in that of values.
"""

from __future__ import annotations

from optc.ir.functions.mixing.paged_attention import step_constants, write_slots
from optc.ir.functions.mixing.state_blocks import new_states, places
from optc.ir.functions.mixing.visible_tokens import row_places
from optc.ir.functions.operator import Attributes, AttributeValue, Operator, integers, real
from optc.runtime.executable.recurrent_state import state_slots, state_width

_SHAPE = {
    **dict.fromkeys(("num_heads", "key_heads", "key_dim", "value_dim", "delta"), int),
    "scale": float,
}


def _heads(attributes: Attributes, lead: tuple[int, ...]) -> list[str]:
    """``{q, k}_heads`` [..., H, Dk] and ``v_heads`` [..., H, Dv] of folded operands, each key head
    repeated for the heads that share it; ``lead`` are the leading sizes of a shape, 0 the same."""
    heads, key_heads = int(attributes["num_heads"]), int(attributes["key_heads"])
    key_dim, value_dim = int(attributes["key_dim"]), int(attributes["value_dim"])
    lines = [
        integers("key_shape", (*lead, key_heads, 1, key_dim)),
        integers("shared_shape", (*(1 for _ in lead), 1, heads // key_heads, 1)),
        integers("query_shape", (*lead, heads, key_dim)),
        integers("value_shape", (*lead, heads, value_dim)),
        "v_heads = Reshape (v, value_shape)",
    ]
    for kind in "qk":
        lines += [
            f"{kind}_apart = Reshape ({kind}, key_shape)",
            f"{kind}_shared = Expand ({kind}_apart, shared_shape)",
            f"{kind}_heads = Reshape ({kind}_shared, query_shape)",
        ]
    return lines


def _decays(attributes: Attributes, present: frozenset[str]) -> str:
    """The last size of a row's decays, [H, it]: one of a head, of each key, or of each value."""
    if "rates" in present:
        return "V"
    return "D" if int(attributes["decays"]) > 1 else "one_decay"


def _by_head(attributes: Attributes, present: frozenset[str], lead: tuple[int, ...]) -> list[str]:
    """``decay_heads`` [..., H, it], and ``rates_heads`` [H, Dk, Dv] of rates [Dk, H*Dv]."""
    heads, key_dim, value_dim = (
        int(attributes[name]) for name in ("num_heads", "key_dim", "value_dim")
    )
    each = value_dim if "rates" in present else int(attributes["decays"])
    lines = [
        integers("decay_shape", (*lead, heads, each)),
        "decay_heads = Reshape (decay, decay_shape)",
    ]
    if "rates" in present:
        lines += [
            integers("rates_shape", (key_dim, heads, value_dim)),
            "rates_apart = Reshape (rates, rates_shape)",
            "rates_heads = Transpose <perm: ints = [1, 0, 2]> (rates_apart)",
        ]
    return lines


def _step(attributes: Attributes, present: frozenset[str], *, begins: bool) -> str:
    """One row's statements, as the body of a Scan: ``before`` [..., H, Dk, Dv] to ``after`` and
    ``row_out`` [..., H, Dv]."""
    chosen = "Where (row_first, row_loaded, before)" if begins else "Identity (before)"
    lines = [
        integers("values_axis", (-1,)),
        integers("keys_axis", (-2,)),
    ]
    if "rates" in present:
        lines += [
            "decay_row = Unsqueeze (row_decay, keys_axis)",
            "exponents = Mul (decay_row, rates_heads)",
            "factor_matrix = Exp (exponents)",
        ]
    else:
        lines += ["factor = Exp (row_decay)", "factor_matrix = Unsqueeze (factor, values_axis)"]
    lines += [
        f"from_state = {chosen}",
        "faded = Mul (from_state, factor_matrix)",
        "k_column = Unsqueeze (row_k, values_axis)",
    ]
    if int(attributes["delta"]):
        lines += [
            "read = Mul (faded, k_column)",
            "known = ReduceSum <keepdims: int = 0> (read, keys_axis)",
            "new = Sub (row_v, known)",
        ]
    else:
        lines.append("new = Identity (row_v)")
    if "beta" in present:
        lines += ["beta_column = Unsqueeze (row_beta, values_axis)", "u = Mul (new, beta_column)"]
    else:
        lines.append("u = Identity (new)")
    lines += [
        "u_row = Unsqueeze (u, keys_axis)",
        "added = Mul (k_column, u_row)",
        "after = Add (faded, added)",
        "q_column = Unsqueeze (row_q, values_axis)",
        "asked = Mul (after, q_column)",
        "row_out = ReduceSum <keepdims: int = 0> (asked, keys_axis)",
    ]
    return "\n".join(lines)


def _dense(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: q, k [B, S, Hk*Dk], v [B, S, H*Dv], decay [B, S, H*decays], or [B, S, H*Dv] of
    rates [Dk, H*Dv], and beta [B, S, H] behind the state ``past`` [B, H, Dk, Dv], or zeros, to
    ``out`` [B, S, H*Dv]; and the last state, ``present``."""
    heads, key_dim, value_dim = (
        int(attributes[name]) for name in ("num_heads", "key_dim", "value_dim")
    )
    beta = "beta" in present
    scan = (
        f"Scan <num_scan_inputs: int = {4 + beta}, body: graph = row ("
        "float[B, H, K, V] before, float[B, H, K] row_q, float[B, H, K] row_k, "
        f"float[B, H, V] row_v, float[B, H, {_decays(attributes, present)}] row_decay"
        + (", float[B, H] row_beta)" if beta else ")")
        + " => (float[B, H, K, V] after, float[B, H, V] row_out) {\n"
        + _step(attributes, present, begins=False)
        + "\n}>"
    )
    turned = {name: name.replace("heads", "rows") for name in ("q_heads", "k_heads", "v_heads")}
    turned["decay_heads"] = "decay_rows"
    lines = [
        *_heads(attributes, (0, 0)),
        *_by_head(attributes, present, (0, 0)),
        *(f"{b} = Transpose <perm: ints = [1, 0, 2, 3]> ({a})" for a, b in turned.items()),
        *(["beta_rows = Transpose <perm: ints = [1, 0, 2]> (beta)"] if beta else []),
        "batch = Shape <start: int = 0, end: int = 1> (q)",
        integers("state_sizes", (heads, key_dim, value_dim)),
        "state_shape = Concat <axis: int = 0> (batch, state_sizes)",
        real("nothing", 0.0),
        "zeros = Expand (nothing, state_shape)",
        f"first_state = {'Identity (past)' if 'past' in present else 'Identity (zeros)'}",
        f"last_state, rows = {scan} (first_state, q_rows, k_rows, v_rows, decay_rows"
        + (", beta_rows)" if beta else ")"),
        "by_token = Transpose <perm: ints = [1, 0, 2, 3]> (rows)",
        real("scale", float(attributes["scale"])),
        "scaled = Mul (by_token, scale)",
        integers("folded", (0, 0, heads * value_dim)),
        "out = Reshape (scaled, folded)",
    ]
    if "past" in present:
        lines.append("present = Identity (last_state)")
    return "\n".join(lines)


def _paged(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: rows q, k, v, decay, beta of the step over the states in the pools, to ``out``
    [T, H*Dv]; behind the last row with a slot of each sequence, and of each block, a state is
    written."""
    heads, value_dim = int(attributes["num_heads"]), int(attributes["value_dim"])
    beta = "beta" in present
    scan = (
        f"Scan <num_scan_inputs: int = {6 + beta}, body: graph = row ("
        "float[H, K, V] before, float[H, K] row_q, float[H, K] row_k, float[H, V] row_v, "
        f"float[H, {_decays(attributes, present)}] row_decay, "
        + ("float[H] row_beta, " if beta else "")
        + "bool row_first, float[H, K, V] row_loaded)"
        " => (float[H, K, V] after, float[H, V] row_out, float[H, K, V] row_state) {\n"
        + _step(attributes, present, begins=True)
        + "\nrow_state = Identity (after)\n}>"
    )
    return "\n".join(
        [
            *step_constants(attributes),
            *write_slots(),
            *row_places(),
            *places(),
            *_read(attributes),
            *_heads(attributes, (0,)),
            *_by_head(attributes, present, (0,)),
            f"left, rows, row_states = {scan} (nothing_yet, q_heads, k_heads, v_heads, decay_heads,"
            + (" beta," if beta else "")
            + " is_first, loaded)",
            real("scale", float(attributes["scale"])),
            "scaled = Mul (rows, scale)",
            integers("folded", (0, heads * value_dim)),
            "out = Reshape (scaled, folded)",
            *_write(attributes),
        ]
    )


def _read(attributes: Attributes) -> list[str]:
    """``states`` [blocks, H, Dk, Dv] of the pools; ``loaded`` [T, H, Dk, Dv], from which each row
    would go on."""
    heads, key_dim, value_dim = (
        int(attributes[name]) for name in ("num_heads", "key_dim", "value_dim")
    )
    lines = [
        integers("state_begin", (0,)),
        integers("state_end", (state_slots(key_dim, value_dim),)),
        integers("slot_axis", (2,)),
        integers("half_shape", (-1, heads, key_dim // 2, value_dim)),
    ]
    for kind in "kv":
        lines += [
            f"{kind}_first_slots = Slice ({kind}_pool, state_begin, state_end, slot_axis)",
            f"{kind}_half = Reshape ({kind}_first_slots, half_shape)",
        ]
    return [
        *lines,
        "states = Concat <axis: int = 2> (k_half, v_half)",
        "states_before = Gather <axis: int = 0> (states, block_before)",
        integers("state_axes", (1, 2, 3)),
        "has_state = Unsqueeze (has_before, state_axes)",
        real("nothing", 0.0),
        "loaded = Where (has_state, states_before, nothing)",
        integers("state_shape", (heads, key_dim, value_dim)),
        "nothing_yet = Expand (nothing, state_shape)",
    ]


def _write(attributes: Attributes) -> list[str]:
    """The pools with the states of rows that are kept."""
    heads, key_dim, value_dim = (
        int(attributes[name]) for name in ("num_heads", "key_dim", "value_dim")
    )
    slots = state_slots(key_dim, value_dim)
    lines = [
        *new_states(),
        "k_new, v_new = Split <axis: int = 2, num_outputs: int = 2> (new_states)",
        integers("slots_shape", (-1, heads, slots, state_width(key_dim, value_dim))),
        integers("rest_end", (1 << 31,)),
    ]
    for kind in "kv":
        lines += [
            f"{kind}_new_slots = Reshape ({kind}_new, slots_shape)",
            f"{kind}_other_slots = Slice ({kind}_pool, state_end, rest_end, slot_axis)",
            f"{kind}_pool_out = Concat <axis: int = 2> ({kind}_new_slots, {kind}_other_slots)",
        ]
    return lines


_OPERANDS = ("q", "k", "v", "decay", "beta?", "rates?")
#: Decays of a head.
_DEFAULTS: dict[str, AttributeValue] = {"decays": 1}
OPERATORS = (
    Operator(
        "LinearAttention",
        (*_OPERANDS, "past?"),
        ("out: float", "present: float if past"),
        _SHAPE,
        _dense,
        defaults=_DEFAULTS,
    ),
    Operator(
        "PagedLinearAttention",
        (
            *(*_OPERANDS, "k_pool", "v_pool"),
            *("slot_mapping", "query_starts", "kv_lengths", "block_tables"),
        ),
        ("out: float", "k_pool_out: float", "v_pool_out: float"),
        {**_SHAPE, "group": int, "layer": int},
        _paged,
        inert=frozenset({"layer"}),
        defaults=_DEFAULTS,
    ),
)

"""Bodies of the matmuls by experts: each row meets the weights of the experts chosen for it.

The bodies walk over the experts that are chosen at all, in ascending order: each takes its rows
out, multiplies them by its columns of the weight, and puts the results in their places. So no more
is multiplied than is meant, and beside operands and result no more than one expert's weight in
float32 is in memory, however many rows there are. Nothing of it depends on the number of rows but
how many of them meet in a matmul.
"""

from __future__ import annotations

from collections.abc import Sequence

from optc.ir.functions.operator import Attributes, Operator, integers
from optc.ir.functions.quantized import dequantize

_SHAPE = {"num_experts": int, "spread": int}


def _expert_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    return _each_expert(
        attributes, ["x"], {"weight": 1}, present, ["product = MatMul (x_chosen, weight_own)"]
    )


def _bf16_expert_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    lines = [
        "x_rounded = Cast <to: int = 16> (x_chosen)",
        "x_wide = Cast <to: int = 1> (x_rounded)",
        "weight_wide = Cast <to: int = 1> (weight_own)",
        "product = MatMul (x_wide, weight_wide)",
    ]
    return _each_expert(attributes, ["x"], {"weight": 1}, present, lines)


def _quantized_expert_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    by_group = int(bool(attributes["group_size"]))
    two_level = "w_group_scale" in present
    axes = {"weight": 1, "w_scale": int(by_group and not two_level), "w_zero_point": by_group}
    axes["w_group_scale"] = 1
    # Slice takes no 4-bit tensors: they become wider first
    narrow = attributes["bits"] == 4
    lines = [
        dequantize(attributes, present, "_own"),
        "x_chosen = Cast <to: int = 1> (q_chosen)",
        "unscaled = MatMul (x_chosen, w)",
        "product = Mul (unscaled, s_chosen)",
    ]
    wide = ["weight"] if two_level else ["weight", "w_zero_point"]
    return _each_expert(attributes, ["q", "s"], axes, present, lines, wide if narrow else [])


def _each_expert(
    attributes: Attributes,
    rows: list[str],
    axes: dict[str, int],
    present: frozenset[str],
    product: list[str],
    wide: Sequence[str] = (),
) -> str:
    """Statements: y [..., k, N] by a loop over the chosen experts.

    Args:
        attributes: ``num_experts`` and ``spread``.
        rows: Operands of which an expert takes its rows, [..., K] or [..., k, K]; the body has them
            as ``NAME_chosen`` [m, K].
        axes: Operands of which it takes its columns along an axis; ``NAME_own``.
        present: The operands that are given.
        product: Statements for ``product`` [m, N] of one expert.
        wide: Those of the columns that are cast before, to types that are sliced.
    """
    parts = {name: axis for name, axis in axes.items() if name in present}
    if "bias" in present:
        parts["bias"] = 0
    sources = {name: f"{name}_wide" if name in wide else name for name in parts}
    lines = _before(int(attributes["num_experts"]), rows)
    # zero points become floats, which they may be from the first
    kinds = {name: 1 if name == "w_zero_point" else 3 for name in wide if name in parts}
    lines += [f"{name}_wide = Cast <to: int = {kind}> ({name})" for name, kind in kinds.items()]
    turn = "\n".join(_turn(bool(attributes["spread"]), rows, parts, sources, product))
    lines += [
        "filled = Loop <body: graph = each (int64 turn, bool was_going, float[P, N] before)"
        f" => (bool still_going, float[P, N] after) {{\n{turn}\n}}> (turns, going, nothing_yet)",
        "lead = Shape (experts)",
        "y_shape = Concat <axis: int = 0> (lead, n)",
        "y = Reshape (filled, y_shape)",
    ]
    return "\n".join(lines)


def _before(experts: int, rows: list[str]) -> list[str]:
    """Statements before the loop: which experts are used, and operands by rows."""
    lines = [
        integers("rest", (-1,)),
        integers("first_axis", (0,)),
        integers("second_axis", (1,)),
        integers("expert_count", (experts,)),
        "flat_experts = Reshape (experts, rest)",
        "each_expert = Cast <to: int = 7> (flat_experts)",
        "used = Unique <sorted: int = 1> (each_expert)",
        "turns = Size (used)",
        "going = Equal (turns, turns)",
        "fan = Shape <start: int = -1> (experts)",
        "all_columns = Shape <start: int = 1> (weight)",
        "n = Div (all_columns, expert_count)",
        "row_count = Shape (each_expert)",
        "result_shape = Concat <axis: int = 0> (row_count, n)",
        "nothing_yet = ConstantOfShape (result_shape)",
    ]
    for name in rows:
        lines += [
            f"{name}_width = Shape <start: int = -1> ({name})",
            f"{name}_shape = Concat <axis: int = 0> (rest, {name}_width)",
            f"{name}_rows = Reshape ({name}, {name}_shape)",
        ]
    return lines


def _turn(
    spread: bool,
    rows: list[str],
    parts: dict[str, int],
    sources: dict[str, str],
    product: list[str],
) -> list[str]:
    """Statements of one turn of the loop: an expert's rows by its columns."""
    lines = [
        "still_going = Identity (was_going)",
        "expert = Gather <axis: int = 0> (used, turn)",
        "start = Mul (expert, n)",
        "stop = Add (start, n)",
        "hits = Equal (each_expert, expert)",
        "places = NonZero (hits)",
        "place_column = Transpose <perm: ints = [1, 0]> (places)",
        "place_list = Reshape (places, rest)",
        f"row_list = {'Div (place_list, fan)' if spread else 'Identity (place_list)'}",
    ]
    lines += [f"{name}_chosen = Gather <axis: int = 0> ({name}_rows, row_list)" for name in rows]
    for name, axis in parts.items():
        along = "second_axis" if axis else "first_axis"
        lines.append(f"{name}_own = Slice ({sources[name]}, start, stop, {along})")
    lines += product
    result = "product"
    if "bias" in parts:
        lines.append("biased = Add (product, bias_own)")
        result = "biased"
    return [*lines, f"after = ScatterND (before, place_column, {result})"]


def _combine_experts(attributes: Attributes, present: frozenset[str]) -> str:
    return "\n".join(
        [
            integers("last", (-1,)),
            integers("over", (-2,)),
            "factors = Unsqueeze (weights, last)",
            "weighed = Mul (y, factors)",
            "combined = ReduceSum <keepdims: int = 0> (weighed, over)",
        ]
    )


OPERATORS = (
    Operator(
        "ExpertMatMul", ("x", "experts", "weight", "bias?"), ("y: float",), _SHAPE, _expert_matmul
    ),
    Operator(
        "Bf16ExpertMatMul",
        ("x", "experts", "weight", "bias?"),
        ("y: float",),
        _SHAPE,
        _bf16_expert_matmul,
    ),
    Operator(
        "QuantizedExpertMatMul",
        (
            *("q", "s", "experts", "weight", "w_scale"),
            *("w_zero_point?", "bias?", "w_group_scale?"),
        ),
        ("y: float",),
        {"bits": int, "group_size": int, **_SHAPE},
        _quantized_expert_matmul,
    ),
    Operator("CombineExperts", ("y", "weights"), ("combined: float",), {}, _combine_experts),
)

"""Bodies of the quantized and reduced-precision operators."""

from __future__ import annotations

from optc.ir.functions.hadamard import HADAMARD_DEFAULTS, rotated
from optc.ir.functions.operator import Attributes, AttributeValue, Operator, integers, real
from optc.ir.functions.token_wise import GATE_DEFAULTS, gated, rms_norm

_WEIGHT = {"bits": int, "group_size": int}
#: Optional operands of a quantized weight.
_PARAMETERS = ("w_zero_point", "w_group_scale")
#: Activations of 16 bits are two of 8 for an engine, q = 255 high + low, both within -127..127
#: (docs/adr/0143).
HIGH = 255
#: Largest magnitude of an activation of so many bits.
LARGEST = {8: 127, 16: 127 * HIGH + 127}
#: ONNX's numbers of their types.
_ELEMENT = {8: 3, 16: 5}
#: Attributes of operators that quantize, and their defaults.
ROUNDING: dict[str, AttributeValue] = {"bits": 8, **HADAMARD_DEFAULTS}
#: The results of a quantization.
QUANTIZED = ("q: int{bits}", "s: float")


def quantize(x: str, attributes: Attributes) -> str:
    """Statements: x [..., K], rotated in blocks where ``hadamard`` says so, to q, int8 or int16,
    and s float32 [..., 1], symmetric per token."""
    bits, block = int(attributes["bits"]), int(attributes["hadamard"])
    lines = []
    if block:
        lines.append(rotated(x, "turned", block, int(attributes["width"])))
        x = "turned"
    return "\n".join(
        [
            *lines,
            integers("last_axis", (-1,)),
            real("steps", LARGEST[bits]),
            real("nothing", 0.0),
            real("unit", 1.0),
            f"magnitude = Abs ({x})",
            "peak = ReduceMax <keepdims: int = 1> (magnitude, last_axis)",
            "step = Div (peak, steps)",
            "empty = Equal (step, nothing)",
            "s = Where (empty, unit, step)",
            f"ratio = Div ({x}, s)",
            "rounded = Round (ratio)",
            f"q = Cast <to: int = {_ELEMENT[bits]}> (rounded)",
        ]
    )


def _quantize_activation(attributes: Attributes, present: frozenset[str]) -> str:
    return quantize("x", attributes)


def _rms_norm_quantize(attributes: Attributes, present: frozenset[str]) -> str:
    norm = rms_norm("x", "scale", "normed", attributes["epsilon"])
    return f"{norm}\n{quantize('normed', attributes)}"


def _add_rms_norm_quantize(attributes: Attributes, present: frozenset[str]) -> str:
    norm = rms_norm("sum", "scale", "normed", attributes["epsilon"])
    return f"sum = Add (residual, x)\n{norm}\n{quantize('normed', attributes)}"


def _gated_activation_quantize(attributes: Attributes, present: frozenset[str]) -> str:
    return f"{gated('gate_up', 'active', attributes)}\n{quantize('active', attributes)}"


def dequantize(attributes: Attributes, present: frozenset[str], suffix: str = "") -> str:
    """Statements: the float32 weight ``w`` [K, N]: scale * (weight - zero point) with scales
    [N] or [K/group_size, N]; with integer scales of groups beside scales [N],
    scale * (weight * integer scale - zero point). Zero points may be floats.

    Written with Cast, Sub and Mul: ONNX Runtime replaces DequantizeLinear + MatMul by a kernel
    that quantizes the activations once more, by blocks, which is another meaning.
    """
    weight, scale, zero = (f"{n}{suffix}" for n in ("weight", "w_scale", "w_zero_point"))
    group = int(attributes["group_size"])
    two_level = bool(group) and "w_group_scale" in present
    by_group = {"zeros": zero} if "w_zero_point" in present else {}
    by_group |= {"factors": f"w_group_scale{suffix}"} if two_level else {}
    lines = [f"w_integers = Cast <to: int = 1> ({weight})"]
    lines += [f"{name} = Cast <to: int = 1> ({part})" for name, part in by_group.items()]
    values, scales, spread = "w_integers", scale, ""
    if group:
        lines += [
            integers("group_split", (-1, group)),
            integers("group_axis", (1,)),
            f"w_shape = Shape ({weight})",
            f"w_columns = Shape <start: int = 1> ({weight})",
            "grouped_shape = Concat <axis: int = 0> (group_split, w_columns)",
            "w_groups = Reshape (w_integers, grouped_shape)",
            *(f"group_{name} = Unsqueeze ({name}, group_axis)" for name in by_group),
        ]
        values, spread = "w_groups", "group_"
        if not two_level:
            lines.append(f"group_scales = Unsqueeze ({scale}, group_axis)")
            scales = "group_scales"
    if two_level:
        lines.append(f"w_spaced = Mul ({values}, group_factors)")
        values = "w_spaced"
    if by_group.get("zeros"):
        lines.append(f"w_centred = Sub ({values}, {spread}zeros)")
        values = "w_centred"
    lines.append(f"{'w_scaled' if group else 'w'} = Mul ({values}, {scales})")
    return "\n".join([*lines, *(["w = Reshape (w_scaled, w_shape)"] if group else [])])


def _quantized_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    last = "unbiased" if "bias" in present else "y"
    lines = [
        dequantize(attributes, present),
        "x = Cast <to: int = 1> (q)",
        "product = MatMul (x, w)",
        f"{last} = Mul (product, s)",
    ]
    return "\n".join(lines + (["y = Add (unbiased, bias)"] if "bias" in present else []))


def _bf16_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    last = "unbiased" if "bias" in present else "y"
    lines = [
        "x_rounded = Cast <to: int = 16> (x)",
        "x_wide = Cast <to: int = 1> (x_rounded)",
        "w = Cast <to: int = 1> (weight)",
        f"{last} = MatMul (x_wide, w)",
    ]
    return "\n".join(lines + (["y = Add (unbiased, bias)"] if "bias" in present else []))


def _quantized_gather(attributes: Attributes, present: frozenset[str]) -> str:
    names = [n for n in ("weight", "w_scale", *_PARAMETERS) if n in present]
    if attributes["bits"] == 4:
        # Gather takes no 4-bit tensors: dequantize the whole weight, then take columns
        columns = [
            dequantize(attributes, present),
            "picked = Gather <axis: int = 1> (w, token_list)",
        ]
    else:
        flat: tuple[str, ...] = ("w_scale", "w_zero_point")
        if attributes["group_size"]:
            flat = ("w_scale",) if "w_group_scale" in present else ()
        columns = [
            f"{n}_picked = Gather <axis: int = {int(n not in flat)}> ({n}, token_list)"
            for n in names
        ]
        columns.append(dequantize(attributes, present, "_picked"))
        columns.append("picked = Identity (w)")
    return _column_lookup(columns)


def _bf16_gather(attributes: Attributes, present: frozenset[str]) -> str:
    return _column_lookup(
        [
            "columns = Gather <axis: int = 1> (weight, token_list)",
            "picked = Cast <to: int = 1> (columns)",
        ]
    )


def _column_lookup(columns: list[str]) -> str:
    """``columns`` make ``picked`` [D, tokens] from ``token_list``; y is [..., D] as tokens are."""
    return "\n".join(
        [
            integers("flat", (-1,)),
            "token_list = Reshape (tokens, flat)",
            *columns,
            "rows = Transpose <perm: ints = [1, 0]> (picked)",
            "token_shape = Shape (tokens)",
            "row_shape = Concat <axis: int = 0> (token_shape, flat)",
            "y = Reshape (rows, row_shape)",
        ]
    )


OPERATORS = (
    Operator("QuantizeActivation", ("x",), QUANTIZED, {}, _quantize_activation, defaults=ROUNDING),
    Operator(
        "RMSNormQuantize",
        ("x", "scale"),
        QUANTIZED,
        {"epsilon": float},
        _rms_norm_quantize,
        defaults=ROUNDING,
    ),
    Operator(
        "AddRMSNormQuantize",
        ("residual", "x", "scale"),
        ("sum: float", *QUANTIZED),
        {"epsilon": float},
        _add_rms_norm_quantize,
        defaults=ROUNDING,
    ),
    Operator(
        "GatedActivationQuantize",
        ("gate_up",),
        QUANTIZED,
        {"activation": str},
        _gated_activation_quantize,
        defaults={**GATE_DEFAULTS, **ROUNDING},
    ),
    Operator(
        "QuantizedMatMul",
        ("q", "s", "weight", "w_scale", "w_zero_point?", "bias?", "w_group_scale?"),
        ("y: float",),
        _WEIGHT,
        _quantized_matmul,
    ),
    Operator("Bf16MatMul", ("x", "weight", "bias?"), ("y: float",), {}, _bf16_matmul),
    Operator("Bf16Gather", ("tokens", "weight"), ("y: float",), {}, _bf16_gather),
    Operator(
        "QuantizedGather",
        ("tokens", "weight", "w_scale", "w_zero_point?", "w_group_scale?"),
        ("y: float",),
        _WEIGHT,
        _quantized_gather,
    ),
)

"""Bodies of layer normalization with a residual before it and a quantization behind it, and of
activations with one."""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, AttributeValue, Operator, literal
from optc.ir.functions.quantized import QUANTIZED, ROUNDING, quantize
from optc.ir.functions.token_wise import active

_ROUNDING: dict[str, AttributeValue] = dict(ROUNDING)


def _norm(x: str, attributes: Attributes, present: frozenset[str]) -> str:
    """Statement: ``normed``, over the last axis."""
    options = f"axis: int = -1, epsilon: float = {literal(float(attributes['epsilon']))}"
    operands = f"{x}, scale, bias" if "bias" in present else f"{x}, scale"
    return f"normed = LayerNormalization <{options}> ({operands})"


def _layer_norm_quantize(attributes: Attributes, present: frozenset[str]) -> str:
    return f"{_norm('x', attributes, present)}\n{quantize('normed', attributes)}"


def _add_layer_norm(attributes: Attributes, present: frozenset[str]) -> str:
    return f"sum = Add (residual, x)\n{_norm('sum', attributes, present)}"


def _add_layer_norm_quantize(attributes: Attributes, present: frozenset[str]) -> str:
    return f"{_add_layer_norm(attributes, present)}\n{quantize('normed', attributes)}"


def _activation_quantize(attributes: Attributes, present: frozenset[str]) -> str:
    name = str(attributes["activation"])
    return f"{active(name, 'x', 'active')}\n{quantize('active', attributes)}"


OPERATORS = (
    Operator(
        "LayerNormQuantize",
        ("x", "scale", "bias?"),
        ("normed: float", *QUANTIZED),
        {"epsilon": float},
        _layer_norm_quantize,
        defaults=_ROUNDING,
    ),
    Operator(
        "AddLayerNorm",
        ("residual", "x", "scale", "bias?"),
        ("sum: float", "normed: float"),
        {"epsilon": float},
        _add_layer_norm,
    ),
    Operator(
        "AddLayerNormQuantize",
        ("residual", "x", "scale", "bias?"),
        ("sum: float", "normed: float", *QUANTIZED),
        {"epsilon": float},
        _add_layer_norm_quantize,
        defaults=_ROUNDING,
    ),
    Operator(
        "ActivationQuantize",
        ("x",),
        QUANTIZED,
        {"activation": str},
        _activation_quantize,
        defaults=_ROUNDING,
    ),
)

"""Bodies of the float32 token-wise operators: norms, gated activations, rotary embedding."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions.operator import (
    Attributes,
    AttributeValue,
    Operator,
    integers,
    literal,
    real,
)

ACTIVATIONS = ("silu", "gelu", "gelu_tanh")
#: Attributes of a gate beside its activation, with the values of a plain one: the factor of the
#: gate inside silu's sigmoid, the limit that gate and up are held to (0: none), and what is added
#: to up.
GATE_DEFAULTS: dict[str, AttributeValue] = {"alpha": 1.0, "limit": 0.0, "up_shift": 0.0}


def is_clamped_gate(node: ir.Node) -> bool:
    """True if ``node`` is a gated activation that states more than its activation."""
    gated_one = node.domain == "optc" and node.op_type.startswith("GatedActivation")
    return gated_one and not node.attributes.keys().isdisjoint(GATE_DEFAULTS)


def rms_norm(x: str, scale: str, out: str, epsilon: object) -> str:
    """Statement: RMSNormalization of the last axis."""
    options = f"axis: int = -1, epsilon: float = {literal(float(str(epsilon)))}"
    return f"{out} = RMSNormalization <{options}> ({x}, {scale})"


def head_norm(x: str, scale: str, out: str, num_heads: object, epsilon: object) -> str:
    """Statements: x [..., n*d] normalized over each head's d values."""
    return "\n".join(
        [
            f"{out}_shape = Shape ({x})",
            f"{out}_lead = Shape <end: int = -1> ({x})",
            integers(f"{out}_tail", (int(str(num_heads)), -1)),
            f"{out}_split = Concat <axis: int = 0> ({out}_lead, {out}_tail)",
            f"{out}_heads = Reshape ({x}, {out}_split)",
            rms_norm(f"{out}_heads", scale, f"{out}_normed", epsilon),
            f"{out} = Reshape ({out}_normed, {out}_shape)",
        ]
    )


def gated(gate_up: str, out: str, attributes: Attributes) -> str:
    """Statements: activation(gate) * up, where gate_up [..., 2F] holds the gate first.

    With a ``limit`` above 0 the gate is held below it and up within it on both sides; ``up_shift``
    is added to up; ``alpha`` multiplies the gate inside the sigmoid of silu.

    Raises:
        ValueError: Unknown activation, a negative limit, or an alpha of another one than silu.
    """
    activation = attributes["activation"]
    alpha, limit, shift = (
        float(attributes.get(name, default)) for name, default in GATE_DEFAULTS.items()
    )
    if limit < 0 or (alpha != 1 and activation != "silu"):
        raise ValueError(f"no {activation} gate has limit {limit} and alpha {alpha}")
    split = f"{out}_gate, {out}_up = Split <axis: int = -1, num_outputs: int = 2> ({gate_up})"
    lines, gate, up = [split], f"{out}_gate", f"{out}_up"
    if limit:
        lines += [real(f"{out}_most", limit), real(f"{out}_least", -limit)]
        lines += [f"{gate}_held = Min ({gate}, {out}_most)"]
        lines += [f"{up}_held = Clip ({up}, {out}_least, {out}_most)"]
        gate, up = f"{gate}_held", f"{up}_held"
    if shift:
        lines += [real(f"{out}_shift", shift), f"{up}_shifted = Add ({up}, {out}_shift)"]
        up = f"{up}_shifted"
    lines.append(active(str(activation), gate, f"{out}_act", alpha))
    return "\n".join([*lines, f"{out} = Mul ({out}_act, {up})"])


def active(activation: str, x: str, out: str, alpha: float = 1.0) -> str:
    """Statements: the activation of ``x``; ``alpha`` multiplies it inside the sigmoid of silu.

    Raises:
        ValueError: Unknown activation.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is not one of {ACTIVATIONS}")
    if activation != "silu":
        how = "tanh" if activation == "gelu_tanh" else "none"
        return f'{out} = Gelu <approximate: string = "{how}"> ({x})'
    lines, inner = [], x
    if alpha != 1:
        lines += [real(f"{out}_alpha", alpha), f"{out}_scaled = Mul ({x}, {out}_alpha)"]
        inner = f"{out}_scaled"
    lines += [f"{out}_sigmoid = Sigmoid ({inner})", f"{out} = Mul ({x}, {out}_sigmoid)"]
    return "\n".join(lines)


def rotary(x: str, cos: str, sin: str, out: str, num_heads: object, attributes: Attributes) -> str:
    """Statements: rotary embedding of rows x [T, n*d] with cos and sin [T, r/2]."""
    return "\n".join(
        [
            integers(f"{out}_axis", (0,)),
            f"{out}_x = Unsqueeze ({x}, {out}_axis)",
            f"{out}_cos = Unsqueeze ({cos}, {out}_axis)",
            f"{out}_sin = Unsqueeze ({sin}, {out}_axis)",
            f"{out}_rotated = RotaryEmbedding <num_heads: int = {num_heads},"
            f" rotary_embedding_dim: int = {attributes['rotary_embedding_dim']},"
            f" interleaved: int = {attributes['interleaved']}> ({out}_x, {out}_cos, {out}_sin)",
            f"{out} = Squeeze ({out}_rotated, {out}_axis)",
        ]
    )


def _head_rms_norm(attributes: Attributes, present: frozenset[str]) -> str:
    return head_norm("x", "scale", "y", attributes["num_heads"], attributes["epsilon"])


def _head_concat(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: the columns of each head of b behind those of a, or of the one that all share."""
    heads = int(attributes["num_heads"])
    lines = ["lead = Shape <end: int = -1> (b)"]
    for name, count in (("a", 1 if attributes["shared"] else heads), ("b", heads)):
        lines += [
            integers(f"{name}_tail", (count, -1)),
            f"{name}_split = Concat <axis: int = 0> (lead, {name}_tail)",
            f"{name}_heads = Reshape ({name}, {name}_split)",
        ]
    return "\n".join(
        [
            *lines,
            integers("each", (heads, 1)),
            "a_each = Expand (a_heads, each)",
            "joined = Concat <axis: int = -1> (a_each, b_heads)",
            integers("flat", (-1,)),
            "shape = Concat <axis: int = 0> (lead, flat)",
            "y = Reshape (joined, shape)",
        ]
    )


def _add_rms_norm(attributes: Attributes, present: frozenset[str]) -> str:
    norm = rms_norm("sum", "scale", "normed", attributes["epsilon"])
    return f"sum = Add (residual, x)\n{norm}"


def _gated_activation(attributes: Attributes, present: frozenset[str]) -> str:
    return gated("gate_up", "y", attributes)


def _rotary_embedding(attributes: Attributes, present: frozenset[str]) -> str:
    return rotary("x", "cos", "sin", "y", attributes["num_heads"], attributes)


OPERATORS = (
    Operator(
        "HeadRMSNorm",
        ("x", "scale"),
        ("y: float",),
        {"num_heads": int, "epsilon": float},
        _head_rms_norm,
    ),
    Operator(
        "HeadConcat",
        ("a", "b"),
        ("y: float",),
        {"num_heads": int, "shared": int},
        _head_concat,
    ),
    Operator(
        "AddRMSNorm",
        ("residual", "x", "scale"),
        ("sum: float", "normed: float"),
        {"epsilon": float},
        _add_rms_norm,
    ),
    Operator(
        "GatedActivation",
        ("gate_up",),
        ("y: float",),
        {"activation": str},
        _gated_activation,
        defaults=GATE_DEFAULTS,
    ),
    Operator(
        "RotaryEmbedding",
        ("x", "cos", "sin"),
        ("y: float",),
        {"num_heads": int, "rotary_embedding_dim": int, "interleaved": int},
        _rotary_embedding,
    ),
)

"""Bodies of the float32 token-wise operators: norms, gated activations, rotary embedding."""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, integers, literal

ACTIVATIONS = ("silu", "gelu", "gelu_tanh")


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


def gated(gate_up: str, out: str, activation: object) -> str:
    """Statements: activation(gate) * up, where gate_up [..., 2F] holds the gate first.

    Raises:
        ValueError: Unknown activation.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r} is not one of {ACTIVATIONS}")
    if activation == "silu":
        act = [f"{out}_sigmoid = Sigmoid ({out}_gate)"]
        act += [f"{out}_act = Mul ({out}_gate, {out}_sigmoid)"]
    else:
        how = "tanh" if activation == "gelu_tanh" else "none"
        act = [f'{out}_act = Gelu <approximate: string = "{how}"> ({out}_gate)']
    return "\n".join(
        [
            f"{out}_gate, {out}_up = Split <axis: int = -1, num_outputs: int = 2> ({gate_up})",
            *act,
            f"{out} = Mul ({out}_act, {out}_up)",
        ]
    )


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


def _add_rms_norm(attributes: Attributes, present: frozenset[str]) -> str:
    norm = rms_norm("sum", "scale", "normed", attributes["epsilon"])
    return f"sum = Add (residual, x)\n{norm}"


def _gated_activation(attributes: Attributes, present: frozenset[str]) -> str:
    return gated("gate_up", "y", attributes["activation"])


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
        "AddRMSNorm",
        ("residual", "x", "scale"),
        ("sum: float", "normed: float"),
        {"epsilon": float},
        _add_rms_norm,
    ),
    Operator(
        "GatedActivation", ("gate_up",), ("y: float",), {"activation": str}, _gated_activation
    ),
    Operator(
        "RotaryEmbedding",
        ("x", "cos", "sin"),
        ("y: float",),
        {"num_heads": int, "rotary_embedding_dim": int, "interleaved": int},
        _rotary_embedding,
    ),
)

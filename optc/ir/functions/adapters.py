"""`optc::AdapterMatMul` and its quantized form: what a row's LoRA adapter adds to a linear layer
(Hu et al. 2021).

Merged linear layers have one adapter for each of their original weights: ``parts`` gives the
columns where each of them begins, and each has ``rank`` columns of its own in ``a_pool``.
"""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, integer, integers, real


def _adapter_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    return _added("x", attributes)


def _quantized_adapter_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    dequantized = "integers = Cast <to: int = 1> (q)\nx = Mul (integers, s)"
    return f"{dequantized}\n{_added('x', attributes)}"


def _added(x: str, attributes: Attributes) -> str:
    """Statements: ``out`` is y, and where a row has an adapter its share of ``x`` added."""
    return "\n".join(
        [
            integer("lowest", 0),
            integers("middle", (1,)),
            integers("inner", (2,)),
            real("nothing", 0.0),
            "wide = Cast <to: int = 7> (adapters)",
            "slots = Max (wide, lowest)",
            "a = Gather <axis: int = 0> (a_pool, slots)",
            "b = Gather <axis: int = 0> (b_pool, slots)",
            f"row = Unsqueeze ({x}, middle)",
            "shrunk = MatMul (row, a)",
            *_parts(attributes),
            "delta = Squeeze (grown, middle)",
            "used = GreaterOrEqual (wide, lowest)",
            "mask = Unsqueeze (used, middle)",
            "added = Where (mask, delta, nothing)",
            "out = Add (y, added)",
        ]
    )


def _parts(attributes: Attributes) -> list[str]:
    """Statements: ``grown`` [T, 1, N] from ``shrunk`` [T, 1, parts * rank]."""
    rank = int(attributes["rank"])
    starts = part_starts(str(attributes["parts"]))
    lines = []
    for index, (low, high) in enumerate(zip(starts, [*starts[1:], 1 << 40], strict=True)):
        lines += [
            integers(f"h_low_{index}", (index * rank,)),
            integers(f"h_high_{index}", ((index + 1) * rank,)),
            integers(f"b_low_{index}", (low,)),
            integers(f"b_high_{index}", (high,)),
            f"h_{index} = Slice (shrunk, h_low_{index}, h_high_{index}, inner)",
            f"b_{index} = Slice (b, b_low_{index}, b_high_{index}, inner)",
            f"d_{index} = MatMul (h_{index}, b_{index})",
        ]
    joined = ", ".join(f"d_{index}" for index in range(len(starts)))
    return [*lines, f"grown = Concat <axis: int = 2> ({joined})"]


def part_starts(parts: str) -> list[int]:
    """The first column of each part, from the attribute's text ``0,384,512``."""
    return [int(start) for start in parts.split(",")]


_ATTRIBUTES = {"rank": int, "parts": str}

OPERATORS = (
    Operator(
        "AdapterMatMul",
        ("y", "x", "adapters", "a_pool", "b_pool"),
        ("out: float",),
        _ATTRIBUTES,
        _adapter_matmul,
    ),
    Operator(
        "QuantizedAdapterMatMul",
        ("y", "q", "s", "adapters", "a_pool", "b_pool"),
        ("out: float",),
        _ATTRIBUTES,
        _quantized_adapter_matmul,
    ),
)

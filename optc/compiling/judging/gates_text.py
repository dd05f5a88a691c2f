"""Gates without a verdict or with a bad one, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optc.proof.gates.measure import GateResult


def gates_text(gates: Sequence[GateResult], several: bool) -> str:
    """Gates and reasons; those of an engine that have one reason stand together.

    Args:
        gates: With a reason each.
        several: Name their engines.
    """
    together: dict[tuple[str, str], list[str]] = {}
    for gate in gates:
        key = (f"{gate.engine}: " if several else "", gate.reason)
        lowered = " (lowered ONNX)" if gate.measured_on == "lowered-onnx" else ""
        together.setdefault(key, []).append(gate.name + lowered)
    return "; ".join(
        f"{engine}{', '.join(names)}: {reason}" for (engine, reason), names in together.items()
    )

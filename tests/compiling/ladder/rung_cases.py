"""Rungs without models, for tests of the ladder."""

from __future__ import annotations

from collections.abc import Mapping

from optc.compiling.ladder.rungs import Prediction, Rung


def rung(
    recipe: str,
    decode: float | None = 100.0,
    promised: float | Mapping[str, float] | None = None,
    *,
    prefill: float | None = 1000.0,
    size: int | None = 1000,
    memory: int = 1000,
    compile_s: float = 60.0,
) -> Rung:
    """A rung; ``promised`` is its bound for kl_mean, or all its losses."""
    losses = {"kl_mean": promised} if isinstance(promised, float) else dict(promised or {})
    prediction = Prediction(decode, prefill, size, memory, weight_bytes=memory, compile_s=compile_s)
    return Rung(recipe, f"the recipe {recipe}", prediction, losses)

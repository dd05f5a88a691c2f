"""Entries of a manifest's passes, as a compile writes them."""

from __future__ import annotations

from optc.artifact.manifest import PassEntry
from optc.ir.pipeline import registry
from optc.ir.pipeline.phase import Effect


def pass_entry(spec: str, details: dict[str, int] | None = None) -> PassEntry:
    """The entry of a pass that rewrote one place; ``spec`` is as of `Pass.spec`."""
    name, _, stated = spec.rstrip("}").partition("{")
    options = dict(item.split("=") for item in stated.split(",") if item)
    one = registry.passes()[name].from_options(options)
    moves = one.has(Effect.MOVES_WEIGHTS)
    return PassEntry(
        name, one.spec(), 1, details or {}, one.removes, one.leaves_class(), moves_weights=moves
    )

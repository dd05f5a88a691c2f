"""Passes by name, found through entry points.

Beside `optc.registry`, which the runtime reads: passes need the graph of a model, the runtime not.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from optc.pipeline.base import Pass


@cache
def pass_groups() -> dict[str, tuple[type[Pass], ...]]:
    """The pass classes of every group, in the order of its module's ``PASSES``."""
    points = sorted(entry_points(group="optc.passes"), key=lambda p: p.name)
    return {point.name: tuple(point.load().PASSES) for point in points}


@cache
def passes() -> dict[str, type[Pass]]:
    """Every pass class by name."""
    return {p.name: p for group in pass_groups().values() for p in group}

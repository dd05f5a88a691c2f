"""The loss behind a gate's value: 0 where nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from optc import registry

#: The gate whose bounds order recipes by their exactness where a gate has no bounds of its own.
SCALE = "kl_mean"


def loss_of(gate: str, value: float | None) -> float | None:
    """The loss that a value of a gate stands for; None where it stands for none, as a speed does,
    or what depends on the text more than on the engine."""
    measure = registry.measures().get(gate)
    if measure is None or measure.ideal is None or value is None:
        return None
    if measure.ideal == 0:
        return value
    if not measure.upper:
        return 1 - value  # of a share
    return math.log(value) if value > 0 else -math.inf  # of a ratio


def losses_of(values: Mapping[str, float | None]) -> dict[str, float]:
    """The losses of all gates that have one."""
    found = {gate: loss_of(gate, value) for gate, value in values.items()}
    return {gate: loss for gate, loss in found.items() if loss is not None}

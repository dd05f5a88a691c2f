"""Figures that are no finite numbers: JSON has none, and no gate holds over one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: Of whose logits they are.
NOT_FINITE = "the {}'s logits are no finite numbers"
TOO_LARGE = "{} is no finite number"
VAST = "the perplexity is larger than any number"


def only_finite(value: Any) -> Any:
    """A value of dictionaries, lists and scalars with None for each float that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: only_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(only_finite(item) for item in value)
    return value


def perplexity(nll: float) -> float:
    """Of a mean negative log-likelihood in nats; infinity where no float holds it."""
    with np.errstate(over="ignore"):
        return float(np.exp(nll))


def place(losses: Sequence[npt.NDArray[np.float64]]) -> str:
    """The first row of losses [R] of texts that is no finite number; empty if all are."""
    for text, rows in enumerate(losses):
        wrong = np.flatnonzero(~np.isfinite(rows))
        if len(wrong):
            return f"position {wrong[0]} of window {text}"
    return ""


def perplexity_figures(losses: Sequence[npt.NDArray[np.float64]]) -> dict[str, Any]:
    """``perplexity`` of an engine's losses [R] in windows; None with the reason under
    ``not_measured`` where it is no finite number."""
    found = perplexity(float(np.concatenate(losses).mean()))
    if math.isfinite(found):
        return {"perplexity": found}
    where = place(losses)
    reason = f"{NOT_FINITE.format('engine')} at {where}" if where else VAST
    return {"perplexity": None, "not_measured": reason}

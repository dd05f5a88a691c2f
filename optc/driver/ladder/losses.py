"""The loss behind a gate's value: 0 where nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

#: The gate whose bounds order recipes by their exactness where a gate has no bounds of its own.
SCALE = "kl_mean"
#: Gates that measure speed, which says nothing about quality.
SPEED = frozenset({"prefill_speedup", "decode_speedup"})


def _itself(value: float) -> float:
    return value


def _missing(share: float) -> float:
    return 1 - share


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


#: The loss by gate. `perplexity` and `common_continuation` have none: their values depend on the
#: text more than on the engine.
_LOSSES: Mapping[str, Callable[[float], float]] = {
    "kl_mean": _itself,
    "kl_p99": _itself,
    "kl_max": _itself,
    "copy_nll_added": _itself,
    "top1_agreement": _missing,
    "top5_agreement": _missing,
    "perplexity_ratio": _log,
    "answer_kl_mean": _itself,
    "answer_kl_p99": _itself,
    "answer_top1_agreement": _missing,
    "decision_flips": _itself,
    "margin_factor": _missing,
}


def loss_of(gate: str, value: float | None) -> float | None:
    """The loss that a value of a gate stands for; None where it stands for none."""
    known = _LOSSES.get(gate)
    return None if known is None or value is None else known(value)


def losses_of(values: Mapping[str, float | None]) -> dict[str, float]:
    """The losses of all gates that have one."""
    found = {gate: loss_of(gate, value) for gate, value in values.items()}
    return {gate: loss for gate, loss in found.items() if loss is not None}

"""The rungs of a ladder: recipes with what is predicted of their engines, best first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Objective = Literal["decode", "prefill", "size", "memory"]
#: What the ladder can be ordered by.
OBJECTIVES: tuple[Objective, ...] = ("decode", "prefill", "size", "memory")
#: Predictions that differ by less say nothing about which engine is better.
_STEP = 1.02


@dataclass(frozen=True)
class Prediction:
    """The prediction for a recipe's engine of a model, before anything is built.

    Attributes:
        decode_tokens_per_s: Most tokens a second of one sequence; None where nothing is known.
        prefill_tokens_per_s: Most tokens a second of one prompt; None as above.
        artifact_bytes: Of the artifact; None as above.
        memory_bytes: Of weights, keys and values with one sequence of the whole context.
        weight_bytes: Of weights alone.
        compile_s: Seconds of a compile; 0 where nothing is known.
    """

    decode_tokens_per_s: float | None
    prefill_tokens_per_s: float | None
    artifact_bytes: int | None
    memory_bytes: int
    weight_bytes: int
    compile_s: float = 0.0


@dataclass(frozen=True)
class Rung:
    """A recipe that may be tried.

    Attributes:
        recipe: Its name.
        description: One line.
        prediction: Of its engine.
        promised: The losses that the recipe's own gates allow, by gate
            (`optc.compiling.ladder.losses`): how exact its author says that it is.
    """

    recipe: str
    description: str
    prediction: Prediction
    promised: Mapping[str, float] = field(default_factory=dict)

    def cost(self, objective: Objective) -> tuple[int, int]:
        """The quantity to minimize, in steps of `_STEP`. An engine of which only bytes of
        weights are known comes behind all others."""
        found = self.prediction
        amounts: Mapping[Objective, float | None] = {
            "decode": _inverse(found.decode_tokens_per_s),
            "prefill": _inverse(found.prefill_tokens_per_s),
            "size": found.artifact_bytes,
            "memory": found.memory_bytes,
        }
        amount = amounts[objective]
        return (1, _steps(found.weight_bytes)) if amount is None else (0, _steps(amount))

    def to_json(self) -> dict[str, Any]:
        """For reports."""
        return {
            "recipe": self.recipe,
            "description": self.description,
            "predicted": asdict(self.prediction),
            "promised": dict(self.promised),
        }


def ordered(rungs: Iterable[Rung], objective: Objective) -> tuple[Rung, ...]:
    """The rungs, the one that serves the objective best first. Of equal ones the one that is
    compiled in less time comes first, then the one that promises more."""
    return tuple(
        sorted(
            rungs,
            key=lambda one: (
                one.cost(objective),
                one.prediction.compile_s,
                min(one.promised.values(), default=math.inf),
                one.recipe,
            ),
        )
    )


def _steps(amount: float) -> int:
    return round(math.log(max(amount, 1e-12)) / math.log(_STEP))


def _inverse(pace: float | None) -> float | None:
    return None if pace is None or pace <= 0 else 1 / pace

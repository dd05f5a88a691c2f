"""`EngineHealth`: whether an engine can answer, as services and their probes ask."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

#: What becomes of an engine: it ``failed`` by an error, and is ``forked`` where another process has
#: its thread.
State = Literal["running", "closed", "failed", "forked"]


@dataclass(frozen=True)
class EngineHealth:
    """The state of an engine at a moment.

    Attributes:
        state: ``running`` takes requests; the others never do again.
        error: What ended it; empty where nothing did.
        running: Completions that are computed now.
        waiting: Completions in the queue now.
        places: How many more requests may wait, by ``max_waiting``; None is no bound.
        steps: Calls of the executable since the engine started.
        step_s: How long the present one has taken so far; 0 between two. One that takes minutes
            hangs.
        asleep: It holds no weights, by ``sleep_after``; the next request wakes it.
    """

    state: State
    error: str = ""
    running: int = 0
    waiting: int = 0
    places: int | None = None
    steps: int = 0
    step_s: float = 0.0
    asleep: bool = False

    @property
    def alive(self) -> bool:
        """It takes requests: a service whose engine does not should be started anew."""
        return self.state == "running"

    @property
    def ready(self) -> bool:
        """It takes requests now: one more may wait."""
        return self.alive and self.places != 0

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it, with ``alive`` and ``ready``."""
        return {**asdict(self), "alive": self.alive, "ready": self.ready}

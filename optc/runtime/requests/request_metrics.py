"""`RequestMetrics`: when things happened to one completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass
class RequestMetrics:
    """When things happened to one completion.

    Attributes:
        arrived_s: The engine took the request.
        scheduled_s: Its first row was computed; None before.
        token_times_s: When each output token was drawn.
        finished_s: It ended; None before.
        preemptions: How often its KV blocks were taken and had to be computed again.
        drafted_tokens: Tokens that were drafted for it and verified.
        accepted_tokens: Those of them that the model drew too.
        forced_tokens: Output that its grammar determined, so that it was not drawn.
        cached_tokens: Tokens that the prefix cache saved it, after preemptions too.
    """

    arrived_s: float
    scheduled_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)
    finished_s: float | None = None
    preemptions: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    forced_tokens: int = 0
    cached_tokens: int = 0

    @property
    def queue_s(self) -> float | None:
        """Time until its first row was computed."""
        return None if self.scheduled_s is None else self.scheduled_s - self.arrived_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; None if there is none."""
        return self.token_times_s[0] - self.arrived_s if self.token_times_s else None

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None below two tokens."""
        times = self.token_times_s
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Inter-token latencies, one fewer than tokens."""
        times = self.token_times_s
        return tuple(b - a for a, b in pairwise(times))

    @property
    def e2e_s(self) -> float | None:
        """From arrival to the end."""
        return None if self.finished_s is None else self.finished_s - self.arrived_s

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it: latencies in milliseconds (``itl_ms`` is a list) and the counters;
        null is what has not happened."""
        names = ("queue", "ttft", "tpot", "e2e")
        counters = ("preemptions", "drafted_tokens", "accepted_tokens")
        more = ("forced_tokens", "cached_tokens")
        return {
            **{f"{name}_ms": _milliseconds(getattr(self, f"{name}_s")) for name in names},
            "itl_ms": [seconds * 1e3 for seconds in self.itl_s],
            **{name: getattr(self, name) for name in (*counters, *more)},
        }

    def __repr__(self) -> str:
        named = {"queue": self.queue_s, "TTFT": self.ttft_s, "TPOT": self.tpot_s}
        known = [f"{name} {1e3 * s:.3g} ms" for name, s in named.items() if s is not None]
        return f"<optc.RequestMetrics {', '.join([f'{len(self.token_times_s)} tokens', *known])}>"


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3

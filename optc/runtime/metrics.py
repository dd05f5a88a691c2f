"""Latencies of requests and counters of the engine. Times are seconds of a monotonic clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class RequestMetrics:
    """When things happened to one completion.

    Attributes:
        arrived_s: The engine took the request.
        scheduled_s: Its first row was computed; None before.
        token_times_s: When each output token was drawn.
        finished_s: It ended; None before.
        preemptions: How often its KV blocks were taken and had to be computed again.
    """

    arrived_s: float
    scheduled_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)
    finished_s: float | None = None
    preemptions: int = 0

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


@dataclass
class EngineMetrics:
    """Counters since the engine started, and what it holds now.

    Attributes:
        steps: Calls of the executable.
        step_s: Time inside the executable.
        prompt_tokens: Rows computed for tokens of prompts, recomputed ones included.
        output_tokens: Tokens drawn.
        preemptions: Requests whose blocks were taken.
        finished: Completions by finish reason.
        running: Completions that hold KV blocks now.
        waiting: Completions in the queue now.
        free_blocks: Free KV blocks by group now.
        total_blocks: All KV blocks by group.
    """

    steps: int = 0
    step_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    running: int = 0
    waiting: int = 0
    free_blocks: tuple[int, ...] = ()
    total_blocks: tuple[int, ...] = ()

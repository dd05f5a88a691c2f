"""`StreamTimes`: times of a streamed answer, as its client sees them."""

from __future__ import annotations

from dataclasses import dataclass

from optc.runtime.requests.request_metrics import RequestMetrics


@dataclass
class StreamTimes(RequestMetrics):
    """Times of one answer. ``token_times_s`` are those of its chunks, which may hold several
    tokens: ``itl_s`` are the gaps between chunks.

    Attributes:
        tokens: Of the answer.
    """

    tokens: int = 0

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None for a single chunk or token."""
        times = self.token_times_s
        if self.tokens < 2 or len(times) < 2:
            return None
        return (times[-1] - times[0]) / (self.tokens - 1)

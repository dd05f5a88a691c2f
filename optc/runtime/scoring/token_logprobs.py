"""`TokenLogprobs`: log-probabilities at one position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities (natural) at one position of the output.

    Attributes:
        token_id: The token that was drawn.
        logprob: Its log-probability under the model's own distribution.
        top: The likeliest tokens with theirs, likeliest first, as many as were asked for.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        top = [{"token_id": token, "logprob": logprob} for token, logprob in self.top]
        return {"token_id": self.token_id, "logprob": self.logprob, "top": top}

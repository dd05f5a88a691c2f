"""`PromptLogprobs`: how likely a model finds the tokens of a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import Int32
from optc.runtime.scoring.token_logprobs import TokenLogprobs

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PromptTokenLogprobs(TokenLogprobs):
    """Log-probabilities (natural) at one position of a prompt; ``token_id`` is the prompt's token.

    Attributes:
        rank: 1 and how many tokens are likelier than this one.
    """

    rank: int = 1

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**super().to_json(), "rank": self.rank}


class PromptLogprobs(Sequence[PromptTokenLogprobs | None]):
    """An entry for each token of a prompt; None for the first one, which nothing comes before, and
    for those whose log-probabilities were not asked for.

    Kept as arrays: entries are made when they are asked for, so that a long prompt takes 12 bytes
    for each of its likeliest tokens.

    Args:
        token_ids: [n] the prompt.
        first: The first token that has an entry, at least 1; m = n - first have one.
        logprobs: [m] of the prompt's tokens.
        ranks: [m] theirs.
        best: [m] the likeliest token at each position, the lowest id among equals.
        top_ids: [m, k] the likeliest tokens, likeliest first.
        top_logprobs: [m, k] theirs.
    """

    def __init__(
        self,
        token_ids: Int32,
        first: int,
        logprobs: Float64,
        ranks: Int32,
        best: Int32,
        top_ids: Int32,
        top_logprobs: Float64,
    ) -> None:
        self.token_ids = token_ids
        self.first = first
        self.logprobs = logprobs
        self.ranks = ranks
        self.best = best
        self.top_ids = top_ids
        self.top_logprobs = top_logprobs

    @property
    def total(self) -> float:
        """Log-probability of all tokens that have an entry, together."""
        return math.fsum(self.logprobs.tolist())

    @property
    def is_greedy(self) -> bool:
        """Each of them is the one that greedy decoding would have chosen behind those before."""
        return bool((self.best == self.token_ids[self.first :]).all())

    def to_json(self) -> list[dict[str, Any] | None]:
        """As JSON takes it."""
        return [None if entry is None else entry.to_json() for entry in self]

    def __len__(self) -> int:
        return len(self.token_ids)

    @overload
    def __getitem__(self, index: int) -> PromptTokenLogprobs | None: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[PromptTokenLogprobs | None, ...]: ...

    def __getitem__(
        self, index: int | slice
    ) -> PromptTokenLogprobs | tuple[PromptTokenLogprobs | None, ...] | None:
        places = range(len(self))[index]
        return self._entry(places) if isinstance(places, int) else tuple(map(self._entry, places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PromptLogprobs) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.token_ids.tobytes(), self.first))

    def __repr__(self) -> str:
        scored = len(self.logprobs)
        return f"<optc.PromptLogprobs of {scored} of {len(self)} tokens, {self.total:.4g} together>"

    def _entry(self, place: int) -> PromptTokenLogprobs | None:
        at = place - self.first
        if at < 0:
            return None
        top = zip(self.top_ids[at].tolist(), self.top_logprobs[at].tolist(), strict=True)
        return PromptTokenLogprobs(
            self.token_ids.item(place), self.logprobs.item(at), tuple(top), self.ranks.item(at)
        )

"""Places of requests in the pools of a decoder that attends to an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from optc.errors import RequestError
from optc.runtime.executable.executable import Int32, StepInterface
from optc.runtime.executable.kv_layout import block_size_for

#: Tokens of a block, about.
_BLOCK = 64


@dataclass
class Places:
    """Blocks of as many requests as run at once, in both KV groups: tokens, and an encoder's
    states. Every request has room for the most that it may have, so that none waits for another.

    Attributes:
        block_size: Tokens of a block.
        most_tokens: Of a request.
        most_states: Of an encoder, of a request.
        most_rows: Of a step.
        most_logits: Rows of a step with logits.
        own: Blocks of a request's tokens.
        encoded: Blocks of its states.
        count: Requests at once.
        free: Places that no request has.
    """

    block_size: int
    most_tokens: int
    most_states: int
    most_rows: int
    most_logits: int
    own: int
    encoded: int
    count: int
    free: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, spec: StepInterface) -> Places:
        """Places for an engine's limits; pages of pools that nothing was written to take no
        memory."""
        size = block_size_for(spec, spec.max_context, _BLOCK)
        count = min(spec.max_sequences, spec.max_rows, spec.max_logit_rows)
        own, encoded = (-(-most // size) for most in (spec.max_context, spec.encoded))
        free = list(range(count - 1, -1, -1))
        limits = (spec.max_context, spec.encoded, spec.max_rows, spec.max_logit_rows)
        return cls(size, *limits, own, encoded, count, free)

    @property
    def blocks(self) -> tuple[int, int]:
        """Of each group."""
        return self.own * self.count, self.encoded * self.count

    def check(self, states: int, tokens: int) -> None:
        """Check the sizes of a request that is to begin.

        Raises:
            RequestError: It has no states or no tokens, or too many.
        """
        for what, count, most in (
            ("states of an encoder", states, self.most_states),
            ("tokens", tokens, self.most_tokens),
        ):
            if not 0 < count <= most:
                raise RequestError(
                    f"there are {count} {what}, and {most} are the most", where="decoder"
                )

    def slots(self, place: int, tokens: Int32) -> Int32:
        """The slots of a request's tokens [n]."""
        found: Int32 = (place * self.own * self.block_size + tokens).astype(np.int32)
        return found

    def encoded_slots(self, place: int, states: int) -> Int32:
        """The slots of the first states of a request."""
        first = place * self.encoded * self.block_size
        return np.arange(first, first + states, dtype=np.int32)

    def tables(self, places: Sequence[int]) -> Int32:
        """Block tables of some requests [2, B, P]."""
        width = max(self.own, self.encoded)
        found = np.full((2, len(places), width), -1, np.int32)
        first = np.array(places, np.int32)[:, None]
        found[0, :, : self.own] = first * self.own + np.arange(self.own)
        found[1, :, : self.encoded] = first * self.encoded + np.arange(self.encoded)
        return found

    def chosen(self, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The requests of a step, each with its rows: those that want fewest rows go first.

        Args:
            wanted: Of each request, rows, and from which of them on it wants logits.
        """
        rows, logits = self.most_rows, self.most_logits
        found = []
        for at in sorted(range(len(wanted)), key=lambda at: wanted[at][0]):
            count, heard = wanted[at]
            count = min(count, rows, heard + logits)
            if count:
                found.append((at, count))
                rows -= count
                logits -= max(0, count - heard)
        return found

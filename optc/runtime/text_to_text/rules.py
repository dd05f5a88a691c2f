"""Rules of the tokens that a text may go on with: those of transformers' greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.text_to_text.conventions import TextConventions

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rules:
    """Rules for the texts of one call.

    Attributes:
        known: Conventions of the model.
        start: Token before all others.
        first: Token that has to come first; None leaves it free.
        most: Tokens of a text, an end among them.
    """

    known: TextConventions
    start: int
    first: int | None
    most: int

    def next_token(self, logits: Float32, said: Sequence[int]) -> int:
        """The token behind ``said``.

        Args:
            logits: f32[V]; stays as it is.
            said: Tokens of the text so far, without the start.
        """
        if not said and self.first is not None:
            return self.first
        if len(said) == self.most - 1 and self.known.last is not None:
            return self.known.last
        own = logits.copy()
        self._penalize(own, [self.start, *said])
        if len(said) + 1 < self.known.least_length or len(said) < self.known.least_tokens:
            own[list(self.known.ends)] = -np.inf
        own[list(self.known.suppressed)] = -np.inf
        if len(said) == (0 if self.first is None else 1):
            own[list(self.known.suppressed_first)] = -np.inf
        return int(own.argmax())

    def ended(self, said: Sequence[int]) -> bool:
        """True if the latest token ends the text."""
        return bool(said) and said[-1] in self.known.ends

    def _penalize(self, logits: Float32, read: Sequence[int]) -> None:
        if self.known.repetition_penalty != 1:
            seen = list(set(read))
            own, by = logits[seen], np.float32(self.known.repetition_penalty)
            logits[seen] = np.where(own < 0, own * by, own / by)
        run = self.known.no_repeat
        if not 0 < run <= len(read):
            return
        latest = read[len(read) - run + 1 :]
        for at in range(len(read) - run + 1):
            if list(read[at : at + run - 1]) == list(latest):
                logits[read[at + run - 1]] = -np.inf

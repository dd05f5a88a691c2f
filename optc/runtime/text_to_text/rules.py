"""Rules of the tokens that a text may go on with: those of transformers' greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from optc.runtime.requests.ruled import Ruled
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

    @property
    def any(self) -> bool:
        """Some token may be forbidden or forced, behind the first."""
        known = self.known
        least = max(known.least_length - 1, known.least_tokens)
        return bool(
            known.suppressed
            or known.suppressed_first
            or known.no_repeat
            or known.last is not None
            or (least > 0 and known.ends)
        )

    def after(self, tokens: Sequence[int]) -> Ruled:
        """The tokens that may follow the start and a text; but for `first`.

        Args:
            tokens: The start and the text so far.
        """
        known, said = self.known, len(tokens) - 1
        if said == self.most - 1 and known.last is not None:
            return Ruled(known.last)
        never = [*known.suppressed, *self._repeated(tokens)]
        if said + 1 < known.least_length or said < known.least_tokens:
            never += known.ends
        if said == (0 if self.first is None else 1):
            never += known.suppressed_first
        return Ruled(None, never)

    def next_token(self, logits: Float32, said: Sequence[int]) -> int:
        """The token behind ``said``.

        Args:
            logits: f32[V]; stays as it is.
            said: Tokens of the text so far, without the start.
        """
        if not said and self.first is not None:
            return self.first
        read = [self.start, *said]
        ruled = self.after(read)
        if ruled.only is not None:
            return ruled.only
        own = logits.copy()
        if self.known.repetition_penalty != 1:
            seen = list(set(read))
            found, by = own[seen], np.float32(self.known.repetition_penalty)
            own[seen] = np.where(found < 0, found * by, found / by)
        own[list(ruled.never)] = -np.inf
        return int(own.argmax())

    def ended(self, said: Sequence[int]) -> bool:
        """True if the latest token ends the text."""
        return bool(said) and said[-1] in self.known.ends

    def _repeated(self, read: Sequence[int]) -> list[int]:
        """Tokens that would write a run of `TextConventions.no_repeat` tokens again."""
        run = self.known.no_repeat
        if not 0 < run <= len(read):
            return []
        tokens = np.asarray(read)
        before = sliding_window_view(tokens, run)
        again = (before[:, :-1] == tokens[len(tokens) - run + 1 :]).all(axis=1)
        repeated: list[int] = before[again, -1].tolist()
        return repeated

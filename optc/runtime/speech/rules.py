"""Rules of a transcript's tokens (Radford et al., 2022, arXiv:2212.04356, section 2.3 and 4.5)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.audio.conventions import Conventions
from optc.runtime.requests.ruled import Ruled, leave, weigh

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
#: Behind all tokens.
_ALL = sys.maxsize


def log_softmax(logits: Float32 | Float64) -> Float64:
    """Logarithms of probabilities over the last axis, in float64."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    found: Float64 = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


@dataclass(frozen=True)
class SpeechRules:
    """Rules for one transcript.

    Attributes:
        known: Conventions of the model.
        prompt: How many tokens come before the transcript.
        timestamps: Whether times are written: they come in pairs, do not fall, and one comes where
            times together are likelier than any other token.
    """

    known: Conventions
    prompt: int
    timestamps: bool

    def after(self, tokens: Sequence[int]) -> Ruled:
        """The tokens that may follow the prompt and the transcript so far, times among them."""
        known, said = self.known, tokens[self.prompt :]
        never = [*known.suppressed, *(() if said else known.suppressed_first)]
        if not self.timestamps or (first := known.first_time) is None:
            return Ruled(never=never)
        never.append(first - 1)  # the token that asks for no times
        return Ruled(never=never, spans=self._spans(said, first), outweigh=first)

    def _spans(self, said: Sequence[int], first: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        timed = [token >= first for token in said[-2:]]
        begins = timed[-1:] == [True] and timed[:1] == [False]
        if timed and timed[-1]:
            # behind the end of a span the next one begins, or the transcript ends; behind the
            # beginning of one text has to follow
            found.append((0, self.known.end) if begins else (first, _ALL))
        times = [token for token in said if token >= first]
        if times:
            found.append((first, times[-1] + (0 if begins else 1)))
        if not said:
            found.append((0, first))
            if self.known.most_first_time is not None:
                found.append((first + self.known.most_first_time + 1, _ALL))
        return found


@dataclass(frozen=True)
class LanguageRules:
    """Nothing but a language may follow."""

    known: Conventions

    def after(self, tokens: Sequence[int]) -> Ruled:
        """The languages' tokens, whatever came before."""
        some = sorted(self.known.languages.values())
        ends = [*some, _ALL]
        return Ruled(spans=list(zip([0, *(one + 1 for one in some)], ends, strict=True)))


def forbid(logits: Float32, ruled: Ruled) -> None:
    """Set the logits f32[V] of tokens that may not come next to -inf, in place."""
    allowed = np.ones(len(logits), np.bool_)
    leave(allowed, ruled)
    weigh(allowed, ruled, logits)
    logits[~allowed] = -np.inf

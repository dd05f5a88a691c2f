"""Rules of a transcript's tokens (Radford et al., 2022, arXiv:2212.04356, section 2.3 and 4.5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from optc.runtime.audio.conventions import Conventions

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


def log_softmax(logits: Float32 | Float64) -> Float64:
    """Logarithms of probabilities over the last axis, in float64."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    found: Float64 = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def forbid(
    logits: Float32, said: Sequence[int], conventions: Conventions, *, timestamps: bool
) -> None:
    """Set the logits f32[V] of tokens that may not come next to -inf, in place.

    Args:
        logits: Behind the prompt and ``said``.
        said: Tokens of the transcript so far, times among them.
        conventions: Of the model.
        timestamps: Whether times are written: they come in pairs, do not fall, and one comes where
            times together are likelier than any other token.
    """
    logits[list(conventions.suppressed)] = -np.inf
    if not said:
        logits[list(conventions.suppressed_first)] = -np.inf
    if timestamps and conventions.first_time is not None:
        _forbid_times(logits, said, conventions, conventions.first_time)


def _forbid_times(
    logits: Float32, said: Sequence[int], conventions: Conventions, first: int
) -> None:
    logits[conventions.no_timestamps] = -np.inf
    timed = [token >= first for token in said[-2:]]
    if timed and timed[-1]:
        if len(timed) == 1 or timed[-2]:  # a span begins: text has to follow
            logits[first:] = -np.inf
        else:  # one ends: the next begins, or the transcript ends
            logits[: conventions.end] = -np.inf
    times = [token for token in said if token >= first]
    if times:
        begins = timed[-1] and len(timed) > 1 and not timed[-2]
        logits[first : times[-1] + (0 if begins else 1)] = -np.inf
    if not said:
        logits[:first] = -np.inf
        if conventions.most_first_time is not None:
            logits[first + conventions.most_first_time + 1 :] = -np.inf
    if not np.isfinite(logits[first:]).any():
        return
    chances = log_softmax(logits)
    if np.logaddexp.reduce(chances[first:]) > chances[:first].max():
        logits[:first] = -np.inf

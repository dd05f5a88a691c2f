"""Rules of requests to a decoder that attends to an encoder: states of a step, and its masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optc.runtime.executable.executable import StepBatch
from optc.runtime.requests.request import Request
from optc.runtime.requests.ruled import Bools, Float32, leave, weigh
from optc.runtime.sampling.sampler import Mask, unpacked
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.logit_rows import LogitRows

_BITS = 32
_ALL = 0xFFFFFFFF


def with_states(batch: StepBatch, chunks: Sequence[Chunk[Request]]) -> StepBatch:
    """The batch over ``chunks`` with what each request attends to, if they attend to an encoder."""
    states = tuple(one for chunk in chunks if (one := chunk.request.states) is not None)
    return replace(batch, encoded=states) if len(states) == len(chunks) else batch


def with_rules(masks: Mask | None, draws: Sequence[LogitRows], logits: Float32) -> Mask | None:
    """Masks [rows, ceil(V / 32)] with what requests' rules forbid; None where all is allowed.

    Args:
        masks: Of other constraints; they are changed.
        draws: Where the requests' rows are. Beams look at their rules themselves.
        logits: [rows, V] of the step.
    """
    rows, size = logits.shape
    for draw in draws:
        rules = draw.request.rules
        if rules is None or draw.request.is_beam:
            continue
        known = draw.request.tokens.tolist()
        for at, path in zip(draw.at, _paths(draw), strict=True):
            ruled = rules.after(known + path)
            if masks is None:
                masks = np.full((rows, -(-size // _BITS)), _ALL, np.uint32)
            allowed = unpacked(masks[at], size)
            leave(allowed, ruled)
            weigh(allowed, ruled, logits[at])
            masks[at] = _packed(allowed)
    return masks


def _paths(draw: LogitRows) -> list[list[int]]:
    """The drafts that lead to each of a request's rows."""
    drafts = draw.drafts.tolist()
    paths: list[list[int]] = [[]]
    for index, token in enumerate(drafts):
        parent = index - 1 if draw.parents is None else draw.parents[index]
        paths.append([*paths[parent + 1], token])
    return paths


def _packed(allowed: Bools) -> Mask:
    """A row of words: bits of tokens [V], zeros behind them."""
    bits = np.zeros(-(-len(allowed) // _BITS) * _BITS, np.bool_)
    bits[: len(allowed)] = allowed
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)

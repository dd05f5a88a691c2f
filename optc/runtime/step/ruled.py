"""Rules of requests to a decoder that attends to an encoder: states of a step, and its masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optc.runtime.executable.executable import StepBatch
from optc.runtime.requests.encoded_request import Ruled
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sampler import Mask
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.logit_rows import LogitRows

_BITS = 32
_ALL = 0xFFFFFFFF


def with_states(batch: StepBatch, chunks: Sequence[Chunk[Request]]) -> StepBatch:
    """The batch over ``chunks`` with what each request attends to, if they attend to an encoder."""
    states = tuple(one for chunk in chunks if (one := chunk.request.states) is not None)
    return replace(batch, encoded=states) if len(states) == len(chunks) else batch


def with_rules(
    masks: Mask | None, draws: Sequence[LogitRows], rows: int, vocab_size: int
) -> Mask | None:
    """Masks [rows, ceil(V / 32)] with what requests' rules forbid; None where all is allowed.

    Args:
        masks: Of other constraints; they are changed.
        draws: Where the requests' rows are. Beams look at their rules themselves.
        rows: Of the step's logits.
        vocab_size: V.
    """
    for draw in draws:
        rules = draw.request.rules
        if rules is None or draw.request.is_beam:
            continue
        known = draw.request.tokens.tolist()
        for at, path in zip(draw.at, _paths(draw), strict=True):
            ruled = rules.after(known + path)
            if ruled.only is None and not ruled.never:
                continue
            if masks is None:
                masks = np.full((rows, -(-vocab_size // _BITS)), _ALL, np.uint32)
            _forbid(masks[at], ruled)
    return masks


def _paths(draw: LogitRows) -> list[list[int]]:
    """The drafts that lead to each of a request's rows."""
    drafts = draw.drafts.tolist()
    paths: list[list[int]] = [[]]
    for index, token in enumerate(drafts):
        parent = index - 1 if draw.parents is None else draw.parents[index]
        paths.append([*paths[parent + 1], token])
    return paths


def _forbid(mask: Mask, ruled: Ruled) -> None:
    """Take from a row of words what is forbidden. A token that alone may follow, and that another
    constraint forbids, is none."""
    for token in ruled.never:
        mask[token // _BITS] &= np.uint32(_ALL ^ (1 << token % _BITS))
    if ruled.only is not None:
        word, bit = ruled.only // _BITS, np.uint32(1 << ruled.only % _BITS)
        if mask[word] & bit:
            mask[:] = 0
            mask[word] = bit

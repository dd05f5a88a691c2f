"""The effect of constraints on a step's requests: masks of all rows in one array, and drafts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from optc.runtime.executable.executable import StepInterface
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sampler import Mask
from optc.runtime.structured.constraint import Constraint


class Constrained(NamedTuple):
    """The rows of logits of one request that has a constraint.

    Attributes:
        constraint: The request's.
        first: Its first row; one for each draft follows.
        drafts: [k] tokens that the rows after the first follow.
        parents: [k] draft that each one follows, an earlier one, or -1; None is a chain.
    """

    constraint: Constraint
    first: int
    drafts: Sequence[int]
    parents: Sequence[int] | None


def fill_masks(requests: Sequence[Constrained], rows: int, spec: StepInterface) -> Mask | None:
    """Masks [rows, ceil(V / 32)] of a step's rows of logits; None if no request has a constraint.

    Rows of other requests allow everything. One row after the other: for eight rows of any
    size a pool of threads takes longer (docs/adr/0020-masks-are-filled-by-the-engine-thread.md).
    """
    if not requests:
        return None
    masks = np.full((rows, requests[0].constraint.mask_words), 0xFFFFFFFF, np.uint32)
    for constraint, first, drafts, parents in requests:
        constraint.fill(masks[first : first + 1 + len(drafts)], drafts, parents)
    return np.ascontiguousarray(masks[:, : -(-spec.vocab_size // 32)])


def prune_drafts(requests: Iterable[Request]) -> None:
    """Take drafts back that the grammars of their requests forbid: they cannot be accepted."""
    for request in requests:
        if request.constraint is not None and request.num_drafted:
            drafts = request.path[request.num_tokens :].tolist()
            request.draft(*request.constraint.prune(drafts, request.draft_parents))

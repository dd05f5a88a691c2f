"""`DraftedText`: one request as a draft model sees it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sampler import Row, Sampled


class DraftedText:
    """The verified tokens of a request, the drafts behind them, and how far the draft model is.

    ``num_computed`` verified tokens have their keys and values; those of ``written`` tokens, the
    drafts among them that are not verified yet, lie in the draft's KV pool. ``chance`` is how
    likely the draft model finds all drafts together, where that tells how often they hold: with a
    grammar or at a temperature it does not, since both models draw with the same masks and noise,
    and it is 1.

    Args:
        request: The target's; its tokens are only read.
        tables: Block tables in the pools that the draft uses.
    """

    def __init__(self, request: Request, tables: BlockTables) -> None:
        self.id = request.id
        self.leader_id = request.leader_id
        self.salt = request.salt
        self.tables = tables
        self.num_prompt = request.num_prompt
        self.draft_parents: None = None  # a chain
        self.num_computed = 0
        self.num_tokens = 0
        self.num_drafted = 0
        self.chance = 1.0
        self.written = 0
        self.request = request
        judges = request.params.greedy and request.constraint is None
        self._params = replace(request.params, logprobs=0 if judges else None)
        self._tokens = np.empty(request.max_length, np.int32)

    @property
    def num_pending(self) -> int:
        """Verified tokens that are not computed yet, before the first draft."""
        return self.num_tokens - self.num_computed

    @property
    def num_verified(self) -> int:
        """Tokens that are no drafts."""
        return self.num_tokens - self.num_drafted

    @property
    def tokens(self) -> Int32:
        """[num_tokens] verified tokens and drafts; a view."""
        return self._tokens[: self.num_tokens]

    @property
    def path(self) -> Int32:
        """The same, as a step reads it."""
        return self.tokens

    def drafts(self) -> list[int]:
        """The drafts since the last `resume`."""
        drafts: list[int] = self.tokens[self.num_tokens - self.num_drafted :].tolist()
        return drafts

    def resume(self) -> None:
        """Take the tokens that were verified meanwhile; drafts that they confirm stay computed."""
        verified = self.request.tokens
        start, stop = self.num_computed, min(self.written, len(verified) - 1)
        wrong = np.flatnonzero(self._tokens[start:stop] != verified[start:stop])
        self.num_computed = self.written = int(start + wrong[0]) if len(wrong) else max(start, stop)
        self._tokens[start : len(verified)] = verified[start:]
        self.num_tokens = len(verified)
        self.num_drafted = 0
        self.chance = 1.0

    def resume_from(self, computed: int) -> None:
        """Go on behind ``computed`` tokens: those of a cached prefix, 0 where blocks were taken."""
        self.num_computed = self.written = computed

    def wrote(self, length: int) -> None:
        """Take note that ``length`` tokens are computed."""
        self.written = length
        self.num_computed = min(self.written, self.num_verified)

    def draft(self, drawn: Sampled) -> None:
        """Add a draft."""
        self._tokens[self.num_tokens] = drawn.token
        if drawn.logprobs is not None:
            self.chance *= math.exp(drawn.logprobs.logprob)
        self.num_tokens += 1
        self.num_drafted += 1

    def row(self) -> Row:
        """The sampler's row for drawing the next token as the target will, grammar included."""
        request = self.request
        constraint = request.constraint
        mask = None if constraint is None else constraint.mask_after(self.drafts())
        return Row(self._params, request.seed, request.index, self.tokens, self.num_prompt, mask)
